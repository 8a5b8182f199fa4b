//! Texts with their translations: lines with a tab between the two, or two files whose lines belong
//! together.
//!
//! Unlike the tables of `tables.rs`, lines with tabs have no quoting, as is usual for parallel text:
//! a double quote is a character like any other. A first line that names the fields may be there.

use super::record::{Field, Reader, Record, line, shown};
use super::{Fields, Problem};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// The names of the two texts, unless others are given.
pub(super) const NAMES: [&str; 2] = ["source", "target"];

/// A source and its target per line, with a tab between them.
pub(super) struct Tabbed {
    input: BufReader<File>,
    line: u64,
    /// The names of both texts in a first line.
    names: [String; 2],
    /// Were they chosen? Then a first line must have them.
    chosen: bool,
    /// Where the two stand, and how many fields a line has; known once a line was read.
    columns: Option<([usize; 2], usize)>,
}

impl Tabbed {
    pub(super) fn new(file: File, fields: &Fields) -> Self {
        let usual = Fields::default();
        let [source, target] = NAMES;
        let name = |field: &String, usual: &String, own: &str| {
            if field == usual { own.to_owned() } else { field.clone() }
        };
        let names =
            [name(&fields.text, &usual.text, source), name(&fields.label, &usual.label, target)];
        let chosen = fields.text != usual.text || fields.label != usual.label;
        Self { input: BufReader::new(file), line: 0, names, chosen, columns: None }
    }

    /// Where a first line names the two texts, if it does.
    fn named(&self, cells: &[&str]) -> Result<Option<[usize; 2]>, Problem> {
        let find = |name: &String| cells.iter().position(|cell| cell.trim() == name);
        let [source, target] = &self.names;
        let missing = match (find(source), find(target)) {
            (Some(source), Some(target)) => return Ok(Some([source, target])),
            _ if !self.chosen => return Ok(None),
            (Some(_), None) => target,
            (None, _) => source,
        };
        Err(Problem::new(
            format!("no field is called '{missing}': {:?}", shown(&cells.join("\t"))),
            "the first line has to name the fields that are chosen; leave the choice out if it has \
             no names",
        ))
    }
}

impl Reader for Tabbed {
    fn next(&mut self, at: &mut u64) -> Result<Option<Record>, Problem> {
        loop {
            *at = self.line + 1;
            let Some(text) = line(&mut self.input, &mut self.line)? else { return Ok(None) };
            let cells: Vec<&str> = text.split('\t').collect();
            let (places, count) = match self.columns {
                Some(columns) => columns,
                None => match self.named(&cells)? {
                    Some(places) => {
                        self.columns = Some((places, cells.len()));
                        continue;
                    }
                    None => *self.columns.insert(([0, 1], 2)),
                },
            };
            // An empty line is a pair with two empty sides: it is counted as such.
            let blank = text.trim().is_empty();
            if cells.len() != count && !blank {
                return Err(Problem::new(
                    format!("{} fields, expected {count}: {:?}", cells.len(), shown(&text)),
                    "a line is a source, a tab and its target; a first line with the names of the \
                     fields may say where they stand",
                ));
            }
            let cell = |i: usize| cells.get(i).copied().unwrap_or_default().to_owned();
            return Ok(Some(record(cell(places[0]), cell(places[1]))));
        }
    }
}

/// Two files: line i of the one belongs to line i of the other.
pub(super) struct Parallel {
    inputs: [BufReader<File>; 2],
    names: [PathBuf; 2],
    line: u64,
}

impl Parallel {
    pub(super) fn new(files: [File; 2], names: [PathBuf; 2]) -> Self {
        Self { inputs: files.map(BufReader::new), names, line: 0 }
    }
}

impl Reader for Parallel {
    fn next(&mut self, at: &mut u64) -> Result<Option<Record>, Problem> {
        *at = self.line + 1;
        let [source, target] = &mut self.inputs;
        let mut other = self.line;
        let source = line(source, &mut self.line)?;
        let target = line(target, &mut other).map_err(|problem| {
            Problem::new(format!("{}: {}", self.names[1].display(), problem.what), problem.hint)
        })?;
        match (source, target) {
            (None, None) => Ok(None),
            (Some(source), Some(target)) => Ok(Some(record(source, target))),
            (source, _) => {
                let [sources, targets] = self.names.each_ref().map(|name| name.display());
                let (short, long) =
                    if source.is_some() { (targets, sources) } else { (sources, targets) };
                Err(Problem::new(
                    format!("{short} has no line {at}, and {long} has"),
                    "line i of the one file belongs to line i of the other: both have as many",
                ))
            }
        }
    }
}

fn record(source: String, target: String) -> Record {
    let [first, second] = NAMES.map(str::to_owned);
    let fields = [(first, Field::Text(source)), (second, Field::Text(target))].into();
    Record { fields, others: Vec::new() }
}
