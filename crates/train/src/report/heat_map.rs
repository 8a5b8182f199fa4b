//! A number per layer and step, as colours in SVG.

use crate::plot::{escape, thousands};
use std::fmt::Write as _;

/// Step, names of layers, numbers.
pub(super) type Column<'a> = (u64, &'a [String], &'a [Option<f64>]);

/// Rows are layers, columns are steps.
pub(super) struct HeatMap<'a> {
    pub(super) title: &'a str,
    /// Behind every number.
    pub(super) unit: &'a str,
    /// Do colours follow the logarithm?
    pub(super) logarithmic: bool,
    /// The looks, in order.
    pub(super) columns: Vec<Column<'a>>,
}

impl HeatMap<'_> {
    /// `None` if there is nothing to show.
    pub(super) fn svg(&self) -> Option<String> {
        let layers = self.columns.first()?.1;
        // Of a long run every n-th column, so that a cell is at least 6 pixels wide.
        let every = self.columns.len().div_ceil(140);
        let columns: Vec<_> = self.columns.iter().step_by(every).collect();
        let number = |x: f64| {
            let x = if self.logarithmic { x.log10() } else { x };
            x.is_finite().then_some(x)
        };
        let all = columns.iter().flat_map(|column| column.2.iter().flatten());
        let (low, high) = all
            .filter_map(|x| number(*x))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        if layers.is_empty() || low > high {
            return None;
        }
        let (width, left, right, top) = (1080.0, 190.0, 24.0, 44.0);
        // Many layers get thin rows, few get comfortable ones.
        let row = (360.0 / layers.len() as f64).clamp(6.0, 22.0);
        let height = top + row * layers.len() as f64 + 54.0;
        let cell = (width - left - right) / columns.len() as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\" \
             font-family=\"system-ui, -apple-system, 'Segoe UI', sans-serif\">\n\
             <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\" \
             fill=\"#0f172a\">{title}</text>\n",
            title = escape(self.title)
        );
        let label_every = (12.0 / row).ceil() as usize;
        for (i, name) in layers.iter().enumerate().step_by(label_every) {
            let y = top + row * (i as f64 + 0.5) + 4.0;
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\" font-size=\"12\" \
                 fill=\"#334155\">{}</text>",
                left - 8.0,
                escape(&shortened(name, 26))
            );
        }
        for (j, (step, _, numbers)) in columns.iter().enumerate() {
            let x = left + cell * j as f64;
            for (i, value) in numbers.iter().take(layers.len()).enumerate() {
                let color = match value.and_then(number) {
                    Some(x) => viridis((x - low) / (high - low).max(1e-12)),
                    None => "#ffffff".to_owned(),
                };
                let value =
                    value.map_or("not finite".to_owned(), |v| format!("{v:.3e}{}", self.unit));
                // A tenth wider than its place, so that no seam shows between two.
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                     fill=\"{color}\" shape-rendering=\"crispEdges\"><title>{} at step {step}: {value}</title></rect>",
                    top + row * i as f64,
                    cell + 0.1,
                    row + 0.1,
                    escape(&layers[i])
                );
            }
        }
        let bottom = top + row * layers.len() as f64;
        let labels = (columns.len().div_ceil(8)).max(1);
        for (j, (step, ..)) in columns.iter().enumerate().step_by(labels) {
            let x = left + cell * (j as f64 + 0.5);
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"12\" \
                 fill=\"#64748b\">{}</text>",
                bottom + 18.0,
                thousands(*step as f64)
            );
        }
        let show = |x: f64| match 10.0_f64.powf(x) {
            _ if !self.logarithmic => format!("{x:.2}"),
            y if (0.1..100.0).contains(&y) => format!("{y:.1}"),
            y => format!("{y:.1e}"),
        };
        for k in 0..40 {
            let share = f64::from(k) / 39.0;
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"16\" width=\"4.2\" height=\"10\" fill=\"{}\"/>",
                width - right - 250.0 + f64::from(k) * 4.0,
                viridis(share)
            );
        }
        for (x, anchor, label) in [
            (width - right - 256.0, "end", show(low)),
            (width - right - 84.0, "start", show(high) + self.unit),
        ] {
            let _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"25\" text-anchor=\"{anchor}\" font-size=\"12\" \
                 fill=\"#64748b\">{label}</text>"
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"13\" \
             fill=\"#334155\">step</text>\n</svg>",
            f64::midpoint(left, width - right),
            bottom + 38.0
        );
        Some(out)
    }
}

/// The end of a long name, which says more than its beginning.
fn shortened(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    format!("…{}", name.chars().skip(length + 1 - most).collect::<String>())
}

/// Dark violet over green to yellow, even to the eye and readable without colour vision: six
/// points of the map "viridis" (Smith and van der Walt 2015) with lines between them.
fn viridis(share: f64) -> String {
    const POINTS: [[f64; 3]; 6] = [
        [68.0, 1.0, 84.0],
        [65.0, 68.0, 135.0],
        [42.0, 120.0, 142.0],
        [34.0, 168.0, 132.0],
        [122.0, 209.0, 81.0],
        [253.0, 231.0, 37.0],
    ];
    let at = share.clamp(0.0, 1.0) * (POINTS.len() - 1) as f64;
    let i = (at as usize).min(POINTS.len() - 2);
    let t = at - i as f64;
    let [r, g, b] =
        std::array::from_fn(|c| (POINTS[i][c] * (1.0 - t) + POINTS[i + 1][c] * t).round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}
