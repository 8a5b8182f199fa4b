//! One self-contained page, and JSON, of what a study came to.

use crate::outcome::{Drawing, Listing, Outcome};
use crate::request::Request;
use crate::study::Study;
use hearken_base::{Error, Result};
use hearken_show::number::{duration, plural};
use hearken_show::page::{self, Value, context, markup};
use hearken_show::{Columns, Table};
use serde_json::json;

const TEMPLATE: &str = include_str!("page.html");

/// Width and height of a chart on a large screen.
const LARGE: (f64, f64) = (1080.0, 420.0);

/// What a report says of how it was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The machine, in a few words.
    pub machine: String,
    /// The day, `2026-01-31`.
    pub date: String,
    /// How long it took.
    pub seconds: f64,
}

/// The page.
pub fn html(study: &Study, request: &Request, outcome: &Outcome, made: &Made) -> Result<String> {
    let drawing = |Drawing { chart, about }: &Drawing| {
        let mut chart = chart.clone();
        chart.size = LARGE;
        let large = markup(chart.svg());
        chart.size = (530.0, 340.0); // for a small screen
        context! { about, large, small => markup(chart.svg()) }
    };
    let listing = |Listing { table, about }: &Listing| {
        let row = |row: &Vec<String>| -> Vec<Value> {
            let cell = |cell: &String| {
                let (mean, range) = mean_and_range(cell);
                context! { mean, range }
            };
            row.iter().map(cell).collect()
        };
        context! {
            about,
            title => table.title.clone(),
            columns => table.columns.clone(),
            rows => table.rows.iter().map(row).collect::<Vec<_>>(),
        }
    };
    let contenders = study.contenders.iter().filter(|c| request.has(c.name));
    let contenders: Vec<Value> =
        contenders.map(|c| context! { name => c.name, about => c.about }).collect();
    let values = context! {
        style => markup(hearken_train::compare::STYLE.to_owned()),
        title => format!("Hearken: {}", study.name),
        line => study.line,
        question => study.question,
        contenders,
        quick => request.quick,
        effort => (request.effort != 1.0).then(|| format!("{}", request.effort)),
        findings => outcome.findings.iter().map(|text| unbroken(text)).collect::<Vec<String>>(),
        method => outcome.method.clone(),
        drawings => outcome.drawings.iter().map(drawing).collect::<Vec<Value>>(),
        listings => outcome.listings.iter().map(listing).collect::<Vec<Value>>(),
        rule => RULE,
        made => format!(
            "{} · {} · {} · hearken {}",
            made.machine, made.date, duration(made.seconds), env!("CARGO_PKG_VERSION")
        ),
    };
    page::render(TEMPLATE, values)
        .map_err(|error| Error::new(format!("the page: {error}"), "this is a bug in its template"))
}

/// Numbers keep their units in one line.
fn unbroken(text: &str) -> String {
    text.replace(" %", "\u{a0}%").replace(" µs", "\u{a0}µs")
}

/// When a difference is called one, for readers.
const RULE: &str = "Figures are means over seeds (times: over repeated runs), with the lowest and the \
    highest in brackets where they differ. A sentence calls a difference one only if there are at least three seeds or \
    runs on both sides, their ranges do not overlap, and the means are further apart than the wider \
    range. \"No difference was found\" does not mean that there is none. Who diverged with any seed \
    is named and not ranked.";

/// All of it for programs.
pub fn json(study: &Study, request: &Request, outcome: &Outcome, made: &Made) -> serde_json::Value {
    let tables: Vec<serde_json::Value> = outcome
        .listings
        .iter()
        .map(|listing| {
            let table = &listing.table;
            json!({"title": table.title, "columns": table.columns, "rows": table.rows})
        })
        .collect();
    json!({
        "study": study.name,
        "quick": request.quick,
        "effort": request.effort,
        "seed": request.seed,
        "contenders": request.contenders,
        "machine": made.machine,
        "date": made.date,
        "seconds": made.seconds,
        "findings": outcome.findings,
        "method": outcome.method,
        "tables": tables,
        "numbers": outcome.numbers,
    })
}

/// The outcome in the terminal: findings and tables.
pub fn text(outcome: &Outcome, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in &outcome.findings {
        let wrapped = hearken_show::terminal::wrap(finding, width.saturating_sub(2).max(20));
        for (i, line) in wrapped.into_iter().enumerate() {
            lines.push(format!("{}{line}", if i == 0 { "- " } else { "  " }));
        }
    }
    for Listing { table, .. } in &outcome.listings {
        lines.push(String::new());
        let whole = columns_of(table, &table.rows);
        let (columns, rows) = if whole.width() <= width {
            lines.push(table.title.clone());
            (whole, table.rows.clone())
        } else {
            // The page and the JSON have room for them.
            lines.push(format!("{} (without ranges)", table.title));
            let rows: Vec<Vec<String>> = table.rows.iter().map(|row| without_ranges(row)).collect();
            (columns_of(table, &rows).fitting(width, &["parameters", "time"]), rows)
        };
        lines.push(columns.head());
        lines.extend(rows.iter().map(|row| columns.row(row)));
    }
    lines
}

fn columns_of(table: &Table, rows: &[Vec<String>]) -> Columns {
    let mut columns = Columns::new();
    for (i, heading) in table.columns.iter().enumerate() {
        columns = if i == 0 { columns.left(heading, 0) } else { columns.right(heading, 0) };
    }
    columns.holding(rows)
}

/// The parts of `mean (low–high)`.
fn mean_and_range(cell: &str) -> (&str, Option<&str>) {
    match cell.split_once(" (") {
        Some((mean, range)) if range.contains('–') => (mean, range.strip_suffix(')')),
        _ => (cell, None),
    }
}

fn without_ranges(row: &[String]) -> Vec<String> {
    row.iter().map(|cell| mean_and_range(cell).0.to_owned()).collect()
}

/// The charts as they stand on the page, each with the name of a file: `recall-lookup.svg`.
pub fn pictures(study: &Study, outcome: &Outcome) -> Vec<(String, String)> {
    let picture = |Drawing { chart, .. }: &Drawing| {
        let mut chart = chart.clone();
        chart.size = LARGE;
        let words = chart.title.to_lowercase();
        let words = words.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let name = words.fold(study.name.to_owned(), |name, word| name + "-" + word);
        (name + ".svg", chart.svg())
    };
    outcome.drawings.iter().map(picture).collect()
}

/// `3 seeds, from 1337`
pub fn seeds_in_words(seeds: &[u64]) -> String {
    let first = seeds.first().map_or(String::new(), |first| format!(", from {first}"));
    plural(seeds.len(), "seed") + &first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_terminals_show_means_alone() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        let table = Table {
            title: "Right answers".to_owned(),
            columns: words(&["", "at 5", "time"]),
            rows: vec![words(&["window (of 32)", "5 % (4 %–6 %)", "1m 02s"])],
        };
        let listings = vec![Listing { table, about: String::new() }];
        let outcome = Outcome { listings, ..Outcome::default() };
        let wide = text(&outcome, 80);
        assert_eq!(wide[1], "Right answers");
        assert!(wide[3].contains("5 % (4 %–6 %)"), "{wide:?}");
        let narrow = text(&outcome, 32);
        assert_eq!(narrow[1], "Right answers (without ranges)");
        assert_eq!(narrow[3], "window (of 32)   5 %  1m 02s");
    }
}
