//! Curves as SVG, dark on light, readable by themselves and inside the report.
//!
//! A noisy series of many points is drawn as the mean of each of a few hundred buckets, over a
//! band from the lowest to the highest: nothing is hidden, and the file stays small.

mod axis;
mod text;

use crate::svg::{self, GREEN, GREY, INK, escape, text};
use axis::Axis;
use std::fmt::Write as _;

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
    /// Does the horizontal axis begin at the smallest x, which may be negative, with any numbers
    /// along it, instead of at 0 with whole ones?
    pub linear_x: bool,
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
            linear_x: false,
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
        let mut out = svg::open(width, height, &self.title);
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
        // Room below a level is for its writing.
        let y = if self.logarithmic {
            Axis::decades(ys, !self.levels.is_empty())
        } else {
            Axis::linear(ys, !self.levels.is_empty())
        };
        // A digit is 7 pixels wide; its label and a gap stand left of it.
        let digits = y.ticks().iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
        Frame {
            left: (7.0 * digits as f64 + 38.0).max(70.0),
            right: width - 22.0,
            top: 44.0 + LEGEND_ROW * self.legend_rows() as f64,
            bottom: height - 52.0,
            x: match (self.doublings, self.linear_x) {
                (true, _) => Axis::doublings(xs),
                (false, true) => Axis::exact(xs),
                (false, false) => Axis::steps(xs),
            },
            y,
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
        text(out, middle, frame.bottom + 40.0, "middle", INK, 13.0, &self.x_label);
        let y = f64::midpoint(frame.top, frame.bottom);
        let _ = writeln!(
            out,
            "<text transform=\"translate(18 {y:.1}) rotate(-90)\" text-anchor=\"middle\" \
             font-size=\"13\" fill=\"{INK}\">{}</text>",
            escape(&self.y_label)
        );
    }

    /// A single curve that is called like the chart needs none.
    fn has_legend(&self) -> bool {
        self.series.len() > 1 || self.series.iter().any(|s| s.name != self.title)
    }

    /// Where each name of the legend stands: from the left, and in which row.
    fn legend_places(&self) -> Vec<(f64, usize)> {
        let (mut x, mut row) = (18.0, 0);
        let mut places = Vec::new();
        for series in &self.series {
            // 6.6 pixels are a little more than a usual letter at this size.
            let end = x + 25.0 + 6.6 * series.name.chars().count() as f64;
            if end > self.size.0 - 8.0 && x > 18.0 {
                (x, row) = (18.0, row + 1);
            }
            places.push((x, row));
            x += 25.0 + 6.6 * series.name.chars().count() as f64 + 22.0;
        }
        places
    }

    fn legend_rows(&self) -> usize {
        let last = self.legend_places().last().map_or(0, |(_, row)| row + 1);
        if self.has_legend() { last } else { 0 }
    }

    fn legend(&self, out: &mut String) {
        if !self.has_legend() {
            return;
        }
        for (series, (x, row)) in self.series.iter().zip(self.legend_places()) {
            let y = 44.0 + LEGEND_ROW * row as f64;
            let _ = writeln!(
                out,
                "<line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{}\" \
                 stroke-width=\"3\"{}/>",
                x + 18.0,
                series.color,
                if series.mark == Mark::Dashes { " stroke-dasharray=\"5 3\"" } else { "" }
            );
            text(out, x + 25.0, y + 4.0, "start", INK, 12.5, &series.name);
        }
    }
}

/// The height of a row of the legend in pixels.
const LEGEND_ROW: f64 = 18.0;

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
    let size = points.len().div_ceil(most.max(1)).max(1);
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
        "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{GREEN}\" \
         stroke-width=\"1.6\" stroke-dasharray=\"6 4\"/>"
    );
    // Below the line, where no curve goes.
    text(out, right - 4.0, y + 15.0, "end", GREEN, 12.0, &level.name);
}

#[cfg(test)]
mod tests {
    use super::*;

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
            color: svg::BLUE,
            points,
            mark: Mark::Dots,
        };
        for points in [
            vec![],
            vec![(1.0, f64::NAN)],
            vec![(0.0, 0.0)],
            vec![(5.0, 2.0); 3],
            vec![(1.0, 1e-12), (2.0, f64::INFINITY), (3.0, 1e12)],
            vec![(1.0, 0.0), (2.0, 1e308), (3.0, f64::MIN)],
            vec![(1.0, 1e-320), (2.0, 1e-310)],
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
