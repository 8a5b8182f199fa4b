//! `hearken fill`: words for the gaps of a text.

use super::texts::TextArguments;
use crate::failure::Failure;
use crate::model::{ModelArguments, TokenizerArguments};
use crate::terminal::{Progress, Terminal};
use hearken::tasks::Reader;
use hearken::tasks::reader::{Candidate, MASK};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Predict the words at [MASK] with a masked language model.
///
/// Every text holds one [MASK] or several. Each is guessed by itself, given the rest of the text.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    #[command(flatten)]
    texts: TextArguments,

    /// How many candidates
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,

    /// Write one JSON object per text
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken fill --model DIR 'Mia the fox [MASK] her red kite'
  hearken fill --model DIR --top 10 sentences.txt
  hearken fill --model DIR --json - < sentences.txt

Keys of --json:
  text              with the best candidate in every gap
  candidates        per candidate of the first [MASK]: token, probability, id
  masks             the candidates of every [MASK], if there are several";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.top == 0 {
        return Err(Failure::input("0 candidates", "give --top 1 or more"));
    }
    let given = arguments.texts.read()?;
    let model = arguments.model.open()?;
    model.predicts_tokens()?;
    let tokenizer = arguments.tokenizer.require(&model, "name one with --tokenizer")?;
    let reader = Reader::new(&model, &tokenizer, None)?;
    let mut status = Progress::new();
    let total = given.texts.len();
    let mut progress = |done: usize| {
        if total > 1 {
            status.show(&format!("{done} of {total} texts"));
        }
    };
    let found = reader.fill(&given.texts, arguments.top, |i| given.place(i), &mut progress)?;
    status.clear();
    let own = tokenizer.special(hearken::data::tokenizer::Special::Mask);
    let own = own.and_then(|id| tokenizer.token(id)).unwrap_or_default();
    let mut out = io::stdout().lock();
    for (i, (text, masks)) in given.texts.iter().zip(&found).enumerate() {
        let best: Vec<&str> =
            masks.iter().filter_map(|c| c.first()).map(|c| c.token.as_str()).collect();
        let filled = filled(&text.first.replace(&own, MASK), &best);
        if arguments.json {
            writeln!(out, "{}", to_json(&filled, masks))?;
            continue;
        }
        if i > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", Terminal::stdout().bold(&filled))?;
        for (place, candidates) in masks.iter().enumerate() {
            if masks.len() > 1 {
                writeln!(out, "{MASK} {}", place + 1)?;
            }
            for Candidate { token, probability, .. } in candidates {
                writeln!(out, "  {:6.2} %  {token}", 100.0 * probability)?;
            }
        }
    }
    Ok(())
}

/// The text with a word in each gap.
fn filled(text: &str, words: &[&str]) -> String {
    let mut words = words.iter();
    let mut pieces = text.split(MASK);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out.push_str(words.next().unwrap_or(&MASK));
        out.push_str(piece);
    }
    out
}

fn to_json(filled: &str, masks: &[Vec<Candidate>]) -> Value {
    let list = |candidates: &Vec<Candidate>| -> Vec<Value> {
        let one = |Candidate { token, probability, id }: &Candidate| json!({ "token": token, "probability": probability, "id": id });
        candidates.iter().map(one).collect()
    };
    let mut value = json!({
        "text": filled,
        "candidates": masks.first().map(list).unwrap_or_default(),
    });
    if masks.len() > 1 {
        value["masks"] = json!(masks.iter().map(list).collect::<Vec<_>>());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_in_order() {
        assert_eq!(filled("a [MASK] b [MASK].", &["x", "y"]), "a x b y.");
        assert_eq!(filled("[MASK]", &[]), "[MASK]");
        assert_eq!(filled("none", &["x"]), "none");
    }
}
