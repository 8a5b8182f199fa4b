//! How good a model is at pairs that are held out: its loss, and what it writes by itself.

use super::data::{HeldPairs, PairData};
use crate::batch::{Selection, evaluation_rows, other_tokens, tokens};
use crate::encoder::{shortened, table};
use crate::metrics::TranslationScore;
use crate::translate::{Options, tokens_by};
use hearken_base::Result;
use hearken_data::batches::{Batch, IGNORED, InOrder};
use hearken_nn::models::Translates;
use hearken_show::Table;
use hearken_train::{Better, Metric, Portion};

/// Pairs of the sample that are translated in an evaluation.
const SAMPLE: usize = 128;
/// Translations that are shown.
const SHOWN: usize = 12;

/// What judging came to.
pub struct Judged {
    /// The measures, the deciding one first.
    pub metrics: Vec<Metric>,
    /// Details.
    pub tables: Vec<Table>,
    /// Tokens that were read and predicted.
    pub tokens: usize,
    /// Pairs that were translated.
    pub translated: usize,
    /// What it would come to if sources were handed out as their own translations.
    pub copied: TranslationScore,
    /// Was everything looked at?
    pub whole: bool,
}

/// Judges a model by what is held out of `data`. At most `most` pairs are translated, spread evenly,
/// as `how` says.
pub fn judge(
    model: &dyn Translates,
    data: &PairData,
    portion: Portion,
    most: usize,
    how: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Option<Judged>> {
    let Some(held) = &data.held else { return Ok(None) };
    let translates = !held.texts.is_empty();
    // Reading and writing take about as long.
    let share = if translates { 0.5 } else { 1.0 };
    let Losses { all, sample, tokens, whole } =
        losses(model, held, portion, &mut |done| progress(share * done));
    if tokens == 0 {
        return Ok(None);
    }
    let mut metrics = vec![Metric::loss(all).with_sample(sample)];
    let (mut tables, mut translated) = (Vec::new(), 0);
    let mut copied = TranslationScore::default();
    if translates {
        let chosen = Chosen::new(held, portion, most);
        let written = write(model, data, held, &chosen, how, &mut |done| {
            progress(share + (1.0 - share) * done);
        })?;
        for example in &chosen.examples {
            let [source, reference] = &held.texts[*example];
            copied.add(source, reference);
        }
        translated = written.all.lines();
        let named = |name: &str, measure: fn(&TranslationScore) -> f64| {
            Metric::new(name, Better::Higher, measure(&written.all))
                .with_sample(measure(&written.sample))
        };
        metrics.push(named("exact_match", TranslationScore::exact_match));
        metrics.push(named("bleu", TranslationScore::bleu));
        metrics.push(named("chrf", TranslationScore::chrf));
        // Where every source has one right target, being right decides.
        if data.ceiling.is_some() {
            metrics.swap(0, 1);
        }
        let columns = ["source", "reference", "written"];
        tables.push(table("What the model writes", &columns, written.shown));
    }
    Ok(Some(Judged { metrics, tables, tokens, translated, copied, whole }))
}

/// Mean losses of targets.
struct Losses {
    all: f64,
    sample: f64,
    tokens: usize,
    whole: bool,
}

fn losses(
    model: &dyn Translates,
    held: &HeldPairs,
    portion: Portion,
    progress: &mut dyn FnMut(f64),
) -> Losses {
    let length = held.examples.longest();
    let mut batches = InOrder::new(&held.examples, evaluation_rows(length));
    let count = batches.batches();
    let selection = Selection::new(portion, count, length);
    // Of all that is looked at, and of the sample.
    let mut sums = [(0.0, 0); 2];
    let mut next = 0;
    for i in selection.batches() {
        progress(i as f64 / count.max(1) as f64);
        let Some(batch) = batches.nth(i - next) else { break };
        next = i + 1;
        let loss = batch_loss(model, &batch);
        let counted = batch.targets.iter().filter(|target| **target != IGNORED).count();
        for (sum, tokens) in &mut sums[..if selection.in_sample(i) { 2 } else { 1 }] {
            *sum += loss;
            *tokens += counted;
        }
    }
    let [all, sample] = sums.map(|(sum, tokens)| sum / tokens as f64);
    Losses { all, sample, tokens: sums[0].1, whole: selection.is_whole() }
}

fn batch_loss(model: &dyn Translates, batch: &Batch) -> f64 {
    let Some(source) = &batch.source else { unreachable!("pairs have sources") };
    let source = other_tokens(source, batch.rows);
    let losses = model.token_losses(&tokens(batch, false).about(&source), &batch.targets);
    losses.data().iter().map(|loss| f64::from(*loss)).sum()
}

/// What the model writes by itself.
struct Written {
    all: TranslationScore,
    sample: TranslationScore,
    shown: Vec<Vec<String>>,
}

/// Which pairs are translated.
struct Chosen {
    examples: Vec<usize>,
    /// Which of these are of the sample.
    sample: Vec<usize>,
}

impl Chosen {
    /// The sample is spread over what is looked at, and that over all.
    fn new(held: &HeldPairs, portion: Portion, most: usize) -> Self {
        let count = held.texts.len();
        let sampled = if portion.sample == 0 { count } else { SAMPLE };
        let most = most.max(1);
        let wanted = if portion.whole || portion.sample == 0 { most } else { most.min(sampled) };
        let examples = spread(count, wanted);
        let sample = spread(examples.len(), sampled);
        Self { examples, sample }
    }
}

fn write(
    model: &dyn Translates,
    data: &PairData,
    held: &HeldPairs,
    chosen: &Chosen,
    how: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Written> {
    let sources: Vec<Vec<u32>> = chosen.examples.iter().map(|i| held.source(*i)).collect();
    let said = tokens_by(model, &data.special, &sources, how, progress)?;
    let mut written = Written {
        all: TranslationScore::default(),
        sample: TranslationScore::default(),
        shown: Vec::new(),
    };
    for (at, (example, ids)) in chosen.examples.iter().zip(&said).enumerate() {
        let [source, reference] = &held.texts[*example];
        let text = data.tokenizer.decode_known(ids);
        written.all.add(&text, reference);
        if chosen.sample.binary_search(&at).is_ok() {
            written.sample.add(&text, reference);
        }
        if written.shown.len() < SHOWN {
            written.shown.push([source, reference, &text].map(|text| shortened(text)).to_vec());
        }
    }
    Ok(written)
}

/// At most so many of `count`, as evenly spread as can be, in order.
fn spread(count: usize, most: usize) -> Vec<usize> {
    let most = most.min(count);
    (0..most).map(|i| (i as u64 * count as u64 / most as u64) as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn a_part_is_spread_evenly() {
        assert_eq!(spread(10, 3), [0, 3, 6]);
        assert_eq!(spread(3, 10), [0, 1, 2]);
        assert_eq!((spread(0, 3), spread(3, 0)), (vec![], vec![]));
        let many = spread(1_000_000, 1000);
        assert!(many.windows(2).all(|pair| pair[1] - pair[0] == 1000));
    }
}
