//! A small matrix of shares from 0 to 1, as a picture: the deeper the colour, the larger the share.
//!
//! Cells of about the same share are one path, so that a page can hold hundreds of pictures.

use crate::svg::{BLUE, GREY, INK, escape};
use std::fmt::Write as _;

/// Shades, from the palest to full colour.
const SHADES: usize = 6;
/// Shares below this are left out.
const LEAST: f32 = 0.03;

/// The sizes of a picture.
struct Sizes {
    /// The side of a cell.
    cell: f64,
    /// Characters of a label that are shown.
    label: usize,
    /// Of labels and of the title.
    font: [f64; 2],
}

const SMALL: Sizes = Sizes { cell: 7.0, label: 8, font: [7.0, 11.0] };
const LARGE: Sizes = Sizes { cell: 18.0, label: 24, font: [13.0, 15.0] };

/// Rows and columns with labels, and a share for each pair.
#[derive(Clone, Debug)]
pub struct Grid<'a> {
    /// Above it.
    pub title: &'a str,
    /// Beside the rows, from the top.
    pub rows: &'a [String],
    /// Below the columns, from the left.
    pub columns: &'a [String],
    /// Row by row; what is not there counts as 0.
    pub cells: &'a [f32],
}

impl Grid<'_> {
    /// A small picture, to stand among others.
    pub fn svg(&self) -> String {
        self.draw(&SMALL)
    }

    /// A large picture, to be looked at by itself.
    pub fn large_svg(&self) -> String {
        self.draw(&LARGE)
    }

    fn draw(&self, sizes: &Sizes) -> String {
        let &Sizes { cell, label: most, font: [small, large] } = sizes;
        let widest = |labels: &[String]| {
            labels.iter().map(|label| label.chars().count().min(most)).max().unwrap_or(0) as f64
        };
        let letter = 0.6 * small; // the width of one in a monospaced font
        let (left, top) = (6.0 + letter * widest(self.rows), 2.0 * large);
        let (right, bottom) =
            (left + cell * self.columns.len() as f64, top + cell * self.rows.len() as f64);
        // The title may be wider than the cells.
        let title = left + 0.6 * large * self.title.chars().count() as f64;
        let (width, height) =
            (right.max(title) + 4.0, bottom + 6.0 + letter * widest(self.columns));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\" \
             font-family=\"ui-monospace, Menlo, Consolas, monospace\">\n\
             <text x=\"{left:.1}\" y=\"{:.0}\" font-size=\"{large}\" fill=\"{INK}\">{title}</text>\n\
             <rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" \
             stroke=\"{GREY}\" stroke-opacity=\"0.3\"/>\n",
            1.3 * large,
            right - left,
            bottom - top,
            title = escape(self.title),
        );
        let mut shades = vec![String::new(); SHADES];
        for (i, share) in self.cells.iter().enumerate() {
            let columns = self.columns.len().max(1);
            let (row, column) = (i / columns, i % columns);
            if *share < LEAST || row >= self.rows.len() {
                continue;
            }
            let shade = ((share * SHADES as f32).ceil() as usize).clamp(1, SHADES) - 1;
            let (x, y) = (left + cell * column as f64, top + cell * row as f64);
            let _ = write!(shades[shade], "M{x:.1} {y:.1}h{cell}v{cell}h-{cell}z");
        }
        for (shade, path) in shades.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let opacity = (shade + 1) as f64 / SHADES as f64;
            let _ =
                writeln!(out, "<path d=\"{path}\" fill=\"{BLUE}\" fill-opacity=\"{opacity:.2}\"/>");
        }
        let short = |label: &str| escape(&label.chars().take(most).collect::<String>());
        for (i, label) in self.rows.iter().enumerate() {
            let y = top + cell * (i as f64 + 0.5) + small / 3.0;
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\" font-size=\"{small}\" fill=\"{GREY}\">{}</text>",
                left - 3.0,
                short(label)
            );
        }
        for (i, label) in self.columns.iter().enumerate() {
            let (x, y) = (left + cell * (i as f64 + 0.5) + small / 3.0, bottom + 3.0);
            let _ = writeln!(
                out,
                "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"end\" \
                 font-size=\"{small}\" fill=\"{GREY}\">{}</text>",
                short(label)
            );
        }
        out + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shaded_and_labels_escaped() {
        let labels = ["<".to_owned(), "b".to_owned()];
        let cells = [1.0, 0.01, 0.5, 0.5];
        let grid = Grid { title: "head <0>", rows: &labels, columns: &labels, cells: &cells };
        let svg = grid.svg();
        assert!(svg.contains("head &lt;0&gt;") && svg.contains(">&lt;</text>"), "{svg}");
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
        assert!(svg.contains("fill-opacity=\"1.00\"") && svg.contains("fill-opacity=\"0.50\""));
        assert_eq!(svg.matches("h7v7h-7z").count(), 3, "0.01 is left out");
    }

    #[test]
    fn a_large_picture_has_whole_labels() {
        let labels = ["quadrillion".to_owned()];
        let grid = Grid { title: "", rows: &labels, columns: &labels, cells: &[1.0] };
        assert!(grid.svg().contains(">quadrill</text>"), "{}", grid.svg());
        assert_eq!(grid.large_svg().matches(">quadrillion</text>").count(), 2);
    }

    #[test]
    fn nothing_is_a_picture_too() {
        let svg = Grid { title: "", rows: &[], columns: &[], cells: &[1.0] }.svg();
        assert!(svg.ends_with("</svg>\n") && !svg.contains("<path"));
    }
}
