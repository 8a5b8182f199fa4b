//! Lookup at a distance by small models that differ in their attention, and in their positions where
//! the attention cannot rotate queries and keys.

use super::{color, label};
use crate::lookup::{self, Answers, PAIRS, SYMBOLS, VOCABULARY};
use crate::outcome::{Drawing, Line, Listing, Outcome};
use crate::page::seeds_in_words;
use crate::request::Request;
use crate::rows::{CURRICULUM, RowTask, Rows, growing, judge};
use crate::sizes::{decoder, parameters, training_by_muon, transformer};
use crate::statistics::{Sample, best};
use crate::trials::{Watch, seconds_of_a_step, seconds_of_all, trials};
use hearken_base::Result;
use hearken_nn::config::{
    AttentionConfig, Combine, EncoderConfig, FeatureMap, HeadConfig, MechanismConfig, ModelConfig,
    PoolerConfig, PositionConfig, StackConfig,
};
use hearken_nn::models;
use hearken_nn::scope::Weights;
use hearken_show::number::{duration, percent, thousands};
use hearken_tensor::rng::Rng;
use hearken_train::{Better, Moment, TrainConfig};
use serde_json::{Value, json};

const LAYERS: usize = 2;
const HEADS: usize = 2;
/// The shortest rows of the curriculum.
const SHORTEST: usize = 2;
/// Patterns are scaled down with the rows: a window, and what is seen beyond it.
const WINDOW: usize = 32;
const STRIDE: usize = 8;
const FIRST: usize = 2 * PAIRS + 1;
/// Of Performer and Linformer.
const FEATURES: usize = 64;
/// Of hashes.
const CHUNK: usize = 16;
const ROUNDS: usize = 4;

struct Scale {
    width: usize,
    rows: usize,
    steps: u64,
    /// The largest distance of training.
    trained: usize,
    /// Distances that are judged.
    judged: &'static [usize],
    held_out: usize,
    lr: f64,
}

const QUICK: Scale = Scale {
    width: 48,
    rows: 32,
    steps: 2500,
    trained: 80,
    judged: &[5, 10, 20, 40, 80],
    held_out: 64,
    lr: 6e-3,
};

const FULL: Scale = Scale {
    width: 48,
    rows: 32,
    steps: 3000,
    trained: 128,
    judged: &[4, 8, 16, 32, 64, 128],
    held_out: 128,
    lr: 6e-3,
};

/// How far back a token of the last layer sees through windows alone.
const fn reach() -> usize {
    LAYERS * (WINDOW - 1)
}

/// Who reads in both directions must not see the answers.
fn answers(contender: &str) -> Answers {
    if contender == "linformer" { Answers::Hidden } else { Answers::Shown }
}

fn rows(contender: &str, count: usize, distance: usize, rng: &mut Rng) -> Rows {
    let mut rows = Rows::default();
    (0..count).for_each(|_| lookup::push(&mut rows, distance, answers(contender), rng));
    rows
}

/// The model of a contender for rows up to the longest that is judged.
fn model(contender: &str, scale: &Scale) -> ModelConfig {
    let longest = lookup::length(scale.trained, answers(contender));
    let pattern = |window, stride, global| AttentionConfig::Sparse { window, stride, global };
    let (attention, mechanism) = match contender {
        "window" => (AttentionConfig::Window { size: WINDOW }, MechanismConfig::Softmax {}),
        "strided" => (pattern(WINDOW, STRIDE, 0), MechanismConfig::Softmax {}),
        "global" => (pattern(WINDOW, 0, FIRST), MechanismConfig::Softmax {}),
        "linear" => (AttentionConfig::Full {}, MechanismConfig::Linear { map: FeatureMap::Elu }),
        "performer" => {
            (AttentionConfig::Full {}, MechanismConfig::Performer { features: FEATURES, redraw: 0 })
        }
        "linformer" => (AttentionConfig::Full {}, MechanismConfig::Linformer { rank: FEATURES }),
        "lsh" => {
            let lsh = MechanismConfig::Lsh { chunk: CHUNK, buckets: 0, rounds: ROUNDS, redraw: 0 };
            (AttentionConfig::Full {}, lsh)
        }
        _ => (AttentionConfig::Full {}, MechanismConfig::Softmax {}),
    };
    let usual = transformer(LAYERS, scale.width, HEADS);
    // Sums, mixtures and hashes cannot be rotated.
    let position = match contender {
        "linear" | "linformer" | "lsh" => PositionConfig::Learned { combine: Combine::Add },
        _ => usual.position.clone(),
    };
    let stack = StackConfig { attention, mechanism, position, ..usual };
    if contender != "linformer" {
        return decoder(stack, VOCABULARY, longest);
    }
    ModelConfig::Encoder(EncoderConfig {
        vocabulary: VOCABULARY,
        context: longest,
        types: 0,
        embedding_norm: false,
        pooler: PoolerConfig::None,
        tied: true,
        stack,
        head: HeadConfig::Tokens { transform: false },
    })
}

/// What one training came to.
struct Run {
    accuracy: Vec<f64>,
    seconds: f64,
}

fn train_one(
    request: &Request,
    watch: &Watch<'_>,
    contender: &str,
    scale: &Scale,
    seed: u64,
) -> Result<Run> {
    let config = setting(request, scale, seed);
    let built = models::build(&model(contender, scale), Weights::Drawn { seed });
    let mut task = RowTask::new(built, |at: Moment| {
        let mut rng = at.rng();
        let distance = growing(at, config.steps, SHORTEST..=scale.trained, &mut rng);
        rows(contender, config.batch_size, distance, &mut rng)
    });
    let name = format!("{contender}, seed {seed}");
    let trained = watch.train(&name, &mut task, &config, |_, _, _| Ok(()))?;
    let accuracy = scale.judged.iter().map(|distance| {
        let mut rng = Rng::at(0x6174_7465_6e64, (*distance as u64) << 32);
        let rows = rows(contender, scale.held_out, *distance, &mut rng);
        if trained.diverged { f64::NAN } else { judge(task.model(), &rows).accuracy }
    });
    Ok(Run { accuracy: accuracy.collect(), seconds: trained.seconds })
}

fn setting(request: &Request, scale: &Scale, seed: u64) -> TrainConfig {
    training_by_muon(request.steps(scale.steps), scale.rows, scale.lr, seed)
}

/// Seconds that all trainings take, about.
pub(super) fn estimate(request: &Request, seeds: usize) -> Result<f64> {
    let scale = request.sized(&QUICK, &FULL);
    let mut all = Vec::new();
    for contender in &request.contenders {
        let config = setting(request, scale, 0);
        let built = models::build(&model(contender, scale), Weights::Drawn { seed: 0 });
        // The mean length of a run's rows, about.
        let distance = (scale.trained as f64 * 0.4) as usize;
        let make = |at: Moment| rows(contender, scale.rows, distance, &mut at.rng());
        let step = seconds_of_a_step(&mut RowTask::new(built, make), &config)?;
        all.extend(vec![step * config.steps as f64; seeds]);
    }
    Ok(seconds_of_all(&all))
}

/// Adds what was found to the outcome, and gives the numbers.
pub(super) fn run(request: &Request, seeds: &[u64], outcome: &mut Outcome) -> Result<Value> {
    let scale = request.sized(&QUICK, &FULL);
    let jobs: Vec<(&'static str, u64)> = (request.contenders.iter())
        .flat_map(|name| seeds.iter().map(|seed| (*name, *seed)))
        .collect();
    let runs = trials(request, "attention", jobs.len(), |i, watch| {
        train_one(request, watch, jobs[i].0, scale, jobs[i].1)
    })?;
    let of = |name: &str| -> Vec<&Run> {
        jobs.iter().zip(&runs).filter(|(job, _)| job.0 == name).map(|(_, run)| run).collect()
    };
    let line = |name: &&'static str| Line {
        name: label(name),
        color: color(name),
        points: (scale.judged.iter().enumerate())
            .map(|(i, d)| (*d as f64, of(name).iter().map(|run| run.accuracy[i]).collect()))
            .collect(),
    };
    let lines: Vec<Line> = request.contenders.iter().map(line).collect();
    let about = format!(
        "The share of right answers by distance, of small models that were trained on distances up to {}. \
         Guessing is right {} of the time; knowing which values were read, and not behind which keys, {} (the \
         level; linformer, which is not shown values again: {}). Through windows of {WINDOW} alone, {LAYERS} \
         layers see {} tokens back.",
        scale.trained,
        percent(1.0 / SYMBOLS as f64, 1),
        percent(lookup::without_keys(Answers::Shown), 1),
        percent(lookup::without_keys(Answers::Hidden), 1),
        reach(),
    );
    let shown = |x: f64| percent(x, 1);
    let title = "Lookup at a distance";
    let drawing =
        Drawing::of(title, "distance in tokens", "share of right answers", &lines, about.clone());
    let mut drawing = drawing.in_doublings();
    drawing.chart.levels.push(lookup::level(Answers::Shown));
    outcome.drawings.push(drawing);
    let mut listing = Listing::of(title, thousands, &lines, shown, about);
    listing.table.columns.extend(["parameters", "time"].map(str::to_owned));
    for (row, name) in listing.table.rows.iter_mut().zip(&request.contenders) {
        let seconds: Sample = of(name).iter().map(|run| run.seconds).collect();
        row.push(thousands(parameters(&model(name, scale)) as f64));
        row.push(duration(seconds.mean()));
    }
    outcome.listings.push(listing);
    outcome.findings.extend(findings(&lines));
    outcome.method.push(method(request, scale, seeds));
    let entry = |(name, line): (&&'static str, &Line)| {
        let seconds: Vec<f64> = of(name).iter().map(|run| run.seconds).collect();
        let value = json!({"accuracy": line.json(), "seconds": seconds});
        ((*name).to_owned(), value)
    };
    let contenders: serde_json::Map<String, Value> =
        request.contenders.iter().zip(&lines).map(entry).collect();
    Ok(json!({"trained_to": scale.trained, "contenders": contenders}))
}

/// Who is best near and far, and what everybody comes to far away.
fn findings(lines: &[Line]) -> Vec<String> {
    let shown = |x: f64| percent(x, 1);
    let at = |last: bool| -> Vec<(String, Sample)> {
        let point = |line: &Line| {
            let point = if last { line.points.last() } else { line.points.first() }?;
            Some((line.name.clone(), point.1.clone()))
        };
        lines.iter().filter_map(point).collect()
    };
    let Some(points) = lines.first().map(|line| &line.points) else { return Vec::new() };
    let ends = points.first().zip(points.last());
    let Some((near, far)) = ends.map(|(near, far)| (near.0, far.0)) else { return Vec::new() };
    let what =
        |distance| format!("the highest share of right answers in lookup at distance {distance}");
    let each: Vec<String> =
        at(true).iter().map(|(name, sample)| format!("{name} {}", sample.show(shown))).collect();
    let beyond = if far > reach() as f64 {
        format!(", beyond the {} tokens that windows alone see back", reach())
    } else {
        String::new()
    };
    vec![
        best(&what(near), Better::Higher, &at(false), shown),
        best(&what(far), Better::Higher, &at(true), shown),
        format!("right answers at distance {far}{beyond}: {}", each.join(", ")),
    ]
}

fn method(request: &Request, scale: &Scale, seeds: &[u64]) -> String {
    format!(
        "Lookup: {PAIRS} pairs of a key and a value, out of {SYMBOLS} keys and {SYMBOLS} values, then random \
         tokens that mean nothing (their number is the distance), then all keys in another order, after each of \
         which its value is predicted. The values stand behind these keys, but not for linformer, which \
         reads in both directions and would see them. Models of {LAYERS} blocks of width {}, rotary \
         positions (linear, linformer and lsh: learned ones, since they cannot rotate), {} steps of {} rows, Muon (learning rate {}, half a cosine, clipped at 1); distances \
         grow to {} in the first {} of the steps. Patterns are scaled down with the rows: a window of \
         {WINDOW}; strided: every {STRIDE}th token too; global: the first {FIRST} tokens, which are those \
         of the pairs; performer: {FEATURES} features; linformer: {FEATURES} mixtures; lsh: chunks of {CHUNK}, \
         {ROUNDS} rounds. {} rows are judged at each distance. The time is that of training on one core. {}.",
        scale.width,
        thousands(request.steps(scale.steps) as f64),
        scale.rows,
        scale.lr,
        scale.trained,
        percent(CURRICULUM, 0),
        scale.held_out,
        seeds_in_words(seeds),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_is_valid_and_of_about_the_same_size() {
        for scale in [QUICK, FULL] {
            assert!(*scale.judged.last().unwrap() > reach(), "windows alone would do");
            let exact = parameters(&model("softmax", &scale)) as f64;
            for contender in super::super::STUDY.contenders {
                let model = model(contender.name, &scale);
                model.validate().unwrap();
                let ratio = parameters(&model) as f64 / exact;
                // Mixtures and random directions are numbers of their own; lsh has no keys.
                assert!((0.85..1.85).contains(&ratio), "{}: {ratio}", contender.name);
            }
        }
    }

    #[test]
    fn the_distance_that_matters_is_said() {
        let line = |name: &str, far: f64| Line {
            name: name.to_owned(),
            color: 0,
            points: vec![
                (4.0, [1.0, 1.0, 0.99].into_iter().collect()),
                (192.0, [far, far, far].into_iter().collect()),
            ],
        };
        let said = findings(&[line("softmax", 0.98), line("window", 0.07)]);
        assert!(said[1].starts_with("softmax has the highest share"), "{said:?}");
        assert!(
            said[2].contains("beyond the 62 tokens") && said[2].contains("window 7.0 %"),
            "{said:?}"
        );
    }
}
