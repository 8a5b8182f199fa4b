//! From named fields to texts with answers.

use super::record::{Field, Record, shown};
use super::translations::NAMES;
use super::{Answer, Ask, Dataset, Fields, MOST_LABELS, Place, Problem, Row};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Numbers of a row.
const MOST_NUMBERS: usize = 100_000;
/// Separates labels and numbers in a field of text, as tables have them.
const SEPARATOR: char = ';';

/// The fields that are read for what is asked.
pub(super) fn wanted(ask: Ask, fields: &Fields) -> Vec<String> {
    let names: &[&str] = match ask {
        Ask::Tags => &["tokens", "tags"],
        Ask::Spans => &["question", "context", "answer", "start"],
        Ask::Pairs => &["second"],
        Ask::Translations => &NAMES,
        Ask::Classes | Ask::Several | Ask::Numbers => &[],
    };
    let mut wanted: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    wanted.extend([fields.text.clone(), fields.label.clone()]);
    wanted.extend(fields.second.clone());
    wanted
}

/// Understands records one by one.
pub(super) struct Interpreter<'a> {
    ask: Ask,
    fields: &'a Fields,
    known: Option<&'a [String]>,
    rows: Vec<Row>,
    /// Each label in the order in which it was met.
    labels: BTreeMap<String, u32>,
    /// Numbers of the first row, and where it is.
    numbers: Option<(usize, Place)>,
    /// Pairs of which a side is empty, and where the first is.
    empty: Option<(usize, Place)>,
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(ask: Ask, fields: &'a Fields, known: Option<&'a [String]>) -> Self {
        let numbered = known.into_iter().flatten().cloned().zip(0..);
        let labels = numbered.collect();
        Self { ask, fields, known, rows: Vec::new(), labels, numbers: None, empty: None }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn take(&mut self, mut record: Record, place: Place) -> Result<(), Problem> {
        let row = match self.ask {
            Ask::Classes | Ask::Several | Ask::Numbers => self.labelled(&mut record, place),
            Ask::Tags => self.tagged(&mut record, place),
            Ask::Spans => question(&mut record, place),
            Ask::Pairs => self.pair(&mut record, place),
            Ask::Translations => return self.translation(&mut record, place),
        };
        self.rows.push(row?);
        Ok(())
    }

    fn labelled(&mut self, record: &mut Record, place: Place) -> Result<Row, Problem> {
        let text = record.text(&self.fields.text)?;
        let second = self.fields.second.as_ref().map(|name| record.text(name)).transpose()?;
        let name = &self.fields.label;
        let field = record.require(name)?;
        let answer = match self.ask {
            Ask::Classes => Answer::Class(self.label(&one_label(&field, name)?)?),
            Ask::Several => {
                let names = some_labels(field, name)?;
                let classes: Result<Vec<u32>, Problem> =
                    names.iter().map(|name| self.label(name)).collect();
                let mut classes = classes?;
                classes.sort_unstable();
                classes.dedup();
                Answer::Several(classes)
            }
            _ => {
                let numbers = some_numbers(&field, name)?;
                let (count, _) = *self.numbers.get_or_insert((numbers.len(), place));
                if numbers.len() != count {
                    return Err(Problem::new(
                        format!("{} numbers, expected {count} as in the first row", numbers.len()),
                        "every row has the same number of numbers",
                    ));
                }
                Answer::Numbers(numbers)
            }
        };
        Ok(Row { text, second, answer, place })
    }

    fn tagged(&mut self, record: &mut Record, place: Place) -> Result<Row, Problem> {
        let words = texts(record.require("tokens")?, "tokens")?;
        let tags = texts(record.require("tags")?, "tags")?;
        if words.len() != tags.len() || words.is_empty() {
            return Err(Problem::new(
                format!("{} tokens with {} tags", words.len(), tags.len()),
                "every token has one tag",
            ));
        }
        let mut text = String::new();
        let mut places = Vec::with_capacity(words.len());
        for (word, tag) in words.iter().zip(&tags) {
            if word.trim().is_empty() {
                return Err(Problem::new("an empty token", "leave it out, with its tag"));
            }
            if !text.is_empty() {
                text.push(' ');
            }
            let start = text.len();
            text.push_str(word);
            places.push((start..text.len(), self.label(tag)?));
        }
        Ok(Row { text, second: None, answer: Answer::Tags(places), place })
    }

    fn pair(&self, record: &mut Record, place: Place) -> Result<Row, Problem> {
        let text = record.text(&self.fields.text)?;
        // A text without a partner is its own.
        let second = match &self.fields.second {
            Some(name) => Some(record.text(name)?),
            None if record.fields.contains_key("second") => Some(record.text("second")?),
            None => None,
        };
        let similarity = match record.take(&self.fields.label) {
            None => None,
            Some(field) => match some_numbers(&field, &self.fields.label)?.as_slice() {
                [number] => Some(*number),
                _ => return Err(Problem::new("several similarities", "a pair has one or none")),
            },
        };
        if similarity.is_some() && second.is_none() {
            let hint = "data.second names the field of the second text";
            return Err(Problem::new("a similarity without a second text", hint));
        }
        Ok(Row { text, second, answer: Answer::Similar(similarity), place })
    }

    /// A source and its target. A pair with an empty side is left out and counted: parallel texts
    /// have some, and one of them is no reason to refuse the rest.
    fn translation(&mut self, record: &mut Record, place: Place) -> Result<(), Problem> {
        let chosen = [&self.fields.text, &self.fields.label];
        let mut texts = [String::new(), String::new()];
        for ((text, chosen), usual) in texts.iter_mut().zip(chosen).zip(NAMES) {
            let name = if record.fields.contains_key(chosen) { chosen.as_str() } else { usual };
            *text = match record.require(name)? {
                Field::Text(text) => text,
                Field::Number(number) => number.to_string(),
                _ => {
                    let what = format!("the field {name:?} is not a text");
                    return Err(Problem::new(what, "expected a string"));
                }
            };
        }
        let [text, target] = texts;
        if text.trim().is_empty() || target.trim().is_empty() {
            self.empty.get_or_insert((0, place)).0 += 1;
        } else {
            self.rows.push(Row { text, second: None, answer: Answer::Text(target), place });
        }
        Ok(())
    }

    /// The number of a label: of a known one, or in the order in which it was met.
    fn label(&mut self, name: &str) -> Result<u32, Problem> {
        let name = name.trim();
        if let Some(number) = self.labels.get(name) {
            return Ok(*number);
        }
        if name.is_empty() {
            let hint = "give it a label, or leave the row out";
            return Err(Problem::new("the label is empty", hint));
        }
        if let Some(known) = self.known {
            let list: Vec<String> = known.iter().take(20).map(|name| shown(name)).collect();
            return Err(Problem::new(
                format!("the label {:?} is not one of the model's", shown(name)),
                format!("expected one of: {}", list.join(", ")),
            ));
        }
        if self.labels.len() == MOST_LABELS {
            let what = format!("more than {MOST_LABELS} different labels");
            return Err(Problem::new(what, "is it the right field? data.label names it"));
        }
        let number = self.labels.len() as u32;
        self.labels.insert(name.to_owned(), number);
        Ok(number)
    }

    /// All rows, with labels in their order.
    pub(super) fn finish(self, files: Vec<PathBuf>) -> Result<Dataset> {
        let mut data = Dataset { rows: self.rows, files, ..Dataset::default() };
        if let Some((count, place)) = self.empty {
            let pairs = if count == 1 { "pair has" } else { "pairs have" };
            let first = super::describe(&data.files, place);
            data.notes.push(format!(
                "{count} {pairs} an empty side and {} left out; the first is {first}",
                if count == 1 { "is" } else { "are" },
            ));
        }
        let labels = matches!(self.ask, Ask::Classes | Ask::Several | Ask::Tags);
        if !labels || data.rows.is_empty() {
            return Ok(data);
        }
        if let Some(known) = self.known {
            data.labels = known.to_vec();
            return Ok(data);
        }
        let mut sorted: Vec<(String, u32)> = self.labels.into_iter().collect();
        let value = |name: &str| name.parse::<i64>().ok();
        if sorted.iter().all(|(name, _)| value(name).is_some()) {
            sorted.sort_by_key(|(name, _)| value(name));
        }
        let mut numbers = vec![0_u32; sorted.len()];
        for (new, (_, old)) in (0..).zip(&sorted) {
            if let Some(number) = numbers.get_mut(*old as usize) {
                *number = new;
            }
        }
        let renumber = |label: &mut u32| {
            if let Some(new) = numbers.get(*label as usize) {
                *label = *new;
            }
        };
        for row in &mut data.rows {
            match &mut row.answer {
                Answer::Class(class) => renumber(class),
                Answer::Several(classes) => {
                    classes.iter_mut().for_each(renumber);
                    classes.sort_unstable();
                }
                Answer::Tags(words) => words.iter_mut().for_each(|(_, tag)| renumber(tag)),
                Answer::Numbers(_) | Answer::Span(..) | Answer::Similar(_) | Answer::Text(_) => {}
            }
        }
        data.labels = sorted.into_iter().map(|(name, _)| name).collect();
        let least = if self.ask == Ask::Several { 1 } else { 2 };
        if data.labels.len() < least {
            let label = data.labels.first().map(|label| shown(label)).unwrap_or_default();
            return Err(Error::new(
                format!("every row has the same label, {label:?}"),
                "there is nothing to tell apart; data.label names the field of the labels",
            ));
        }
        Ok(data)
    }
}

fn question(record: &mut Record, place: Place) -> Result<Row, Problem> {
    let context = record.text("context")?;
    let question = record.text("question")?;
    let answers = match record.require("answer")? {
        Field::Text(answer) => vec![answer],
        Field::Number(answer) => vec![answer.to_string()],
        Field::Texts(answers) => answers,
        _ => return Err(Problem::new("the answer is not a text", "expected a string")),
    };
    let first = answers.first().filter(|answer| !answer.trim().is_empty());
    let first = first.ok_or_else(|| {
        Problem::new("the answer is empty", "give one that is a part of the context")
    })?;
    let start = match record.take("start") {
        None => context.find(first.as_str()),
        Some(field) => {
            let number = match &field {
                Field::Number(number) => Some(*number),
                Field::Text(text) => text.trim().parse::<f64>().ok(),
                _ => None,
            };
            let number = number.filter(|number| *number >= 0.0 && number.fract() == 0.0);
            let number = number.ok_or_else(|| {
                Problem::new("the start is not a number of characters", "expected 0, 1, 2, …")
            })?;
            // Counted in characters, as in SQuAD.
            let start = context.char_indices().map(|(at, _)| at).nth(number as usize);
            start.filter(|at| context.get(*at..).is_some_and(|text| text.starts_with(first)))
        }
    };
    let start = start.ok_or_else(|| {
        Problem::new(
            format!("the answer {:?} does not stand in the context, or not there", shown(first)),
            "the answer is a part of the context, to the letter; start counts characters from 0",
        )
    })?;
    let span = start..start + first.len();
    Ok(Row { text: context, second: Some(question), answer: Answer::Span(span, answers), place })
}

fn one_label(field: &Field, name: &str) -> Result<String, Problem> {
    match field {
        Field::Text(text) => Ok(text.clone()),
        Field::Number(number) => Ok(number.to_string()),
        Field::Texts(_) | Field::Numbers(_) => Err(Problem::new(
            format!("the field {name:?} is a list, expected one label"),
            "for several labels per text set model.head.several=true",
        )),
        _ => Err(Problem::new(format!("the field {name:?} is not a label"), "expected a string")),
    }
}

fn some_labels(field: Field, name: &str) -> Result<Vec<String>, Problem> {
    match field {
        Field::Texts(texts) => Ok(texts),
        Field::Numbers(numbers) => Ok(numbers.iter().map(ToString::to_string).collect()),
        Field::Number(number) => Ok(vec![number.to_string()]),
        Field::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
        Field::Text(text) => Ok(text.split(SEPARATOR).map(str::to_owned).collect()),
        _ => Err(Problem::new(
            format!("the field {name:?} is not a list of labels"),
            format!("expected a list of strings, or strings apart by {SEPARATOR:?}"),
        )),
    }
}

fn some_numbers(field: &Field, name: &str) -> Result<Vec<f32>, Problem> {
    let numbers = match field {
        Field::Number(number) => Some(vec![*number as f32]),
        Field::Numbers(numbers) => Some(numbers.iter().map(|number| *number as f32).collect()),
        Field::Text(text) => {
            text.split(SEPARATOR).map(|number| number.trim().parse::<f32>().ok()).collect()
        }
        _ => None,
    };
    let sound = |numbers: &Vec<f32>| {
        !numbers.is_empty()
            && numbers.len() <= MOST_NUMBERS
            && numbers.iter().all(|number| number.is_finite())
    };
    numbers.filter(sound).ok_or_else(|| {
        Problem::new(
            format!("the field {name:?} is not a number"),
            "expected a finite number, or a list of them",
        )
    })
}

fn texts(field: Field, name: &str) -> Result<Vec<String>, Problem> {
    match field {
        Field::Texts(texts) => Ok(texts),
        Field::Numbers(numbers) => Ok(numbers.iter().map(ToString::to_string).collect()),
        Field::Text(text) => Ok(text.split_whitespace().map(str::to_owned).collect()),
        _ => {
            let what = format!("the field {name:?} is not a list of strings");
            Err(Problem::new(what, "tokens and tags are lists of the same length"))
        }
    }
}
