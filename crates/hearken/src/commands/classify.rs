//! `hearken classify`: labels for texts.

use super::texts::{Given, TextArguments, note_cut};
use crate::failure::Failure;
use crate::model::{ModelArguments, TokenizerArguments, note_temperature};
use crate::terminal::Progress;
use hearken::tasks::{OpenModel, Reader};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// From here on a label counts, where a text may have several.
const CHOSEN: f32 = 0.5;

/// Label texts with a trained classifier.
///
/// Writes a line per text, in order: the label, a tab, and its probability. Where a text may have
/// several labels, all those with a probability of 0.5 or more, separated by commas, and the
/// probability of the best. A model that predicts numbers writes its numbers.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    #[command(flatten)]
    texts: TextArguments,

    /// Cut texts to N tokens [default: the model's context]
    #[arg(long, value_name = "N")]
    most_tokens: Option<usize>,

    /// Do without the temperature that is saved with the model ('hearken eval --calibration')
    #[arg(long)]
    uncalibrated: bool,

    /// Write one JSON object per text, with all probabilities
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken classify --model runs/reviews 'What a film!'
  hearken classify --model runs/reviews reviews.txt > labels.tsv
  hearken classify --model runs/same --pairs questions.tsv --json

Keys of --json:
  label             the most probable one
  probability       of that
  labels            the probability of each label, by name
  chosen            where a text may have several: all of 0.5 or more
  numbers           in place of these, of a model that predicts numbers";

impl Arguments {
    /// The temperature that is saved with the model, unless it is not wanted.
    fn saved_temperature(&self, model: &OpenModel) -> Result<Option<f64>, Failure> {
        let saved = if self.uncalibrated { None } else { model.temperature()? };
        if let Some(temperature) = saved {
            note_temperature(temperature);
        }
        Ok(saved)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let given = arguments.texts.read()?;
    let model = arguments.model.open()?;
    let predicts_numbers = model.model.predicts_numbers().is_some();
    if !predicts_numbers {
        model.classifies()?;
    }
    let tokenizer = arguments.tokenizer.require(&model, "name one with --tokenizer")?;
    let mut reader = Reader::new(&model, &tokenizer, arguments.most_tokens)?;
    if !predicts_numbers && let Some(temperature) = arguments.saved_temperature(&model)? {
        reader = reader.at_temperature(temperature);
    }
    let rows = reader.rows(&given.texts, |i| given.place(i))?;
    let (mut status, total) = (Progress::new(), given.texts.len());
    let mut progress = |done: usize| {
        if total > 1 {
            status.show(&format!("{done} of {total} texts"));
        }
    };
    let found = if predicts_numbers {
        reader.numbers(&rows, &mut progress)?
    } else {
        reader.classify(&rows, &mut progress)?
    };
    status.clear();
    note_cut(rows.cut, &given, reader.most_tokens());
    if predicts_numbers {
        return write_numbers(&found, arguments.json);
    }
    let classifier = model.classifies()?;
    write(&given, &found, classifier.labels(), classifier.several(), arguments.json)
}

fn write_numbers(found: &[Vec<f32>], json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for numbers in found {
        if json {
            writeln!(out, "{}", json!({ "numbers": numbers }))?;
        } else {
            let texts: Vec<String> = numbers.iter().map(f32::to_string).collect();
            writeln!(out, "{}", texts.join("\t"))?;
        }
    }
    Ok(())
}

fn write(
    given: &Given,
    found: &[Vec<f32>],
    labels: &[String],
    several: bool,
    json: bool,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for (_, probabilities) in given.texts.iter().zip(found) {
        let named = || labels.iter().zip(probabilities);
        let best = named().max_by(|a, b| a.1.total_cmp(b.1));
        let (best, probability) = best.map_or(("", 0.0), |(label, p)| (label.as_str(), *p));
        let chosen = || named().filter(|(_, p)| **p >= CHOSEN).map(|(label, _)| label.as_str());
        if json {
            let all: Map<String, Value> =
                named().map(|(label, p)| (label.clone(), json!(p))).collect();
            let mut value = json!({ "label": best, "probability": probability, "labels": all });
            if several {
                value["chosen"] = json!(chosen().collect::<Vec<_>>());
            }
            writeln!(out, "{value}")?;
        } else if several {
            writeln!(out, "{}\t{probability:.4}", chosen().collect::<Vec<_>>().join(","))?;
        } else {
            writeln!(out, "{best}\t{probability:.4}")?;
        }
    }
    Ok(())
}
