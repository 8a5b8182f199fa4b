//! The bottleneck of a fixed vector: numbers in words are written in digits, by length.
//!
//! ```text
//! two hundred and one million and five → 201000005
//! ```
//! A recurrent encoder-decoder without attention puts its source into one vector, however long it is;
//! with attention, the decoder looks up what it needs at every step.

use crate::outcome::{Drawing, Line, Listing, Outcome};
use crate::page::seeds_in_words;
use crate::request::Request;
use crate::rows::CURRICULUM;
use crate::sizes::{nearest, parameters, training, transformer};
use crate::statistics::{Sample, Verdict, best, verdict};
use crate::study::{Contender, Study};
use crate::trials::{Watch, seconds_of_a_step, seconds_of_all, trials};
use hearken_base::Result;
use hearken_data::conversions::{self, Conversion};
use hearken_nn::config::{
    CellKind, EncoderDecoderConfig, ModelConfig, RecurrentSeq2seqConfig, SourceAttention,
};
use hearken_nn::models;
use hearken_nn::scope::Weights;
use hearken_show::number::{duration, percent, thousands};
use hearken_tasks::{PairData, Seq2Seq, TaskConfig};
use hearken_tensor::rng::Rng;
use hearken_train::{Better, TrainConfig};
use serde_json::json;
use std::sync::Arc;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "translation",
    line: "one vector for a whole source, or attention: numbers in words to digits, by length",
    question: "Numbers in words are read, of 5 to 39 words and hyphens, and written in digits. An \
               encoder-decoder that passes its source on in one vector has as much room for a long \
               number as for a short one. How often is the whole number right, by the length of its \
               source, without attention and with it, at about equal parameters?",
    contenders: &[
        Contender {
            name: "fixed-vector",
            about: "GRU encoder in both directions, one vector, GRU decoder",
        },
        Contender { name: "bahdanau", about: "the same with additive attention over the source" },
        Contender { name: "transformer", about: "two blocks that read, two that write" },
    ],
    reads_text: false,
    minutes: [2.0, 8.0],
    run,
};

const LAYERS: usize = 2;
const HEADS: usize = 4;
/// Tokens of a source or a target, with what begins and ends it.
const CONTEXT: usize = 48;
/// Lengths of sources are judged in ranges of so many tokens.
const RANGE: usize = 5;
/// Held-out numbers among which some of every length are looked for: long ones are rare.
const DRAWN: usize = 6000;
/// Draws of a training pair until it has the length that is wanted.
const DRAWS: u64 = 48;
/// The held-out numbers are the same for all seeds of training.
const HELD_OUT_SEED: u64 = 1337;

/// How large everything is.
#[derive(Clone, Debug)]
struct Scale {
    width: usize,
    rows: usize,
    steps: u64,
    /// Numbers that are judged in each range of lengths, at most.
    held_out: usize,
    lr: f64,
}

const QUICK: Scale = Scale { width: 48, rows: 16, steps: 2500, held_out: 60, lr: 5e-3 };
const FULL: Scale = Scale { width: 64, rows: 16, steps: 5000, held_out: 120, lr: 4e-3 };

/// The model of a contender, of about as many parameters as the Transformer has.
fn model(contender: &str, width: usize, vocabulary: usize) -> ModelConfig {
    let stack = transformer(LAYERS, width, HEADS);
    let whole: ModelConfig =
        EncoderDecoderConfig { vocabulary, ..EncoderDecoderConfig::new(CONTEXT, stack) }.into();
    let recurrent = |attention| {
        nearest(parameters(&whole), 4, |width| {
            let config = RecurrentSeq2seqConfig::new(CellKind::Gru, CONTEXT, 1, width);
            RecurrentSeq2seqConfig { vocabulary, attention, ..config }.into()
        })
    };
    match contender {
        "fixed-vector" => recurrent(SourceAttention::None),
        "bahdanau" => recurrent(SourceAttention::Additive),
        _ => whole,
    }
}

/// The task of a contender, with pairs that are made from the seed.
fn task(contender: &str, scale: &Scale, train: &TrainConfig) -> Result<Seq2Seq> {
    let data = pairs(train)?;
    let config = model(contender, scale.width, data.tokenizer.vocabulary_size());
    let built = models::build(&config, Weights::Drawn { seed: train.seed });
    Seq2Seq::with(built, data, train, &TaskConfig::default())
}

/// Pairs whose sources are short at first, the same for all contenders.
fn pairs(train: &TrainConfig) -> Result<PairData> {
    let (seed, steps) = (train.seed, train.steps);
    let pair = move |step, row| pair(seed, step, row, steps);
    let tokenizer = Arc::new(conversions::tokenizer());
    PairData::generated(tokenizer, Conversion::Numbers.name(), train.batch_size, CONTEXT, pair)
}

/// A pair of a training step: of a range of lengths that is drawn, all of them alike, out of those that
/// the step has come to; or shorter, where that range is not met soon.
fn pair(seed: u64, step: u64, row: u64, steps: u64) -> [String; 2] {
    let mut rng = Rng::at(seed ^ 0x6c65_6e67_7468, step << 32 | row);
    let last = Conversion::Numbers.longest()[0] / RANGE - 1;
    let share = (step as f64 / (CURRICULUM * steps as f64)).min(1.0);
    let first = RANGE * (1 + rng.below(1 + (share * last as f64) as usize));
    let draws = (0..DRAWS).map(|i| Conversion::Numbers.pair(seed, step, row * DRAWS + i));
    let mut shorter = None;
    for pair in draws {
        match length(&pair[0]) {
            length if (first..first + RANGE).contains(&length) => return pair,
            length if length < first => shorter = Some(pair),
            _ => {}
        }
    }
    shorter.unwrap_or_else(|| Conversion::Numbers.pair(seed, step, row * DRAWS))
}

/// Tokens of a number in words: words and hyphens.
fn length(words: &str) -> usize {
    let count = |c: char| words.chars().filter(|x| *x == c).count();
    1 + count(' ') + 2 * count('-')
}

/// Held-out pairs by the length of their sources.
struct Held {
    /// The first length of each range, and its pairs.
    ranges: Vec<(usize, Vec<[String; 2]>)>,
}

impl Held {
    /// At most so many pairs of each range, none of which is seen in training.
    fn new(most: usize) -> Self {
        let [longest, _] = Conversion::Numbers.longest();
        let mut ranges: Vec<(usize, Vec<[String; 2]>)> =
            (RANGE..longest).step_by(RANGE).map(|first| (first, Vec::new())).collect();
        for pair in Conversion::Numbers.held_out(DRAWN, HELD_OUT_SEED) {
            let length = length(&pair[0]);
            let range = ranges.iter_mut().find(|r| (r.0..r.0 + RANGE).contains(&length));
            if let Some((_, pairs)) = range
                && pairs.len() < most
            {
                pairs.push(pair);
            }
        }
        ranges.retain(|(_, pairs)| !pairs.is_empty());
        Self { ranges }
    }

    fn count(&self) -> usize {
        self.ranges.iter().map(|(_, pairs)| pairs.len()).sum()
    }
}

/// What one training came to.
struct Run {
    /// The share of numbers that are right as a whole, by range.
    exact: Vec<f64>,
    seconds: f64,
    loss: f64,
}

fn train_one(
    request: &Request,
    watch: &Watch<'_>,
    contender: &str,
    scale: &Scale,
    held: &Held,
    seed: u64,
) -> Result<Run> {
    let config = setting(request, scale, seed);
    let mut task = task(contender, scale, &config)?;
    let name = format!("{contender}, seed {seed}");
    let trained = watch.train(&name, &mut task, &config, |_, _, _| Ok(()))?;
    let mut exact = Vec::new();
    for (_, pairs) in &held.ranges {
        let sources: Vec<&String> = pairs.iter().map(|[source, _]| source).collect();
        let said = task.written(&sources, &mut |_| ())?;
        let right = said.iter().zip(pairs).filter(|(said, [_, wanted])| *said == wanted).count();
        exact.push(if trained.diverged { f64::NAN } else { right as f64 / pairs.len() as f64 });
        watch.at(0.99, &format!("{name}: writes"))?;
    }
    Ok(Run { exact, seconds: trained.seconds, loss: trained.final_loss() })
}

fn setting(request: &Request, scale: &Scale, seed: u64) -> TrainConfig {
    training(request.steps(scale.steps), scale.rows, scale.lr, seed)
}

/// Seconds that all trainings take, about.
fn estimate(request: &Request, scale: &Scale, seeds: usize) -> Result<f64> {
    let mut all = Vec::new();
    for contender in &request.contenders {
        let config = setting(request, scale, 0);
        // Of a run so short that the steps that are timed have sources of nearly all lengths.
        let short = TrainConfig { steps: 4, ..config.clone() };
        let step = seconds_of_a_step(&mut task(contender, scale, &short)?, &short)?;
        all.extend(vec![step * config.steps as f64; seeds]);
    }
    Ok(seconds_of_all(&all))
}

fn run(request: &Request) -> Result<Outcome> {
    let scale = request.sized(&QUICK, &FULL);
    let seeds = request.seeds(1, 3);
    let held = Held::new(scale.held_out);
    request.announce(estimate(request, scale, seeds.len())?)?;
    let jobs: Vec<(&'static str, u64)> = (request.contenders.iter())
        .flat_map(|contender| seeds.iter().map(|seed| (*contender, *seed)))
        .collect();
    let runs = trials(request, STUDY.name, jobs.len(), |i, watch| {
        let (contender, seed) = jobs[i];
        train_one(request, watch, contender, scale, &held, seed)
    })?;
    let results: Vec<(&'static str, Vec<&Run>)> = (request.contenders.iter())
        .map(|name| {
            let mine = jobs.iter().zip(&runs).filter(|(job, _)| job.0 == *name);
            (*name, mine.map(|(_, run)| run).collect())
        })
        .collect();
    Ok(outcome(request, scale, &seeds, &held, &results))
}

fn outcome(
    request: &Request,
    scale: &Scale,
    seeds: &[u64],
    held: &Held,
    results: &[(&'static str, Vec<&Run>)],
) -> Outcome {
    let vocabulary = conversions::tokenizer().vocabulary_size();
    let size = |name: &str| parameters(&model(name, scale.width, vocabulary));
    let color = |name: &str| STUDY.contenders.iter().position(|c| c.name == name).unwrap_or(0);
    let line = |(name, runs): &(&'static str, Vec<&Run>)| Line {
        name: (*name).to_owned(),
        color: color(name),
        points: (held.ranges.iter().enumerate())
            // At the middle of its range.
            .map(|(i, (first, _))| (middle(*first), runs.iter().map(|run| run.exact[i]).collect()))
            .collect(),
    };
    let lines: Vec<Line> = results.iter().map(line).collect();
    let shown = |x: f64| percent(x, 1);
    let about = "The share of held-out numbers whose digits are all right, written greedily, by the \
                 length of the source in tokens (words and hyphens).";
    let curves = Drawing::of("Whole numbers right", "tokens of the source", "share", &lines, about);
    let heading = |x: f64| range_name((x - middle(0)) as usize);
    let mut listing = Listing::of("Whole numbers right", heading, &lines, shown, about);
    listing.table.columns.extend(["parameters", "time"].map(str::to_owned));
    for (row, (name, runs)) in listing.table.rows.iter_mut().zip(results) {
        let seconds: Sample = runs.iter().map(|run| run.seconds).collect();
        row.push(thousands(size(name) as f64));
        row.push(duration(seconds.mean()));
    }
    let entry = |(name, runs): &(&'static str, Vec<&Run>)| {
        let of = |f: fn(&Run) -> f64| runs.iter().map(|run| f(run)).collect::<Vec<f64>>();
        let exact: Vec<&Vec<f64>> = runs.iter().map(|run| &run.exact).collect();
        let value = json!({
            "exact_match": exact, "seconds": of(|run| run.seconds),
            "training_loss": of(|run| run.loss), "parameters": size(name),
        });
        ((*name).to_owned(), value)
    };
    let contenders: serde_json::Map<String, serde_json::Value> =
        results.iter().map(entry).collect();
    let firsts: Vec<usize> = held.ranges.iter().map(|(first, _)| *first).collect();
    let counts: Vec<usize> = held.ranges.iter().map(|(_, pairs)| pairs.len()).collect();
    Outcome {
        method: method(request, scale, seeds, held),
        findings: findings(&lines),
        drawings: vec![curves],
        listings: vec![listing],
        numbers: json!({
            "ranges_begin": firsts, "range": RANGE, "held_out": counts, "contenders": contenders,
        }),
    }
}

fn middle(first: usize) -> f64 {
    first as f64 + (RANGE - 1) as f64 / 2.0
}

fn range_name(first: usize) -> String {
    format!("{first}–{}", first + RANGE - 1)
}

/// What the lines say at the shortest and at the longest sources, and of the way between.
fn findings(lines: &[Line]) -> Vec<String> {
    let shown = |x: f64| percent(x, 1);
    let ends = |line: &Line| Some((line.points.first()?.clone(), line.points.last()?.clone()));
    let mut found = Vec::new();
    let at = |last: bool| -> Vec<(String, Sample)> {
        let of = |line: &Line| {
            let (shortest, longest) = ends(line)?;
            Some((line.name.clone(), if last { longest.1 } else { shortest.1 }))
        };
        lines.iter().filter_map(of).collect()
    };
    let Some((shortest, longest)) = lines.first().and_then(ends) else { return found };
    let name = |x: f64| range_name((x - middle(0)) as usize);
    for (x, last) in [(shortest.0, false), (longest.0, true)] {
        let what = format!("the highest share of right numbers at {} tokens", name(x));
        found.push(best(&what, Better::Higher, &at(last), shown));
    }
    // By seed: how much is lost from the shortest sources to the longest.
    let lost = |line: &Line| -> Option<(String, Sample)> {
        let (first, last) = ends(line)?;
        let pairs = first.1.values.iter().zip(&last.1.values);
        Some((line.name.clone(), pairs.map(|(first, last)| first - last).collect()))
    };
    let losses: Vec<(String, Sample)> = lines.iter().filter_map(lost).collect();
    let points = |x: f64| format!("{:.1} points", 100.0 * x).replace('-', "−");
    let each: Vec<String> =
        losses.iter().map(|(name, lost)| format!("{name} {}", lost.show(points))).collect();
    found.push(format!(
        "from {} tokens to {} the share of right numbers falls by: {}",
        name(shortest.0),
        name(longest.0),
        each.join(", ")
    ));
    let fixed = losses.iter().find(|(name, _)| name == "fixed-vector");
    for (name, lost) in losses.iter().filter(|(name, _)| name != "fixed-vector") {
        let Some((_, fixed)) = fixed else { continue };
        found.push(match verdict(lost, fixed, Better::Lower) {
            Verdict::First => format!("the fixed vector loses more with length than {name}"),
            Verdict::Second => format!("{name} loses more with length than the fixed vector"),
            Verdict::NoDifference => {
                format!(
                    "no difference was found in what the fixed vector and {name} lose with length"
                )
            }
            Verdict::TooFewSeeds => continue,
        });
    }
    found
}

fn method(request: &Request, scale: &Scale, seeds: &[u64], held: &Held) -> Vec<String> {
    let counts: Vec<String> = (held.ranges.iter())
        .map(|(first, pairs)| format!("{} of {}", pairs.len(), range_name(*first)))
        .collect();
    vec![
        format!(
            "Numbers up to 10¹⁸ in English words, with \"and\" and hyphens or without, to their digits. \
             New pairs at every step, the same for all contenders: {} steps of {} pairs, with AdamW \
             (learning rate {}, half a cosine, clipped at 1). All ranges of lengths are about equally frequent, \
             the shortest alone at first, and the longest after {} of the steps. {}.",
            thousands(request.steps(scale.steps) as f64),
            scale.rows,
            scale.lr,
            percent(CURRICULUM, 0),
            seeds_in_words(seeds),
        ),
        format!(
            "The Transformer has {LAYERS} + {LAYERS} blocks of width {}; the recurrent models have one \
             layer and as many parameters, or nearly. Without attention the vector is the last state of \
             both directions, and the decoder sees it at every step.",
            scale.width
        ),
        format!(
            "{} numbers that training never sees are written greedily, by tokens of their sources: {}. \
             The time is that of training on one core.",
            thousands(held.count() as f64),
            counts.join(", ")
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_of_about_equal_size() {
        let vocabulary = conversions::tokenizer().vocabulary_size();
        for scale in [QUICK, FULL] {
            let size = |name| parameters(&model(name, scale.width, vocabulary)) as f64;
            for contender in STUDY.contenders {
                let ratio = size(contender.name) / size("transformer");
                assert!((0.93..1.07).contains(&ratio), "{}: {ratio}", contender.name);
            }
        }
    }

    #[test]
    fn held_out_numbers_lie_in_their_ranges() {
        let held = Held::new(20);
        let tokenizer = conversions::tokenizer();
        let firsts: Vec<usize> = held.ranges.iter().map(|range| range.0).collect();
        assert_eq!(firsts, [5, 10, 15, 20, 25, 30, 35]);
        for (first, pairs) in &held.ranges {
            assert!((10..=20).contains(&pairs.len()), "{first}: {}", pairs.len());
            for [source, _] in pairs {
                let length = tokenizer.encode(source).unwrap().len();
                assert!((*first..first + RANGE).contains(&length), "{source}");
            }
        }
    }

    #[test]
    fn pairs_grow_and_are_of_all_lengths() {
        let mut seen = [0; 8];
        for row in 0..700 {
            assert!(length(&pair(1, 0, row, 100)[0]) < 2 * RANGE, "short ones first");
            let [source, target] = pair(1, 99, row, 100);
            assert!(target.chars().all(|c| c.is_ascii_digit()));
            assert_eq!(length(&source), conversions::tokenizer().encode(&source).unwrap().len());
            seen[length(&source) / RANGE] += 1;
        }
        assert!(seen[1..7].iter().all(|count| *count > 60), "{seen:?}");
    }

    #[test]
    fn sentences_follow_the_numbers() {
        let line = |name: &str, short: f64, long: f64| {
            let around = |x: f64| -> Sample { [x - 0.01, x, x + 0.01].into_iter().collect() };
            let points = vec![(middle(5), around(short)), (middle(35), around(long))];
            Line { name: name.to_owned(), color: 0, points }
        };
        let said =
            findings(&[line("fixed-vector", 0.9, 0.2), line("bahdanau", 0.95, 0.9)]).join("\n");
        assert!(said.contains("the fixed vector loses more with length than bahdanau"), "{said}");
        assert!(said.contains("from 5–9 tokens to 35–39"), "{said}");
        let said =
            findings(&[line("fixed-vector", 0.9, 0.8), line("bahdanau", 0.9, 0.2)]).join("\n");
        assert!(said.contains("bahdanau loses more with length than the fixed"), "{said}");
        let said = findings(&[line("fixed-vector", 0.9, 0.8), line("bahdanau", 0.9, 0.8)]);
        assert!(said.last().unwrap().starts_with("no difference was found"), "{said:?}");
        assert_eq!(findings(&[line("bahdanau", 0.9, 0.8)]).len(), 3);
    }
}
