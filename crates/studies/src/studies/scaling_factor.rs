//! Why scores are divided by √D: attention with and without the factor at a growing head width D.
//!
//! ```text
//! q·k = Σᵢ qᵢkᵢ    for independent qᵢ, kᵢ of mean 0 and variance v:  variance D·v²
//! ```
//! The products grow like √D. Divided by √D they stay as they are; without that, softmax gives ever more
//! of the weight to one key, and its derivative p(1 − p) goes to 0.

use crate::contest::{self, Entrant, Found, at, lines};
use crate::outcome::{Drawing, Line, Listing, Outcome, by_name};
use crate::request::Request;
use crate::rows::RowTask;
use crate::sizes::{decoder, training, transformer};
use crate::statistics::{best, slope};
use crate::study::{Contender, Study};
use crate::text::Encoded;
use crate::trials::seconds_of_all;
use hearken_base::Result;
use hearken_nn::config::StackConfig;
use hearken_nn::models::PredictsTokens;
use hearken_show::number::{percent, significant, thousands};
use hearken_train::{Better, Moment, Task};
use serde_json::json;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "scaling-factor",
    line: "why scores are divided by √D: attention with and without it at growing head width",
    question: "The score of a query and a key is a sum of D products, so it grows with √D. Divided by √D \
               it does not. What do entropy of attention, gradients and loss make of that?",
    contenders: &[
        Contender { name: "scaled", about: "softmax(q·k/√D), as usual" },
        Contender { name: "unscaled", about: "softmax(q·k)" },
    ],
    reads_text: true,
    minutes: [2.0, 8.0],
    run,
};

const LAYERS: usize = 2;
const WIDTH: usize = 64;
const HEADS: usize = 2;
const LENGTH: usize = 64;
const ROWS: usize = 16;
const RATE: f64 = 3e-3;

/// What one training came to.
struct Run {
    loss: f64,
    /// Share of the highest entropy: of the fresh and of the trained model.
    entropy: [f64; 2],
    /// ‖g‖ of the weights that make queries and keys.
    gradient: [f64; 2],
}

fn entrant<'a>(
    request: &Request,
    text: &'a Encoded,
    contender: &str,
    head_width: usize,
) -> Entrant<'a> {
    let stack = StackConfig {
        head_width: Some(head_width),
        scaled_scores: contender == "scaled",
        ..transformer(LAYERS, WIDTH, HEADS)
    };
    Entrant {
        name: format!("{contender}, D {head_width}"),
        text,
        model: decoder(stack, text.tokenizer.vocabulary_size(), LENGTH),
        length: LENGTH,
        training: training(request.steps(request.sized(300, 700)), ROWS, RATE, 0),
    }
}

/// The norm of the gradient of all weights that make queries and keys, of the mean loss on the first
/// windows of training.
fn gradient(entrant: &Entrant<'_>, model: &dyn PredictsTokens, seed: u64) -> Result<f64> {
    let copy = contest::with_weights_of(model, &entrant.model);
    let at = Moment { seed, step: 0, micro_batch: 0, micro_batches: 1 };
    let (text, rows, length) = (entrant.text, entrant.training.batch_size, entrant.length);
    let task = RowTask::new(copy, |at| text.windows(at, rows, length));
    let loss = task.loss(at)?;
    loss.sum.backward();
    let mut square = 0.0;
    for parameter in task.parameters() {
        let Some(gradient) = parameter.gradient() else { continue };
        if parameter.name().ends_with("attention.qkv.weight") {
            // (queries, keys, values) × C, as many of each
            let data = &gradient.data()[..gradient.shape().len() * 2 / 3];
            square += data.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>();
        }
        parameter.set_gradient(None);
    }
    Ok(square.sqrt() / loss.weight)
}

fn run(request: &Request) -> Result<Outcome> {
    let widths: &[usize] = request.sized(&[8, 32, 128, 512], &[8, 16, 32, 64, 128, 256, 512]);
    let (text, encoded) = contest::by_character(request, LENGTH)?;
    let seeds = request.seeds(1, 3);
    let settings = || request.contenders.iter().flat_map(|c| widths.iter().map(|d| (*c, *d)));
    let entrants: Vec<Entrant<'_>> =
        settings().map(|(name, width)| entrant(request, &encoded, name, width)).collect();
    let each = contest::seconds(&entrants)?;
    request.announce(seconds_of_all(&each.repeat(seeds.len())))?;
    let runs = contest::train(request, STUDY.name, &entrants, &seeds, |entrant, fitted| {
        let fresh = entrant.task(fitted.seed);
        let entropy = [fresh.model(), fitted.model].map(|model| entrant.attention(model).mean);
        let gradient = |model| gradient(entrant, model, fitted.seed);
        let gradient = [gradient(fresh.model())?, gradient(fitted.model)?];
        Ok(Run { loss: fitted.loss, entropy, gradient })
    })?;
    let found: Vec<Found<Run>> = contest::by_setting(settings(), runs);
    let mut outcome = Outcome {
        method: contest::method(&text, &encoded, &entrants[0], &seeds),
        ..Outcome::default()
    };
    outcome.method.push(format!(
        "{LAYERS} blocks of width {WIDTH} with {HEADS} heads, whose width D grows while everything else \
         stays: so models grow with D, equally with and without the factor. AdamW with a learning rate of \
         {RATE}. Entropy is the mean over queries, heads and layers, as a share of the highest that is \
         possible: 1 is even attention, 0 is attention to one token. The gradient is that of the mean \
         loss with respect to the matrices that make queries and keys, of the same windows for the fresh \
         and for the trained model."
    ));
    report(&mut outcome, &found);
    Ok(outcome)
}

fn report(outcome: &mut Outcome, found: &[Found<Run>]) {
    let loss = lines(&STUDY, found, |run| run.loss);
    let entropy = [0, 1].map(|when| lines(&STUDY, found, |run| run.entropy[when]));
    let gradient = [0, 1].map(|when| lines(&STUDY, found, |run| run.gradient[when]));
    let xs = || found.iter().map(|found| found.x);
    let (first, last) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    let shown = |line: &Line, x: f64, number: fn(f64) -> String| {
        line.at(x).map_or_else(String::new, |sample| sample.show(number))
    };
    for (when, lines) in ["before", "after"].iter().zip(&entropy) {
        for line in lines {
            let share = |x| percent(x, 1);
            outcome.findings.push(format!(
                "{when} training, attention of {} has {} of the highest entropy at D = {first} and {} at \
                 D = {last}",
                line.name,
                shown(line, first, share),
                shown(line, last, share),
            ));
        }
    }
    for line in &gradient[0] {
        let points: Vec<(f64, f64)> = line.points.iter().map(|p| (p.0, p.1.mean())).collect();
        outcome.findings.push(format!(
            "before training, the gradient norm of query and key weights of {} is {} at D = {first} and {} \
             at D = {last}: a slope of {:.2} in log–log",
            line.name,
            shown(line, first, significant),
            shown(line, last, significant),
            slope(&points)
        ));
    }
    for x in [first, last] {
        let what = format!("the lowest held-out loss at D = {x}");
        outcome.findings.push(best(&what, Better::Lower, &at(&loss, x), |x| format!("{x:.3}")));
    }
    draw(outcome, &loss, &entropy, &gradient);
    outcome.numbers = json!({
        "loss": by_name(&loss),
        "entropy": {"fresh": by_name(&entropy[0]), "trained": by_name(&entropy[1])},
        "gradient": {"fresh": by_name(&gradient[0]), "trained": by_name(&gradient[1])},
    });
}

fn draw(outcome: &mut Outcome, loss: &[Line], entropy: &[Vec<Line>; 2], gradient: &[Vec<Line>; 2]) {
    let both = |pair: &[Vec<Line>; 2]| {
        let named =
            pair.iter().zip(["fresh", "trained"]).enumerate().flat_map(|(i, (lines, when))| {
                lines.iter().map(move |line| Line {
                    name: format!("{}, {when}", line.name),
                    color: line.color + 2 * i,
                    points: line.points.clone(),
                })
            });
        named.collect::<Vec<Line>>()
    };
    let (entropy, gradient) = (both(entropy), both(gradient));
    let x = "head width D";
    let about_loss = "The loss on held-out text, in nats per character. Models grow with D.";
    let about_entropy = "The entropy of attention, as a share of the highest: near 0 each query attends \
                         to one token and learns little of the others.";
    let about_gradient = "The norm of the gradient that queries and keys learn by. Without the factor \
                          gradients pass √D times larger through the scores, and softmax, once it is \
                          sharp, lets less of them through: the curve shows which of the two wins.";
    outcome.drawings.extend([
        Drawing::of("Loss by head width", x, "nats per character", loss, about_loss).in_doublings(),
        Drawing::of("Entropy of attention", x, "share of the highest", &entropy, about_entropy)
            .in_doublings(),
        Drawing::of("Gradient of queries and keys", x, "‖g‖", &gradient, about_gradient)
            .in_doublings()
            .logarithmic(),
    ]);
    let heading = |x| format!("D = {}", thousands(x));
    outcome.listings.extend([
        Listing::of("Held-out loss", heading, loss, |x| format!("{x:.3}"), about_loss),
        Listing::of("Entropy", heading, &entropy, |x| percent(x, 1), about_entropy),
        Listing::of("Gradient norm", heading, &gradient, significant, about_gradient),
    ]);
}
