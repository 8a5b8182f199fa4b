//! Several runs on one page: curves over each other, settings in which they differ, costs, samples.

use crate::evaluation::Metric;
use crate::metrics::{Row, final_training_loss};
use crate::plot::{Chart, Mark, Series};
use hearken_show::number::{duration, short, thousands};
use hearken_show::page::{self, Value, context, markup};
use hearken_show::svg::PALETTE;
use std::collections::{BTreeMap, BTreeSet};

/// The page.
const TEMPLATE: &str = include_str!("report/compare.html");

/// What the pages of a run and of several share.
pub const STYLE: &str = include_str!("report/style.css");

/// A run to be compared.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it is called.
    pub name: String,
    /// `metrics.jsonl`
    pub rows: Vec<Row>,
    /// Its settings by their full names.
    pub settings: BTreeMap<String, String>,
    /// Numbers in all of its weights, if it has saved any.
    pub parameters: Option<usize>,
    /// The last that it wrote, and after which step.
    pub sample: Option<(u64, String)>,
}

/// The runs on one page.
pub fn html(runs: &[Run]) -> String {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let charts = [
        (
            "The loss against the number of steps: the lower curve has learned more from the same \
             number of updates.",
            chart(runs, "Validation loss by step", "step", |row| row.step as f64, true),
        ),
        (
            "The loss against the time that each run took on its machine: the lower curve makes \
             better use of it.",
            chart(runs, "Validation loss by time", "seconds", |row| row.elapsed_seconds, true),
        ),
        (
            "The loss on the batches of training, as a mean over neighbouring steps: a run whose \
             curve goes on falling here while the validation loss does not is learning by heart.",
            chart(runs, "Training loss by step", "step", |row| row.step as f64, false),
        ),
    ];
    let charts: Vec<Value> = charts
        .into_iter()
        .filter(|(_, chart)| chart.series.iter().any(|series| !series.points.is_empty()))
        .map(|(about, mut chart)| {
            let wide = markup(chart.svg());
            chart.size = (530.0, 300.0); // for a small screen
            context! { about, wide, narrow => markup(chart.svg()) }
        })
        .collect();
    let samples: Vec<Value> = runs
        .iter()
        .filter_map(|run| {
            let (step, text) = run.sample.as_ref()?;
            Some(context! { name => run.name.clone(), step, text })
        })
        .collect();
    let values = context! {
        title => format!("Hearken: {}", names.join(", ")),
        style => markup(STYLE.to_owned()),
        names,
        charts,
        costs => costs(runs),
        settings => differences(runs),
        samples,
    };
    page::render(TEMPLATE, values).expect("the template is ours, and tested")
}

fn chart(runs: &[Run], title: &str, x: &str, at: fn(&Row) -> f64, validation: bool) -> Chart {
    let mut chart = Chart::new(title, x, "loss");
    for (run, color) in runs.iter().zip(PALETTE.iter().cycle()) {
        let y = |row: &Row| if validation { row.value(Metric::LOSS) } else { row.train_loss };
        let points: Vec<(f64, f64)> =
            run.rows.iter().filter_map(|row| Some((at(row), y(row)?))).collect();
        let points = if validation { points } else { smooth(&points) };
        let last = if validation {
            points.last().map(|last| last.1)
        } else {
            final_training_loss(&run.rows).map(|(_, loss)| loss)
        };
        let name = match last {
            Some(loss) => format!("{} {loss:.4}", run.name),
            None => run.name.clone(),
        };
        let mark = if validation { Mark::Dots } else { Mark::Line };
        chart.series.push(Series { name, color, points, mark });
    }
    chart.size = (1080.0, 400.0);
    chart
}

/// The mean of each of some hundred neighbourhoods.
fn smooth(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let each = points.len().div_ceil(100).max(1);
    let mean = |part: &[(f64, f64)]| {
        let sum = part.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / part.len() as f64, sum.1 / part.len() as f64)
    };
    points.chunks(each).map(mean).collect()
}

/// What each run came to and took: rows of a name and a cell per run.
fn costs(runs: &[Run]) -> Vec<Value> {
    let row = |name: &str, of: &dyn Fn(&Run) -> Option<String>| {
        let cells: Vec<String> = runs.iter().map(|run| of(run).unwrap_or("–".to_owned())).collect();
        context! { name, cells }
    };
    let losses = |run: &Run| run.rows.iter().filter_map(|row| row.value(Metric::LOSS)).collect();
    vec![
        row("parameters", &|run| Some(thousands(run.parameters? as f64))),
        row("steps", &|run| Some(thousands(run.rows.last()?.step as f64))),
        row("time", &|run| Some(duration(run.rows.last()?.elapsed_seconds))),
        row("tokens per second", &|run| {
            let mut speeds: Vec<f64> = run.rows.iter().map(|row| row.tokens_per_second).collect();
            speeds.sort_by(f64::total_cmp);
            speeds.get(speeds.len() / 2).map(|speed| short(*speed))
        }),
        row("training loss at the end", &|run| {
            final_training_loss(&run.rows).map(|(_, loss)| format!("{loss:.4}"))
        }),
        row("last validation loss", &|run| {
            let losses: Vec<f64> = losses(run);
            losses.last().map(|loss| format!("{loss:.4}"))
        }),
        row("best validation loss", &|run| {
            let losses: Vec<f64> = losses(run);
            losses.into_iter().min_by(f64::total_cmp).map(|loss| format!("{loss:.4}"))
        }),
    ]
}

/// The settings in which not all runs agree.
fn differences(runs: &[Run]) -> Vec<Value> {
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.settings.keys()).collect();
    names
        .into_iter()
        .filter_map(|name| {
            let cells: Vec<Option<&String>> =
                runs.iter().map(|run| run.settings.get(name)).collect();
            let differ = cells.windows(2).any(|pair| pair[0] != pair[1]);
            let cells: Vec<String> =
                cells.into_iter().map(|cell| cell.map_or("–", String::as_str).to_owned()).collect();
            differ.then(|| context! { name, cells })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Score;

    fn run(name: &str, lr: &str, loss: f64) -> Run {
        let row = |step| Row {
            step,
            train_loss: Some(loss + 0.5),
            validation: Score::of(&Metric::loss(loss)).into_iter().collect(),
            lr: 0.1,
            grad_norm: None,
            tokens_per_second: 1234.0,
            elapsed_seconds: step as f64,
        };
        let settings = [("train.lr", lr), ("train.seed", "1")];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Run {
            name: name.to_owned(),
            rows: vec![row(1), row(2)],
            settings: settings.into_iter().collect(),
            parameters: Some(12_345),
            sample: Some((2, format!("<said by {name}>"))),
        }
    }

    #[test]
    fn a_page_has_curves_differences_costs_and_samples() {
        let html = html(&[run("a<b", "0.1", 2.0), run("c", "0.2", 1.25)]);
        assert!(html.contains("a&lt;b 2.0000") && html.contains("c 1.2500"), "curves");
        assert!(html.contains("train.lr") && !html.contains("train.seed"), "only what differs");
        assert!(html.contains("&lt;said by c&gt;") && !html.contains("<said"));
        assert!(html.contains("<td>12,345</td>"), "parameters");
        // Curves and tables name the same training loss.
        assert!(html.contains("a&lt;b 2.5000") && html.contains("<td>2.5000</td>"));
        assert!(html.contains("best validation loss") && html.contains("<td>1.2500</td>"));
        for outside in ["src=", "href=", "@import", "url(", "<script"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_run_without_a_step_is_no_reason_to_fail() {
        let empty = Run { rows: Vec::new(), sample: None, ..run("empty", "0.1", 0.0) };
        let html = html(&[empty.clone(), empty]);
        assert!(html.contains("–") && !html.contains("NaN"), "{html}");
    }
}
