//! Cross-entropy of rows of logits, and its gradient written over them.
//!
//! For logits z of one row (V), target t, smoothing ε, coefficient c of the z-loss and scale a:
//!
//! ```text
//! lse  = ln Σ_j exp(z_j),  p_j = exp(z_j − lse)
//! loss = lse − (1 − ε)·z_t − ε·mean(z) + c·lse²
//! dz_j = a·((1 + 2c·lse)·p_j − (1 − ε)·[j = t] − ε/V)
//! ```
//! Label smoothing after Szegedy et al. 2016 (arXiv:1512.00567), z-loss after Chowdhery et al.
//! 2022 (arXiv:2204.02311). The scale (say, one over the number of targets that count) applies
//! to the gradient alone. A row whose target is [`IGNORED`] has loss 0 and gradient 0.
//!
//! One exponential per element: a pass for the maximum and the mean, one that leaves exp(z − max)
//! in place and sums, and one that turns these into the gradient; the row stays in cache.

use crate::simd::Simd;
use crate::simd::reduce::{fold_spans, sum};
use crate::softmax::{exponentials_in_place, log_sum_exp_of};
use crate::threads::{for_row_chunks, rows_per_chunk};
use crate::{dispatch, each_span};

/// The target of a row that does not count.
pub const IGNORED: u32 = u32::MAX;

/// What is computed besides the plain cross-entropy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// ε: this much of the target's probability is spread evenly over the vocabulary.
    pub label_smoothing: f32,
    /// c: keeps ln Σ exp(z) near 0.
    pub z_loss: f32,
    /// a: multiplies the gradient, not the loss.
    pub scale: f32,
}

impl Default for CrossEntropy {
    fn default() -> Self {
        Self { label_smoothing: 0.0, z_loss: 0.0, scale: 1.0 }
    }
}

/// Writes the loss of each row of `logits` (rows, V) to `losses` (rows), and the gradient over
/// the logits.
pub fn cross_entropy_in_place(
    options: CrossEntropy,
    targets: &[u32],
    vocabulary: usize,
    logits: &mut [f32],
    losses: &mut [f32],
) {
    let rows = targets.len();
    check(targets, vocabulary);
    for_row_chunks(
        rows,
        rows_per_chunk(vocabulary),
        [(logits, vocabulary), (losses, 1)],
        |at, [logits, losses]| gradient_chunk(options, &targets[at], logits, losses),
    );
}

/// Writes the loss of each row of `logits` (rows, V) to `losses` (rows); no gradient.
pub fn cross_entropy(
    options: CrossEntropy,
    targets: &[u32],
    vocabulary: usize,
    logits: &[f32],
    losses: &mut [f32],
) {
    let rows = targets.len();
    check(targets, vocabulary);
    assert_eq!(logits.len(), rows * vocabulary, "logits should be {rows}×{vocabulary}");
    for_row_chunks(rows, rows_per_chunk(vocabulary), [(losses, 1)], |at, [losses]| {
        let logits = &logits[at.start * vocabulary..at.end * vocabulary];
        loss_chunk(options, &targets[at], logits, losses);
    });
}

fn check(targets: &[u32], vocabulary: usize) {
    for (row, &target) in targets.iter().enumerate() {
        assert!(
            target == IGNORED || (target as usize) < vocabulary,
            "target {target} of row {row} is not in a vocabulary of {vocabulary}"
        );
    }
}

dispatch! {
    fn gradient_chunk(options: CrossEntropy, targets: &[u32], logits: &mut [f32],
        losses: &mut [f32]) => gradient_on
    fn loss_chunk(options: CrossEntropy, targets: &[u32], logits: &[f32], losses: &mut [f32])
        => loss_on
}

#[inline(always)]
fn gradient_on<S: Simd>(
    s: S,
    options: CrossEntropy,
    targets: &[u32],
    logits: &mut [f32],
    losses: &mut [f32],
) {
    let vocabulary = logits.len() / targets.len().max(1);
    let smoothing = f64::from(options.label_smoothing);
    let rows = logits.chunks_exact_mut(vocabulary.max(1)).zip(targets);
    for ((row, &target), loss) in rows.zip(losses) {
        if target == IGNORED {
            row.fill(0.0);
            *loss = 0.0;
            continue;
        }
        let (top, total) = maximum_and_sum(s, row);
        let target_logit = row[target as usize];
        let sum = exponentials_in_place(s, 1.0, top, row);
        let lse = f64::from(top) + f64::from(sum).ln();
        *loss = loss_of(options, lse, target_logit, total, vocabulary);
        // dz = e·(a(1 + 2c·lse)/Σe) − aε/V, then the target's share.
        let scale = f64::from(options.scale);
        let factor = scale * (1.0 + 2.0 * f64::from(options.z_loss) * lse) / f64::from(sum);
        let (factor, even) =
            (s.splat(factor as f32), s.splat((scale * smoothing / vocabulary as f64) as f32));
        each_span!(S, vocabulary, |at| {
            let gradient = s.sub(s.mul(s.read(row, at), factor), even);
            s.write(row, at, gradient);
        });
        row[target as usize] -= (scale * (1.0 - smoothing)) as f32;
    }
}

#[inline(always)]
fn loss_on<S: Simd>(
    s: S,
    options: CrossEntropy,
    targets: &[u32],
    logits: &[f32],
    losses: &mut [f32],
) {
    let vocabulary = logits.len() / targets.len().max(1);
    let rows = logits.chunks_exact(vocabulary.max(1)).zip(targets);
    for ((row, &target), loss) in rows.zip(losses) {
        *loss = if target == IGNORED {
            0.0
        } else {
            let total = if options.label_smoothing == 0.0 { 0.0 } else { sum(s, row) };
            let lse = log_sum_exp_of(s, 1.0, row);
            loss_of(options, lse, row[target as usize], total, vocabulary)
        };
    }
}

/// The loss of a row from its log-sum-exp, the target's logit and the sum of logits.
fn loss_of(
    options: CrossEntropy,
    lse: f64,
    target_logit: f32,
    total: f32,
    vocabulary: usize,
) -> f32 {
    let smoothing = f64::from(options.label_smoothing);
    // Without smoothing, a hidden (−∞) logit elsewhere must not turn 0·∞ into NaN.
    let even =
        if smoothing == 0.0 { 0.0 } else { smoothing * f64::from(total) / vocabulary as f64 };
    let loss = lse - (1.0 - smoothing) * f64::from(target_logit) - even;
    (loss + f64::from(options.z_loss) * lse * lse) as f32
}

/// max z and Σ z in one pass.
#[inline(always)]
fn maximum_and_sum<S: Simd>(s: S, x: &[f32]) -> (f32, f32) {
    let lowest = s.splat(f32::NEG_INFINITY);
    let (top, total) = fold_spans!(
        S,
        x.len(),
        (lowest, s.zero()),
        |both, at| {
            let v = s.read(x, at);
            (s.max(s.keep_first(at.count, v, lowest), both.0), s.add(both.1, v))
        },
        |a, b| (s.max(a.0, b.0), s.add(a.1, b.1))
    );
    (s.largest(top), s.sum(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, on_every_isa, samples, to_f64};
    use crate::threads::with_threads;

    fn reference(options: CrossEntropy, z: &[f64], target: usize) -> (f64, Vec<f64>) {
        let (v, epsilon) = (z.len() as f64, f64::from(options.label_smoothing));
        let (c, a) = (f64::from(options.z_loss), f64::from(options.scale));
        let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lse = top + z.iter().map(|z| (z - top).exp()).sum::<f64>().ln();
        let mean = z.iter().sum::<f64>() / v;
        let loss = lse - (1.0 - epsilon) * z[target] - epsilon * mean + c * lse * lse;
        let gradient = z.iter().enumerate().map(|(j, z)| {
            let hit = if j == target { 1.0 - epsilon } else { 0.0 };
            a * ((1.0 + 2.0 * c * lse) * (z - lse).exp() - hit - epsilon / v)
        });
        (loss, gradient.collect())
    }

    const CASES: [CrossEntropy; 3] = [
        CrossEntropy { label_smoothing: 0.0, z_loss: 0.0, scale: 1.0 },
        CrossEntropy { label_smoothing: 0.1, z_loss: 0.0, scale: 0.25 },
        CrossEntropy { label_smoothing: 0.2, z_loss: 1e-2, scale: 3.0 },
    ];

    #[test]
    fn the_reference_gradient_matches_central_differences() {
        for options in CASES {
            let z = to_f64(&samples(9, 3.0, 1));
            let (_, gradient) = reference(options, &z, 4);
            for j in 0..z.len() {
                let shifted = |by: f64| {
                    let mut z = z.clone();
                    z[j] += by;
                    reference(options, &z, 4).0
                };
                let step = 1e-5;
                let want =
                    f64::from(options.scale) * (shifted(step) - shifted(-step)) / (2.0 * step);
                // step² times third derivatives below 1, and 1e-16/step of rounding, times 3.
                assert!((gradient[j] - want).abs() < 1e-9, "{options:?} at {j}");
            }
        }
    }

    #[test]
    fn losses_and_gradients_match_reference() {
        on_every_isa(|isa| {
            for options in CASES {
                for vocabulary in LENGTHS.into_iter().filter(|&v| v > 0).chain([50_257]) {
                    let rows = 3;
                    let z = samples(rows * vocabulary, 10.0, 2);
                    let targets = [0, IGNORED, vocabulary as u32 - 1];
                    let what = format!("{options:?}, V = {vocabulary} on {isa:?}");
                    let (mut gradient, mut losses) = (z.clone(), vec![f32::NAN; rows]);
                    cross_entropy_in_place(
                        options,
                        &targets,
                        vocabulary,
                        &mut gradient,
                        &mut losses,
                    );
                    let mut forward = vec![f32::NAN; rows];
                    cross_entropy(options, &targets, vocabulary, &z, &mut forward);
                    for row in 0..rows {
                        let part = row * vocabulary..(row + 1) * vocabulary;
                        if targets[row] == IGNORED {
                            assert!(gradient[part].iter().all(|&x| x == 0.0) && losses[row] == 0.0);
                            assert_eq!(forward[row], 0.0);
                            continue;
                        }
                        let (loss, want) =
                            reference(options, &to_f64(&z[part.clone()]), targets[row] as usize);
                        // Sums of V terms in at most 16 lanes: V/16 roundings, of random sign.
                        let sums = 2e-7 * (1.0 + (vocabulary as f64 / 16.0).sqrt());
                        let bound = |_| (loss.abs() + 10.0) * sums;
                        assert_close(&what, &losses[row..=row], &[loss], bound);
                        assert_close(&what, &forward[row..=row], &[loss], bound);
                        let scale = f64::from(options.scale);
                        assert_close(&what, &gradient[part], &want, |i| {
                            (want[i].abs() + scale * 1e-3) * (sums + 2e-6)
                        });
                    }
                }
            }
        });
    }

    #[test]
    fn hidden_logits_have_no_part() {
        let mut logits = [1.0, f32::NEG_INFINITY, 1.0];
        let mut losses = [0.0];
        cross_entropy_in_place(CrossEntropy::default(), &[0], 3, &mut logits, &mut losses);
        assert!((losses[0] - 2_f32.ln()).abs() < 1e-6);
        assert_eq!(logits, [-0.5, 0.0, 0.5]);
    }

    #[test]
    #[should_panic(expected = "target 7 of row 1 is not in a vocabulary of 5")]
    fn a_target_outside_of_the_vocabulary_is_named() {
        cross_entropy(CrossEntropy::default(), &[0, 7], 5, &[0.0; 10], &mut [0.0; 2]);
    }

    #[test]
    fn no_rows_do_nothing_and_threads_do_not_change_bits() {
        cross_entropy_in_place(CrossEntropy::default(), &[], 5, &mut [], &mut []);
        let (rows, vocabulary) = (37, 3001);
        let z = samples(rows * vocabulary, 5.0, 3);
        let targets: Vec<u32> = (0..rows as u32).map(|i| i * 80).collect();
        let run = |threads| {
            let (mut gradient, mut losses) = (z.clone(), vec![0.0; rows]);
            with_threads(threads, || {
                cross_entropy_in_place(CASES[2], &targets, vocabulary, &mut gradient, &mut losses);
            });
            (gradient, losses)
        };
        let one = run(1);
        assert!([2, 3, 4].into_iter().all(|threads| run(threads) == one));
    }
}
