//! Writing a text: streamed, as a table of probabilities, or as JSON.

use super::prompt::Prompt;
use super::{Decoding, Job, interrupt};
use crate::failure::Failure;
use crate::terminal::{Terminal, say, seen, visible, visible_json};
use hearken::data::tokenizer::Tokenizer;
use hearken::infer::beam::Found;
use hearken::infer::contrastive::contrastive_search;
use hearken::infer::generate::{Finish, Flow, Request, Step, beam_search, generate, left_out};
use hearken::infer::sampler::{Candidate, Sampling};
use hearken::infer::speculative::{Acceptance, Draft, generate_with_draft};
use hearken::infer::stream::TextStream;
use hearken::nn::cache::CacheKind;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::Instant;

/// How many candidates are shown.
const SHOWN: usize = 5;

/// Where texts go.
pub(super) struct Writer<'a, W> {
    pub(super) job: &'a Job,
    pub(super) out: W,
    pub(super) terminal: Terminal,
    pub(super) on_terminal: bool,
    pub(super) form: Form,
    pub(super) verbose: bool,
}

/// How a text is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As it comes.
    Text,
    /// A line per token, with probabilities.
    Lines,
    /// One object at the end, with the probabilities of each token or without.
    Json { steps: bool },
}

impl Form {
    pub(super) fn new(json: bool, probabilities: bool) -> Self {
        match (json, probabilities) {
            (true, steps) => Self::Json { steps },
            (false, true) => Self::Lines,
            (false, false) => Self::Text,
        }
    }

    pub(super) fn is_json(self) -> bool {
        matches!(self, Self::Json { .. })
    }
}

/// The text of tokens; what the tokenizer does not know is left out.
pub(super) fn decode(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    tokenizer.decode_known(ids)
}

/// A token for the eye: special ones by name.
fn name(tokenizer: Option<&Tokenizer>, id: u32) -> Option<String> {
    let tokenizer = tokenizer?;
    if tokenizer.is_special(id) { tokenizer.token(id) } else { Some(decode(tokenizer, &[id])) }
}

impl<W: Write> Writer<'_, W> {
    /// Continues `prompt`, the `turn`-th.
    pub(super) fn write(&mut self, prompt: &Prompt, turn: u64) -> Result<(), Failure> {
        let ids = prompt.ids(self.job)?;
        if let Some(note) = prompt.note(self.job) {
            say!("note: {note}");
        }
        let model = self.job.model.generates()?;
        if model.recomputes() {
            say!("note: this model reads its whole text again for every token (lsh attention)");
        }
        let lost = left_out(model, &ids);
        if lost > 0 {
            say!(
                "the prompt has {} tokens and the model reads {}: the first {lost} are left out",
                ids.len(),
                model.context()
            );
        }
        match self.job.decoding {
            Decoding::Sample(sampling) if self.job.samples > 1 => self.samples(ids, sampling, turn),
            Decoding::Sample(sampling) => self.sample(prompt, ids, sampling, turn),
            Decoding::Contrast(_) => self.sample(prompt, ids, Sampling::greedy(), turn),
            Decoding::Search { beams, length_penalty } => self.search(&ids, beams, length_penalty),
        }
    }

    fn sample(
        &mut self,
        prompt: &Prompt,
        ids: Vec<u32>,
        sampling: Sampling,
        turn: u64,
    ) -> Result<(), Failure> {
        let job = self.job;
        let tokenizer = job.tokenizer.as_ref();
        let request = job.request(ids, sampling, turn);
        let plain = self.form == Form::Text;
        let with_steps = self.form == Form::Json { steps: true };
        if let (true, true, Prompt::Text(text)) = (plain, self.on_terminal, prompt) {
            write!(self.out, "{}", self.terminal.bold(&visible(text)))?;
            self.out.flush()?;
        }
        let mut stream = tokenizer.map(|tokenizer| {
            TextStream::new(|ids: &[u32]| decode(tokenizer, ids), job.stops.clone())
        });
        let (mut text, mut steps, mut count) = (String::new(), Vec::new(), 0);
        let mut trouble: Option<io::Error> = None;
        let start = Instant::now();
        let mut first = None;
        let (new, finish, drafts) = job.run(&request, |step| {
            first.get_or_insert_with(|| start.elapsed());
            let piece = match &mut stream {
                Some(stream) => stream.push(step.id),
                None if count == 0 => step.id.to_string(),
                None => format!(",{}", step.id),
            };
            count += 1;
            let written = match self.form {
                Form::Text => {
                    let piece = seen(&piece, self.on_terminal);
                    write!(self.out, "{piece}").and_then(|()| self.out.flush())
                }
                Form::Lines => self.write_step(tokenizer, step),
                Form::Json { .. } => Ok(()),
            };
            text.push_str(&piece);
            if with_steps {
                steps.push(step_json(tokenizer, step));
            }
            let stopped = stream.as_ref().is_some_and(TextStream::stopped);
            trouble = written.err();
            if stopped || trouble.is_some() || interrupt::stopped() {
                Flow::Stop
            } else {
                Flow::Continue
            }
        })?;
        let elapsed = start.elapsed();
        if let Some(error) = trouble {
            return Err(error.into());
        }
        if let Some(stream) = &mut stream {
            let rest = stream.finish();
            if plain {
                write!(self.out, "{}", seen(&rest, self.on_terminal))?;
            }
            text.push_str(&rest);
        }
        if plain {
            writeln!(self.out)?;
        }
        // The first token waits for the whole prompt; the others are what a reader sees.
        let reading = first.unwrap_or(elapsed).as_secs_f64();
        let seconds = elapsed.as_secs_f64();
        let speed = new.len().saturating_sub(1) as f64 / (seconds - reading).max(1e-9);
        if self.form.is_json() {
            let mut object = json!({
                "model": job.model.directory,
                "seed": request.sampling.seed,
                "prompt_ids": request.prompt,
                "ids": new,
                "text": tokenizer.map(|_| text),
                "finish": finish_name(finish),
                "seconds": seconds,
                "tokens_per_second": speed,
            });
            if with_steps {
                object["steps"] = Value::Array(steps);
            }
            if let Some(Acceptance { drafted, kept, steps }) = drafts {
                let rate = drafts.and_then(|drafts| drafts.rate());
                object["draft"] =
                    json!({ "drafted": drafted, "kept": kept, "steps": steps, "rate": rate });
            }
            if matches!(job.decoding, Decoding::Contrast(_)) {
                object["seed"] = Value::Null;
            }
            writeln!(self.out, "{}", visible_json(&format!("{object:#}")))?;
        }
        if let Some(Acceptance { drafted, kept, steps }) =
            drafts.filter(|drafts| drafts.drafted > 0 && !self.form.is_json())
        {
            let share = 100.0 * kept as f64 / drafted.max(1) as f64;
            say!("kept {kept} of {drafted} drafted tokens ({share:.0} %) in {steps} steps");
        }
        if self.verbose {
            let (read, wrote) = (request.prompt.len(), new.len());
            say!(
                "read {read} tokens in {reading:.3} s ({:.0}/s), wrote {wrote} in {seconds:.3} s \
                 ({speed:.0}/s); seed {}",
                read as f64 / reading.max(1e-9),
                request.sampling.seed
            );
        }
        Ok(())
    }

    /// One line: the token, its probability, and what else might have come.
    fn write_step(&mut self, tokenizer: Option<&Tokenizer>, step: &Step) -> io::Result<()> {
        let shown = |id: u32| match name(tokenizer, id) {
            Some(name) => format!("{name:?}"),
            None => id.to_string(),
        };
        let others: Vec<String> = step
            .likeliest
            .iter()
            .filter(|candidate| candidate.id != step.id)
            .take(SHOWN - 1)
            .map(|c| format!("{} {:.3}", shown(c.id), c.probability))
            .collect();
        let own = format!("{:<14} {:.3}", shown(step.id), step.probability);
        writeln!(self.out, "{}   {}", self.terminal.bold(&own), others.join("  "))
    }

    fn search(&mut self, ids: &[u32], beams: usize, length_penalty: f32) -> Result<(), Failure> {
        let job = self.job;
        let tokenizer = job.tokenizer.as_ref();
        let start = Instant::now();
        let search = job.beam_search(beams, length_penalty);
        let kind = job.cache.unwrap_or(CacheKind::F32);
        let found = beam_search(job.model.generates()?, ids, &search, kind)?;
        let seconds = start.elapsed().as_secs_f64();
        // A stop text cuts what was found; the search itself does not know of texts.
        let text = |found: &Found| {
            tokenizer.map(|tokenizer| {
                let text = decode(tokenizer, &found.tokens);
                let cut = job.stops.iter().filter_map(|stop| text.find(stop.as_str())).min();
                (text[..cut.unwrap_or(text.len())].to_owned(), cut.is_some())
            })
        };
        let Some(best) = found.first() else {
            let message = "no text was found: every token is impossible";
            return Err(Failure::check(message, "are the weights finite?"));
        };
        let steps = best.tokens.len();
        if self.form.is_json() {
            let ended = best.tokens.last().is_some_and(|id| job.ends.contains(id));
            let best_text = text(best);
            let stopped = best_text.as_ref().is_some_and(|(_, cut)| *cut);
            let finish = if stopped {
                "stop"
            } else if ended {
                "end"
            } else {
                "length"
            };
            let beam = |found: &Found| {
                json!({
                    "ids": found.tokens,
                    "text": text(found).map(|(text, _)| text),
                    "log_probability": found.log_probability,
                    "score": found.score,
                })
            };
            let object = json!({
                "model": job.model.directory,
                "seed": null,
                "prompt_ids": ids,
                "ids": best.tokens,
                "text": best_text.map(|(text, _)| text),
                "finish": finish,
                "seconds": seconds,
                "tokens_per_second": steps as f64 / seconds.max(1e-9),
                "beams": found.iter().map(beam).collect::<Vec<_>>(),
            });
            writeln!(self.out, "{}", visible_json(&format!("{object:#}")))?;
        } else if let Some((text, _)) = text(best) {
            writeln!(self.out, "{}", seen(&text, self.on_terminal))?;
        } else {
            let ids: Vec<String> = best.tokens.iter().map(ToString::to_string).collect();
            writeln!(self.out, "{}", ids.join(","))?;
        }
        if self.verbose {
            say!(
                "{beams} beams, {steps} tokens in {seconds:.3} s; ln p {:.3}, score {:.3}",
                best.log_probability,
                best.score
            );
        }
        Ok(())
    }
}

impl Job {
    /// Writes one text by the method that was asked for.
    fn run(
        &self,
        request: &Request,
        on_step: impl FnMut(&Step) -> Flow,
    ) -> Result<(Vec<u32>, Finish, Option<Acceptance>), Failure> {
        let model = self.model.generates()?;
        Ok(match (&self.decoding, &self.draft) {
            (Decoding::Contrast(search), _) => {
                let (new, finish) = contrastive_search(model, search, request, on_step)?;
                (new, finish, None)
            }
            (_, Some(draft)) => {
                let draft = Draft { model: draft.model.generates()?, tokens: draft.tokens };
                let (new, finish, found) = generate_with_draft(model, &draft, request, on_step)?;
                (new, finish, Some(found))
            }
            (_, None) => {
                let (new, finish) = generate(model, request, on_step)?;
                (new, finish, None)
            }
        })
    }
}

/// How the JSON names it.
pub(super) fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::End => "end",
        Finish::Stopped => "stop",
    }
}

fn step_json(tokenizer: Option<&Tokenizer>, step: &Step) -> Value {
    let candidate = |c: &Candidate| json!({ "id": c.id, "text": name(tokenizer, c.id), "probability": c.probability });
    json!({
        "id": step.id,
        "text": name(tokenizer, step.id),
        "probability": step.probability,
        "candidates": step.likeliest.iter().take(SHOWN).map(candidate).collect::<Vec<_>>(),
    })
}
