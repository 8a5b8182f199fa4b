//! One text under several tokenizers: why perplexities cannot be compared, and bits per byte can.
//!
//! ```text
//! nats of a text      N = Σ −ln p(token), whatever the tokens are
//! perplexity          exp(N / tokens)          counts by the token: fewer, larger tokens are harder each
//! bits per byte       N / (ln 2 · bytes)       the text has the same bytes under all
//! ```
//! A model of b bits per byte has a perplexity of 2^(b · bytes per token): the same model, counted by
//! other tokens, gets another perplexity.

use crate::contest::{self, Entrant};
use crate::outcome::{Drawing, Line, Listing, Outcome};
use crate::page::seeds_in_words;
use crate::request::Request;
use crate::sizes::{decoder, parameters, training, transformer};
use crate::statistics::{Sample, best};
use crate::study::{Contender, Study};
use crate::text::{Encoded, Text};
use crate::trials::seconds_of_all;
use hearken_base::{Error, Result};
use hearken_data::tokenizer::{Kind, Training};
use hearken_show::Table;
use hearken_show::number::{duration, thousands};
use hearken_train::Better;
use serde_json::json;
use std::f64::consts::LN_2;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "tokenizers",
    line: "perplexity and bits per byte of one text under four tokenizers",
    question: "The same text, cut into characters, into 512 or up to 4,096 pieces by BPE, and by Unigram: \
               which perplexities come out, and what do they say of the model?",
    contenders: &[
        Contender { name: "character", about: "one token per character" },
        Contender { name: "bpe-512", about: "byte-pair encoding, at most 512 tokens" },
        Contender { name: "bpe-4096", about: "byte-pair encoding, at most 4,096 tokens" },
        Contender { name: "unigram", about: "the Unigram model, at most 512 tokens" },
    ],
    reads_text: true,
    minutes: [2.0, 8.0],
    run,
};

const LAYERS: usize = 2;
const WIDTH: usize = 64;
const HEADS: usize = 4;
/// Bytes of a window, about, whatever the tokenizer.
const BYTES: usize = 192;
const ROWS: usize = 16;
const RATE: f64 = 3e-3;

/// A text under a tokenizer.
struct Cut {
    contender: &'static str,
    encoded: Encoded,
    /// UTF-8 bytes per token of what is held out.
    bytes_per_token: f64,
}

/// What one training came to.
struct Run {
    /// Nats per token.
    loss: f64,
    seconds: f64,
}

impl Cut {
    fn of(request: &Request, text: &Text, contender: &'static str) -> Result<Self> {
        let sized = |kind, size| Training { vocabulary: Some(size), ..Training::new(kind) };
        let encoded = text.encoded(&match contender {
            "bpe-512" => sized(Kind::Bpe, 512),
            "bpe-4096" => sized(Kind::Bpe, 4096),
            "unigram" => sized(Kind::Unigram, 512),
            _ => contest::characters(request),
        })?;
        let tokens = encoded.held_out.len().max(1);
        let bytes_per_token = encoded.held_out_bytes as f64 / tokens as f64;
        Ok(Self { contender, encoded, bytes_per_token })
    }

    /// Tokens of a window of [`BYTES`].
    fn length(&self) -> usize {
        ((BYTES as f64 / self.bytes_per_token).round() as usize).max(2)
    }

    fn entrant(&self, request: &Request) -> Entrant<'_> {
        let (length, vocabulary) = (self.length(), self.encoded.tokenizer.vocabulary_size());
        let steps = request.steps(request.sized(600, 2000));
        Entrant {
            name: self.contender.to_owned(),
            text: &self.encoded,
            model: decoder(transformer(LAYERS, WIDTH, HEADS), vocabulary, length),
            length,
            training: training(steps, ROWS, RATE, 0),
        }
    }
}

/// Bits per byte of so many nats per token.
fn bits_per_byte(loss: f64, bytes_per_token: f64) -> f64 {
    loss / (LN_2 * bytes_per_token)
}

/// The perplexity of a model of so many bits per byte, if tokens have so many bytes.
fn perplexity(bits_per_byte: f64, bytes_per_token: f64) -> f64 {
    (bits_per_byte * bytes_per_token * LN_2).exp()
}

/// Perplexities of models with these bits per byte, by the tokens of one tokenizer.
fn counted_by(bits: &Sample, cut: &Cut) -> Sample {
    bits.values.iter().map(|bits| perplexity(*bits, cut.bytes_per_token)).collect()
}

/// A perplexity for people.
fn short(perplexity: f64) -> String {
    match perplexity {
        x if x < 1e3 => format!("{x:.2}"),
        x if x < 1e9 => thousands(x),
        x => format!("{x:.2e}"),
    }
}

/// The text with as much held out as is judged, so that all are judged by the same bytes.
fn judged_part(mut text: Text) -> Result<Text> {
    let (bytes, most) = (text.held_out.len(), BYTES * contest::WINDOWS);
    if bytes <= 2 * BYTES {
        return Err(Error::new(
            format!("a tenth of the text is {bytes} bytes, expected more than {}", 2 * BYTES),
            "give a longer text with --data, or none for generated stories",
        ));
    }
    let end = (0..=most.min(bytes)).rev().find(|at| text.held_out.is_char_boundary(*at));
    text.held_out.truncate(end.unwrap_or(0));
    Ok(text)
}

fn run(request: &Request) -> Result<Outcome> {
    let text = judged_part(Text::of(request, contest::CHARACTERS)?)?;
    let cuts = request.contenders.iter().map(|name| Cut::of(request, &text, name));
    let cuts = cuts.collect::<Result<Vec<Cut>>>()?;
    for cut in &cuts {
        cut.encoded.check(cut.length())?;
    }
    let seeds = request.seeds(1, 3);
    let entrants: Vec<Entrant<'_>> = cuts.iter().map(|cut| cut.entrant(request)).collect();
    let each = contest::seconds(&entrants)?;
    request.announce(seconds_of_all(&each.repeat(seeds.len())))?;
    let runs = contest::train(request, STUDY.name, &entrants, &seeds, |_, fitted| {
        Ok(Run { loss: fitted.loss, seconds: fitted.trained.seconds })
    })?;
    let steps = entrants[0].training.steps;
    let mut outcome = Outcome::default();
    outcome.method.push(format!(
        "Decoders of {LAYERS} blocks of width {WIDTH} with {HEADS} heads learn {}, of which the last tenth \
         is held out ({} bytes of it are judged). Tokenizers are learned on the rest. All models see about the same bytes: {} \
         steps of {ROWS} windows of about {BYTES} bytes each, however many tokens that is; AdamW with a \
         learning rate of {RATE}. {}. All models have the same width; those with more tokens have larger \
         tables.",
        text.name,
        thousands(text.held_out.len() as f64),
        thousands(steps as f64),
        seeds_in_words(&seeds),
    ));
    outcome.method.push(format!(
        "Judged on {} bytes of what is held out, the same for all, in windows of the same length as those of \
         training. A token at the beginning of a window has little before it to go by. Bits per byte are \
         nats per token, divided by ln 2 and by the bytes per token of what is judged.",
        thousands(text.held_out.len() as f64)
    ));
    report(&mut outcome, &cuts, &entrants, &runs);
    Ok(outcome)
}

fn report(outcome: &mut Outcome, cuts: &[Cut], entrants: &[Entrant<'_>], runs: &[Vec<Run>]) {
    let of = |f: &dyn Fn(&Cut, &Run) -> f64| -> Vec<(String, Sample)> {
        let sample = |(cut, runs): (&Cut, &Vec<Run>)| {
            (cut.contender.to_owned(), runs.iter().map(|run| f(cut, run)).collect())
        };
        cuts.iter().zip(runs).map(sample).collect()
    };
    let perplexities = of(&|_, run| run.loss.exp());
    let bits = of(&|cut, run| bits_per_byte(run.loss, cut.bytes_per_token));
    let three = |x: f64| format!("{x:.3}");
    outcome.findings.push(best("the fewest bits per byte", Better::Lower, &bits, three));
    outcome.findings.extend(orders(&perplexities, &bits));
    for (cut, (_, bits)) in cuts.iter().zip(&bits).filter(|(_, (_, bits))| bits.is_finite()) {
        let other = |other: &Cut| {
            let value = counted_by(bits, other).mean();
            format!("{} by tokens of {}", short(value), other.contender)
        };
        let values: Vec<String> = cuts.iter().map(other).collect();
        let (name, mean, values) = (cut.contender, three(bits.mean()), values.join(", "));
        outcome.findings.push(if bits.values.len() == 1 {
            format!(
                "one and the same model, that of {name}, with {mean} bits per byte, has these perplexities, \
                 depending on the tokens that it is counted by: {values}"
            )
        } else {
            format!(
                "the same models, those of {name}, with {mean} bits per byte in the mean, have these mean \
                 perplexities, depending on the tokens that they are counted by: {values}"
            )
        });
        if cuts.len() > 1 {
            break; // one example says it; the table has all
        }
    }
    draw(outcome, cuts, &bits, &perplexities);
    outcome.listings.push(measured(cuts, entrants, runs, &perplexities, &bits));
    if cuts.len() > 1 {
        outcome.listings.push(converted(cuts, &bits));
    }
    let entry = |((cut, entrant), runs): ((&Cut, &Entrant<'_>), &Vec<Run>)| {
        let losses: Vec<f64> = runs.iter().map(|run| run.loss).collect();
        let bits = losses.iter().map(|loss| bits_per_byte(*loss, cut.bytes_per_token));
        let value = json!({
            "vocabulary": cut.encoded.tokenizer.vocabulary_size(),
            "bytes_per_token": cut.bytes_per_token, "window": entrant.length,
            "parameters": parameters(&entrant.model), "nats_per_token": losses,
            "perplexity": losses.iter().map(|loss| loss.exp()).collect::<Vec<f64>>(),
            "bits_per_byte": bits.collect::<Vec<f64>>(),
        });
        (cut.contender.to_owned(), value)
    };
    let contenders: serde_json::Map<_, _> =
        cuts.iter().zip(entrants).zip(runs).map(entry).collect();
    outcome.numbers = json!({ "contenders": contenders });
}

/// The orders by perplexity and by bits per byte, and whether they are the same.
fn orders(perplexities: &[(String, Sample)], bits: &[(String, Sample)]) -> Option<String> {
    let order = |samples: &[(String, Sample)]| {
        let mut finite: Vec<_> = samples.iter().filter(|(_, sample)| sample.is_finite()).collect();
        finite.sort_by(|a, b| a.1.mean().total_cmp(&b.1.mean()));
        finite.iter().map(|(name, _)| name.clone()).collect::<Vec<String>>()
    };
    let (by_perplexity, by_bits) = (order(perplexities), order(bits));
    if by_bits.len() < 2 {
        return None;
    }
    let same = if by_perplexity == by_bits { "the same" } else { "another" };
    Some(format!(
        "by mean perplexity, from the lowest, the order is {}; by bits per byte it is {same}: {}",
        by_perplexity.join(", "),
        by_bits.join(", ")
    ))
}

/// What was measured, a row per tokenizer.
fn measured(
    cuts: &[Cut],
    entrants: &[Entrant<'_>],
    runs: &[Vec<Run>],
    perplexities: &[(String, Sample)],
    bits: &[(String, Sample)],
) -> Listing {
    let headings = [
        "",
        "tokens",
        "bytes per token",
        "window",
        "parameters",
        "perplexity",
        "bits per byte",
        "time",
    ];
    let row = |i: usize| {
        let seconds: Sample = runs[i].iter().map(|run| run.seconds).collect();
        vec![
            cuts[i].contender.to_owned(),
            thousands(cuts[i].encoded.tokenizer.vocabulary_size() as f64),
            format!("{:.2}", cuts[i].bytes_per_token),
            thousands(entrants[i].length as f64),
            thousands(parameters(&entrants[i].model) as f64),
            perplexities[i].1.show(short),
            bits[i].1.show(|x| format!("{x:.3}")),
            duration(seconds.mean()),
        ]
    };
    let table = Table {
        title: "One text, several tokenizers".to_owned(),
        columns: headings.map(str::to_owned).to_vec(),
        rows: (0..cuts.len()).map(row).collect(),
    };
    let about = "Perplexity counts by the token, and tokens differ in length; bits per byte count by the \
                 byte, of which the text has the same number under all tokenizers. The time is that of one \
                 training on one core."
        .to_owned();
    Listing { table, about }
}

/// The perplexity of each model as it would be by the tokens of each tokenizer.
fn converted(cuts: &[Cut], bits: &[(String, Sample)]) -> Listing {
    let mut columns = vec!["model".to_owned()];
    columns.extend(cuts.iter().map(|cut| format!("by tokens of {}", cut.contender)));
    let row = |(name, bits): &(String, Sample)| {
        let mut cells = vec![name.clone()];
        let value = |cut: &Cut| {
            let value = counted_by(bits, cut).mean();
            if value.is_finite() { short(value) } else { "–".to_owned() }
        };
        cells.extend(cuts.iter().map(value));
        cells
    };
    let rows = bits.iter().map(row).collect();
    let table = Table { title: "The same models, counted otherwise".to_owned(), columns, rows };
    let about = "2 to the power of bits per byte times bytes per token. Down a column, models can be \
                 compared, and every column gives the same order; along a row, the model is the same and \
                 only the unit changes. The usual perplexities are the diagonal, from one unit to the next."
        .to_owned();
    Listing { table, about }
}

fn draw(
    outcome: &mut Outcome,
    cuts: &[Cut],
    bits: &[(String, Sample)],
    perplexities: &[(String, Sample)],
) {
    let line = |(cut, (_, sample)): (&Cut, &(String, Sample))| Line {
        name: cut.contender.to_owned(),
        color: STUDY.place(cut.contender),
        points: vec![(cut.bytes_per_token, sample.clone())],
    };
    for (title, y, samples, about) in [
        (
            "Perplexity by the length of tokens",
            "perplexity",
            perplexities,
            "A point per tokenizer: the longer its tokens, the more can come next.",
        ),
        (
            "Bits per byte by the length of tokens",
            "bits per byte",
            bits,
            "The same models, counted by the byte.",
        ),
    ] {
        let lines: Vec<Line> = cuts.iter().zip(samples).map(line).collect();
        let mut drawing = Drawing::of(title, "bytes per token", y, &lines, about);
        drawing.chart.linear_x = true;
        outcome.drawings.push(drawing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perplexity_is_its_bits_per_byte_again() {
        let (loss, bytes) = (4.0_f64, 3.5);
        assert!((perplexity(bits_per_byte(loss, bytes), bytes) - loss.exp()).abs() < 1e-9);
        assert!((bits_per_byte(256.0_f64.ln(), 1.0) - 8.0).abs() < 1e-12);
    }

    #[test]
    fn orders_are_compared() {
        let of = |values: [f64; 2]| {
            let names = ["a", "b"].map(str::to_owned);
            names.into_iter().zip(values.map(|x| [x].into_iter().collect())).collect::<Vec<_>>()
        };
        let said = orders(&of([1.0, 2.0]), &of([2.0, 1.0])).unwrap();
        assert!(
            said.ends_with("the order is a, b; by bits per byte it is another: b, a"),
            "{said}"
        );
        assert!(orders(&of([1.0, 2.0]), &of([1.0, 2.0])).unwrap().contains("the same: a, b"));
        assert_eq!(orders(&of([1.0, f64::NAN]), &of([1.0, f64::NAN])), None);
    }
}
