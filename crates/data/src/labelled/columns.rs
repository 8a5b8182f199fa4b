//! Words and tags in columns, as CoNLL's shared tasks have them: a word and its tag per line, with
//! any columns between them, and an empty line after each sentence. A line that begins with
//! `-DOCSTART-` marks a document and is no word.

use super::Problem;
use super::record::{Field, LONGEST, Reader, Record, line, shown};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;

pub(super) struct Columns {
    input: BufReader<File>,
    line: u64,
}

impl Columns {
    pub(super) fn new(file: File) -> Self {
        Self { input: BufReader::new(file), line: 0 }
    }
}

impl Reader for Columns {
    fn next(&mut self, at: &mut u64) -> Result<Option<Record>, Problem> {
        let (mut words, mut tags, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut begins = None;
        loop {
            *at = self.line + 1;
            let text = line(&mut self.input, &mut self.line)?;
            let ends = text.as_deref().is_none_or(|text| text.trim().is_empty());
            if ends && !words.is_empty() {
                *at = begins.unwrap_or(*at);
                let words = ("tokens".to_owned(), Field::Texts(words));
                let fields = BTreeMap::from([words, ("tags".to_owned(), Field::Texts(tags))]);
                return Ok(Some(Record { fields, others: Vec::new() }));
            }
            let Some(text) = text else { return Ok(None) };
            if ends || text.starts_with("-DOCSTART-") {
                continue;
            }
            let mut columns = text.split_whitespace();
            let (Some(word), Some(tag)) = (columns.next(), columns.next_back()) else {
                return Err(Problem::new(
                    format!("{:?} has no tag", shown(text.trim())),
                    "a line is a word, a space or tab, and its tag",
                ));
            };
            bytes += word.len() + tag.len();
            if bytes > LONGEST {
                let what = format!("a sentence of more than {LONGEST} bytes");
                return Err(Problem::new(what, "an empty line ends a sentence"));
            }
            begins.get_or_insert(*at);
            words.push(word.to_owned());
            tags.push(tag.to_owned());
        }
    }
}
