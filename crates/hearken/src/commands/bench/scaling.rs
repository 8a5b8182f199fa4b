//! `hearken bench scaling`: how the time of a token grows with the sequence, the width and the
//! threads.
//!
//! Per token, training takes 6·N operations for the N parameters that multiply (12·L·C² of them
//! in the blocks) and, as a token sees T/2 keys on average, 6·L·C·T for causal attention:
//!
//! - against T: flat while T is far below 12·C, where both are the same, and T¹ above;
//! - against C: C² once products are large enough to run at full speed;
//! - against threads: n⁻¹.
//!
//! What the operations let expect is drawn beside what was measured, at the rate of the larger half
//! of the points (small shapes lie above it by what they lose to overhead), and for threads at the
//! rate of one.
//!
//! A point is its fastest step, since what neighbours on a shared machine take away says nothing
//! about growth; the median is reported beside it. All points are gone over several times, so that
//! a slow minute spoils no point wholly.

mod chart;

use super::timing::{Times, repeat, timed};
use super::train::{Step, training};
use super::{check_memory, write_json};
use crate::failure::Failure;
use crate::machine::{Machine, Peak};
use hearken::base::Error;
use hearken::base::settings::Settings;
use hearken::kernels::threads::{MOST_THREADS, with_threads};
use hearken::nn::config::ModelConfig;
use hearken::show::number::percent;
use hearken::show::{Columns, StatusLine, Terminal};
use hearken::tasks::rehearsal;
use hearken::tensor::pool;
use hearken::train::Cost;
use serde::Serialize;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time a token of training against the length, the width and the threads.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// What is varied; default: all three
    #[arg(long, value_enum)]
    only: Option<Against>,

    /// Measure at these instead of the usual ones, as in --only width --at 64,256
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "only",
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    at: Vec<u32>,

    /// Seconds per point, but at least nine steps
    #[arg(long, default_value = "3", value_parser = super::seconds)]
    seconds: Duration,

    /// Draw each to a file in this directory: scaling-length.svg, -width.svg, -threads.svg
    #[arg(long, value_name = "DIRECTORY")]
    svg: Option<PathBuf>,

    /// Write one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken bench scaling
  hearken bench scaling --only length --svg docs/performance
  hearken bench scaling --only width --at 64,128
  hearken bench scaling --json > scaling.json

Keys of --json:
  series         one per quantity: against, model, and points
  points         x, batch, tokens, threads, us_per_token (of the fastest step), median_us_per_token,
                 spread (between quartiles, over the median), gflops and peak_fraction of the
                 operations that causal attention needs, expected_us_per_token (operations at the
                 rate of the larger half, or of one thread), and exponent and expected_exponent
                 between the point before and this one";

/// How often all points are gone over.
const ROUNDS: u32 = 3;

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Against {
    /// Tokens of a sequence, 64 to 8,192, at 8,192 tokens per step
    Length,
    /// Width of the model, 64 to 1,536
    Width,
    /// Threads, 1 to as many as there are cores
    Threads,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    peak: Peak,
    series: Vec<Series>,
}

#[derive(Serialize)]
struct Series {
    against: Against,
    model: &'static str,
    points: Vec<Point>,
}

#[derive(Clone, Serialize)]
struct Point {
    x: usize,
    batch: usize,
    tokens: usize,
    threads: usize,
    us_per_token: f64,
    median_us_per_token: f64,
    spread: f64,
    gflops: f64,
    peak_fraction: f64,
    expected_us_per_token: f64,
    exponent: Option<f64>,
    expected_exponent: Option<f64>,
    /// Operations per token and thread: what the time should be in proportion to.
    #[serde(skip)]
    work: f64,
    /// Those of them that do not depend on the length.
    #[serde(skip)]
    work_of_weights: f64,
}

/// One model and step to be timed.
struct Case {
    x: usize,
    layers: usize,
    width: usize,
    heads: usize,
    vocabulary: usize,
    batch: usize,
    tokens: usize,
    threads: usize,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut progress = StatusLine::new();
    progress.show("measuring the machine's peak");
    let machine = Machine::of_this_process();
    let mut peak = Peak::measure(machine.threads);
    let mut measured = Vec::new();
    for against in [Against::Length, Against::Width, Against::Threads] {
        if arguments.only.is_some_and(|only| only != against) {
            continue;
        }
        let cases = against.cases(machine.threads, &places(against, &arguments.at)?);
        let mut seconds = vec![Vec::new(); cases.len()];
        for round in 1..=ROUNDS {
            for (case, seconds) in cases.iter().zip(&mut seconds) {
                let (name, x) = (against.name(), case.x);
                progress.show(&format!("{name} {x}, round {round} of {ROUNDS}"));
                seconds.extend(case.measure(arguments.seconds / ROUNDS)?);
            }
        }
        measured.push((against, cases, seconds));
        // Neighbours on a shared machine only ever lower a peak.
        let again = Peak::measure(machine.threads);
        peak.gflops = peak.gflops.max(again.gflops);
        peak.read_gb_per_second = peak.read_gb_per_second.max(again.read_gb_per_second);
    }
    let mut series = Vec::new();
    for (against, cases, seconds) in measured {
        let mut points = Vec::new();
        for (case, seconds) in cases.iter().zip(seconds) {
            points.push(case.point(seconds, peak, machine.threads)?);
        }
        let trusted = match against {
            Against::Length | Against::Width => points.len() / 2..points.len(),
            Against::Threads => 0..1,
        };
        expect(&mut points, trusted);
        series.push(Series { against, model: against.model(), points });
    }
    progress.clear();
    if let Some(directory) = &arguments.svg {
        for series in &series {
            draw(directory, series)?;
        }
    }
    let report = Report { version: env!("CARGO_PKG_VERSION"), machine, peak, series };
    show(&report, arguments.json)
}

/// The points that were asked for, from small to large.
fn places(against: Against, at: &[u32]) -> Result<Vec<usize>, Failure> {
    let mut places: Vec<usize> = at.iter().map(|&n| n as usize).collect();
    places.sort_unstable();
    places.dedup();
    match places.last() {
        Some(&n) if against == Against::Threads && n > MOST_THREADS => Err(Failure::input(
            format!("{n} threads, expected at most {MOST_THREADS}"),
            "more threads than cores gain nothing",
        )),
        _ => Ok(places),
    }
}

impl Against {
    fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Width => "width",
            Self::Threads => "threads",
        }
    }

    fn model(self) -> &'static str {
        match self {
            Self::Length => "2 layers × 128, 2 heads, 8,192 tokens per step",
            Self::Width => "2 layers, heads of 64, T 64, 1,024 tokens per step",
            Self::Threads => "6 layers × 384, 6 heads, T 256, 2,048 tokens per step",
        }
    }

    /// The cases at these places, or at the usual ones if there are none.
    fn cases(self, most_threads: usize, places: &[usize]) -> Vec<Case> {
        let usual: Vec<usize> = match self {
            Self::Length => doublings(64, 8192).collect(),
            Self::Width => doublings(64, 1024).chain([1536]).collect(),
            Self::Threads => doublings(1, most_threads).collect(),
        };
        let places = if places.is_empty() { usual.iter() } else { places.iter() };
        match self {
            // Narrow, so that attention outweighs the weights (T > 12·C = 1,536) within the range.
            Self::Length => places
                .map(|&tokens| Case {
                    x: tokens,
                    layers: 2,
                    width: 128,
                    heads: 2,
                    vocabulary: 64,
                    batch: (8192 / tokens).max(1),
                    tokens,
                    threads: most_threads,
                })
                .collect(),
            // Short, so that attention weighs nothing (T < 12·C) from the start.
            Self::Width => places
                .map(|&width| Case {
                    x: width,
                    layers: 2,
                    width,
                    heads: if width % 64 == 0 { width / 64 } else { 1 },
                    vocabulary: 64,
                    batch: 16,
                    tokens: 64,
                    threads: most_threads,
                })
                .collect(),
            // The shape of configs/bench/mid.toml.
            Self::Threads => places
                .map(|&threads| Case {
                    x: threads,
                    layers: 6,
                    width: 384,
                    heads: 6,
                    vocabulary: 65,
                    batch: 8,
                    tokens: 256,
                    threads,
                })
                .collect(),
        }
    }
}

/// `from`, 2·`from`, 4·`from`, … up to `to`.
fn doublings(from: usize, to: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(from), |n| Some(2 * n)).take_while(move |&n| n <= to)
}

impl Case {
    fn config(&self) -> Result<ModelConfig, Failure> {
        let Self { layers, width, heads, vocabulary, tokens, .. } = self;
        let text = format!(
            "kind = \"decoder\"\nvocabulary = {vocabulary}\ncontext = {tokens}\nlayers = {layers}\n\
             width = {width}\nheads = {heads}\nposition = {{ kind = \"learned\" }}\n\
             feed_forward = {{ kind = \"gelu-tanh\" }}\n"
        );
        Ok(Settings::parse(&text, "scaling")?.read()?)
    }

    fn cost(&self) -> Result<Cost, Failure> {
        Ok(rehearsal::cost(&self.config()?, &training(self.batch, 1), self.tokens)?)
    }

    /// The seconds of some steps, in about `budget`.
    fn measure(&self, budget: Duration) -> Result<Vec<f64>, Failure> {
        let config = self.config()?;
        check_memory(usize::try_from(self.cost()?.memory.total()).ok())?;
        let seconds = with_threads(self.threads, || {
            let mut step = Step::new(&config, &training(self.batch, 1), self.tokens)?;
            step.run()?; // beside the one of `repeat`: two fill the pool
            let mut ran = Ok(0.0);
            let seconds = repeat(budget, || {
                timed(|| {
                    let result = step.run();
                    if ran.is_ok() {
                        ran = result;
                    }
                })
            });
            ran?;
            Ok(seconds)
        });
        pool::release();
        seconds
    }

    /// What the steps came to; `peak` is that of `most_threads`.
    fn point(&self, seconds: Vec<f64>, peak: Peak, most_threads: usize) -> Result<Point, Failure> {
        let Self { x, batch, tokens, threads, .. } = *self;
        let training = self.cost()?.training;
        // A causal token sees half of the keys.
        let operations = training.products + training.attention / 2.0;
        let times = Times::of(seconds);
        let rows = (batch * tokens) as f64;
        let per_token = times.min / rows;
        let gflops = operations / per_token / 1e9;
        Ok(Point {
            x,
            batch,
            tokens,
            threads,
            us_per_token: per_token * 1e6,
            median_us_per_token: times.median / rows * 1e6,
            spread: times.spread,
            gflops,
            peak_fraction: gflops / (peak.gflops * threads as f64 / most_threads as f64),
            expected_us_per_token: 0.0,
            exponent: None,
            expected_exponent: None,
            work: operations / threads as f64,
            work_of_weights: training.products / threads as f64,
        })
    }
}

/// Fills in what the operations let expect: time in proportion to them, at the rate of the
/// `trusted` points.
fn expect(points: &mut [Point], trusted: Range<usize>) {
    let trusted = &points[trusted];
    let logs: f64 = trusted.iter().map(|p| (p.us_per_token / p.work).ln()).sum();
    let rate = (logs / trusted.len() as f64).exp();
    for point in points.iter_mut() {
        point.expected_us_per_token = rate * point.work;
    }
    for i in 1..points.len() {
        let (before, here) = (points[i - 1].clone(), &mut points[i]);
        let exponent =
            |from: f64, to: f64| (to / from).ln() / (here.x as f64 / before.x as f64).ln();
        let measured = exponent(before.us_per_token, here.us_per_token);
        let expected = exponent(before.work, here.work);
        (here.exponent, here.expected_exponent) = (Some(measured), Some(expected));
    }
}

fn draw(directory: &Path, series: &Series) -> Result<(), Failure> {
    let path = directory.join(format!("scaling-{}.svg", series.against.name()));
    let written = std::fs::create_dir_all(directory);
    let written = written.and_then(|()| std::fs::write(&path, chart::draw(series)));
    Ok(written.map_err(Error::io("write", &path)).map_err(|e| e.or_hint("check the path"))?)
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        return write_json(&mut out, report);
    }
    let exponent = |e: Option<f64>| e.map_or("–".to_owned(), |e| format!("{e:.2}"));
    for Series { against, model, points } in &report.series {
        writeln!(out, "time of a token against {}\n  {model}", against.name())?;
        let columns = Columns::new().indented(2).right(against.name(), 7);
        let columns = columns.right("µs/token", 9).right("median", 9).right("spread", 7);
        let columns = columns.right("GFLOP/s", 8).right("of peak", 7).right("exponent", 8);
        let columns = columns.right("expected", 8);
        let dropped = ["median", "spread", "of peak", "GFLOP/s"];
        let columns = columns.fitting(Terminal::stdout().width, &dropped);
        writeln!(out, "{}", columns.head())?;
        for point in points {
            let cells = [
                point.x.to_string(),
                format!("{:.2}", point.us_per_token),
                format!("{:.2}", point.median_us_per_token),
                percent(point.spread, 1),
                format!("{:.1}", point.gflops),
                percent(point.peak_fraction, 0),
                exponent(point.exponent),
                exponent(point.expected_exponent),
            ];
            writeln!(out, "{}", columns.row(&cells))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: usize, us_per_token: f64, work: f64) -> Point {
        Point {
            x,
            batch: 1,
            tokens: 64,
            threads: 1,
            us_per_token,
            median_us_per_token: us_per_token,
            spread: 0.0,
            gflops: 1.0,
            peak_fraction: 0.5,
            expected_us_per_token: 0.0,
            exponent: None,
            expected_exponent: None,
            work,
            work_of_weights: 1.0,
        }
    }

    #[test]
    fn exponents_are_slopes_between_neighbours() {
        let mut points = [point(1, 9.0, 1.0), point(2, 8.0, 4.0), point(4, 32.0, 16.0)];
        expect(&mut points, 1..3);
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-12);
        assert!(points[0].exponent.is_none());
        assert!(near(points[2].exponent, 2.0) && near(points[2].expected_exponent, 2.0));
        // Two microseconds per unit of work at both of the larger points.
        let expected = points.each_ref().map(|p| p.expected_us_per_token);
        assert!(expected.iter().zip([2.0, 8.0, 32.0]).all(|(a, b)| (a - b).abs() < 1e-9));
    }

    #[test]
    fn the_cases_are_models_that_can_be_built() {
        for against in [Against::Length, Against::Width, Against::Threads] {
            let cases = against.cases(2, &[]);
            assert!(cases.iter().all(|case| case.config().unwrap().validate().is_ok()));
            let xs: Vec<usize> = cases.iter().map(|case| case.x).collect();
            let ends = match against {
                Against::Length => (64, 8192),
                Against::Width => (64, 1536),
                Against::Threads => (1, 2),
            };
            assert_eq!((xs[0], xs[xs.len() - 1]), ends);
            assert!(xs.is_sorted());
            let own = against.cases(2, &[1, 100, 20_000]);
            assert!(own.iter().all(|case| case.config().unwrap().validate().is_ok()));
            assert_eq!(own.iter().map(|case| case.x).collect::<Vec<_>>(), [1, 100, 20_000]);
        }
    }

    #[test]
    fn the_operations_grow_as_the_head_of_this_file_says() {
        let cases = Against::Length.cases(1, &[]);
        let training = cases[0].cost().unwrap().training;
        // Both terms are the same at T = 12·C, but for the head: V·C beside 12·L·C².
        let attention = training.attention / 2.0 * (12.0 * 128.0 / cases[0].tokens as f64);
        let ratio = attention / training.products;
        assert!((ratio - 1.0).abs() < 0.03, "{attention} beside {}", training.products);
    }
}
