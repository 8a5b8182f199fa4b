//! Several texts of one prompt, written at the same time and shown one after the other.

use super::interrupt;
use super::write::{Writer, decode, finish_name};
use crate::failure::Failure;
use crate::terminal::{say, seen, visible_json};
use hearken::infer::generate::{Finish, Flow, generate_several};
use hearken::infer::sampler::Sampling;
use hearken::infer::stream::TextStream;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Instant;

impl<W: Write> Writer<'_, W> {
    /// As many texts as were asked for.
    pub(super) fn samples(
        &mut self,
        ids: Vec<u32>,
        sampling: Sampling,
        turn: u64,
    ) -> Result<(), Failure> {
        let job = self.job;
        let tokenizer = job.tokenizer.as_ref();
        let request = job.request(ids, sampling, turn);
        let stream = || {
            tokenizer.map(|tokenizer| {
                TextStream::new(|ids: &[u32]| decode(tokenizer, ids), job.stops.clone())
            })
        };
        let mut streams: Vec<_> = (0..job.samples).map(|_| (stream(), String::new())).collect();
        let start = Instant::now();
        let found =
            generate_several(job.model.generates()?, &request, job.samples, |number, step| {
                let (stream, text) = &mut streams[number];
                let piece = match stream {
                    Some(stream) => stream.push(step.id),
                    None if text.is_empty() => step.id.to_string(),
                    None => format!(",{}", step.id),
                };
                text.push_str(&piece);
                let stopped = stream.as_ref().is_some_and(TextStream::stopped);
                if stopped || interrupt::stopped() { Flow::Stop } else { Flow::Continue }
            })?;
        let seconds = start.elapsed().as_secs_f64();
        let wrote: usize = found.iter().map(|(new, _)| new.len()).sum();
        let speed = wrote as f64 / seconds.max(1e-9);
        let seed = |number: usize| request.sampling.seed.wrapping_add(number as u64);
        let mut samples = Vec::new();
        for (number, ((new, finish), (stream, mut text))) in
            found.into_iter().zip(streams).enumerate()
        {
            text.push_str(&stream.map_or(String::new(), |mut stream| stream.finish()));
            if self.form.is_json() {
                samples.push(sample_json(
                    seed(number),
                    &new,
                    tokenizer.map(|_| text.as_str()),
                    finish,
                ));
            } else {
                let heading = format!("── seed {} ──", seed(number));
                let text = seen(&text, self.on_terminal);
                writeln!(self.out, "{}\n{text}", self.terminal.bold(&heading))?;
            }
        }
        if self.form.is_json() {
            let mut object = json!({
                "model": job.model.directory,
                "prompt_ids": request.prompt,
                "seconds": seconds,
                "tokens_per_second": speed,
            });
            if let Some(first) = samples.first() {
                for key in ["seed", "ids", "text", "finish"] {
                    object[key] = first[key].clone();
                }
            }
            object["samples"] = Value::Array(samples);
            writeln!(self.out, "{}", visible_json(&format!("{object:#}")))?;
        }
        if self.verbose {
            say!(
                "{} texts, {wrote} tokens in {seconds:.3} s ({speed:.0}/s); seeds from {}",
                job.samples,
                request.sampling.seed
            );
        }
        Ok(())
    }
}

fn sample_json(seed: u64, ids: &[u32], text: Option<&str>, finish: Finish) -> Value {
    json!({ "seed": seed, "ids": ids, "text": text, "finish": finish_name(finish) })
}
