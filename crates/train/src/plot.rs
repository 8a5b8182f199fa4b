//! Curves as SVG, dark on light, readable by themselves and inside the report.
//!
//! A noisy series of many points is drawn as the mean of each of a few hundred buckets, over a
//! band from the lowest to the highest: nothing is hidden, and the file stays small.

mod axis;

use crate::evaluation::Metric;
use crate::metrics::Row;
use axis::Axis;
use std::fmt::Write as _;

/// Blue, for training.
pub const TRAIN: &str = "#2563eb";
/// Orange, for validation.
pub const VALIDATION: &str = "#ea580c";
/// Green, for the floor.
pub const FLOOR: &str = "#059669";
/// Grey, for what is only scenery.
const GREY: &str = "#64748b";

/// A curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// As in CSS.
    pub color: &'static str,
    /// (x, y), x rising; y that is not finite is left out.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub mark: Mark,
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line: for many points.
    Line,
    /// A line with every point marked: for a few points far apart.
    Dots,
    /// A broken line: for what is expected rather than measured.
    Dashes,
}

/// A level that the curves are seen against.
#[derive(Clone, Debug)]
pub struct Level {
    /// Written on it.
    pub name: String,
    /// Where it is.
    pub y: f64,
}

/// Curves over common axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above the curves.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    /// The curves, the last on top.
    pub series: Vec<Series>,
    /// Levels.
    pub levels: Vec<Level>,
    /// Is the vertical axis logarithmic? Then y that is not positive is left out.
    pub logarithmic: bool,
    /// Is the horizontal axis logarithmic, in doublings? Then it starts at the smallest x, and x
    /// that is not positive is left out.
    pub doublings: bool,
    /// Width and height in pixels.
    pub size: (f64, f64),
}

impl Chart {
    /// An empty chart.
    pub fn new(title: &str, x_label: &str, y_label: &str) -> Self {
        Self {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            series: Vec::new(),
            levels: Vec::new(),
            logarithmic: false,
            doublings: false,
            size: (760.0, 420.0),
        }
    }

    /// With one more curve.
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// The chart as an SVG document, which is also an element of HTML.
    pub fn svg(&self) -> String {
        let (width, height) = self.size;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\" \
             font-family=\"system-ui, -apple-system, 'Segoe UI', sans-serif\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\" \
             fill=\"#0f172a\">{title}</text>\n",
            title = escape(&self.title)
        );
        let series: Vec<Vec<(f64, f64)>> = self.series.iter().map(|s| self.usable(s)).collect();
        if series.iter().all(Vec::is_empty) {
            let (x, y) = (width / 2.0, height / 2.0);
            text(&mut out, x, y, "middle", GREY, 14.0, "nothing measured yet");
            return out + "</svg>\n";
        }
        let frame = self.frame(&series);
        self.axes(&mut out, &frame);
        for level in &self.levels {
            level_line(&mut out, &frame, level);
        }
        for (style, points) in self.series.iter().zip(&series) {
            curve(&mut out, &frame, style, points);
        }
        self.legend(&mut out);
        out + "</svg>\n"
    }

    fn usable(&self, series: &Series) -> Vec<(f64, f64)> {
        let points = series.points.iter().copied();
        let usable = |&(x, y): &(f64, f64)| {
            y.is_finite() && (!self.logarithmic || y > 0.0) && (!self.doublings || x > 0.0)
        };
        points.filter(usable).collect()
    }

    fn frame(&self, series: &[Vec<(f64, f64)>]) -> Frame {
        let xs = series.iter().flatten().map(|p| p.0);
        let levels = self.levels.iter().map(|level| level.y);
        let ys = series.iter().flatten().map(|p| p.1).chain(levels);
        let (width, height) = self.size;
        Frame {
            left: 70.0,
            right: width - 22.0,
            top: if self.has_legend() { 62.0 } else { 44.0 },
            bottom: height - 52.0,
            x: if self.doublings { Axis::doublings(xs) } else { Axis::steps(xs) },
            // Room below a level is for its writing.
            y: if self.logarithmic {
                Axis::decades(ys, !self.levels.is_empty())
            } else {
                Axis::linear(ys, !self.levels.is_empty())
            },
        }
    }

    fn axes(&self, out: &mut String, frame: &Frame) {
        for (tick, label) in frame.y.ticks() {
            let y = frame.at_y(tick);
            let (left, right) = (frame.left, frame.right);
            let _ = writeln!(
                out,
                "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" \
                 stroke=\"#e2e8f0\"/>"
            );
            text(out, left - 8.0, y + 4.0, "end", GREY, 12.0, &label);
        }
        for (tick, label) in frame.x.ticks() {
            let x = frame.at_x(tick);
            let bottom = frame.bottom;
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\" stroke=\"{GREY}\"/>",
                bottom + 5.0
            );
            text(out, x, bottom + 19.0, "middle", GREY, 12.0, &label);
        }
        let _ = writeln!(
            out,
            "<line x1=\"{}\" x2=\"{}\" y1=\"{b}\" y2=\"{b}\" stroke=\"{GREY}\"/>",
            frame.left,
            frame.right,
            b = frame.bottom
        );
        let middle = f64::midpoint(frame.left, frame.right);
        text(out, middle, frame.bottom + 40.0, "middle", "#334155", 13.0, &self.x_label);
        let y = f64::midpoint(frame.top, frame.bottom);
        let _ = writeln!(
            out,
            "<text transform=\"translate(18 {y:.1}) rotate(-90)\" text-anchor=\"middle\" \
             font-size=\"13\" fill=\"#334155\">{}</text>",
            escape(&self.y_label)
        );
    }

    /// A single curve that is called like the chart needs none.
    fn has_legend(&self) -> bool {
        self.series.len() > 1 || self.series.iter().any(|s| s.name != self.title)
    }

    fn legend(&self, out: &mut String) {
        if !self.has_legend() {
            return;
        }
        let mut x = 18.0;
        for series in &self.series {
            let _ = writeln!(
                out,
                "<line x1=\"{x}\" x2=\"{}\" y1=\"44\" y2=\"44\" stroke=\"{}\" \
                 stroke-width=\"3\"{}/>",
                x + 18.0,
                series.color,
                if series.mark == Mark::Dashes { " stroke-dasharray=\"5 3\"" } else { "" }
            );
            text(out, x + 25.0, 48.0, "start", "#334155", 12.5, &series.name);
            // 6.6 pixels are a little more than a usual letter at this size.
            x += 25.0 + 6.6 * series.name.chars().count() as f64 + 22.0;
        }
    }
}

/// Where the curves are drawn, and which numbers that is.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Axis,
    y: Axis,
}

impl Frame {
    fn at_x(&self, x: f64) -> f64 {
        self.left + (self.right - self.left) * self.x.share(x)
    }

    fn at_y(&self, y: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * self.y.share(y)
    }
}

/// The mean, lowest and highest of a bucket of points, at its mean x.
struct Bucket {
    x: f64,
    mean: f64,
    low: f64,
    high: f64,
}

/// At most `most` buckets of neighbouring points.
fn buckets(points: &[(f64, f64)], most: usize) -> Vec<Bucket> {
    let size = points.len().div_ceil(most).max(1);
    let bucket = |points: &[(f64, f64)]| {
        let n = points.len() as f64;
        Bucket {
            x: points.iter().map(|p| p.0).sum::<f64>() / n,
            mean: points.iter().map(|p| p.1).sum::<f64>() / n,
            low: points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min),
            high: points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max),
        }
    };
    points.chunks(size).map(bucket).collect()
}

fn curve(out: &mut String, frame: &Frame, style: &Series, points: &[(f64, f64)]) {
    // A bucket is about three pixels wide.
    let buckets = buckets(points, ((frame.right - frame.left) / 3.0) as usize);
    let place = |x: f64, y: f64| format!("{:.1},{:.1}", frame.at_x(x), frame.at_y(y));
    if buckets.len() < points.len() {
        let up = buckets.iter().map(|b| place(b.x, b.high));
        let down = buckets.iter().rev().map(|b| place(b.x, b.low));
        let band: Vec<String> = up.chain(down).collect();
        let _ = writeln!(
            out,
            "<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.15\"/>",
            band.join(" "),
            style.color
        );
    }
    let line: Vec<String> = buckets.iter().map(|b| place(b.x, b.mean)).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" \
         stroke-linejoin=\"round\"{}/>",
        line.join(" "),
        style.color,
        if style.mark == Mark::Dashes { " stroke-dasharray=\"6 4\"" } else { "" }
    );
    if style.mark == Mark::Dots && buckets.len() <= 60 || buckets.len() == 1 {
        for b in &buckets {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.2\" fill=\"{}\"/>",
                frame.at_x(b.x),
                frame.at_y(b.mean),
                style.color
            );
        }
    }
}

fn level_line(out: &mut String, frame: &Frame, level: &Level) {
    let y = frame.at_y(level.y);
    let (left, right) = (frame.left, frame.right);
    let _ = writeln!(
        out,
        "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{FLOOR}\" \
         stroke-width=\"1.6\" stroke-dasharray=\"6 4\"/>"
    );
    // Below the line, where no curve goes.
    text(out, right - 4.0, y + 15.0, "end", FLOOR, 12.0, &level.name);
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, color: &str, size: f64, what: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
         fill=\"{color}\">{}</text>",
        escape(what)
    );
}

/// 12345 → 12,345
pub fn thousands(x: f64) -> String {
    let digits = format!("{x:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Text that is safe inside XML and HTML, in content and in quoted attributes. Control characters
/// that XML does not allow become �.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// `loss.svg`: training and validation loss, against the floor if one is known.
pub fn loss_chart(rows: &[Row], floor: Option<f64>) -> Chart {
    let points = |y: fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((row.step as f64, y(row)?))).collect()
    };
    let train = points(|row| row.train_loss);
    let validation = points(|row| row.value(Metric::LOSS));
    let mut chart = Chart::new("Loss", "step", "loss");
    // On an even axis, a loss that falls so far lies flat on its floor for most of the run.
    let losses = || train.iter().map(|p| p.1).chain(floor);
    let (least, most) = (losses().fold(f64::MAX, f64::min), losses().fold(0.0, f64::max));
    chart.logarithmic = least > 0.0 && most > 8.0 * least;
    let name = train.last().map_or("training".to_owned(), |p| format!("training {:.4}", p.1));
    chart.series.push(Series { name, color: TRAIN, points: train, mark: Mark::Line });
    if let Some(last) = validation.last() {
        let best = validation.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(*last);
        let mut name = format!("validation {:.4}", last.1);
        if best.0 != last.0 {
            let _ = write!(name, " (best {:.4} at step {})", best.1, thousands(best.0));
        }
        chart.series.push(Series { name, color: VALIDATION, points: validation, mark: Mark::Dots });
    }
    chart.levels.extend(floor.map(|y| Level { name: format!("entropy of the text {y:.4}"), y }));
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        assert_eq!(
            [0.0, 7.0, 999.0, 1000.0, 124_439_808.0].map(thousands),
            ["0", "7", "999", "1,000", "124,439,808"]
        );
    }

    #[test]
    fn a_loss_that_falls_far_is_drawn_over_a_logarithmic_axis() {
        let row = |step, loss| Row {
            step,
            train_loss: Some(loss),
            validation: Vec::new(),
            lr: 0.0,
            grad_norm: None,
            tokens_per_second: 0.0,
            elapsed_seconds: 0.0,
        };
        let rows = [row(1, 4.0), row(2, 0.6)];
        assert!(!loss_chart(&rows, None).logarithmic);
        assert!(loss_chart(&rows, Some(0.1)).logarithmic);
        assert!(!loss_chart(&rows, Some(0.0)).logarithmic);
        assert!(!loss_chart(&[], None).logarithmic);
    }

    #[test]
    fn buckets_keep_the_extremes() {
        let points: Vec<(f64, f64)> =
            (0..1000).map(|i| (f64::from(i), f64::from(i % 10))).collect();
        let buckets = buckets(&points, 100);
        assert_eq!(buckets.len(), 100);
        assert!(buckets.iter().all(|b| (b.low, b.mean, b.high) == (0.0, 4.5, 9.0)));
    }

    #[test]
    fn every_kind_of_data_gives_finite_coordinates() {
        let series = |points: Vec<(f64, f64)>| Series {
            name: "a < b".to_owned(),
            color: TRAIN,
            points,
            mark: Mark::Dots,
        };
        for points in [
            vec![],
            vec![(1.0, f64::NAN)],
            vec![(0.0, 0.0)],
            vec![(5.0, 2.0); 3],
            vec![(1.0, 1e-12), (2.0, f64::INFINITY), (3.0, 1e12)],
            (0..5000).map(|i| (f64::from(i), f64::from(i).sin())).collect(),
        ] {
            for (logarithmic, doublings) in [(false, false), (true, false), (true, true)] {
                let mut chart = Chart::new("<&>", "x", "y").with(series(points.clone()));
                (chart.logarithmic, chart.doublings) = (logarithmic, doublings);
                let svg = chart.svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert!(svg.contains("&lt;&amp;&gt;") && svg.ends_with("</svg>\n"));
                assert!(svg.len() < 60_000, "{}", svg.len());
            }
        }
    }
}
