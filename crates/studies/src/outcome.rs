//! What a study came to: charts, tables, findings, and all numbers for programs.

use crate::statistics::Sample;
use hearken_show::svg::PALETTE;
use hearken_show::{Chart, Mark, Series, Table};
use serde_json::Value;

/// A chart and what it shows.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// The curves.
    pub chart: Chart,
    /// What it shows and how to read it, in a sentence or two.
    pub about: String,
}

/// A table and what its numbers are.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The cells.
    pub table: Table,
    /// What they are, in a sentence or two.
    pub about: String,
}

/// What a study came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was done: task, sizes, budget, and what is equal for all; a paragraph each.
    pub method: Vec<String>,
    /// One true sentence each, made of the numbers; without a full stop.
    pub findings: Vec<String>,
    /// In order.
    pub drawings: Vec<Drawing>,
    /// In order.
    pub listings: Vec<Listing>,
    /// Every number, for programs: an object.
    pub numbers: Value,
}

/// Points at which a contender was measured, each over its seeds.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// Its place in the study's list of contenders, which decides its colour.
    pub color: usize,
    /// x, and y by seed.
    pub points: Vec<(f64, Sample)>,
}

impl Line {
    /// The means, marked at every point.
    pub fn series(&self) -> Series {
        let points = self.points.iter().map(|(x, sample)| (*x, sample.mean())).collect();
        let color = PALETTE[self.color % PALETTE.len()];
        Series { name: self.name.clone(), color, points, mark: Mark::Dots }
    }

    /// What was measured at `x`.
    pub fn at(&self, x: f64) -> Option<&Sample> {
        self.points.iter().find(|point| point.0 == x).map(|point| &point.1)
    }

    /// For programs: `{"x": [y by seed]}` as a list of points.
    pub fn json(&self) -> Value {
        let point = |(x, sample): &(f64, Sample)| serde_json::json!({"x": x, "y": sample.values});
        self.points.iter().map(point).collect()
    }
}

/// Lines for programs, by name.
pub fn by_name(lines: &[Line]) -> Value {
    let entries = lines.iter().map(|line| (line.name.clone(), line.json()));
    entries.collect::<serde_json::Map<_, _>>().into()
}

impl Drawing {
    /// A chart of the means of lines.
    pub fn of(
        title: &str,
        x_label: &str,
        y_label: &str,
        lines: &[Line],
        about: impl Into<String>,
    ) -> Self {
        let mut chart = Chart::new(title, x_label, y_label);
        chart.series = lines.iter().map(Line::series).collect();
        Self { chart, about: about.into() }
    }

    /// The same with a horizontal axis in doublings.
    pub fn in_doublings(mut self) -> Self {
        self.chart.doublings = true;
        self
    }

    /// The same with a logarithmic vertical axis.
    pub fn logarithmic(mut self) -> Self {
        self.chart.logarithmic = true;
        self
    }
}

impl Listing {
    /// A row per line and a column per x, `mean (low–high)` in the cells.
    pub fn of(
        title: &str,
        x_heading: impl Fn(f64) -> String,
        lines: &[Line],
        number: impl Fn(f64) -> String + Copy,
        about: impl Into<String>,
    ) -> Self {
        let mut xs: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|p| p.0).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let mut columns = vec![String::new()];
        columns.extend(xs.iter().map(|x| x_heading(*x)));
        let row = |line: &Line| {
            let mut cells = vec![line.name.clone()];
            cells.extend(xs.iter().map(|x| {
                let point = line.points.iter().find(|point| point.0 == *x);
                point.map_or("–".to_owned(), |(_, sample)| sample.show(number))
            }));
            cells
        };
        let rows = lines.iter().map(row).collect();
        let table = Table { title: title.to_owned(), columns, rows };
        Self { table, about: about.into() }
    }
}
