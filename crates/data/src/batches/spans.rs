//! Span corruption, T5's way to learn from plain text (Raffel et al. 2020): of a window of text,
//! spans of about three tokens are taken out, 15 % of all tokens, and a sentinel stands in the place
//! of each. The encoder reads what is left; the decoder writes the sentinels, each with the span
//! behind it.
//!
//! ```text
//! window  Thank you for inviting me to your party last week
//! source  Thank you <0> me to your party <1> week </s>
//! target  <0> for inviting <1> last </s>
//! ```
//! A window of L tokens has n = round(0.15 L) tokens taken out in k = round(n / 3) spans. All ways to
//! cut n tokens into k spans and the L − n others into k spans are equally likely; a window begins
//! with a span that stays.

use super::{Batch, Batches, Examples, Frame, key, pairs};
use hearken_tensor::rng::Rng;
use std::ops::Range;

const SPAN_SITE: u64 = 0x7370_616e_0000_0000; // "span"

/// What is taken out, and what stands for it.
#[derive(Clone, Debug)]
pub struct Corruption {
    /// The share of tokens that is taken out.
    pub share: f64,
    /// The mean length of a span.
    pub mean: f64,
    /// What stands for the spans, in order; windows have at most so many.
    pub sentinels: Vec<u32>,
    /// What frames targets and fills rows. Sources end with the same token as targets.
    pub frame: Frame,
    /// The run's seed.
    pub seed: u64,
}

impl Corruption {
    /// T5's settings. Panics without sentinels.
    pub fn new(sentinels: Vec<u32>, frame: Frame, seed: u64) -> Self {
        assert!(!sentinels.is_empty(), "no sentinels");
        Self { share: 0.15, mean: 3.0, sentinels, frame, seed }
    }

    /// How many tokens of a window are taken out, and in how many spans. A window of one token has
    /// nothing to take out.
    fn counts(&self, length: usize) -> [usize; 2] {
        if length < 2 {
            return [0, 0];
        }
        let taken = (self.share * length as f64).round() as usize;
        let taken = taken.clamp(1, length - 1);
        let spans = (taken as f64 / self.mean).round() as usize;
        [taken, spans.clamp(1, taken.min(length - taken).min(self.sentinels.len()))]
    }

    /// The lengths of source and target of a window.
    fn lengths(&self, length: usize) -> [usize; 2] {
        let [taken, spans] = self.counts(length);
        [length - taken + spans + 1, taken + spans + 1]
    }

    /// The longest window whose source and target have at most `context` tokens each.
    pub fn window(&self, context: usize) -> usize {
        let fits = |length: usize| self.lengths(length).iter().all(|n| *n <= context);
        (1..=2 * context + 2).rev().find(|length| fits(*length)).unwrap_or(1)
    }

    /// Source and target of a window; `step` and `row` choose the spans.
    fn apply(&self, window: &[u32], step: u64, row: u64) -> [Vec<u32>; 2] {
        let mut rng = Rng::new(key(self.seed, step, SPAN_SITE + row));
        let [taken, spans] = self.counts(window.len());
        let stay = cut(window.len() - taken, spans, &mut rng);
        let go = cut(taken, spans, &mut rng);
        let [mut source, mut target] = [Vec::new(), Vec::new()];
        let mut rest = window;
        for ((stay, go), sentinel) in stay.into_iter().zip(go).zip(&self.sentinels) {
            let (kept, after) = rest.split_at(stay);
            let (span, after) = after.split_at(go);
            source.extend_from_slice(kept);
            source.push(*sentinel);
            target.push(*sentinel);
            target.extend_from_slice(span);
            rest = after;
        }
        source.extend_from_slice(rest); // of a window that has no span
        source.push(self.frame.end);
        [source, target]
    }

    /// The windows of a batch, each with the number that `number_of` gives it.
    fn corrupt(&self, batch: &Batch, step: u64, number_of: impl Fn(usize) -> usize) -> Batch {
        let rows: Vec<[Vec<u32>; 2]> = (0..batch.rows)
            .map(|row| {
                let window = &batch.inputs[row * batch.length..][..batch.length_of(row)];
                self.apply(window, step, number_of(row) as u64)
            })
            .collect();
        pairs::batch(&rows, self.frame)
    }
}

/// The lengths of `parts` parts of `count`, none of them empty, all ways equally likely.
fn cut(count: usize, parts: usize, rng: &mut Rng) -> Vec<usize> {
    let mut lengths = Vec::with_capacity(parts);
    let (mut length, mut cuts) = (0, parts.saturating_sub(1));
    // Of the places between two neighbours that are left, `cuts` are to be chosen.
    for place in 1..count {
        length += 1;
        if rng.below(count - place) < cuts {
            lengths.push(std::mem::take(&mut length));
            cuts -= 1;
        }
    }
    if parts > 0 {
        lengths.push(length + 1);
    }
    lengths
}

/// The windows of another source, as sources and targets.
///
/// Of training batches ([`Batches`]) a row has other spans at every step; of [`Examples`] each has
/// its own spans, so that evaluations can be compared.
#[derive(Clone, Debug)]
pub struct Denoised<I> {
    inner: I,
    corruption: Corruption,
}

impl<I> Denoised<I> {
    /// `inner` is a [`Batches`] or an [`Examples`] of windows of text.
    pub fn new(inner: I, corruption: Corruption) -> Self {
        Self { inner, corruption }
    }
}

impl<B: Batches> Batches for Denoised<B> {
    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn length(&self) -> usize {
        self.corruption.lengths(self.inner.length())[1]
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let batch = self.inner.rows_of(step, rows.clone());
        self.corruption.corrupt(&batch, step, |row| rows.start + row)
    }

    fn epoch(&self) -> Option<u64> {
        self.inner.epoch()
    }
}

impl<E: Examples> Examples for Denoised<E> {
    fn count(&self) -> usize {
        self.inner.count()
    }

    fn longest(&self) -> usize {
        self.corruption.lengths(self.inner.longest())[1]
    }

    fn tokens_of(&self, example: usize) -> usize {
        self.corruption.lengths(self.inner.tokens_of(example)).iter().sum()
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        /// No step of training.
        const EVALUATION: u64 = u64::MAX;
        let batch = self.inner.batch_of(examples);
        self.corruption.corrupt(&batch, EVALUATION, |row| examples[row])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testing::{assert_batches, assert_in_order, rows};
    use crate::batches::{RandomWindows, Windows};

    const FRAME: Frame = Frame { begin: 3, end: 2, pad: 3 };
    const FIRST: u32 = 1_000_000;

    fn corruption(seed: u64) -> Corruption {
        Corruption::new((FIRST..FIRST + 100).collect(), FRAME, seed)
    }

    fn windows(length: usize) -> Windows {
        let ids: Vec<u32> = (10..5010).collect();
        Windows::full(ids.into(), length).unwrap()
    }

    #[test]
    fn spans_put_back_in_their_places_are_the_window() {
        for length in [1, 2, 3, 7, 20, 100, 512] {
            let denoised = Denoised::new(windows(length), corruption(1));
            let examples: Vec<usize> = (0..denoised.count().min(20)).collect();
            let plain = windows(length).batch_of(&examples);
            let batch = denoised.batch_of(&examples);
            let [source, target] = corruption(1).lengths(length);
            for (row, found) in rows(&batch).iter().enumerate() {
                assert_eq!((found.source.len(), found.targets.len()), (source, target));
                assert_eq!(found.source.last(), Some(&FRAME.end));
                assert_eq!(
                    (found.inputs[0], found.targets.last()),
                    (FRAME.begin, Some(&FRAME.end))
                );
                assert_eq!(found.inputs[1..], found.targets[..target - 1]);
                let mut window = Vec::new();
                for id in &found.source[..source - 1] {
                    if *id < FIRST {
                        window.push(*id);
                        continue;
                    }
                    let at = found.targets.iter().position(|target| target == id).unwrap();
                    let ordinary = |id: &&u32| **id < FIRST && **id != FRAME.end;
                    let span = found.targets[at + 1..].iter().take_while(ordinary);
                    let before = window.len();
                    window.extend(span);
                    assert!(window.len() > before, "an empty span");
                }
                assert_eq!(window, plain.inputs[row * length..][..length]);
                assert!(found.source[0] < FIRST, "a window begins with a span that stays");
            }
            assert!(denoised.longest() >= batch.length);
        }
    }

    #[test]
    fn shares_and_lengths_are_those_of_t5() {
        let corruption = corruption(1);
        assert_eq!(corruption.counts(512), [77, 26]);
        // T5's windows of 568 tokens give sources of 512 and targets of 114.
        assert_eq!(corruption.lengths(568), [512, 114]);
        assert_eq!(corruption.window(512), 568);
        for context in [2, 3, 8, 64, 200] {
            let length = corruption.window(context);
            assert!(corruption.lengths(length).iter().all(|n| *n <= context), "{context}");
            assert!(corruption.lengths(length + 1).iter().any(|n| *n > context), "{context}");
        }
        let few = Corruption { sentinels: vec![FIRST], ..corruption };
        assert_eq!(few.counts(512), [77, 1]);
    }

    #[test]
    fn all_cuts_are_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        let mut rng = Rng::new(5);
        for _ in 0..6000 {
            *counts.entry(cut(5, 3, &mut rng)).or_insert(0) += 1;
        }
        // (4 choose 2) = 6 ways, 1000 each, ± 5 standard deviations.
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (1000_i32 - count).abs() < 150), "{counts:?}");
        assert_eq!((cut(3, 3, &mut rng), cut(4, 1, &mut rng)), (vec![1, 1, 1], vec![4]));
        assert!(cut(3, 0, &mut rng).is_empty());
    }

    #[test]
    fn batches_depend_on_seed_step_and_row_alone() {
        let ids: Vec<u32> = (10..5010).collect();
        let training = |seed| {
            let windows = RandomWindows::new(ids.clone().into(), 6, 30, 1).unwrap();
            Denoised::new(windows, corruption(seed)) // the seed of the spans alone
        };
        assert_batches(training);
        assert_eq!(assert_in_order(&Denoised::new(windows(40), corruption(1))).len(), 124);
    }
}
