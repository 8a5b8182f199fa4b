//! How a model knows where a token stands, and what that is worth beyond the length it was trained on.
//!
//! Every kind of positions is trained on windows of T tokens and judged on windows of T, 2T, 4T and 8T.
//! RoPE is judged again with its angles changed for the longer windows:
//!
//! ```text
//! linear  angle = (m/s)·θᵢ                positions are squeezed into the trained range
//! ntk     the base grows until the slowest θ is divided by s; the fastest stays
//! yarn    slow θ are divided by s, fast ones kept, a ramp between
//! ```

use crate::contest::{self, Entrant, Found, at, lines};
use crate::outcome::{Drawing, Line, Listing, Outcome, by_name};
use crate::request::Request;
use crate::rows::judge;
use crate::sizes::{decoder, training, transformer};
use crate::statistics::best;
use crate::study::{Contender, Study};
use crate::text::Encoded;
use crate::trials::seconds_of_all;
use hearken_base::Result;
use hearken_nn::config::{Combine, PositionConfig, RopeScaling, SineOrder, StackConfig};
use hearken_nn::models::PredictsTokens;
use hearken_show::number::thousands;
use hearken_train::Better;
use serde_json::json;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "positions",
    line: "kinds of positions at the trained length and at 2, 4 and 8 times it",
    question: "Attention itself does not know the order of tokens. How well do models learn with each way \
               to tell them, and what becomes of it in texts longer than those of training?",
    contenders: &[
        Contender {
            name: "none",
            about: "no positions: causality alone tells something of the order",
        },
        Contender { name: "sinusoidal", about: "sines and cosines are added to the embedding" },
        Contender {
            name: "learned",
            about: "a learned vector per position; there is none beyond the trained length",
        },
        Contender { name: "rope", about: "queries and keys are rotated by their position" },
        Contender { name: "alibi", about: "slope·distance is subtracted from scores" },
        Contender { name: "t5", about: "a learned number per bucket of distances and head" },
        Contender {
            name: "relative",
            about: "a learned number per distance and head, clipped at T",
        },
        Contender { name: "rope-linear", about: "rope's weights, positions divided by the factor" },
        Contender { name: "rope-ntk", about: "rope's weights, a larger base" },
        Contender { name: "rope-yarn", about: "rope's weights, slow frequencies divided" },
    ],
    reads_text: true,
    minutes: [2.0, 8.0],
    run,
};

const LAYERS: usize = 3;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const LENGTH: usize = 64;
const ROWS: usize = 16;
const RATE: f64 = 3e-3;
/// Judged lengths, as multiples of the trained one.
const MULTIPLES: [usize; 4] = [1, 2, 4, 8];
/// The last so many tokens of every window are judged.
const JUDGED: usize = 32;
/// In so many windows.
const ENDINGS: usize = 64;
const T5_BUCKETS: usize = 32;

/// The positions of a contender in windows `multiple` times as long as the trained ones.
fn position(contender: &str, multiple: usize) -> PositionConfig {
    let factor = multiple as f32;
    let rope = |scaling| PositionConfig::Rope { base: 10_000.0, share: 1.0, scaling };
    match contender {
        "none" => PositionConfig::None {},
        "sinusoidal" => {
            PositionConfig::Sinusoidal { combine: Combine::Add, order: SineOrder::Pairs }
        }
        "learned" => PositionConfig::Learned { combine: Combine::Add },
        "alibi" => PositionConfig::Alibi {},
        // Both know the distances of training and treat larger ones as the largest.
        "t5" => PositionConfig::T5 { buckets: T5_BUCKETS, max_distance: LENGTH },
        "relative" => PositionConfig::Relative { max_distance: LENGTH - 1 },
        _ if multiple == 1 => rope(RopeScaling::None),
        "rope-linear" => rope(RopeScaling::Linear { factor }),
        "rope-ntk" => rope(RopeScaling::Ntk { factor }),
        "rope-yarn" => rope(RopeScaling::Yarn {
            factor,
            original_context: LENGTH,
            beta_fast: 32.0,
            beta_slow: 1.0,
        }),
        _ => rope(RopeScaling::None),
    }
}

/// Whose weights a contender has.
fn trained_as(contender: &'static str) -> &'static str {
    if contender.starts_with("rope") { "rope" } else { contender }
}

fn stack(contender: &str, multiple: usize) -> StackConfig {
    StackConfig { position: position(contender, multiple), ..transformer(LAYERS, WIDTH, HEADS) }
}

fn entrant<'a>(request: &Request, text: &'a Encoded, contender: &str) -> Entrant<'a> {
    let steps = request.steps(request.sized(800, 2000));
    Entrant {
        name: contender.to_owned(),
        text,
        model: decoder(stack(contender, 1), text.tokenizer.vocabulary_size(), LENGTH),
        length: LENGTH,
        training: training(steps, ROWS, RATE, 0),
    }
}

/// The loss of trained weights as `contender` reads longer windows; `None` where it cannot.
fn loss(
    entrant: &Entrant<'_>,
    model: &dyn PredictsTokens,
    contender: &str,
    multiple: usize,
) -> Option<f64> {
    if contender == "learned" && multiple > 1 {
        return None;
    }
    let (text, length) = (entrant.text, multiple * LENGTH);
    let config = decoder(stack(contender, multiple), text.tokenizer.vocabulary_size(), length);
    let longer = contest::with_weights_of(model, &config);
    let longest = LENGTH * MULTIPLES[MULTIPLES.len() - 1];
    let rows = text.endings(ENDINGS, length, longest, JUDGED);
    longer.predicts_tokens().map(|longer| judge(longer, &rows).loss)
}

fn run(request: &Request) -> Result<Outcome> {
    let longest = LENGTH * MULTIPLES[MULTIPLES.len() - 1];
    let (text, encoded) = contest::by_character(request, longest)?;
    let seeds = request.seeds(1, 3);
    let mut names: Vec<&'static str> = request.contenders.iter().map(|c| trained_as(c)).collect();
    names.dedup();
    names.sort_by_key(|name| STUDY.place(name));
    names.dedup();
    let entrants: Vec<Entrant<'_>> =
        names.iter().map(|name| entrant(request, &encoded, name)).collect();
    let each = contest::seconds(&entrants)?;
    request.announce(seconds_of_all(&each.repeat(seeds.len())))?;
    // Of every training: who reads it, at which length, and the loss.
    let runs = contest::train(request, STUDY.name, &entrants, &seeds, |entrant, fitted| {
        let mut read = Vec::new();
        let readers = request.contenders.iter().filter(|c| trained_as(c) == entrant.name);
        for contender in readers {
            for multiple in MULTIPLES {
                if let Some(loss) = loss(entrant, fitted.model, contender, multiple) {
                    let loss = if fitted.loss.is_nan() { f64::NAN } else { loss };
                    read.push((*contender, multiple, loss));
                }
            }
        }
        Ok(read)
    })?;
    let mut found: Vec<Found<f64>> = Vec::new();
    for by_seed in &runs {
        for (i, (contender, multiple, _)) in by_seed[0].iter().enumerate() {
            let runs = by_seed.iter().map(|read| read[i].2).collect();
            found.push(Found { contender, x: (multiple * LENGTH) as f64, runs });
        }
    }
    let mut outcome = Outcome {
        method: contest::method(&text, &encoded, &entrants[0], &seeds),
        ..Outcome::default()
    };
    outcome.method.push(format!(
        "{LAYERS} blocks of width {WIDTH} with {HEADS} heads, AdamW with a learning rate of {RATE}. \
         Here the {JUDGED} last tokens of {ENDINGS} windows are judged, and windows of all lengths end at the same \
         places: so the same tokens are judged at every length, and only how much of the text before them \
         can be seen differs. Nothing is trained at the longer lengths. T5's and relative distances are \
         those of training, larger ones count as the largest. Learned positions have no vector beyond \
         {LENGTH}: –."
    ));
    report(&mut outcome, &found);
    Ok(outcome)
}

fn report(outcome: &mut Outcome, found: &[Found<f64>]) {
    let lines = lines(&STUDY, found, |loss| *loss);
    let number = |x: f64| format!("{x:.3}");
    for multiple in MULTIPLES {
        let samples = at(&lines, (multiple * LENGTH) as f64);
        // At the trained length, RoPE and its scalings are one: the first stands for all.
        let is_rope = |name: &str| name.starts_with("rope");
        let rope = samples.iter().map(|(name, _)| name.clone()).find(|name| is_rope(name));
        let samples: Vec<_> = samples
            .into_iter()
            .filter(|(name, _)| multiple > 1 || !is_rope(name) || Some(name) == rope.as_ref())
            .collect();
        if samples.is_empty() {
            continue;
        }
        let what = match multiple {
            1 => format!("the lowest loss at the trained length of {LENGTH}"),
            _ => format!("the lowest loss at {multiple} times the trained length"),
        };
        outcome.findings.push(best(&what, Better::Lower, &samples, number));
    }
    outcome.findings.extend(lines.iter().filter_map(|line| change(line, number)));
    let about = "The loss on held-out text, in nats per character, by the length of the window; training \
                 knew the shortest. The same tokens are judged at every length: where a curve falls, what \
                 stands further back is of use, where it rises, it does harm.";
    let title = "Loss by length";
    outcome.drawings.push(
        Drawing::of(title, "tokens of the window", "nats per character", &lines, about)
            .in_doublings()
            .logarithmic(),
    );
    outcome.listings.push(Listing::of(title, thousands, &lines, number, about));
    outcome.numbers =
        json!({"trained_length": LENGTH, "judged_tokens": JUDGED, "loss": by_name(&lines)});
}

/// How the loss of a contender changes from the trained to the longest length.
fn change(line: &Line, number: impl Fn(f64) -> String) -> Option<String> {
    let longest = LENGTH * MULTIPLES[MULTIPLES.len() - 1];
    let near = line.at(LENGTH as f64)?;
    let Some(far) = line.at(longest as f64) else {
        return Some(format!("{} has no positions beyond {LENGTH} tokens", line.name));
    };
    if !(near.is_finite() && far.is_finite()) {
        return None;
    }
    let differences: Vec<f64> = near.values.iter().zip(&far.values).map(|(a, b)| b - a).collect();
    if number(near.mean()) == number(far.mean()) {
        let (name, stays) = (&line.name, number(near.mean()));
        return Some(format!(
            "from {LENGTH} to {longest} tokens, the loss of {name} stays at {stays}"
        ));
    }
    let what = if differences.iter().all(|d| *d < 0.0) {
        "falls"
    } else if differences.iter().all(|d| *d > 0.0) {
        "rises"
    } else {
        "goes up or down, depending on the seed,"
    };
    Some(format!(
        "from {LENGTH} to {longest} tokens, the loss of {} {what} from {} to {}",
        line.name,
        number(near.mean()),
        number(far.mean())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Sample;
    use hearken_nn::config::DecoderConfig;

    #[test]
    fn every_contender_is_a_model_at_every_length_with_the_weights_of_training() {
        for contender in STUDY.contenders.iter().map(|contender| contender.name) {
            for multiple in MULTIPLES {
                let of = |name, multiple: usize| {
                    let stack = stack(name, multiple);
                    DecoderConfig { vocabulary: 9, ..DecoderConfig::new(LENGTH * multiple, stack) }
                };
                of(contender, multiple).validate().unwrap();
                if contender != "learned" {
                    let trained =
                        hearken_nn::models::Decoder::drawn(of(trained_as(contender), 1), 1);
                    contest::with_weights_of(&trained, &of(contender, multiple).into());
                }
            }
        }
    }

    #[test]
    fn what_is_said_of_a_change_is_its_sign() {
        let line = |near: &[f64], far: &[f64]| {
            let sample = |values: &[f64]| values.iter().copied().collect::<Sample>();
            let points = vec![(64.0, sample(near)), (512.0, sample(far))];
            change(&Line { name: "rope".to_owned(), color: 0, points }, |x| format!("{x:.1}"))
        };
        let said = line(&[1.0, 2.0], &[2.0, 3.0]).unwrap();
        assert_eq!(said, "from 64 to 512 tokens, the loss of rope rises from 1.5 to 2.5");
        assert!(line(&[2.0, 2.0], &[1.0, 1.0]).unwrap().contains("falls from 2.0 to 1.0"));
        assert!(line(&[1.0, 2.0], &[2.0, 1.1]).unwrap().contains("depending on the seed"));
        assert!(line(&[1.0, 2.0], &[1.01, 2.01]).unwrap().ends_with("stays at 1.5"));
        assert_eq!(line(&[f64::NAN], &[1.0]), None);
        let points = vec![(64.0, [1.0].into_iter().collect())];
        let table = Line { name: "learned".to_owned(), color: 0, points };
        let said = change(&table, |x| x.to_string()).unwrap();
        assert_eq!(said, "learned has no positions beyond 64 tokens");
    }
}
