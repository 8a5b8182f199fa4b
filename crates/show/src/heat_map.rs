//! A number per row and column, as colours in SVG.

use crate::svg::{self, GREY, INK, escape, text};
use std::fmt::Write as _;

/// Where the cells end, from the right and the top.
const RIGHT: f64 = 24.0;
const TOP: f64 = 44.0;
/// More columns than these are thinned out, so that a cell is at least 6 pixels wide.
const MOST_COLUMNS: usize = 140;

/// The sizes of a map: for a page, or for a small screen.
struct Sizes {
    width: f64,
    /// Where the cells begin.
    left: f64,
    /// Characters of a row's name that fit beside the cells.
    name: usize,
    most_columns: usize,
}

const WIDE: Sizes = Sizes { width: 1080.0, left: 190.0, name: 26, most_columns: MOST_COLUMNS };
const NARROW: Sizes = Sizes { width: 530.0, left: 132.0, name: 18, most_columns: MOST_COLUMNS / 2 };

/// Named rows, labelled columns, a colour for every number.
#[derive(Clone, Debug, Default)]
pub struct HeatMap {
    /// Above the map.
    pub title: String,
    /// What the columns are, below them: "step".
    pub x_label: String,
    /// Behind every number: " nats".
    pub unit: String,
    /// Do colours follow the logarithm? Then numbers that are not positive are left white.
    pub logarithmic: bool,
    /// For a small screen?
    pub narrow: bool,
    /// The names of the rows, from the top.
    pub rows: Vec<String>,
    /// From the left.
    pub columns: Vec<Column>,
}

/// A column of a heat map.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Below it.
    pub label: String,
    /// One per row; `None` and what is not finite are left white.
    pub cells: Vec<Option<f64>>,
}

impl HeatMap {
    /// `None` if there is nothing to show.
    pub fn svg(&self) -> Option<String> {
        let Sizes { width, left, most_columns, .. } = *self.sizes();
        let every = self.columns.len().div_ceil(most_columns).max(1);
        let columns: Vec<&Column> = self.columns.iter().step_by(every).collect();
        let all = columns.iter().flat_map(|column| column.cells.iter().flatten());
        let (low, high) = all
            .filter_map(|x| self.on_scale(*x))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        if self.rows.is_empty() || low > high {
            return None;
        }
        // Many rows are thin, few are comfortable.
        let row = (360.0 / self.rows.len() as f64).clamp(6.0, 22.0);
        let bottom = TOP + row * self.rows.len() as f64;
        let cell = (width - left - RIGHT) / columns.len() as f64;
        let mut out = svg::open(width, bottom + 54.0, &self.title);
        self.names(&mut out, row);
        for (j, column) in columns.iter().enumerate() {
            self.column(&mut out, column, left + cell * j as f64, (cell, row), (low, high));
        }
        for (j, column) in columns
            .iter()
            .enumerate()
            .step_by(columns.len().div_ceil(if self.narrow { 4 } else { 8 }))
        {
            let x = left + cell * (j as f64 + 0.5);
            text(&mut out, x, bottom + 18.0, "middle", GREY, 12.0, &column.label);
        }
        self.key(&mut out, low, high);
        let middle = f64::midpoint(left, width - RIGHT);
        text(&mut out, middle, bottom + 38.0, "middle", INK, 13.0, &self.x_label);
        Some(out + "</svg>\n")
    }

    /// What the colour of a number follows.
    fn on_scale(&self, x: f64) -> Option<f64> {
        let x = if self.logarithmic { x.log10() } else { x };
        x.is_finite().then_some(x)
    }

    fn sizes(&self) -> &'static Sizes {
        if self.narrow { &NARROW } else { &WIDE }
    }

    fn names(&self, out: &mut String, row: f64) {
        let Sizes { left, name: most, .. } = *self.sizes();
        let every = (12.0 / row).ceil() as usize;
        for (i, name) in self.rows.iter().enumerate().step_by(every) {
            let y = TOP + row * (i as f64 + 0.5) + 4.0;
            text(out, left - 8.0, y, "end", INK, 12.0, &shortened(name, most));
        }
    }

    fn column(
        &self,
        out: &mut String,
        column: &Column,
        x: f64,
        (width, height): (f64, f64),
        (low, high): (f64, f64),
    ) {
        let space = if self.x_label.is_empty() { "" } else { " " };
        let place = escape(&format!("{}{space}{}", self.x_label, column.label));
        for (i, (name, value)) in self.rows.iter().zip(&column.cells).enumerate() {
            let color = match value.and_then(|x| self.on_scale(x)) {
                Some(x) => viridis((x - low) / (high - low).max(1e-12)),
                None => "#ffffff".to_owned(),
            };
            let value = value.map_or("no finite number".to_owned(), |v| {
                format!("{v:.3e}{}", escape(&self.unit))
            });
            // A tenth wider than its place, so that no seam shows between two.
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 fill=\"{color}\" shape-rendering=\"crispEdges\">\
                 <title>{} at {place}: {value}</title></rect>",
                TOP + height * i as f64,
                width + 0.1,
                height + 0.1,
                escape(name)
            );
        }
    }

    /// Which colour is which number, at the upper right.
    fn key(&self, out: &mut String, low: f64, high: f64) {
        let show = |x: f64| match 10.0_f64.powf(x) {
            _ if !self.logarithmic => format!("{x:.2}"),
            y if (0.1..100.0).contains(&y) => format!("{y:.1}"),
            y => format!("{y:.1e}"),
        };
        // Room for the numbers on both sides and, on a small screen, for the title before them.
        let each = if self.narrow { 1.5 } else { 4.0 };
        let start = self.sizes().width - RIGHT - 90.0 - 40.0 * each;
        for k in 0..40 {
            let x = start + f64::from(k) * each;
            let color = viridis(f64::from(k) / 39.0);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"16\" width=\"{:.1}\" height=\"10\" fill=\"{color}\"/>",
                each + 0.2
            );
        }
        text(out, start - 6.0, 25.0, "end", GREY, 12.0, &show(low));
        text(out, start + 40.0 * each + 6.0, 25.0, "start", GREY, 12.0, &(show(high) + &self.unit));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn map(cells: Vec<Vec<Option<f64>>>) -> HeatMap {
        let column = |(i, cells)| Column { label: format!("<{i}>"), cells };
        HeatMap {
            title: "a & b".to_owned(),
            x_label: "step".to_owned(),
            rows: vec!["<first>".to_owned(), "x".repeat(40)],
            columns: cells.into_iter().enumerate().map(column).collect(),
            ..HeatMap::default()
        }
    }

    #[test]
    fn cells_are_named_and_text_is_escaped() {
        let svg = map(vec![vec![Some(1.0), None], vec![Some(2.0), Some(3.0)]]).svg().unwrap();
        assert!(svg.contains("a &amp; b") && svg.contains(&format!(">…{}<", "x".repeat(25))));
        assert!(svg.contains("<title>&lt;first&gt; at step &lt;1&gt;: 2.000e0</title>"), "{svg}");
        assert!(svg.contains("at step &lt;0&gt;: no finite number") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn nothing_to_show_is_no_map() {
        assert!(map(vec![]).svg().is_none());
        assert!(map(vec![vec![None, Some(f64::NAN)]]).svg().is_none());
        let zeros = HeatMap { logarithmic: true, ..map(vec![vec![Some(0.0), Some(-1.0)]]) };
        assert!(zeros.svg().is_none());
        assert!(HeatMap { rows: vec![], ..map(vec![vec![Some(1.0)]]) }.svg().is_none());
    }

    #[test]
    fn narrow_maps_are_narrow() {
        let svg = HeatMap { narrow: true, ..map(vec![vec![Some(1.0), Some(2.0)]; 1000]) }.svg();
        let svg = svg.unwrap();
        assert!(
            svg.contains("viewBox=\"0 0 530 ") && svg.contains(&format!(">…{}<", "x".repeat(17)))
        );
        assert_eq!(svg.matches("crispEdges").count(), 2 * 67);
    }

    #[test]
    fn long_maps_are_thinned_out() {
        let svg = map(vec![vec![Some(1.0), Some(2.0)]; 1000]).svg().unwrap();
        assert_eq!(svg.matches("crispEdges").count(), 2 * 125);
    }
}
