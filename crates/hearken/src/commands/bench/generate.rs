//! `hearken bench generate`: decoding with random weights: several sequences together, tokens early
//! and late in a text with every kind of cache, and the choice of a token.

use super::timing::{Times, repeat, timed};
use super::{check_memory, write_json};
use crate::failure::Failure;
use crate::machine::Machine;
use hearken::infer::client::Event;
use hearken::infer::engine::with_engine;
use hearken::infer::generate::Request;
use hearken::infer::sampler::Sampling;
use hearken::nn::cache::CacheKind;
use hearken::nn::models::{self, Generates};
use hearken::nn::presets;
use hearken::nn::scope::Weights;
use hearken::nn::slot::Feed;
use hearken::show::number::{bytes, percent, plural};
use hearken::show::{Columns, StatusLine, Terminal};
use hearken::tasks::config::preset_or_file;
use hearken::tensor::rng::Rng;
use serde::Serialize;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Time decoding: sequences together, and tokens early and late in a text.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// A configuration with [model], or the name of a preset; its weights are drawn at random
    #[arg(long, value_name = "FILE", default_value = "gpt2-small")]
    config: String,

    /// How many sequences are decoded at a time
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4,8",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    sequences: Vec<u32>,

    /// Places in a text whose token is timed, with every kind of cache
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "100,900",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    at: Vec<u32>,

    /// Tokens that are timed of each sequence, and from each place on
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tokens: u32,

    /// Write one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken bench generate
  hearken bench generate --config llama-style --sequences 1,16 --at 64,512 --json

Keys of --json:
  config, parameters
  together   per number of sequences: sequences, tokens_per_second (of all), ms_per_step
  at         per cache and place: cache, position, ms (the median), ms_min, spread, cache_bytes
  sampling   per way of choosing a token: way, choose_ms, in_order_ms (all candidates put in order)";

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    config: String,
    parameters: u64,
    together: Vec<Together>,
    at: Vec<At>,
    sampling: Vec<Choice>,
}

/// Several sequences, by way of the engine.
#[derive(Serialize)]
struct Together {
    sequences: usize,
    tokens_per_second: f64,
    ms_per_step: f64,
}

/// A token at a place.
#[derive(Serialize)]
struct At {
    cache: &'static str,
    position: usize,
    ms: f64,
    ms_min: f64,
    spread: f64,
    cache_bytes: usize,
}

/// The choice of a token.
#[derive(Serialize)]
struct Choice {
    way: &'static str,
    choose_ms: f64,
    in_order_ms: f64,
}

const KINDS: [(&str, CacheKind); 3] =
    [("f32", CacheKind::F32), ("f16", CacheKind::F16), ("int8", CacheKind::Int8)];

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = preset_or_file(&arguments.config)?;
    let config = presets::model_of(&text, &arguments.config)?;
    config.validate()?;
    let unset = models::build(&config, Weights::Unset);
    let parameters: u64 = unset.parameters().iter().map(|p| p.shape().len() as u64).sum();
    check_memory(usize::try_from(parameters.saturating_mul(5)).ok())?;
    let mut progress = StatusLine::new();
    progress.show("building the model");
    let model = models::build(&config, Weights::Drawn { seed: 1 });
    let Some(model) = model.generates() else {
        return Err(Failure::input(
            format!("{} describes a model that does not write", arguments.config),
            "take a decoder, such as gpt2-small",
        ));
    };
    let tokens = arguments.tokens as usize;
    let last = arguments.at.iter().max().map_or(0, |at| *at as usize) + tokens;
    if last > model.context() || tokens + LONGEST_PROMPT > model.context() {
        let message = format!("the model's context is {}, and {last} are needed", model.context());
        return Err(Failure::input(message, "choose a smaller --at or --tokens"));
    }
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::of_this_process(),
        config: arguments.config.clone(),
        parameters,
        together: Vec::new(),
        at: Vec::new(),
        sampling: Vec::new(),
    };
    for &sequences in &arguments.sequences {
        progress.show(&format!("{sequences} sequences together"));
        report.together.push(together(model, sequences as usize, tokens)?);
    }
    let places: Vec<usize> = arguments.at.iter().map(|at| *at as usize).collect();
    progress.show("tokens early and late");
    report.at = tokens_at(model, &places, tokens);
    progress.show("choosing tokens");
    report.sampling = sampling(model.vocabulary());
    progress.clear();
    show(&report, arguments.json)
}

fn random_ids(model: &dyn Generates, count: usize, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| rng.below(model.vocabulary()) as u32).collect()
}

/// Prompts are as long as this or shorter, each of another length.
const LONGEST_PROMPT: usize = 48;
/// Tokens of a text before the clock starts: by then all texts are under way.
const WARM: usize = 3;

fn together(model: &dyn Generates, count: usize, tokens: usize) -> Result<Together, Failure> {
    with_engine(model, count, |client| {
        let mut texts = Vec::new();
        for i in 0..count {
            let prompt = random_ids(model, 16 + 5 * i % (LONGEST_PROMPT - 16), i as u64);
            let request = Request {
                sampling: Sampling { temperature: 0.8, seed: i as u64, ..Sampling::default() },
                ..Request::new(prompt, WARM + tokens)
            };
            texts.push(client.write(&request, 1)?);
        }
        for _ in 0..WARM {
            for text in &mut texts {
                text.next().transpose()?;
            }
        }
        let start = Instant::now();
        let mut written = 0;
        let mut open = true;
        while open {
            open = false;
            for text in &mut texts {
                if let Some(Event::Token { .. }) = text.next().transpose()? {
                    written += 1;
                    open = true;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Together {
            sequences: count,
            tokens_per_second: f64::from(written) / seconds,
            ms_per_step: 1e3 * seconds * count as f64 / f64::from(written),
        })
    })
}

/// The tokens from each place on, one by one, of all places and caches in turns: whatever else the
/// machine does then slows down all of them alike.
fn tokens_at(model: &dyn Generates, places: &[usize], tokens: usize) -> Vec<At> {
    let mut running = Vec::new();
    for &position in places {
        for (cache, kind) in KINDS {
            let ids = random_ids(model, position + tokens, 1);
            let mut slot = model.slot(kind);
            model.step(&mut [Feed { ids: &ids[..position], slot: &mut slot }]);
            running.push((cache, position, ids, slot, Vec::new()));
        }
    }
    for token in 0..tokens {
        for (_, position, ids, slot, seconds) in &mut running {
            let ids = &ids[*position + token..=*position + token];
            seconds.push(timed(|| {
                model.step(&mut [Feed { ids, slot }]);
            }));
        }
    }
    let at = running.into_iter().map(|(cache, position, _, slot, seconds)| {
        let times = Times::of(seconds);
        At {
            cache,
            position,
            ms: 1e3 * times.median,
            ms_min: 1e3 * times.min,
            spread: times.spread,
            cache_bytes: slot.bytes(),
        }
    });
    at.collect()
}

fn sampling(vocabulary: usize) -> Vec<Choice> {
    let plain = Sampling { temperature: 0.8, ..Sampling::default() };
    let ways = [
        ("greedy", Sampling::greedy()),
        ("temperature 0.8", plain),
        ("top-k 40", Sampling { top_k: Some(40), ..plain }),
        ("top-p 0.9", Sampling { top_p: Some(0.9), ..plain }),
        ("min-p 0.05", Sampling { min_p: Some(0.05), ..plain }),
    ];
    // As spread out as the logits of a trained model: most of the mass on some tens of tokens.
    let logits = Rng::new(1).normal([vocabulary], 3.0);
    let budget = Duration::from_millis(200);
    let measure = |(way, sampling): (&'static str, Sampling)| {
        let mut position = 0;
        let choose = repeat(budget, || {
            position += 1;
            timed(|| {
                sampling.choose(logits.data(), &[], position);
            })
        });
        let in_order = repeat(budget, || {
            timed(|| {
                sampling.candidates(logits.data(), &[]);
            })
        });
        let ms = |seconds| 1e3 * Times::of(seconds).median;
        Choice { way, choose_ms: ms(choose), in_order_ms: ms(in_order) }
    };
    ways.map(measure).into()
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        return write_json(&mut out, report);
    }
    let Report { config, parameters, machine, .. } = report;
    let threads = plural(machine.threads, "thread");
    writeln!(out, "{config}: {parameters} parameters, {threads}\n")?;
    let columns = Columns::new().right("sequences", 9).right("tokens/s", 8).right("ms/step", 8);
    writeln!(out, "{}", columns.head())?;
    for Together { sequences, tokens_per_second, ms_per_step } in &report.together {
        let cells =
            [sequences.to_string(), format!("{tokens_per_second:.1}"), format!("{ms_per_step:.2}")];
        writeln!(out, "{}", columns.row(&cells))?;
    }
    let columns = Columns::new().left("cache", 5).right("token", 6).right("ms", 8);
    let columns = columns.right("best", 8).right("spread", 6).right("cache", 8);
    let columns = columns.fitting(Terminal::stdout().width, &["best", "spread"]);
    writeln!(out, "\n{}", columns.head())?;
    for at in &report.at {
        let cells = [
            at.cache.to_owned(),
            at.position.to_string(),
            format!("{:.2}", at.ms),
            format!("{:.2}", at.ms_min),
            percent(at.spread, 0),
            bytes(at.cache_bytes as u64),
        ];
        writeln!(out, "{}", columns.row(&cells))?;
    }
    let columns = Columns::new().left("choosing a token", 16).right("ms", 6);
    let columns = columns.right("in order", 8);
    writeln!(out, "\n{}", columns.head())?;
    for Choice { way, choose_ms, in_order_ms } in &report.sampling {
        let cells = [(*way).to_owned(), format!("{choose_ms:.3}"), format!("{in_order_ms:.3}")];
        writeln!(out, "{}", columns.row(&cells))?;
    }
    Ok(())
}
