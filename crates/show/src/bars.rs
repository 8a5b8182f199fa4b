//! Horizontal bars as SVG: each as long as the number it stands for, in coloured parts.

use crate::svg::{self, INK, escape, text};
use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
/// Room for the names on the left and for the notes on the right.
const NAME: f64 = 170.0;
const NOTE: f64 = 150.0;
const ROW: f64 = 26.0;

/// Bars beneath each other, on one scale.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Above them.
    pub title: String,
    /// Name and colour (as in CSS) of each part of a bar, from the left.
    pub parts: Vec<(String, &'static str)>,
    /// From the top.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// On its left.
    pub name: String,
    /// The length of each part; what is not finite or negative has none.
    pub lengths: Vec<f64>,
    /// On its right.
    pub note: String,
}

impl Bar {
    fn lengths(&self) -> impl Iterator<Item = f64> {
        self.lengths.iter().map(|x| if x.is_finite() { x.max(0.0) } else { 0.0 })
    }
}

impl Bars {
    /// The bars as an SVG document, which is also an element of HTML.
    pub fn svg(&self) -> String {
        let longest = self.bars.iter().map(|bar| bar.lengths().sum()).fold(1e-9, f64::max);
        let scale = (WIDTH - NAME - NOTE) / longest;
        let mut out = svg::open(WIDTH, 78.0 + ROW * self.bars.len() as f64, &self.title);
        let mut x = 16.0;
        for (name, color) in &self.parts {
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"40\" width=\"12\" height=\"12\" fill=\"{}\"/>",
                escape(color)
            );
            text(&mut out, x + 18.0, 51.0, "start", INK, 13.0, name);
            // 7 pixels are a little more than a usual letter at this size.
            x += 18.0 + 7.0 * name.chars().count() as f64 + 20.0;
        }
        for (i, bar) in self.bars.iter().enumerate() {
            let y = 66.0 + ROW * i as f64;
            text(&mut out, NAME - 10.0, y + 13.5, "end", INK, 13.0, &bar.name);
            let mut x = NAME;
            for (length, (_, color)) in bar.lengths().zip(&self.parts) {
                let width = length * scale;
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"18\" \
                     fill=\"{}\"/>",
                    escape(color)
                );
                x += width;
            }
            text(&mut out, x + 8.0, y + 13.5, "start", INK, 13.0, &bar.note);
        }
        out + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let bar = |name: &str, lengths: &[f64]| Bar {
            name: name.to_owned(),
            lengths: lengths.to_vec(),
            note: "a note".to_owned(),
        };
        let bars = Bars {
            title: "a < b".to_owned(),
            parts: vec![("one".to_owned(), svg::BLUE), ("two".to_owned(), svg::ORANGE)],
            bars: vec![bar("linear", &[3.0, 1.0]), bar("add", &[f64::NAN, -1.0])],
        };
        let svg = bars.svg();
        assert!(svg.contains("a &lt; b") && svg.contains("a note"));
        assert!(svg.contains("width=\"405.0\"") && svg.contains("width=\"135.0\"")); // 540 for 4
        assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"));
        assert!(Bars::default().svg().ends_with("</svg>\n"));
    }
}
