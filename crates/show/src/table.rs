//! Text in columns.

use crate::terminal::{fit, fit_end, padded, visible};

/// A table of text, for a page or for the terminal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// The names of its columns; the first is aligned left, the others right.
    pub columns: Vec<String>,
    /// Its cells.
    pub rows: Vec<Vec<String>>,
}

/// The columns of a table in the terminal: their headings, widths and sides. Rows can be written
/// one by one, as they come.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    list: Vec<Column>,
    indent: usize,
    keeps_ends: bool,
}

#[derive(Clone, Debug)]
struct Column {
    heading: String,
    width: usize,
    right: bool,
    /// Left out for want of room.
    hidden: bool,
}

/// Blanks between two columns.
pub const GAP: usize = 2;
/// The first column is not made narrower than this.
const LEAST: usize = 8;
/// Other columns are left out before the first gets narrower than this.
const READABLE: usize = 12;

impl Columns {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With so many blanks before every line.
    pub fn indented(mut self, indent: usize) -> Self {
        self.indent = indent;
        self
    }

    /// Texts that are longer than the first column lose their beginning, not their end.
    pub fn keeping_ends(mut self) -> Self {
        self.keeps_ends = true;
        self
    }

    /// With a column that is aligned left, at least as wide as its heading.
    pub fn left(self, heading: &str, width: usize) -> Self {
        self.with(heading, width, false)
    }

    /// With a column that is aligned right, at least as wide as its heading.
    pub fn right(self, heading: &str, width: usize) -> Self {
        self.with(heading, width, true)
    }

    fn with(mut self, heading: &str, width: usize, right: bool) -> Self {
        let width = width.max(heading.chars().count());
        self.list.push(Column { heading: heading.to_owned(), width, right, hidden: false });
        self
    }

    /// Wide enough for these rows.
    pub fn holding<S: AsRef<str>>(mut self, rows: &[impl AsRef<[S]>]) -> Self {
        for row in rows {
            for (column, cell) in self.list.iter_mut().zip(row.as_ref()) {
                let cell = visible(cell.as_ref());
                column.width = column.width.max(cell.chars().count());
            }
        }
        self
    }

    /// Without those of the columns with `headings`, from the first on, for which a line of `width`
    /// characters has no room; then as [`within`](Self::within). Rows keep their cells.
    pub fn fitting(mut self, width: usize, headings: &[&str]) -> Self {
        for heading in headings {
            let first = self.list.first().map_or(0, |first| first.width);
            if self.width() - first + first.min(READABLE) <= width {
                break;
            }
            for column in self.list.iter_mut().skip(1).filter(|c| c.heading == *heading) {
                column.hidden = true;
            }
        }
        self.within(width)
    }

    /// With a first column so narrow, if need be, that lines have at most `width` characters.
    pub fn within(mut self, width: usize) -> Self {
        let over = self.width().saturating_sub(width);
        if let Some(first) = self.list.first_mut() {
            first.width = first.width.saturating_sub(over).max(first.width.min(LEAST));
        }
        self
    }

    /// Characters of a line.
    pub fn width(&self) -> usize {
        let shown = || self.list.iter().filter(|column| !column.hidden);
        let widths: usize = shown().map(|column| column.width).sum();
        self.indent + widths + GAP * shown().count().saturating_sub(1)
    }

    /// The headings.
    pub fn head(&self) -> String {
        let headings: Vec<&str> = self.list.iter().map(|c| c.heading.as_str()).collect();
        self.row(&headings)
    }

    /// A row whose last cell is written as it is, colours and all.
    pub fn row_ending<S: AsRef<str>>(&self, cells: &[S], last: &str) -> String {
        let before = self.list.iter().take(cells.len()).filter(|column| !column.hidden);
        let before: usize = before.map(|column| column.width + GAP).sum();
        let row = padded(&self.row(cells), self.indent + before.saturating_sub(GAP), false);
        row + &" ".repeat(GAP) + last
    }

    /// A row. Text that is longer than the first column is cut; a number that is longer than its
    /// column is not.
    pub fn row<S: AsRef<str>>(&self, cells: &[S]) -> String {
        let mut line = " ".repeat(self.indent);
        let shown = self.list.iter().zip(cells).filter(|(column, _)| !column.hidden);
        for (i, (Column { width, right, .. }, cell)) in shown.enumerate() {
            let (cell, width) = (visible(cell.as_ref()), *width);
            if i > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            line.push_str(&match (i, right) {
                (0, false) if self.keeps_ends => fit_end(&cell, width),
                (0, false) => fit(&cell, width),
                (_, right) => padded(&cell, width, *right),
            });
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_as_wide_as_their_cells() {
        let rows = [["α", "1"], ["a long name", "1234"]];
        let columns = Columns::new().left("name", 0).right("n", 0).holding(&rows);
        assert_eq!(columns.head(), "name            n");
        assert_eq!(columns.row(&rows[0]), "α               1");
        assert_eq!(columns.row(&rows[1]), "a long name  1234");
        assert_eq!(columns.width(), 17);
        assert_eq!(columns.indented(2).row(&["a", ""]), "  a");
    }

    #[test]
    fn columns_are_left_out_in_order_until_a_line_fits() {
        let columns = Columns::new().left("name", 20).right("a", 6).right("b", 6).right("c", 6);
        let row = |width: usize| {
            let fitting = columns.clone().fitting(width, &["b", "c"]);
            assert!(fitting.width() <= width, "{width}");
            fitting.row(&["abcdefghijklmnopqrst", "1", "2", "3"])
        };
        assert_eq!(row(44), "abcdefghijklmnopqrst       1       2       3");
        assert_eq!(row(36), "abcdefghijk…       1       2       3");
        assert_eq!(row(30), "abcdefghijklm…       1       3");
        assert_eq!(row(24), "abcdefghijklmno…       1");
        assert_eq!(columns.fitting(24, &["b", "c"]).head(), "name                   a");
    }

    #[test]
    fn the_first_column_gives_way_and_numbers_stay_whole() {
        let columns = Columns::new().left("name", 20).right("n", 4);
        for width in 0..40 {
            let narrow = columns.clone().within(width);
            let line = narrow.row(&["abcdefghijklmnopqrst", "1234"]);
            assert!(line.chars().count() <= width.max(LEAST + GAP + 4), "{width}: {line}");
            assert!(line.ends_with("  1234"), "{line}");
        }
        assert_eq!(columns.within(14).row(&["abcdefghij", "12345"]), "abcdefg…  12345");
    }
}
