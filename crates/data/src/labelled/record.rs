//! A row as its file has it: named fields, not yet understood.

use super::Problem;
use std::collections::BTreeMap;
use std::io::{BufRead, Read};

/// Bytes of a record: a line, or lines that a quoted field joins.
pub(super) const LONGEST: usize = 16 << 20;
/// Names that a message lists, and the characters that it shows of each.
const LISTED: (usize, usize) = (20, 40);

/// A file of records.
pub(super) trait Reader {
    /// The next record, and the line at which it begins (or at which it is wrong).
    fn next(&mut self, line: &mut u64) -> Result<Option<Record>, Problem>;
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Field {
    Text(String),
    Number(f64),
    Texts(Vec<String>),
    Numbers(Vec<f64>),
    /// null
    Nothing,
    /// Anything else.
    Other,
}

/// Fields by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) fields: BTreeMap<String, Field>,
    /// Names of fields that were passed over, the first few of them, for messages.
    pub(super) others: Vec<String>,
}

impl Record {
    pub(super) fn bytes(&self) -> u64 {
        let of = |field: &Field| match field {
            Field::Text(text) => text.len(),
            Field::Texts(texts) => texts.iter().map(|text| text.len() + 24).sum(),
            Field::Numbers(numbers) => 8 * numbers.len(),
            _ => 8,
        };
        self.fields.values().map(of).sum::<usize>() as u64
    }

    /// Takes a field out, if it is there and not null.
    pub(super) fn take(&mut self, name: &str) -> Option<Field> {
        self.fields.remove(name).filter(|field| *field != Field::Nothing)
    }

    /// A field that must be there.
    pub(super) fn require(&mut self, name: &str) -> Result<Field, Problem> {
        let found = self.fields.remove(name);
        match found {
            Some(Field::Nothing) => Err(Problem::new(
                format!("the field {name:?} is null"),
                "give it a value, or leave the row out",
            )),
            Some(field) => Ok(field),
            None => Err(Problem::new(format!("the field {name:?} is missing"), self.hint())),
        }
    }

    /// A text that must be there and not be empty.
    pub(super) fn text(&mut self, name: &str) -> Result<String, Problem> {
        let text = match self.require(name)? {
            Field::Text(text) => text,
            Field::Number(number) => number.to_string(),
            _ => {
                let what = format!("the field {name:?} is not a text");
                return Err(Problem::new(what, "expected a string"));
            }
        };
        if text.trim().is_empty() {
            let what = format!("the field {name:?} is empty");
            return Err(Problem::new(what, "give it a text, or leave the row out"));
        }
        Ok(text)
    }

    fn hint(&self) -> String {
        let names = self.fields.keys().chain(&self.others).take(LISTED.0);
        let names: Vec<String> = names.map(|name| shown(name)).collect();
        if names.is_empty() {
            return "this row has no other fields; data.field, data.second and data.label say \
                    which are read"
                .to_owned();
        }
        format!(
            "this row has: {}; data.field, data.second and data.label say which are read",
            names.join(", ")
        )
    }
}

/// The first characters of a name or a text from a file, for a message.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(LISTED.1).collect()
}

/// Reads a line without its end. `None` at the end of the file.
pub(super) fn line(from: &mut impl BufRead, number: &mut u64) -> Result<Option<String>, Problem> {
    let mut bytes = Vec::new();
    let mut limited = from.take(LONGEST as u64 + 1);
    let read = limited.read_until(b'\n', &mut bytes).map_err(|error| {
        Problem::new(format!("cannot be read: {error}"), "check the file and the disk")
    })?;
    if read == 0 {
        return Ok(None);
    }
    *number += 1;
    if read > LONGEST {
        return Err(Problem::new(format!("longer than {LONGEST} bytes"), "is it the right file?"));
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    if *number == 1
        && let Some(order) = crate::error::utf16_of(&bytes)
    {
        let hint = format!("convert the file: iconv -f {order} -t utf-8 FILE > utf8.txt");
        return Err(Problem::new("UTF-16 text, expected UTF-8", &hint));
    }
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let hint = "convert the file (iconv -f latin1 -t utf-8)";
        Problem::new(format!("not UTF-8 text, from byte {at} of the line on"), hint)
    })?;
    if *number == 1 && text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(Some(text))
}
