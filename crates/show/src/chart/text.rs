//! Curves in characters, for a terminal.

use super::{Chart, Mark};
use crate::terminal::fit;

/// The mark of each curve, in order.
const MARKS: [char; 8] = ['●', '○', '×', '+', '▪', '◇', '◆', '·'];

impl Chart {
    /// The chart in lines of at most `width` characters, with `height` rows of points; empty if there
    /// is nothing to show. Where curves cross, the last one is seen.
    pub fn text(&self, width: usize, height: usize) -> Vec<String> {
        let series: Vec<Vec<(f64, f64)>> = self.series.iter().map(|s| self.usable(s)).collect();
        if series.iter().all(Vec::is_empty) || height < 2 {
            return Vec::new();
        }
        let frame = self.frame(&series);
        let rows: Vec<(usize, String)> = (frame.y.ticks().into_iter())
            .map(|(y, label)| (at(1.0 - frame.y.share(y), height), label))
            .collect();
        let left = rows.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
        let columns = width.saturating_sub(left + 2).max(8);
        let mut grid = vec![vec![' '; columns]; height];
        let column = |x: f64| at(frame.x.share(x), columns);
        let mut put = |x: usize, y: f64, mark: char| {
            let row = at(1.0 - frame.y.share(y), height);
            if let Some(cell) = grid.get_mut(row).and_then(|row| row.get_mut(x)) {
                *cell = mark;
            }
        };
        for ((style, points), mark) in self.series.iter().zip(&series).zip(MARKS.iter().cycle()) {
            for &(x, y) in points {
                put(column(x), y, *mark);
            }
            for pair in points.windows(2).filter(|_| style.mark != Mark::Dots) {
                let (a, b) = (pair[0], pair[1]);
                for x in column(a.0) + 1..column(b.0) {
                    let share = (x - column(a.0)) as f64 / (column(b.0) - column(a.0)) as f64;
                    put(x, a.1 + share * (b.1 - a.1), *mark);
                }
            }
        }
        let mut lines = vec![fit(&self.title, width).trim_end().to_owned()];
        for (row, cells) in grid.iter().enumerate() {
            let label = rows.iter().find(|(at, _)| *at == row);
            let name = label.map_or("", |(_, label)| label.as_str());
            let cells: String = cells.iter().collect();
            let blanks = " ".repeat(left - name.chars().count());
            lines.push(format!("{blanks}{name} │{}", cells.trim_end()));
        }
        let indent = " ".repeat(left + 1);
        lines.push(format!("{indent}└{}", "─".repeat(columns)));
        let mut labels = vec![' '; columns];
        let mut free = 0;
        for (x, label) in frame.x.ticks() {
            let label: Vec<char> = label.chars().take(columns).collect();
            let start = column(x).saturating_sub(label.len() / 2).min(columns - label.len());
            if start >= free {
                labels[start..start + label.len()].copy_from_slice(&label);
                free = start + label.len() + 1;
            }
        }
        let labels: String = labels.into_iter().collect();
        lines.push(format!("{indent} {}", labels.trim_end()));
        let middle = columns.saturating_sub(self.x_label.chars().count()) / 2;
        lines.push(format!("{indent} {}{}", " ".repeat(middle), self.x_label));
        if self.has_legend() {
            let names = self.series.iter().zip(MARKS.iter().cycle());
            let names: Vec<String> = names.map(|(s, mark)| format!("{mark} {}", s.name)).collect();
            lines.push(format!("{indent} {}", names.join("   ")));
        }
        lines
    }
}

/// The place of a share of `places` that lie from 0 to 1.
fn at(share: f64, places: usize) -> usize {
    (share.clamp(0.0, 1.0) * (places - 1) as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Series, svg};

    #[test]
    fn a_line_goes_from_corner_to_corner() {
        let mut chart = Chart::new("up", "x", "y").with(Series {
            name: "up".to_owned(),
            color: svg::BLUE,
            points: vec![(-1.0, -1.0), (1.0, 1.0)],
            mark: Mark::Line,
        });
        chart.linear_x = true;
        let lines = chart.text(40, 9);
        assert!(lines[1].ends_with('●') && lines[9].contains("│●"), "{lines:#?}");
        assert!(lines[5].trim_start().starts_with("0.0 │"), "{lines:#?}");
        assert!(lines[11].contains("0.0"), "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:#?}");
        assert!(Chart::new("empty", "x", "y").text(40, 9).is_empty());
    }
}
