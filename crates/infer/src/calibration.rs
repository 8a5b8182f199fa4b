//! Is a model right as often as it says? Expected calibration error, and one temperature that makes
//! it better.
//!
//! A prediction says a class and how sure it is of it. Sort predictions into bins Bₘ by confidence:
//!
//! ```text
//! ECE = Σₘ |Bₘ|/n · |accuracy(Bₘ) − mean confidence(Bₘ)|
//! ```
//! (Naeini et al. 2015). Bins are of equal width, 0 … 1/M … 1, each with its upper end, or of equal
//! mass, where each holds n/M predictions in order of confidence. Dividing all logits by a
//! temperature T, fitted on data that was not trained on, changes confidence and no answer (Guo et al.
//! 2017): it minimises the mean of −ln p(right).

/// What a model said, and whether it was right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The probability of the class that it chose.
    pub confidence: f64,
    /// Was that class right?
    pub is_right: bool,
}

/// How predictions are sorted into bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binning {
    /// Every bin is 1/M wide.
    EqualWidth,
    /// Every bin has as many predictions, or one more.
    EqualMass,
}

/// Predictions of similar confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// How many.
    pub count: usize,
    /// Their mean confidence; 0 if there are none.
    pub confidence: f64,
    /// The share that was right; 0 if there are none.
    pub accuracy: f64,
}

/// The bins of a reliability diagram. Panics if `bins` is 0.
pub fn bins(predictions: &[Prediction], bins: usize, binning: Binning) -> Vec<Bin> {
    assert!(bins > 0, "at least one bin");
    let n = predictions.len();
    let mut sorted: Vec<&Prediction> = predictions.iter().collect();
    sorted.sort_by(|a, b| a.confidence.total_cmp(&b.confidence));
    let mut sums = vec![(0usize, 0.0f64, 0usize); bins];
    for (i, prediction) in sorted.into_iter().enumerate() {
        let bin = match binning {
            Binning::EqualWidth => {
                // The bin (m/M, (m+1)/M] that it lies in; 0 lies in the first.
                ((prediction.confidence * bins as f64).ceil() as usize).clamp(1, bins) - 1
            }
            Binning::EqualMass => i * bins / n,
        };
        let (count, confidence, right) = &mut sums[bin];
        *count += 1;
        *confidence += prediction.confidence;
        *right += usize::from(prediction.is_right);
    }
    let bin = |(count, confidence, right): (usize, f64, usize)| match count {
        0 => Bin::default(),
        _ => Bin {
            count,
            confidence: confidence / count as f64,
            accuracy: right as f64 / count as f64,
        },
    };
    sums.into_iter().map(bin).collect()
}

/// The expected calibration error of these bins; 0 without predictions.
pub fn expected_error(bins: &[Bin]) -> f64 {
    let n: usize = bins.iter().map(|bin| bin.count).sum();
    let gap = |bin: &Bin| bin.count as f64 * (bin.accuracy - bin.confidence).abs();
    bins.iter().map(gap).sum::<f64>() / n.max(1) as f64
}

/// What `logits`, divided by `temperature`, say of the class `right`: the prediction, and −ln p(right).
/// Panics if `right` is not among them.
pub fn judge(logits: &[f32], right: usize, temperature: f64) -> (Prediction, f64) {
    let scaled = |z: f32| f64::from(z) / temperature;
    let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    let best = best.expect("at least one class");
    let top = scaled(logits[best]);
    let sum: f64 = logits.iter().map(|z| (scaled(*z) - top).exp()).sum();
    let prediction = Prediction { confidence: 1.0 / sum, is_right: best == right };
    (prediction, sum.ln() + top - scaled(logits[right]))
}

/// The temperature that minimises `loss`, the mean of −ln p(right) as a function of the temperature:
/// golden section in the logarithm, from 1/`WIDEST` to `WIDEST`, to four digits. The loss is convex in
/// 1/T, so there is one minimum.
pub fn fit_temperature(mut loss: impl FnMut(f64) -> f64) -> f64 {
    let shrink = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (-WIDEST.ln(), WIDEST.ln());
    let (mut a, mut b) = (high - shrink * (high - low), low + shrink * (high - low));
    let (mut at_a, mut at_b) = (loss(a.exp()), loss(b.exp()));
    while high - low > 1e-4 {
        if at_a <= at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - shrink * (high - low);
            at_a = loss(a.exp());
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + shrink * (high - low);
            at_b = loss(b.exp());
        }
    }
    f64::midpoint(low, high).exp()
}

/// Temperatures are sought between its inverse and it.
const WIDEST: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::rng::Rng;

    /// Logits whose softmax is the truth, and classes drawn from it.
    fn honest(n: usize) -> Vec<(Vec<f32>, usize)> {
        let mut rng = Rng::new(3);
        let mut draw = || {
            let logits: Vec<f32> = (0..4).map(|_| 1.5 * rng.normal_one() as f32).collect();
            let sum: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum();
            let mut at = rng.unit() * sum;
            let right = logits.iter().position(|z| {
                at -= f64::from(*z).exp();
                at < 0.0
            });
            (logits, right.unwrap_or(3))
        };
        (0..n).map(|_| draw()).collect()
    }

    fn predictions(data: &[(Vec<f32>, usize)], temperature: f64) -> Vec<Prediction> {
        data.iter().map(|(z, right)| judge(z, *right, temperature).0).collect()
    }

    /// The definition, bin by bin, with plain loops.
    fn reference(predictions: &[Prediction], count: usize) -> f64 {
        let mut total = 0.0;
        for m in 0..count {
            let (low, high) = (m as f64 / count as f64, (m + 1) as f64 / count as f64);
            let inside: Vec<&Prediction> =
                predictions.iter().filter(|p| p.confidence > low && p.confidence <= high).collect();
            if inside.is_empty() {
                continue;
            }
            let n = inside.len() as f64;
            let accuracy = inside.iter().filter(|p| p.is_right).count() as f64 / n;
            let confidence = inside.iter().map(|p| p.confidence).sum::<f64>() / n;
            total += n * (accuracy - confidence).abs();
        }
        total / predictions.len() as f64
    }

    #[test]
    fn the_error_is_the_references() {
        let data = honest(3000);
        for temperature in [0.3, 1.0, 4.0] {
            for count in [1, 7, 10, 15] {
                let all = predictions(&data, temperature);
                let got = expected_error(&bins(&all, count, Binning::EqualWidth));
                let want = reference(&all, count);
                assert!((got - want).abs() < 1e-12, "{count} bins: {got} against {want}");
            }
        }
    }

    #[test]
    fn equal_mass_bins_hold_as_many_each() {
        let all = predictions(&honest(1003), 1.0);
        let bins = bins(&all, 10, Binning::EqualMass);
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<usize>(), 1003);
        assert!(bins.iter().all(|bin| (100..=101).contains(&bin.count)), "{bins:?}");
        assert!(bins.windows(2).all(|pair| pair[0].confidence <= pair[1].confidence));
    }

    #[test]
    fn an_overconfident_model_is_mended_by_its_temperature() {
        // Three times the true logits: the true temperature is 3.
        let data: Vec<(Vec<f32>, usize)> = honest(4000)
            .into_iter()
            .map(|(z, right)| (z.iter().map(|z| 3.0 * z).collect(), right))
            .collect();
        let loss = |t: f64| data.iter().map(|(z, r)| judge(z, *r, t).1).sum::<f64>() / 4000.0;
        let fitted = fit_temperature(loss);
        assert!((fitted - 3.0).abs() < 0.2, "{fitted}");
        for binning in [Binning::EqualWidth, Binning::EqualMass] {
            let error = |t| expected_error(&bins(&predictions(&data, t), 15, binning));
            let (before, after) = (error(1.0), error(fitted));
            assert!(after < before / 2.0, "{binning:?}: {before} before, {after} after");
        }
    }

    #[test]
    fn losses_and_edges() {
        let (prediction, loss) = judge(&[2.0, 0.0], 1, 1.0);
        assert!(!prediction.is_right && (loss - (1.0 + 2f64.exp()).ln()).abs() < 1e-12);
        assert_eq!(judge(&[1e4, -1e4], 1, 1.0).1, 2e4);
        assert_eq!(judge(&[1.0, 1.0], 0, 1.0).0, Prediction { confidence: 0.5, is_right: true });
        assert_eq!(expected_error(&bins(&[], 10, Binning::EqualMass)), 0.0);
        let sure = Prediction { confidence: 1.0, is_right: true };
        assert_eq!(bins(&[sure], 10, Binning::EqualWidth)[9].count, 1);
    }
}
