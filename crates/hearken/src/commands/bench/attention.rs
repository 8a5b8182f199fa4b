//! `hearken bench attention`: scaled dot-product attention over long sequences.

use super::timing::{Times, repeat, timed};
use super::{Memory, Report, check_memory, requests, seconds};
use crate::failure::Failure;
use crate::machine::{Machine, Peak};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use hearken::kernels::attention::scores::{Causal, Window};
use hearken::show::number::{megabytes, percent, plural};
use hearken::show::{Columns, StatusLine, Terminal};
use hearken::studies::mechanisms::{Mechanism, Ready};
use hearken::studies::statistics::slope;
use hearken::tensor::ops::attention::Attend;
use hearken::tensor::rng::Rng;
use hearken::tensor::{Tensor, Var};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::time::Duration;

/// Time attention, forward and, if asked for, backward.
///
/// One sequence, f32. GFLOP/s counts the products of visible pairs alone: two forward, five
/// backward, each 2·D per pair and head.
#[derive(clap::Args)]
#[command(after_help = HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Arguments {
    /// Lengths of the sequence, T
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "1024,4096,16384",
        value_parser = clap::value_parser!(u32).range(1..1 << 24))]
    tokens: Vec<u32>,

    /// Query heads, H
    #[arg(long, value_name = "H", default_value = "12", value_parser = count)]
    heads: u32,

    /// Key and value heads, K, if fewer than query heads; divides H
    #[arg(long, value_name = "K", value_parser = count)]
    kv_heads: Option<u32>,

    /// Width of a head, D
    #[arg(long, value_name = "D", default_value = "64", value_parser = count)]
    head_width: u32,

    /// A token sees only itself and those before it
    #[arg(long)]
    causal: bool,

    /// A token sees only the last N, itself among them (implies --causal)
    #[arg(long, value_name = "N", value_parser = count)]
    window: Option<u32>,

    /// How visible values are weighed
    #[arg(long, value_name = "KIND", default_value = "softmax", value_parser = mechanisms())]
    mechanism: Mechanism,

    /// Time the gradients too
    #[arg(long)]
    backward: bool,

    /// Seconds per length, if three runs do not take longer
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds,
        allow_negative_numbers = true)]
    seconds: Duration,

    /// Write one JSON object instead of the table
    #[arg(long)]
    json: bool,

    /// Answer requests on stdin, one JSON object per line (see benches/README.md)
    #[arg(long, conflicts_with_all = ["tokens", "heads", "json"])]
    requests: bool,
}

const HELP: &str = "\
Examples:
  hearken bench attention --causal --backward
  hearken bench attention --tokens 16384 --window 256 --backward --json
  hearken bench attention --heads 32 --kv-heads 8 --head-width 128 --causal
  hearken bench attention --mechanism linear --causal --tokens 2048,4096,8192,16384

Keys of --json:
  machine, peak   as in 'hearken doctor --json'; peak is on all threads
  results         per length: tokens, heads, kv_heads, head_width, causal, window,
                  mechanism, backward, forward_seconds, backward_seconds, seconds (each with
                  calls, median, min, spread), gflops, share_of_peak, operand_bytes
                  (queries, keys, values and result), memory (resident, tensors:
                  the most needed, in bytes)";

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shape {
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    head_width: usize,
    causal: bool,
    window: Option<usize>,
    #[serde(default)]
    mechanism: Mechanism,
    backward: bool,
}

impl Shape {
    /// Bytes of queries, keys, values and result, unless that is more than can be counted.
    fn operand_bytes(&self) -> Option<usize> {
        let heads = self.heads.checked_add(self.kv_heads)?.checked_mul(2)?;
        heads.checked_mul(self.head_width)?.checked_mul(self.tokens)?.checked_mul(size_of::<f32>())
    }

    /// Refuses what cannot be run.
    fn check(&self) -> Result<(), Failure> {
        let Self { tokens, heads, kv_heads, head_width, window, .. } = *self;
        if [tokens, heads, kv_heads, head_width, window.unwrap_or(1)].contains(&0) {
            return Err(Failure::input(
                "tokens, heads, widths and windows are at least 1",
                "leave out what you do not need",
            ));
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(Failure::input(
                format!("{heads} heads cannot share {kv_heads} key/value heads evenly"),
                format!("choose a divisor of {heads}"),
            ));
        }
        if self.mechanism != Mechanism::Softmax && window.is_some() {
            return Err(Failure::input(
                "a window hides single scores, which only softmax computes",
                "leave --window or --mechanism out",
            ));
        }
        if self.mechanism == Mechanism::Linformer && self.causal {
            return Err(Failure::input(
                "a mixture of all keys would show what comes later",
                "leave --causal or --mechanism out",
            ));
        }
        if self.mechanism == Mechanism::Lsh && heads != kv_heads {
            return Err(Failure::input(
                "queries and keys are one vector under lsh, and there are fewer of keys",
                "leave --kv-heads out",
            ));
        }
        // Operands and result, their gradients, and what backward keeps on its way.
        check_memory(self.operand_bytes().and_then(|bytes| bytes.checked_mul(3)))
    }

    /// How many pairs of query and key are visible.
    fn pairs(&self) -> f64 {
        let tokens = self.tokens as f64;
        // Query i sees i + 1 keys, or the window where that is less.
        let triangle = |n: f64| n * (n + 1.0) / 2.0;
        match self.window.map(|window| (window.min(self.tokens)) as f64) {
            Some(window) => triangle(window) + (tokens - window) * window,
            None if self.causal => triangle(tokens),
            None => tokens * tokens,
        }
    }

    /// Floating-point operations of one run.
    fn operations(&self) -> f64 {
        let heads = [self.heads, self.kv_heads];
        let forward = self.mechanism.operations(self.pairs(), self.tokens, heads, self.head_width);
        let backward = match self.mechanism {
            _ if !self.backward => 0.0,
            Mechanism::Softmax | Mechanism::Lsh => 2.5, // five products for two
            Mechanism::Linear | Mechanism::Performer => 2.0,
            Mechanism::Linformer => 2.25, // as softmax, and products for two
        };
        forward * (1.0 + backward)
    }

    fn name(&self) -> String {
        let Self { heads, kv_heads, head_width, .. } = self;
        let groups =
            if heads == kv_heads { String::new() } else { format!(" on {kv_heads} of keys") };
        let visible = match self.window {
            Some(window) => format!("window {window}"),
            None if self.causal => "causal".to_owned(),
            None => "full".to_owned(),
        };
        let visible = match self.mechanism {
            Mechanism::Softmax => visible,
            other => format!("{visible}, {other:?}").to_lowercase(),
        };
        let ways = if self.backward { "forward and backward" } else { "forward" };
        format!("{heads} heads of {head_width}{groups}, {visible}, {ways}")
    }
}

#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    shape: Shape,
    forward_seconds: Times,
    backward_seconds: Option<Times>,
    seconds: Times,
    gflops: f64,
    share_of_peak: f64,
    operand_bytes: Option<usize>,
    memory: Memory,
}

#[derive(Deserialize)]
struct Request {
    #[serde(flatten)]
    shape: Shape,
    calls: usize,
}

#[derive(Serialize)]
struct Answer {
    forward_seconds: Vec<f64>,
    backward_seconds: Vec<f64>,
    operand_bytes: Option<usize>,
    memory: Memory,
}

/// Attention that can be run again and again.
struct Run {
    shape: Shape,
    operands: [Tensor; 3], // queries (1, T, H·D), keys and values (1, T, K·D)
    dout: Tensor,          // (1, T, H·D)
    ready: Ready,
}

impl Run {
    fn new(shape: Shape) -> Result<Self, Failure> {
        shape.check()?;
        let Shape { tokens, heads, kv_heads, head_width, .. } = shape;
        let wide = [heads, kv_heads, kv_heads].map(|heads| heads * head_width);
        let normal = |seed, wide| Rng::new(seed).normal([1, tokens, wide], 1.0);
        let attend = Attend::new(heads).kv_heads(kv_heads);
        let attend = match shape.window {
            Some(window) => attend.rule(Window::causal(window, tokens, tokens)),
            None if shape.causal => attend.rule(Causal::new(tokens, tokens)),
            None => attend,
        };
        let operands = [normal(1, wide[0]), normal(2, wide[1]), normal(3, wide[2])];
        let ready = shape.mechanism.ready(attend, shape.causal, head_width, tokens);
        Ok(Self { shape, operands, dout: normal(4, wide[0]), ready })
    }

    /// Seconds of one forward and one backward (0 if not wanted).
    fn once(&self) -> (f64, f64) {
        let [q, k, v] = self.operands.each_ref().map(|x| {
            if self.shape.backward { Var::leaf(x.clone()) } else { Var::constant(x.clone()) }
        });
        let mut out = None;
        let forward = timed(|| out = Some(self.ready.run([&q, &k, &v])));
        let backward = match out.filter(|_| self.shape.backward) {
            Some(out) => timed(|| out.backward_with(self.dout.clone())),
            None => 0.0,
        };
        (forward, backward)
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.requests {
        return serve();
    }
    let shape = |&tokens: &u32| Shape {
        tokens: tokens as usize,
        heads: arguments.heads as usize,
        kv_heads: arguments.kv_heads.unwrap_or(arguments.heads) as usize,
        head_width: arguments.head_width as usize,
        causal: arguments.causal || arguments.window.is_some(),
        window: arguments.window.map(|window| window as usize),
        mechanism: arguments.mechanism,
        backward: arguments.backward,
    };
    let shapes: Vec<Shape> = arguments.tokens.iter().map(shape).collect();
    for shape in &shapes {
        shape.check()?;
    }
    let mut out = io::stdout();
    let mut progress = StatusLine::new();
    progress.show("measuring the machine …");
    let machine = Machine::of_this_process();
    let peak = Peak::measure(machine.threads);
    progress.clear();
    let columns = Columns::new().right("tokens", 8).right("forward", 8).right("backward", 8);
    let columns = columns.right("total", 8).right("best (ms)", 9).right("spread", 6);
    let columns = columns.right("GFLOP/s", 7).right("peak", 5).right("MB", 5);
    let width = Terminal::stdout().width;
    let columns = columns.fitting(width, &["best (ms)", "spread", "peak", "total", "MB"]);
    if !arguments.json {
        let name = shapes.first().map_or(String::new(), Shape::name);
        let threads = plural(machine.threads, "thread");
        writeln!(out, "{name}\npeak {:.1} GFLOP/s, {threads}", peak.gflops)?;
        writeln!(out, "{}", Terminal::stdout().bold(&columns.head()))?;
    }
    let mut results = Vec::new();
    for shape in shapes {
        progress.show(&format!("timing {} tokens …", shape.tokens));
        let result = measure(shape, peak, arguments.seconds)?;
        progress.clear();
        if !arguments.json {
            let backward = result.backward_seconds.map_or(0.0, |times| times.median);
            let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
            let memory = result.memory.resident.unwrap_or(result.memory.tensors);
            let cells = [
                shape.tokens.to_string(),
                ms(result.forward_seconds.median),
                ms(backward),
                ms(result.seconds.median),
                ms(result.seconds.min),
                percent(result.seconds.spread, 0),
                format!("{:.1}", result.gflops),
                percent(result.share_of_peak, 0),
                megabytes(memory as u64),
            ];
            writeln!(out, "{}", columns.row(&cells))?;
        }
        results.push(result);
    }
    let times: Vec<(f64, f64)> =
        results.iter().map(|r| (r.shape.tokens as f64, r.seconds.median)).collect();
    let slope = slope(&times);
    if slope.is_finite() && !arguments.json {
        writeln!(out, "time grows as tokens to the power of {slope:.2}")?;
    }
    if arguments.json {
        let version = env!("CARGO_PKG_VERSION");
        let report = Report { version, machine, peak, results };
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    }
    Ok(())
}

fn measure(shape: Shape, peak: Peak, budget: Duration) -> Result<Measured, Failure> {
    Memory::reset();
    let run = Run::new(shape)?;
    let pairs = repeat(budget, || run.once());
    let seconds = Times::of(pairs.iter().map(|(forward, backward)| forward + backward).collect());
    let backward = Times::of(pairs.iter().map(|(_, backward)| *backward).collect());
    let gflops = shape.operations() / seconds.median / 1e9;
    Ok(Measured {
        shape,
        forward_seconds: Times::of(pairs.iter().map(|(forward, _)| *forward).collect()),
        backward_seconds: shape.backward.then_some(backward),
        seconds,
        gflops,
        share_of_peak: gflops / peak.gflops,
        operand_bytes: shape.operand_bytes(),
        memory: Memory::most(),
    })
}

/// Answers requests; operands stay from one request to the next of the same shape.
fn serve() -> Result<(), Failure> {
    let mut kept: Option<Run> = None;
    requests::serve(|request: Request| {
        let run = if let Some(run) = kept.take().filter(|run| run.shape == request.shape) {
            run
        } else {
            Memory::reset();
            let run = Run::new(request.shape)?;
            run.once(); // the first run also asks the system for memory
            run
        };
        let pairs = (0..request.calls).map(|_| run.once());
        let (forward_seconds, backward_seconds) = pairs.unzip();
        kept = Some(run);
        Ok(Answer {
            forward_seconds,
            backward_seconds,
            operand_bytes: request.shape.operand_bytes(),
            memory: Memory::most(),
        })
    })
}

/// Reads a mechanism, and lists them in the help.
fn mechanisms() -> impl TypedValueParser<Value = Mechanism> {
    let value = |mechanism: Mechanism| PossibleValue::new(mechanism.name()).help(mechanism.about());
    PossibleValuesParser::new(Mechanism::ALL.map(value))
        .map(|name| Mechanism::named(&name).unwrap_or_default())
}

/// Reads a number of heads, columns or tokens.
fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n @ 1..=1_000_000) => Ok(n),
        _ => Err("expected a number from 1 to 1000000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(tokens: usize, window: Option<usize>) -> Shape {
        let (heads, kv_heads, head_width) = (4, 2, 8);
        let (causal, mechanism) = (window.is_some(), Mechanism::Softmax);
        Shape { mechanism, tokens, heads, kv_heads, head_width, causal, window, backward: false }
    }

    #[test]
    fn visible_pairs_are_counted_one_by_one() {
        assert_eq!(shape(5, None).pairs(), 25.0);
        assert_eq!(Shape { causal: true, ..shape(5, None) }.pairs(), 15.0);
        for window in 1..8 {
            let want: usize = (0..5).map(|query: usize| (query + 1).min(window)).sum();
            assert_eq!(shape(5, Some(window)).pairs(), want as f64, "window {window}");
        }
    }

    #[test]
    fn operations_count_two_products_forward_and_five_backward() {
        let forward = shape(3, None);
        assert_eq!(forward.operations(), 2.0 * 2.0 * 8.0 * 4.0 * 9.0);
        let both = Shape { backward: true, ..forward };
        assert_eq!(both.operations(), forward.operations() * 3.5);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        assert!(shape(3, None).check().is_ok());
        let wrong = [
            Shape { kv_heads: 3, ..shape(3, None) },
            Shape { kv_heads: 0, ..shape(3, None) },
            Shape { tokens: usize::MAX, ..shape(3, None) },
            Shape { mechanism: Mechanism::Linear, ..shape(3, Some(2)) },
            Shape { mechanism: Mechanism::Lsh, ..shape(3, None) },
        ];
        for shape in wrong {
            let Err(Failure::Error(error)) = shape.check() else { panic!("{shape:?}") };
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
