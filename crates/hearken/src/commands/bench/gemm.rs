//! `hearken bench gemm`: matrix products in the shapes and layouts that models have.

use super::timing::{Times, repeat, timed};
use super::{Memory, Report, check_memory, requests, seconds};
use crate::failure::Failure;
use crate::machine::{Machine, Peak};
use clap::ValueEnum;
use hearken::kernels::Write as To;
use hearken::kernels::gemm::{Epilogue, Matrix, gemm};
use hearken::show::number::{percent, plural};
use hearken::show::terminal::wrap;
use hearken::show::{Columns, StatusLine, Terminal};
use hearken::tensor::Tensor;
use hearken::tensor::rng::Rng;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::time::Duration;

/// Time matrix products.
///
/// `out = A·B` with A of M×K and B of K×N, as PyTorch's `mm` would do it; `dW` shapes add to
/// what is there. Without --group or --shape: squares, and the layers of GPT-2 small, forward
/// and both gradients.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Shapes of this group of benches/shapes/gemm.json (may be given several times)
    #[arg(long = "group", value_name = "NAME", conflicts_with = "shapes")]
    groups: Vec<String>,

    /// A shape of your own (may be given several times)
    #[arg(long = "shape", value_name = "MxNxK", value_parser = dimensions)]
    shapes: Vec<[usize; 3]>,

    /// Which of A and B are stored transposed, for --shape
    #[arg(long, value_enum, default_value = "nn", requires = "shapes")]
    layout: Layout,

    /// Seconds per shape
    #[arg(long, value_name = "SECONDS", default_value = "0.25", value_parser = seconds,
        allow_negative_numbers = true)]
    seconds: Duration,

    /// Write one JSON object instead of the table
    #[arg(long)]
    json: bool,

    /// Answer requests on stdin, one JSON object per line (see benches/README.md)
    #[arg(long, conflicts_with_all = ["groups", "shapes", "json"])]
    requests: bool,
}

const HELP: &str = "\
Examples:
  hearken bench gemm
  hearken bench gemm --group square --json
  hearken bench gemm --shape 1024x768x768 --layout nt

Keys of --json:
  machine, peak   as in 'hearken doctor --json'; peak is on all threads
  results         per shape: group, name, m, n, k, layout, write,
                  seconds (calls, median, min, spread), gflops, share_of_peak,
                  memory (resident, tensors: the most needed, in bytes)";

/// The shapes of models, as data that the scripts for peers read too.
const SHAPES: &str = include_str!("../../../../../benches/shapes/gemm.json");
/// What is timed if nothing is asked for.
const DEFAULT_GROUPS: [&str; 2] = ["square", "gpt2"];

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Shape {
    #[serde(default)]
    group: String,
    #[serde(default)]
    name: String,
    m: usize,
    n: usize,
    k: usize,
    layout: Layout,
    write: Destination,
}

impl Shape {
    /// What the three matrices take, unless that is more than can be counted.
    fn bytes(&self) -> Option<usize> {
        let floats = |rows: usize, columns: usize| rows.checked_mul(columns);
        let (a, b, out) =
            (floats(self.m, self.k)?, floats(self.k, self.n)?, floats(self.m, self.n)?);
        a.checked_add(b)?.checked_add(out)?.checked_mul(size_of::<f32>())
    }
}

/// T where an operand is stored as its transpose: a weight (Cout, Cin) in `x·Wᵀ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
enum Layout {
    /// A·B
    Nn,
    /// A·Bᵀ: forward
    Nt,
    /// Aᵀ·B: gradient of the weight
    Tn,
    /// Aᵀ·Bᵀ
    Tt,
}

impl Layout {
    fn name(self) -> &'static str {
        match self {
            Layout::Nn => "NN",
            Layout::Nt => "NT",
            Layout::Tn => "TN",
            Layout::Tt => "TT",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Destination {
    Set,
    Add,
}

#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    shape: Shape,
    seconds: Times,
    gflops: f64,
    share_of_peak: f64,
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
    seconds: Vec<f64>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.requests {
        return serve();
    }
    let shapes = chosen(arguments)?;
    for shape in &shapes {
        check_memory(shape.bytes())?;
    }
    let mut out = io::stdout();
    let mut progress = StatusLine::new();
    let terminal = Terminal::stdout();
    progress.show("measuring the machine …");
    let machine = Machine::of_this_process();
    let peak = Peak::measure(machine.threads);
    progress.clear();

    let longest = shapes.iter().map(|shape| shape.name.chars().count()).max().unwrap_or(0);
    let columns = Columns::new().left("shape", longest).left("", 2).right("median ms", 9);
    let columns = columns.right("best ms", 9).right("spread", 6).right("GFLOP/s", 7);
    let columns = columns.right("peak", 5);
    let columns = columns.fitting(terminal.width, &["best ms", "spread", "peak"]);
    if !arguments.json {
        let threads = plural(machine.threads, "thread");
        writeln!(out, "peak {:.1} GFLOP/s, {threads}", peak.gflops)?;
        writeln!(out, "{}", terminal.bold(&columns.head()))?;
    }
    let mut results = Vec::new();
    for shape in shapes {
        progress.show(&format!("timing {} …", shape.name));
        let result = measure(shape, peak, arguments.seconds)?;
        progress.clear();
        if !arguments.json {
            let cells = [
                result.shape.name.clone(),
                result.shape.layout.name().to_owned(),
                format!("{:.3}", result.seconds.median * 1e3),
                format!("{:.3}", result.seconds.min * 1e3),
                percent(result.seconds.spread, 0),
                format!("{:.1}", result.gflops),
                percent(result.share_of_peak, 0),
            ];
            writeln!(out, "{}", columns.row(&cells))?;
        }
        results.push(result);
    }
    if arguments.json {
        let version = env!("CARGO_PKG_VERSION");
        let report = Report { version, machine, peak, results };
        let text = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    } else if let Some(largest) = results.iter().max_by_key(|result| result.memory.resident) {
        let text = format!("most memory: {}, by {}", largest.memory.text(), largest.shape.name);
        for line in wrap(&text, terminal.width) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// The shapes to time.
fn chosen(arguments: &Arguments) -> Result<Vec<Shape>, Failure> {
    if !arguments.shapes.is_empty() {
        let own = |&[m, n, k]: &[usize; 3]| Shape {
            group: "own".to_owned(),
            name: format!("{m}×{n}×{k}"),
            m,
            n,
            k,
            layout: arguments.layout,
            write: Destination::Set,
        };
        return Ok(arguments.shapes.iter().map(own).collect());
    }
    let all: Vec<Shape> = serde_json::from_str(SHAPES).expect("the embedded list is tested");
    for group in &arguments.groups {
        if !all.iter().any(|shape| shape.group == *group) {
            let mut groups: Vec<&str> = all.iter().map(|shape| shape.group.as_str()).collect();
            groups.dedup();
            return Err(Failure::input(
                format!("there is no group '{group}'"),
                format!("the groups are {}", groups.join(", ")),
            ));
        }
    }
    let wanted = |shape: &Shape| match &arguments.groups[..] {
        [] => DEFAULT_GROUPS.contains(&shape.group.as_str()),
        groups => groups.contains(&shape.group),
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// A product that can be run again and again.
struct Product {
    shape: Shape,
    a: Tensor,   // (M, K), or (K, M) if transposed
    b: Tensor,   // (K, N), or (N, K)
    out: Tensor, // (M, N)
}

impl Product {
    fn new(shape: Shape) -> Result<Self, Failure> {
        check_memory(shape.bytes())?;
        let Shape { m, n, k, .. } = shape;
        let (a, b) = (Rng::new(1).normal([m, k], 1.0), Rng::new(2).normal([k, n], 1.0));
        Ok(Self { shape, a, b, out: Tensor::zeros([m, n]) })
    }

    fn run(&mut self) {
        let Shape { m, n, k, layout, write, .. } = self.shape;
        let (a, b) = (self.a.data(), self.b.data());
        let a = match layout {
            Layout::Nn | Layout::Nt => Matrix::new(a, m, k),
            Layout::Tn | Layout::Tt => Matrix::new(a, k, m).transposed(),
        };
        let b = match layout {
            Layout::Nn | Layout::Tn => Matrix::new(b, k, n),
            Layout::Nt | Layout::Tt => Matrix::new(b, n, k).transposed(),
        };
        let write = if write == Destination::Add { To::Add } else { To::Set };
        gemm(a, b, self.out.data_mut(), n, write, Epilogue::default());
    }
}

fn measure(shape: Shape, peak: Peak, budget: Duration) -> Result<Measured, Failure> {
    Memory::reset();
    let mut product = Product::new(shape)?;
    let seconds = Times::of(repeat(budget, || timed(|| product.run())));
    let shape = product.shape.clone();
    let gflops = 2.0 * shape.m as f64 * shape.n as f64 * shape.k as f64 / seconds.median / 1e9;
    let share_of_peak = gflops / peak.gflops;
    Ok(Measured { shape, seconds, gflops, share_of_peak, memory: Memory::most() })
}

/// Answers requests; operands stay from one request to the next of the same shape.
fn serve() -> Result<(), Failure> {
    let mut kept: Option<Product> = None;
    requests::serve(|request: Request| {
        let same = |product: &Product| {
            let key = |s: &Shape| (s.m, s.n, s.k, s.layout, s.write);
            key(&product.shape) == key(&request.shape)
        };
        let mut product = match kept.take().filter(same) {
            Some(product) => product,
            None => Product::new(request.shape)?,
        };
        product.run(); // warms up the caches that a peer has just filled
        let seconds = (0..request.calls).map(|_| timed(|| product.run())).collect();
        product.out.data_mut().fill(0.0); // sums do not grow without end
        kept = Some(product);
        Ok(Answer { seconds })
    })
}

/// Reads `MxNxK`.
fn dimensions(text: &str) -> Result<[usize; 3], String> {
    let numbers: Result<Vec<usize>, _> = text.split(['x', '×']).map(str::parse).collect();
    match numbers.as_deref() {
        Ok(&[m, n, k]) if m > 0 && n > 0 && k > 0 => Ok([m, n, k]),
        _ => Err("expected three positive numbers such as 512x768x64".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_shapes_can_be_read() {
        let all: Vec<Shape> = serde_json::from_str(SHAPES).unwrap();
        for group in DEFAULT_GROUPS {
            assert!(all.iter().any(|shape| shape.group == group), "{group}");
        }
    }

    #[test]
    fn dimensions_are_three_positive_numbers() {
        assert_eq!(dimensions("1x22x333"), Ok([1, 22, 333]));
        for wrong in ["", "1x2", "1x2x3x4", "0x1x1", "axbxc", "1x2x-3"] {
            assert!(dimensions(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_shape_beyond_all_memory_is_refused() {
        let write = Destination::Set;
        for size in [1 << 24, usize::MAX] {
            let (group, name) = (String::new(), String::new());
            let shape = Shape { group, name, m: size, n: size, k: size, layout: Layout::Nn, write };
            let Err(Failure::Error(error)) = Product::new(shape) else { panic!("{size}") };
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
