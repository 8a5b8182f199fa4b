//! Optimisers, each at its best learning rate.
//!
//! A comparison at one learning rate compares how well that rate suits each of them. So every optimiser
//! is first swept over rates with the first seed; the one with the lowest training loss at the end is
//! taken, and held-out text, which had no part in that choice, judges it with every seed.

use crate::contest::{self, Entrant};
use crate::outcome::{Drawing, Line, Listing, Outcome, by_name};
use crate::request::Request;
use crate::sizes::{decoder, training, transformer};
use crate::statistics::{Sample, best};
use crate::study::{Contender, Study};
use crate::text::Encoded;
use crate::trials::seconds_of_all;
use hearken_base::Result;
use hearken_show::number::{duration, error};
use hearken_show::svg::PALETTE;
use hearken_show::{Chart, Mark, Series, Table};
use hearken_train::optimizer::MuonAdjust;
use hearken_train::{Better, OptimizerConfig};
use serde_json::json;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "optimizers",
    line: "SGD, momentum, Adam, Adam + L2, AdamW, Lion and Muon, each at its best rate",
    question: "How far does each optimiser get in the same number of steps, if each may choose its \
               learning rate from a small sweep?",
    contenders: &[
        Contender { name: "sgd", about: "θ ← θ − lr·g" },
        Contender { name: "momentum", about: "m ← 0.9·m + g; θ ← θ − lr·m" },
        Contender { name: "adam", about: "β 0.9 and 0.99, without decay" },
        Contender { name: "adam-l2", about: "the same with 0.001·θ added to the gradient" },
        Contender { name: "adamw", about: "Adam with decay 0.1 beside the moments" },
        Contender { name: "lion", about: "the sign of momentum; β 0.9 and 0.99, decay 0.1" },
        Contender {
            name: "muon",
            about: "orthogonalised momentum for hidden matrices, AdamW for the rest; decay 0.1",
        },
    ],
    reads_text: true,
    minutes: [2.0, 8.0],
    run,
};

const LAYERS: usize = 2;
const WIDTH: usize = 48;
const HEADS: usize = 4;
const LENGTH: usize = 64;
const ROWS: usize = 16;

/// What one training came to.
struct Run {
    /// Held out.
    loss: f64,
    /// Of training, over the last tenth of the steps.
    last: f64,
    losses: Vec<f64>,
    seconds: f64,
}

/// The learning rates of a sweep, half a power of ten apart.
fn rates(contender: &str) -> [f64; 5] {
    match contender {
        "sgd" => [0.03, 0.1, 0.3, 1.0, 3.0],
        "momentum" => [0.01, 0.03, 0.1, 0.3, 1.0],
        "lion" => [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
        _ => [3e-4, 1e-3, 3e-3, 1e-2, 3e-2],
    }
}

fn optimizer(contender: &str) -> OptimizerConfig {
    let (beta1, beta2, eps, weight_decay) = (0.9, 0.99, 1e-8, 0.1);
    let sgd =
        |momentum| OptimizerConfig::Sgd { momentum, nesterov: false, averaged: false, l2: 0.0 };
    let adam = |l2| OptimizerConfig::Adam { beta1, beta2, eps, l2, beta2_warmup: None };
    match contender {
        "sgd" => sgd(0.0),
        "momentum" => sgd(0.9),
        "adam" => adam(0.0),
        "adam-l2" => adam(1e-3),
        "lion" => OptimizerConfig::Lion { beta1, beta2, weight_decay },
        "muon" => OptimizerConfig::Muon {
            momentum: 0.95,
            nesterov: true,
            iterations: 5,
            adjust: MuonAdjust::MatchAdamw,
            lr_factor: 1.0,
            weight_decay,
            beta1,
            beta2,
            eps,
        },
        _ => OptimizerConfig::AdamW { beta1, beta2, eps, weight_decay, beta2_warmup: None },
    }
}

fn entrant<'a>(request: &Request, text: &'a Encoded, contender: &str, rate: f64) -> Entrant<'a> {
    let steps = request.steps(request.sized(300, 1000));
    let mut training = training(steps, ROWS, rate, 0);
    training.optimizer = optimizer(contender);
    Entrant {
        name: format!("{contender}, rate {rate}"),
        text,
        model: decoder(transformer(LAYERS, WIDTH, HEADS), text.tokenizer.vocabulary_size(), LENGTH),
        length: LENGTH,
        training,
    }
}

/// What became of an optimiser.
struct Swept {
    contender: &'static str,
    /// Rate and training loss of the first seed.
    sweep: Vec<(f64, f64)>,
    /// The rate of the lowest training loss; none, if all diverged.
    best: Option<f64>,
    /// At that rate, by seed.
    runs: Vec<Run>,
}

/// Which rate of a sweep has the lowest loss; none, if no loss is finite.
fn best_rate(sweep: &[(f64, f64)]) -> Option<usize> {
    let finite = sweep.iter().enumerate().filter(|(_, (_, loss))| loss.is_finite());
    finite.min_by(|a, b| a.1.1.total_cmp(&b.1.1)).map(|(i, _)| i)
}

fn run(request: &Request) -> Result<Outcome> {
    let (text, encoded) = contest::by_character(request, LENGTH)?;
    let seeds = request.seeds(1, 3);
    let settings = || request.contenders.iter().flat_map(|c| rates(c).map(|rate| (*c, rate)));
    let entrants: Vec<Entrant<'_>> =
        settings().map(|(name, rate)| entrant(request, &encoded, name, rate)).collect();
    let each = contest::seconds(&entrants)?;
    let finals = each.iter().step_by(rates("").len()).copied();
    let finals: Vec<f64> = finals.flat_map(|one| vec![one; seeds.len() - 1]).collect();
    request.announce(seconds_of_all(&each) + seconds_of_all(&finals))?;
    let judge = |entrant: &Entrant<'_>, fitted: contest::Fitted<'_>| {
        let last = entrant.usable(fitted.trained.final_loss());
        let (losses, seconds) = (fitted.trained.losses, fitted.trained.seconds);
        Ok(Run { loss: fitted.loss, last, losses, seconds })
    };
    let mut runs =
        contest::train(request, "optimizers, sweep", &entrants, &seeds[..1], judge)?.into_iter();
    let mut swept = Vec::new();
    for contender in &request.contenders {
        let mut mine: Vec<Run> = runs.by_ref().take(rates(contender).len()).flatten().collect();
        let sweep: Vec<(f64, f64)> =
            rates(contender).iter().zip(&mine).map(|(rate, run)| (*rate, run.last)).collect();
        let place = best_rate(&sweep);
        let best = place.map(|place| sweep[place].0);
        let runs = place.map(|place| mine.swap_remove(place)).into_iter().collect();
        swept.push(Swept { contender, sweep, best, runs });
    }
    let finals = swept.iter().filter_map(|swept| Some((swept.contender, swept.best?)));
    let finals: Vec<Entrant<'_>> =
        finals.map(|(name, rate)| entrant(request, &encoded, name, rate)).collect();
    let more = contest::train(request, "optimizers, seeds", &finals, &seeds[1..], judge)?;
    for (swept, more) in swept.iter_mut().filter(|swept| swept.best.is_some()).zip(more) {
        swept.runs.extend(more);
    }
    let mut outcome = Outcome {
        method: contest::method(&text, &encoded, &entrants[0], &seeds),
        ..Outcome::default()
    };
    outcome.method.push(format!(
        "{LAYERS} blocks of width {WIDTH} with {HEADS} heads; the rate warms up over a twentieth of the \
         steps and falls along half a cosine; gradients are clipped at 1. Each optimiser is swept over {} \
         rates, half a power of ten apart, with the first seed. The rate with the lowest training loss \
         (mean of the last tenth of the steps) is taken: held-out text has no part in the choice. Decay and \
         momentum are not swept.",
        rates("").len()
    ));
    report(&mut outcome, &swept);
    Ok(outcome)
}

fn report(outcome: &mut Outcome, swept: &[Swept]) {
    let number = |x: f64| format!("{x:.3}");
    let losses = |swept: &Swept| swept.runs.iter().map(|run| run.loss).collect::<Sample>();
    let samples: Vec<(String, Sample)> =
        swept.iter().map(|one| (one.contender.to_owned(), losses(one))).collect();
    let what = "the lowest held-out loss at its best rate";
    outcome.findings.push(best(what, Better::Lower, &samples, number));
    outcome.findings.extend(swept.iter().map(choice));
    draw(outcome, swept);
    let rows = swept.iter().map(|one| {
        let seconds: Sample = one.runs.iter().map(|run| run.seconds).collect();
        let last: Sample = one.runs.iter().map(|run| run.last).collect();
        vec![
            one.contender.to_owned(),
            one.best.map_or("–".to_owned(), error),
            losses(one).show(number),
            last.show(number),
            if seconds.is_finite() { duration(seconds.mean()) } else { "–".to_owned() },
        ]
    });
    let columns = ["", "best rate", "held-out loss", "training loss", "time"].map(str::to_owned);
    let table = Table {
        title: "At the best rate".to_owned(),
        columns: columns.to_vec(),
        rows: rows.collect(),
    };
    let about =
        "Losses in nats per character; the time is that of one training on one core.".to_owned();
    outcome.listings.push(Listing { table, about });
    let columns = ["", "training loss by rate"].map(str::to_owned).to_vec();
    let cell = |(rate, loss): &(f64, f64)| {
        let loss = if loss.is_finite() { number(*loss) } else { "diverged".to_owned() };
        format!("{}: {loss}", error(*rate))
    };
    let row = |one: &Swept| {
        let cells: Vec<String> = one.sweep.iter().map(cell).collect();
        vec![one.contender.to_owned(), cells.join(" · ")]
    };
    let table =
        Table { title: "The sweep".to_owned(), columns, rows: swept.iter().map(row).collect() };
    let about = "The training loss at the end, of the first seed.".to_owned();
    outcome.listings.push(Listing { table, about });
    let entry = |one: &Swept| {
        let of = |f: fn(&Run) -> f64| one.runs.iter().map(f).collect::<Vec<f64>>();
        let value = json!({
            "sweep": one.sweep, "best_rate": one.best, "held_out_loss": of(|run| run.loss),
            "training_loss": of(|run| run.last), "seconds": of(|run| run.seconds),
        });
        (one.contender.to_owned(), value)
    };
    let contenders: serde_json::Map<_, _> = swept.iter().map(entry).collect();
    outcome.numbers = json!({ "contenders": contenders, "sweeps": by_name(&sweeps(swept)) });
}

/// Training loss by the logarithm of the rate to the base 10.
fn sweeps(swept: &[Swept]) -> Vec<Line> {
    let line = |one: &Swept| Line {
        name: one.contender.to_owned(),
        color: STUDY.place(one.contender),
        points: (one.sweep.iter())
            .map(|(rate, loss)| (rate.log10(), [*loss].into_iter().collect()))
            .collect(),
    };
    swept.iter().map(line).collect()
}

/// Which rate was chosen, and whether the sweep saw both sides of it.
fn choice(swept: &Swept) -> String {
    let name = swept.contender;
    let Some(place) = best_rate(&swept.sweep) else {
        return format!("{name} diverged at every rate of its sweep");
    };
    let (rate, loss) = swept.sweep[place];
    let edge = if place == 0 {
        ", the lowest of its sweep: a lower one might be better"
    } else if place + 1 == swept.sweep.len() {
        ", the highest of its sweep: a higher one might be better"
    } else {
        ""
    };
    let close = swept.sweep.iter().filter(|(_, other)| *other <= loss + CLOSE).count();
    format!(
        "with the first seed, {name} has the lowest training loss at a rate of {}{edge}; of its {} rates, {close} came within {CLOSE} nats of \
         the best, itself included",
        error(rate),
        swept.sweep.len(),
    )
}

/// A loss this near to the best is as good for many purposes.
const CLOSE: f64 = 0.1;

fn draw(outcome: &mut Outcome, swept: &[Swept]) {
    let about = "The training loss at the end by learning rate, with the first seed; −3 is a rate of 0.001. \
                 A wide valley forgives a wrong rate. Rates at which training diverged have no point.";
    let mut sweep = Drawing::of(
        "The sweep",
        "learning rate, as a power of ten",
        "nats per character",
        &sweeps(swept),
        about,
    );
    sweep.chart.linear_x = true;
    outcome.drawings.push(sweep);
    let mut chart = Chart::new("Training at the best rate", "step", "nats per character");
    chart.series = (swept.iter())
        .filter_map(|one| Some((one.contender, one.runs.first()?)))
        .map(|(name, run)| Series {
            name: name.to_owned(),
            color: PALETTE[STUDY.place(name)],
            points: (run.losses.iter().enumerate())
                .map(|(step, loss)| (step as f64 + 1.0, *loss))
                .collect(),
            mark: Mark::Line,
        })
        .collect();
    let about = "The loss of every step, of the first seed.".to_owned();
    outcome.drawings.push(Drawing { chart, about });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(losses: [f64; 5]) -> Swept {
        let sweep = rates("adam").into_iter().zip(losses).collect();
        Swept { contender: "adam", sweep, best: None, runs: Vec::new() }
    }

    #[test]
    fn the_choice_says_where_the_best_rate_stands() {
        let said = choice(&swept([3.0, 2.05, 2.0, 2.5, f64::NAN]));
        assert_eq!(
            said,
            "with the first seed, adam has the lowest training loss at a rate of 3e-3; of its 5 rates, 2 \
             came within 0.1 nats of the best, itself included"
        );
        assert!(
            choice(&swept([1.0, 2.0, 2.0, 2.0, 2.0])).contains("3e-4, the lowest of its sweep")
        );
        assert!(
            choice(&swept([2.0, 2.0, 2.0, 2.0, 1.0])).contains("3e-2, the highest of its sweep")
        );
        assert_eq!(choice(&swept([f64::NAN; 5])), "adam diverged at every rate of its sweep");
    }

    #[test]
    fn every_optimizer_is_one() {
        for contender in STUDY.contenders {
            optimizer(contender.name).validate().unwrap();
        }
    }
}
