//! The measured time of a token and the expected one, over logarithmic axes: a power law is a
//! straight line, and its exponent is the slope.

use super::{Against, Point, Series};
use hearken::show::svg::{BLUE, ORANGE};
use hearken::show::{Chart, Mark, Series as Curve};

/// Grey, for a term of what is expected.
const TERM: &str = "#94a3b8";

/// The chart of one series as an SVG document.
pub(super) fn draw(series: &Series) -> String {
    let (title, x_label) = match series.against {
        Against::Length => ("Time of a token against the length", "tokens per sequence, T"),
        Against::Width => ("Time of a token against the width", "width of the model, C"),
        Against::Threads => ("Time of a token against the threads", "threads, n"),
    };
    let x_label = format!("{x_label} ({})", series.model);
    let mut chart = Chart::new(title, &x_label, "µs per token of training");
    (chart.logarithmic, chart.doublings) = (true, true);
    for (name, term) in terms(series) {
        chart.series.push(curve(name, TERM, Mark::Dashes, term));
    }
    let expected = match series.against {
        Against::Length => "expected: their sum",
        Against::Width => "expected: C²",
        Against::Threads => "expected: n⁻¹",
    };
    let points = |y: fn(&Point) -> f64| series.points.iter().map(|p| (p.x as f64, y(p))).collect();
    chart.series.push(curve(expected, ORANGE, Mark::Dashes, points(|p| p.expected_us_per_token)));
    chart.series.push(curve("measured", BLUE, Mark::Dots, points(|p| p.us_per_token)));
    chart.svg()
}

fn curve(name: &str, color: &'static str, mark: Mark, points: Vec<(f64, f64)>) -> Curve {
    Curve { name: name.to_owned(), color, points, mark }
}

/// What is expected against the length, as its two power laws.
fn terms(series: &Series) -> Vec<(&'static str, Vec<(f64, f64)>)> {
    if series.against != Against::Length {
        return Vec::new();
    }
    let weights = |p: &Point| p.expected_us_per_token * p.work_of_weights / p.work;
    let flat = series.points.iter().map(|p| (p.x as f64, weights(p))).collect();
    // Only where it is at least a quarter of the other: else it would stretch the axis.
    let rising = series.points.iter().map(|p| (p, p.expected_us_per_token - weights(p)));
    let rising = rising.filter(|(p, attention)| 4.0 * attention >= weights(p));
    let rising = rising.map(|(p, attention)| (p.x as f64, attention)).collect();
    vec![("weights: T⁰", flat), ("attention: T¹", rising)]
}
