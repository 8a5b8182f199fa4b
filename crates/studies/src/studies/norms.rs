//! Where the norm stands: before each layer or after the sum, in shallow and deep models, with and without
//! warm-up.
//!
//! ```text
//! pre   x + f(norm(x))      the residual stream runs through untouched
//! post  norm(x + f(x))      every block rescales it, and the gradient on its way back
//! ```

use crate::contest::{self, Entrant, Found, at, lines};
use crate::outcome::{Drawing, Line, Listing, Outcome, by_name};
use crate::request::Request;
use crate::sizes::{decoder, training, transformer};
use crate::statistics::best;
use crate::study::{Contender, Study};
use crate::text::Encoded;
use crate::trials::seconds_of_all;
use hearken_base::Result;
use hearken_nn::config::{InitConfig, NormConfig, Placement, StackConfig};
use hearken_show::number::{percent, plural};
use hearken_show::svg::PALETTE;
use hearken_show::{Chart, Level, Mark, Series};
use hearken_train::{Better, ScheduleConfig};
use serde_json::json;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "norms",
    line: "norm before or after each layer, at 4, 12 and 24 layers, with and without warm-up",
    question: "The Transformer of 2017 has its norms after the residual sums, today's have them before \
               each layer. Which of them can be trained when they are deep, and do they need warm-up?",
    contenders: &[
        Contender {
            name: "pre",
            about: "norm before each layer; warm-up over a fifth of the steps",
        },
        Contender { name: "pre-cold", about: "norm before each layer; full learning rate at once" },
        Contender { name: "post", about: "norm after each sum; warm-up over a fifth of the steps" },
        Contender { name: "post-cold", about: "norm after each sum; full learning rate at once" },
    ],
    reads_text: true,
    minutes: [2.0, 8.0],
    run,
};

const DEPTHS: [usize; 3] = [4, 12, 24];
const WIDTH: usize = 48;
const HEADS: usize = 4;
const LENGTH: usize = 64;
const ROWS: usize = 16;
const RATE: f64 = 1e-2;
/// The share of the steps that warm up.
const WARMUP: f64 = 0.2;
/// A model has learned more than frequencies if its loss is below theirs by more than this share.
const LEARNED: f64 = 0.02;

/// What one training came to.
struct Run {
    loss: f64,
    losses: Vec<f64>,
    first_gradient: f64,
}

fn entrant<'a>(
    request: &Request,
    text: &'a Encoded,
    contender: &str,
    layers: usize,
) -> Entrant<'a> {
    let placement = if contender.starts_with("pre") { Placement::Pre } else { Placement::Post };
    let stack = StackConfig {
        norm: NormConfig { placement, ..NormConfig::default() },
        init: InitConfig { scale_residual: false, ..InitConfig::for_width(WIDTH) },
        ..transformer(layers, WIDTH, HEADS)
    };
    let steps = request.steps(request.sized(250, 450));
    let warm = if contender.ends_with("cold") { 0.0 } else { WARMUP };
    let mut training = training(steps, ROWS, RATE, 0);
    training.schedule =
        ScheduleConfig::Cosine { warmup: (steps as f64 * warm) as u64, floor: 0.02 };
    Entrant {
        name: format!("{contender}, {layers} layers"),
        text,
        model: decoder(stack, text.tokenizer.vocabulary_size(), LENGTH),
        length: LENGTH,
        training,
    }
}

fn run(request: &Request) -> Result<Outcome> {
    let (text, encoded) = contest::by_character(request, LENGTH)?;
    let seeds = request.seeds(1, 3);
    // The deepest first, so that no core waits for one at the end.
    let settings =
        || DEPTHS.iter().rev().flat_map(|depth| request.contenders.iter().map(|c| (*c, *depth)));
    let entrants: Vec<Entrant<'_>> =
        settings().map(|(name, depth)| entrant(request, &encoded, name, depth)).collect();
    let each = contest::seconds(&entrants)?;
    request.announce(seconds_of_all(&each.repeat(seeds.len())))?;
    let runs = contest::train(request, STUDY.name, &entrants, &seeds, |_, fitted| {
        let first_gradient = fitted.trained.gradient_norms.first().copied().unwrap_or(f64::NAN);
        Ok(Run { loss: fitted.loss, losses: fitted.trained.losses, first_gradient })
    })?;
    let found: Vec<Found<Run>> = contest::by_setting(settings(), runs);
    let mut outcome = Outcome {
        method: contest::method(&text, &encoded, &entrants[0], &seeds),
        ..Outcome::default()
    };
    outcome.method.push(format!(
        "Blocks of width {WIDTH} with {HEADS} heads and LayerNorm; matrices start with the same deviation \
         at every depth. AdamW with a learning rate of {RATE} at most, for all; warm-up is a line from 0 \
         over the first {} of the steps, and without it the first step has the full rate. Then half a \
         cosine. Gradients are clipped at 1.",
        percent(WARMUP, 0)
    ));
    report(&mut outcome, &found, encoded.loss_of_frequencies());
    Ok(outcome)
}

fn report(outcome: &mut Outcome, found: &[Found<Run>], frequencies: f64) {
    let loss = lines(&STUDY, found, |run| run.loss);
    let gradient = lines(&STUDY, found, |run| run.first_gradient);
    let number = |x: f64| format!("{x:.3}");
    for depth in DEPTHS {
        let what = format!("the lowest held-out loss at {depth} layers");
        let samples = at(&loss, depth as f64);
        outcome.findings.push(best(&what, Better::Lower, &samples, number));
    }
    outcome.findings.extend(loss.iter().map(|line| fate(line, frequencies)));
    let about = "The loss on held-out text by depth, in nats per character.";
    let mut by_depth = Drawing::of("Loss by depth", "layers", "nats per character", &loss, about);
    let level = Level { name: "frequencies alone".to_owned(), y: frequencies };
    let highest = loss.iter().flat_map(|line| &line.points).map(|(_, sample)| sample.high());
    if highest.fold(0.0, f64::max) > 0.5 * frequencies {
        by_depth.chart.levels.push(level.clone()); // else it would press the curves to the ground
    }
    outcome.drawings.push(by_depth);
    for depth in DEPTHS {
        let title = format!("Training with {depth} layers");
        let mut chart = Chart::new(&title, "step", "nats per character");
        chart.series = found.iter().filter(|f| f.x == depth as f64).filter_map(curve).collect();
        chart.levels.push(level.clone());
        let about = "The loss of every step, of the first seed. The level is that of a model which knows how \
                     frequent each character is and nothing else.";
        outcome.drawings.push(Drawing { chart, about: about.to_owned() });
    }
    let heading = |x| plural(x as usize, "layer");
    outcome.listings.push(Listing::of("Held-out loss", heading, &loss, number, about));
    let about = "The gradient norm of all weights in the very first step, before clipping.";
    outcome.listings.push(Listing::of("First gradient", heading, &gradient, number, about));
    outcome.numbers = json!({
        "loss": by_name(&loss), "first_gradient": by_name(&gradient), "frequencies": frequencies,
    });
}

/// The loss of every step of the first seed.
fn curve(found: &Found<Run>) -> Option<Series> {
    let losses = found.runs.first()?.losses.iter().enumerate();
    Some(Series {
        name: found.contender.to_owned(),
        color: PALETTE[STUDY.place(found.contender)],
        points: losses.map(|(step, loss)| (step as f64 + 1.0, *loss)).collect(),
        mark: Mark::Line,
    })
}

/// At which depths a contender learned more than the frequencies of characters, and at which not.
fn fate(line: &Line, frequencies: f64) -> String {
    let (mut learned, mut stuck, mut diverged) = (Vec::new(), Vec::new(), Vec::new());
    for (depth, sample) in &line.points {
        let list = if !sample.is_finite() {
            &mut diverged
        } else if sample.high() < (1.0 - LEARNED) * frequencies {
            &mut learned
        } else {
            &mut stuck
        };
        list.push(depth.to_string());
    }
    let share = percent(LEARNED, 0);
    let level = format!("{share} below the {frequencies:.2} nats of frequencies alone");
    let parts = [
        (learned, format!("ends more than {level} with every seed at")),
        (stuck, format!("does not end more than {level} with every seed at")),
        (diverged, "diverges with at least one seed at".to_owned()),
    ];
    let parts = parts.iter().filter(|(depths, _)| !depths.is_empty());
    let parts = parts.map(|(depths, what)| format!("{what} {} layers", depths.join(", ")));
    format!("{} {}", line.name, parts.collect::<Vec<String>>().join("; it "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_follow_the_numbers() {
        let line = |values: [f64; 3]| Line {
            name: "post".to_owned(),
            color: 0,
            points: DEPTHS
                .iter()
                .zip(values)
                .map(|(d, y)| (*d as f64, [y].into_iter().collect()))
                .collect(),
        };
        let said = fate(&line([1.0, 2.99, f64::NAN]), 3.0);
        let [learned, stuck, diverged] = said.split("; it ").collect::<Vec<_>>()[..] else {
            panic!("{said}")
        };
        assert!(
            learned.starts_with("post ends more than 2 % below")
                && learned.ends_with("at 4 layers")
        );
        assert!(stuck.starts_with("does not end") && stuck.ends_with("at 12 layers"));
        assert!(diverged.starts_with("diverges") && diverged.ends_with("at 24 layers"));
        let said = fate(&line([3.0; 3]), 3.0);
        assert!(
            said.starts_with("post does not") && said.ends_with("at 4, 12, 24 layers"),
            "{said}"
        );
    }
}
