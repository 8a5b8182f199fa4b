//! Time and memory of attention by the length of the sequence, forward and backward.

use super::{STUDY, color, label};
use crate::mechanisms::{Mechanism, Ready};
use crate::outcome::{Drawing, Line, Listing, Outcome};
use crate::request::Request;
use crate::statistics::{Sample, best, slope};
use crate::timing::{repeat_at_least, timed};
use hearken_base::{Error, Kind, Result};
use hearken_kernels::attention::scores::{And, Causal, Global, Or, Strided, Window};
use hearken_kernels::dry::Dry;
use hearken_kernels::{isa, threads};
use hearken_show::StatusLine;
use hearken_show::number::{plural, thousands};
use hearken_tensor::ops::attention::Attend;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var, pool};
use hearken_train::Better;
use hearken_train::progress::Mode;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;

const HEADS: usize = 4;
const WIDTH: usize = 64;
const WINDOW: usize = 256;
/// Of the strided pattern: its window and its stride.
const NEAR: usize = 128;
const STRIDE: usize = 128;
/// Tokens that all see, of the global pattern.
const FIRST: usize = 16;
/// Slopes are fitted over so many of the longest lengths.
const FITTED: usize = 4;

/// With less effort than this, times are but a sketch.
const SKETCH: f64 = 0.02;

/// All kinds and lengths are timed in turns. A burst of other work then disturbs one turn of a length, a
/// fifth of its runs, and the middle half leaves those out.
const TURNS: u32 = 5;

struct Scale {
    tokens: &'static [usize],
    /// Each length is timed for about so long, if a run in each turn does not take longer.
    budget: Duration,
}

const QUICK: Scale =
    Scale { tokens: &[256, 512, 1024, 2048, 4096], budget: Duration::from_millis(150) };
const FULL: Scale = Scale {
    tokens: &[256, 512, 1024, 2048, 4096, 8192, 16_384],
    budget: Duration::from_millis(400),
};

/// With next to no effort: two lengths alone.
const TINY: Scale = Scale { tokens: &[128, 256], budget: Duration::ZERO };

fn scale(request: &Request) -> &'static Scale {
    if request.effort < SKETCH { &TINY } else { request.sized(&QUICK, &FULL) }
}

/// One kind of attention for sequences of this length.
fn ready(contender: &str, tokens: usize) -> Ready {
    let attend = Attend::new(HEADS);
    let causal = Causal::new(tokens, tokens);
    let near = |size| Window::causal(size, tokens, tokens);
    let by = |mechanism: Mechanism, attend, causal| mechanism.ready(attend, causal, WIDTH, tokens);
    match contender {
        "window" => by(Mechanism::Softmax, attend.rule(near(WINDOW)), true),
        "strided" => {
            let seen = Or::new(near(NEAR), Strided::new(STRIDE, tokens, tokens));
            by(Mechanism::Softmax, attend.rule(And(causal, seen)), true)
        }
        "global" => {
            let seen = Or::new(near(WINDOW), Global::new(FIRST, tokens, tokens));
            by(Mechanism::Softmax, attend.rule(And(causal, seen)), true)
        }
        "linear" => by(Mechanism::Linear, attend, true),
        "performer" => by(Mechanism::Performer, attend, true),
        "lsh" => by(Mechanism::Lsh, attend, true),
        "linformer" => by(Mechanism::Linformer, attend, false),
        _ => by(Mechanism::Softmax, attend.rule(causal), true),
    }
}

/// What one kind costs at one length.
struct Measured {
    /// Seconds of each run, forward and backward.
    forward: Vec<f64>,
    backward: Vec<f64>,
    /// Bytes at the peak of forward and backward, and of forward alone, without what is kept for backward.
    trained: u64,
    read: u64,
}

/// Queries, keys, values (1, T, H·D) and the gradient of the result.
fn operands(tokens: usize) -> [Tensor; 4] {
    [1, 2, 3, 4].map(|seed| Rng::new(seed).normal([1, tokens, HEADS * WIDTH], 1.0))
}

/// Seconds forward, and seconds backward.
fn once(ready: &Ready, [q, k, v, dout]: &[Tensor; 4]) -> (f64, f64) {
    let [q, k, v] = [q, k, v].map(|x| Var::leaf(x.clone()));
    let mut out = None;
    let forward = timed(|| out = Some(ready.run([&q, &k, &v])));
    let out = out.expect("it has just been run");
    (forward, timed(|| out.backward_with(dout.clone())))
}

/// Seconds forward and backward of the runs of one turn.
fn turn(contender: &str, tokens: usize, budget: Duration) -> Vec<(f64, f64)> {
    let (ready, operands) = (ready(contender, tokens), operands(tokens));
    let runs = repeat_at_least(1, budget / TURNS, || once(&ready, &operands));
    drop(operands);
    pool::release();
    runs
}

/// The most bytes of a dry pass, operands and kernels' working memory included.
fn bytes(contender: &str, tokens: usize, backward: bool) -> Result<u64> {
    let dry = Dry::new();
    let pass = || {
        let ready = self::ready(contender, tokens);
        let [q, k, v, dout] = operands(tokens);
        if backward {
            once(&ready, &[q, k, v, dout]);
        } else {
            drop(dout);
            let [q, k, v] = [q, k, v].map(Var::constant);
            ready.run([&q, &k, &v]);
        }
    };
    dry.run(pass).map_err(|_| {
        Error::new(
            format!("attention to {tokens} tokens needs more memory than there are addresses for"),
            "raise the limit of addresses of this process (ulimit -v)",
        )
    })?;
    let usage = dry.usage();
    Ok(usage.peak + usage.scratch)
}

/// Seconds that everything takes, about, by one run of a short length each.
pub(super) fn estimate(request: &Request) -> f64 {
    let Scale { tokens, budget } = scale(request);
    let short = tokens[1];
    let each = request.contenders.iter().map(|contender| {
        let (ready, operands) = (ready(contender, short), operands(short));
        once(&ready, &operands); // the first asks the system for memory
        let (forward, backward) = once(&ready, &operands);
        let last = forward + backward;
        let grows = if matches!(*contender, "softmax" | "strided") { 2.0 } else { 1.0 };
        let runs = tokens.iter().map(|tokens| {
            let run = last * (*tokens as f64 / short as f64).powf(grows);
            (10.0 * run).max(budget.as_secs_f64() + 5.0 * run)
        });
        runs.sum::<f64>()
    });
    isa::for_batches(|| each.sum())
}

/// Adds what was found to the outcome, and gives the numbers.
pub(super) fn run(request: &Request, outcome: &mut Outcome) -> Result<Value> {
    let Scale { tokens, budget } = scale(request);
    let mut all: Vec<(&'static str, Vec<Measured>)> = Vec::new();
    for contender in &request.contenders {
        let one = |tokens: &usize| -> Result<Measured> {
            let [read, trained] =
                [false, true].map(|back| isa::for_batches(|| bytes(contender, *tokens, back)));
            let (forward, backward) = (Vec::new(), Vec::new());
            Ok(Measured { forward, backward, trained: trained?, read: read? })
        };
        all.push((contender, tokens.iter().map(one).collect::<Result<_>>()?));
    }
    let mut line = StatusLine::new();
    for number in 1..=TURNS {
        for (contender, measured) in &mut all {
            for (tokens, measured) in tokens.iter().zip(measured) {
                if request.stop.load(Ordering::SeqCst) {
                    return Err(Error::of(Kind::Io(ErrorKind::Interrupted), "stopped", ""));
                }
                if request.progress == Mode::Line {
                    let what = format!("timing {contender}, {tokens} tokens");
                    line.show(&format!("attention: {what}, turn {number} of {TURNS} …"));
                }
                let runs = isa::for_batches(|| turn(contender, *tokens, *budget));
                measured.forward.extend(runs.iter().map(|run| run.0));
                measured.backward.extend(runs.iter().map(|run| run.1));
            }
        }
    }
    line.clear();
    let lines = |value: fn(&Measured) -> Vec<f64>| -> Vec<Line> {
        let line = |(name, measured): &(&'static str, Vec<Measured>)| Line {
            name: label(name),
            color: color(name),
            points: (tokens.iter().zip(measured))
                .map(|(t, m)| {
                    let per_token = value(m).into_iter().map(|x| x / *t as f64);
                    (*t as f64, middle_half(per_token.collect()))
                })
                .collect(),
        };
        all.iter().map(line).collect()
    };
    let both =
        |m: &Measured| m.forward.iter().zip(&m.backward).map(|(f, b)| (f + b) * 1e6).collect();
    let time = lines(both);
    let forward = lines(|m| m.forward.iter().map(|s| s * 1e6).collect());
    let memory = lines(|m| vec![m.trained as f64 / 1024.0]);
    let read = lines(|m| vec![m.read as f64 / 1024.0]);
    draw(outcome, &time, &memory);
    outcome.listings.push(slopes(&[&forward, &time, &read, &memory]));
    outcome.findings.extend(findings(&time, &memory));
    outcome.method.push(method(scale(request)));
    let numbers = |lines: &[Line]| -> Value {
        // The plain names, as in the numbers of quality.
        let name = |line: &Line| STUDY.contenders[line.color].name.to_owned();
        let each = lines.iter().map(|line| (name(line), line.json()));
        each.collect::<serde_json::Map<_, _>>().into()
    };
    Ok(json!({
        "forward_microseconds_per_token": numbers(&forward),
        "microseconds_per_token": numbers(&time),
        "forward_kilobytes_per_token": numbers(&read),
        "kilobytes_per_token": numbers(&memory),
    }))
}

/// The middle half of the values, at least three of them: a run that something else disturbed does not
/// count.
fn middle_half(mut values: Vec<f64>) -> Sample {
    values.sort_by(f64::total_cmp);
    let cut = (values.len() / 4).min(values.len().saturating_sub(3) / 2);
    Sample { values: values[cut..values.len() - cut].to_vec() }
}

fn draw(outcome: &mut Outcome, time: &[Line], memory: &[Line]) {
    let about = "Forward and backward, per token. A horizontal line is a cost that grows as the length; \
                 one that doubles from mark to mark grows as its square.";
    let drawing = Drawing::of("Time per token", "tokens", "microseconds per token", time, about);
    outcome.drawings.push(drawing.in_doublings().logarithmic());
    let about = "The most that is held at once in forward and backward, operands and the working memory \
                 of kernels included, per token. Kinds that hold the same share a line.";
    let drawing = Drawing::of("Memory per token", "tokens", "KB per token", memory, about);
    outcome.drawings.push(drawing.in_doublings().logarithmic());
    let shown = |x: f64| format!("{x:.2}");
    outcome.listings.push(Listing::of(
        "Microseconds per token",
        thousands,
        time,
        shown,
        "Forward and backward: the mean of the middle half of the runs, with the lowest and the highest \
         of them.",
    ));
    outcome.listings.push(Listing::of(
        "Kilobytes per token",
        thousands,
        memory,
        shown,
        "Forward and backward, found by a dry pass of the same code.",
    ));
}

/// The power of the length that a cost per token, times the length, grows by.
fn power(line: &Line) -> f64 {
    let last = &line.points[line.points.len().saturating_sub(FITTED)..];
    slope(&last.iter().map(|(t, sample)| (*t, t * sample.mean())).collect::<Vec<_>>())
}

/// The lengths over which powers are fitted, in words.
fn fitted(line: &Line) -> String {
    let last = &line.points[line.points.len().saturating_sub(FITTED)..];
    let ends = last.first().zip(last.last());
    ends.map_or(String::new(), |(a, b)| format!("from {} to {}", thousands(a.0), thousands(b.0)))
}

fn slopes(columns: &[&[Line]; 4]) -> Listing {
    let over = columns[0].first().map_or(String::new(), fitted);
    let about = format!(
        "s in cost ∝ tokensˢ for whole sequences {over} tokens, by least squares in log–log: 1 is linear, \
         2 is the square."
    );
    let mut listing = Listing::of("Growth with the length", thousands, &[], thousands, about);
    let headings = ["", "time, forward", "time, both", "memory, forward", "memory, both"];
    listing.table.columns = headings.map(str::to_owned).to_vec();
    for (i, line) in columns[0].iter().enumerate() {
        let mut row = vec![line.name.clone()];
        row.extend(columns.iter().map(|lines| format!("{:.2}", power(&lines[i]))));
        listing.table.rows.push(row);
    }
    listing
}

fn findings(time: &[Line], memory: &[Line]) -> Vec<String> {
    let Some(first) = time.first() else { return Vec::new() };
    let over = fitted(first);
    let powers = |lines: &[Line]| -> String {
        let each = lines.iter().map(|line| format!("{} {:.2}", line.name, power(line)));
        each.collect::<Vec<_>>().join(", ")
    };
    let last = |line: &Line| line.points.last().map(|point| (line.name.clone(), point.1.clone()));
    let longest = first.points.last().map_or(0.0, |point| point.0);
    let times: Vec<(String, Sample)> = time.iter().filter_map(last).collect();
    let what =
        format!("the lowest time per token, over repeated runs, at {} tokens", thousands(longest));
    let mut found = vec![
        format!(
            "{over} tokens, time forward and backward grows as the length to the power of: {}",
            powers(time)
        ),
        format!("{over} tokens, memory grows as the length to the power of: {}", powers(memory)),
        best(&what, Better::Lower, &times, |x| format!("{x:.2} µs")),
    ];
    found.extend(crossings(time));
    found
}

/// From which length on each kind is cheaper than exact attention.
fn crossings(time: &[Line]) -> Option<String> {
    let exact = time.iter().find(|line| line.name == "softmax")?;
    let cheaper = |line: &Line| {
        let is = |i: usize| line.points[i].1.mean() < exact.points[i].1.mean();
        let lengths: Vec<usize> = (0..line.points.len()).filter(|i| is(*i)).collect();
        // The first length from which on it stays so.
        let from = (0..line.points.len()).rev().take_while(|i| is(*i)).last();
        match (from, lengths.is_empty()) {
            (Some(i), _) => format!("{} from {} tokens on", line.name, thousands(line.points[i].0)),
            (None, true) => format!("{} nowhere", line.name),
            (None, false) => {
                let each = lengths.iter().map(|i| thousands(line.points[*i].0));
                format!("{} only at {}", line.name, each.collect::<Vec<_>>().join(", "))
            }
        }
    };
    let others: Vec<String> =
        time.iter().filter(|line| line.name != "softmax").map(cheaper).collect();
    let said = format!(
        "of the lengths that were timed, these took less time on average than exact attention: {}",
        others.join(", ")
    );
    (!others.is_empty()).then_some(said)
}

fn method(scale: &Scale) -> String {
    format!(
        "Cost: one sequence, {HEADS} heads of width {WIDTH}, on {}, each kind alone. All are causal but \
         linformer, which cannot be. Window: {WINDOW} tokens; strided: a window of {NEAR} and every \
         {STRIDE}th token; global: the window and the first {FIRST} tokens; performer: 256 features; \
         linformer: 256 mixtures, which learn; lsh: chunks of 64, two rounds. What is timed is attention by \
         itself, without the projections around it, for {} ms at each length or {TURNS} runs, in {TURNS} turns \
         through all kinds and lengths. Memory is that of a dry pass: the same code, with the books of memory \
         and without arithmetic.",
        plural(threads::count(), "thread"),
        scale.budget.as_millis(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, of: impl Fn(f64) -> f64) -> Line {
        let points = [256.0, 512.0, 1024.0, 2048.0, 4096.0];
        let points = points.map(|t: f64| (t, [of(t), of(t), of(t)].into_iter().collect()));
        Line { name: name.to_owned(), color: 0, points: points.to_vec() }
    }

    #[test]
    fn powers_and_crossings() {
        let exact = line("softmax", |t| t / 100.0);
        let linear = line("linear", |_| 8.0);
        assert!((power(&exact) - 2.0).abs() < 1e-9 && (power(&linear) - 1.0).abs() < 1e-9);
        let dear = line("lsh", |t| t / 50.0);
        let said = crossings(&[exact, linear, dear]).unwrap();
        assert!(said.contains("linear from 1 024") || said.contains("linear from 1,024"), "{said}");
        assert!(said.contains("lsh nowhere"), "{said}");
        assert!(crossings(&[line("linear", |_| 1.0)]).is_none());
    }

    #[test]
    fn disturbed_runs_do_not_count() {
        let of = |values: &[f64]| middle_half(values.to_vec()).values;
        assert_eq!(of(&[9.0, 1.0, 2.0, 3.0, 0.0]), [1.0, 2.0, 3.0]);
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(of(&[4.0]), [4.0]);
    }

    #[test]
    fn exact_attention_holds_no_squares() {
        // Tiles: forward and backward of softmax need memory that grows as the length.
        let each = |tokens: usize| bytes("softmax", tokens, true).unwrap() as f64 / tokens as f64;
        assert!(each(4096) < 1.3 * each(1024), "{} and {}", each(4096), each(1024));
        assert!(bytes("softmax", 1024, true).unwrap() > bytes("softmax", 1024, false).unwrap());
    }

    #[test]
    fn every_kind_runs() {
        for contender in super::super::STUDY.contenders {
            let [read, trained] =
                [false, true].map(|back| bytes(contender.name, 100, back).unwrap());
            assert!(trained >= read && read > 0, "{}", contender.name);
            let runs = turn(contender.name, 100, Duration::ZERO);
            assert!(runs.iter().all(|(forward, backward)| *forward > 0.0 && *backward > 0.0));
        }
    }
}
