//! Comma- and tab-separated values (RFC 4180), strictly.
//!
//! The first record names the fields. A field that begins with a double quote ends at the next one
//! that is not doubled, and may hold separators and line ends. Records have as many fields as the
//! header; empty lines between them are passed over.

use super::Problem;
use super::record::{Field, LONGEST, Reader, Record, line, shown};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;

/// Columns of a table.
const MOST_COLUMNS: usize = 4096;

pub(super) struct Table {
    input: BufReader<File>,
    line: u64,
    separator: char,
    header: Option<Vec<String>>,
}

impl Table {
    pub(super) fn new(file: File, separator: u8) -> Self {
        let input = BufReader::new(file);
        Self { input, line: 0, separator: char::from(separator), header: None }
    }

    /// The fields of the next record that is not an empty line.
    fn fields(&mut self, at: &mut u64) -> Result<Option<Vec<String>>, Problem> {
        loop {
            *at = self.line + 1;
            let Some(mut text) = line(&mut self.input, &mut self.line)? else { return Ok(None) };
            if text.is_empty() {
                continue;
            }
            let mut cut = Cut { separator: self.separator, ..Cut::default() };
            let mut bytes = 0;
            while !cut.line(&text)? {
                let unclosed = || {
                    let hint = "double quotes inside a quoted field (\"\"), and close it";
                    Problem::new("a quoted field that begins here is not closed", hint)
                };
                // A line that is not text is wrong where it stands.
                let begins = std::mem::replace(at, self.line + 1);
                let more = line(&mut self.input, &mut self.line)?;
                *at = begins;
                bytes += text.len() + 1;
                text = more.filter(|more| bytes + more.len() < LONGEST).ok_or_else(unclosed)?;
            }
            return Ok(Some(cut.fields));
        }
    }

    fn read_header(&mut self, at: &mut u64) -> Result<Option<Vec<String>>, Problem> {
        let Some(fields) = self.fields(at)? else { return Ok(None) };
        let fields: Vec<String> = fields.iter().map(|name| name.trim().to_owned()).collect();
        if fields.len() > MOST_COLUMNS {
            let what = format!("{} columns, expected at most {MOST_COLUMNS}", fields.len());
            return Err(Problem::new(what, "is it the right file?"));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = fields.iter().find(|name| !seen.insert(name.as_str())) {
            let what = format!("two columns are called {:?}", shown(twice));
            return Err(Problem::new(what, "the first line names the columns, each once"));
        }
        Ok(Some(fields))
    }
}

impl Reader for Table {
    fn next(&mut self, at: &mut u64) -> Result<Option<Record>, Problem> {
        if self.header.is_none() {
            self.header = self.read_header(at)?;
        }
        let Some(fields) = self.fields(at)? else { return Ok(None) };
        let header = self.header.as_deref().unwrap_or_default();
        if fields.len() != header.len() {
            return Err(Problem::new(
                format!("{} fields, expected {} as in the first line", fields.len(), header.len()),
                "quote fields that hold the separator or a line end",
            ));
        }
        let fields = header.iter().cloned().zip(fields.into_iter().map(Field::Text)).collect();
        Ok(Some(Record { fields, others: Vec::new() }))
    }
}

/// A record that is cut into its fields, line by line.
#[derive(Default)]
struct Cut {
    separator: char,
    fields: Vec<String>,
    /// The quoted field that goes on in the next line.
    open: Option<String>,
}

impl Cut {
    /// Takes a line; is the record whole with it?
    fn line(&mut self, line: &str) -> Result<bool, Problem> {
        let mut rest = line;
        loop {
            let quoted = match self.open.take() {
                Some(mut field) => {
                    field.push('\n');
                    Some((field, rest))
                }
                None => rest.strip_prefix('"').map(|rest| (String::new(), rest)),
            };
            if let Some((mut field, inside)) = quoted {
                let Some(after) = unquote(inside, &mut field) else {
                    self.open = Some(field);
                    return Ok(false);
                };
                self.fields.push(field);
                if after.is_empty() {
                    return Ok(true);
                }
                rest = after.strip_prefix(self.separator).ok_or_else(|| {
                    let what = format!("{:?} after a quoted field", shown(after));
                    Problem::new(what, "double quotes inside a quoted field (\"\")")
                })?;
            } else if let Some((field, after)) = rest.split_once(self.separator) {
                self.fields.push(field.to_owned());
                rest = after;
            } else {
                self.fields.push(rest.to_owned());
                return Ok(true);
            }
        }
    }
}

/// Adds what a quoted field has of `text`, whose opening quote has been taken; gives what follows
/// its closing quote, if that is there.
fn unquote<'a>(text: &'a str, field: &mut String) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            field.push_str(rest);
            return None;
        };
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                rest = more;
            }
            None => return Some(after),
        }
    }
}
