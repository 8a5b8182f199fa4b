//! How many heads, and which projections they share, at equal parameters.
//!
//! ```text
//! H heads of width D = C/H: the projections to queries, keys and values have 3·C² weights, whatever H
//! Q = K or K = V: 2·C², Q = K = V: C²; what is saved makes the feed-forward layer wider
//! ```
//! More heads look at more places at once, and each compares in fewer dimensions.

use crate::contest::{self, Attention, Entrant, Found, at, lines};
use crate::outcome::{Drawing, Line, Listing, Outcome, by_name};
use crate::request::Request;
use crate::sizes::{decoder, nearest, parameters, training, transformer};
use crate::statistics::{Sample, best};
use crate::study::{Contender, Study};
use crate::text::Encoded;
use crate::trials::seconds_of_all;
use hearken_base::Result;
use hearken_nn::config::{FeedForwardConfig, ModelConfig, Shared, StackConfig};
use hearken_show::number::{percent, plural, thousands};
use hearken_train::Better;
use serde_json::json;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "heads",
    line: "1 to 16 heads and shared projections, at equal parameters",
    question: "Are many narrow heads better than a few wide ones, and what does it cost if queries, keys \
               and values share their projections?",
    contenders: &[
        Contender { name: "separate", about: "queries, keys and values have a matrix each" },
        Contender { name: "query-key", about: "queries are keys: Q = K" },
        Contender { name: "key-value", about: "keys are values: K = V" },
        Contender { name: "all", about: "one matrix for all three: Q = K = V" },
    ],
    reads_text: true,
    minutes: [2.0, 8.0],
    run,
};

const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];
const LAYERS: usize = 2;
const WIDTH: usize = 64;
const LENGTH: usize = 64;
const ROWS: usize = 16;
const RATE: f64 = 3e-3;

/// What one training came to.
struct Run {
    loss: f64,
    attention: Attention,
}

fn model(contender: &str, heads: usize, vocabulary: usize) -> ModelConfig {
    let base = transformer(LAYERS, WIDTH, heads);
    let of = |shared, width| {
        let feed_forward = FeedForwardConfig { width: Some(width), ..base.feed_forward };
        let stack = StackConfig { shared_projections: shared, feed_forward, ..base.clone() };
        decoder(stack, vocabulary, LENGTH)
    };
    let shared = match contender {
        "query-key" => Shared::QueryKey,
        "key-value" => Shared::KeyValue,
        "all" => Shared::All,
        _ => return of(Shared::None, base.feed_forward_width()),
    };
    // What is saved is a share of C², and a unit of the feed-forward layer has 3·C.
    let wanted = parameters(&of(Shared::None, base.feed_forward_width()));
    nearest(wanted, 2, |width| of(shared, width))
}

fn entrant<'a>(request: &Request, text: &'a Encoded, contender: &str, heads: usize) -> Entrant<'a> {
    Entrant {
        name: format!("{contender}, {}", plural(heads, "head")),
        text,
        model: model(contender, heads, text.tokenizer.vocabulary_size()),
        length: LENGTH,
        training: training(request.steps(request.sized(400, 1000)), ROWS, RATE, 0),
    }
}

fn run(request: &Request) -> Result<Outcome> {
    let (text, encoded) = contest::by_character(request, LENGTH)?;
    let seeds = request.seeds(1, 3);
    let settings = || request.contenders.iter().flat_map(|c| COUNTS.map(|heads| (*c, heads)));
    let entrants: Vec<Entrant<'_>> =
        settings().map(|(name, heads)| entrant(request, &encoded, name, heads)).collect();
    let each = contest::seconds(&entrants)?;
    request.announce(seconds_of_all(&each.repeat(seeds.len())))?;
    let runs = contest::train(request, STUDY.name, &entrants, &seeds, |entrant, fitted| {
        Ok(Run { loss: fitted.loss, attention: entrant.attention(fitted.model) })
    })?;
    let found = |((contender, heads), runs): ((&'static str, usize), Vec<Run>)| Found {
        contender,
        x: heads as f64,
        runs,
    };
    let found: Vec<Found<Run>> = settings().zip(runs).map(found).collect();
    let mut outcome = Outcome {
        method: contest::method(&text, &encoded, &entrants[0], &seeds),
        ..Outcome::default()
    };
    let sizes = || entrants.iter().map(|entrant| parameters(&entrant.model));
    let size = |size: Option<usize>| thousands(size.unwrap_or_default() as f64);
    outcome.method.push(format!(
        "{LAYERS} blocks of width {WIDTH}, AdamW with a learning rate of {RATE}. H heads are {WIDTH}/H \
         wide. Where projections are shared, the feed-forward layer is as much wider: all models have {} \
         to {} parameters. Entropy is the mean over queries and heads, as a share of the highest that is \
         possible: 1 is even attention, 0 is attention to one token.",
        size(sizes().min()),
        size(sizes().max())
    ));
    report(&mut outcome, &found);
    Ok(outcome)
}

fn report(outcome: &mut Outcome, found: &[Found<Run>]) {
    let loss = lines(&STUDY, found, |run| run.loss);
    let [mean, low, high]: [fn(&Attention) -> f64; 3] = [|a| a.mean, |a| a.low, |a| a.high];
    let entropy = [mean, low, high].map(|of| lines(&STUDY, found, |run| of(&run.attention)));
    let number = |x: f64| format!("{x:.3}");
    for line in &loss {
        let samples: Vec<(String, Sample)> =
            line.points.iter().map(|(x, sample)| (format!("H = {x}"), sample.clone())).collect();
        let said = best("the lowest held-out loss", Better::Lower, &samples, number);
        outcome
            .findings
            .push(format!("of models with {} projections, {said}", of_kind(&line.name)));
    }
    if loss.len() > 1 {
        for heads in [1.0, 4.0] {
            let what = format!("the lowest held-out loss with {}", plural(heads as usize, "head"));
            outcome.findings.push(best(&what, Better::Lower, &at(&loss, heads), number));
        }
    }
    for line in &entropy[0] {
        let ends = [line.points.first(), line.points.last()].map(|point| {
            point.map_or_else(String::new, |(x, sample)| {
                format!("{} with {}", sample.show(|x| percent(x, 1)), plural(*x as usize, "head"))
            })
        });
        outcome.findings.push(format!(
            "with {} projections, attention has, of the highest entropy, {} and {}",
            of_kind(&line.name),
            ends[0],
            ends[1]
        ));
    }
    draw(outcome, &loss, &entropy);
    outcome.numbers = json!({
        "loss": by_name(&loss),
        "entropy": {
            "mean": by_name(&entropy[0]), "sharpest_head": by_name(&entropy[1]),
            "most_even_head": by_name(&entropy[2]),
        },
    });
}

/// The kind of projections, in words.
fn of_kind(contender: &str) -> &'static str {
    match contender {
        "query-key" => "Q = K",
        "key-value" => "K = V",
        "all" => "Q = K = V",
        _ => "separate",
    }
}

fn draw(outcome: &mut Outcome, loss: &[Line], entropy: &[Vec<Line>; 3]) {
    let about = "The loss on held-out text, in nats per character, at equal parameters.";
    let about_entropy = "The mean entropy of attention, as a share of the highest. A head of low entropy \
                         looks at a few tokens, one of high entropy at all of them alike.";
    let heading = |x| plural(x as usize, "head");
    let number = |x: f64| format!("{x:.3}");
    let share = |x: f64| percent(x, 1);
    outcome.drawings.extend([
        Drawing::of("Loss by heads", "heads", "nats per character", loss, about).in_doublings(),
        Drawing::of(
            "Entropy by heads",
            "heads",
            "share of the highest",
            &entropy[0],
            about_entropy,
        )
        .in_doublings(),
    ]);
    outcome.listings.extend([
        Listing::of("Held-out loss", heading, loss, number, about),
        Listing::of("Entropy of attention", heading, &entropy[0], share, about_entropy),
        Listing::of(
            "The sharpest head",
            heading,
            &entropy[1],
            share,
            "The lowest entropy of a head.",
        ),
        Listing::of(
            "The most even head",
            heading,
            &entropy[2],
            share,
            "The highest entropy of a head.",
        ),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_models_are_of_one_size() {
        let sizes: Vec<usize> = (STUDY.contenders.iter())
            .flat_map(|c| COUNTS.map(|heads| parameters(&model(c.name, heads, 50))))
            .collect();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!((most - least) as f64 <= 0.01 * *least as f64, "{sizes:?}");
    }
}
