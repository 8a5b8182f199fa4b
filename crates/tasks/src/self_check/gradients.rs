//! Gradients of a few parameters against differences of the loss.
//!
//! A parameter w is moved along d, the part of its gradient g in a random half of its numbers,
//! scaled to length 1. There the slope is d·g = |d-part of g|, as large as any direction that is not
//! chosen by hand can give, so that the rounding of an f32 loss hides little of it. Differences
//! D(x) = (f(w + x·d) − f(w − x·d)) / 2x are taken at x, x/2, x/4, …; (4·D(x/2) − D(x)) / 3 cancels
//! their error in x². Wide steps bend, narrow ones drown in rounding: the answer is taken where three
//! widths in a row agree best, without looking at the gradient.

use super::{Finding, Sample, fed};
use hearken_base::Result;
use hearken_nn::config::{FeedForwardKind, StackConfig};
use hearken_nn::models::{self, Model};
use hearken_nn::pass::{Layout, Pass};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Tensor, no_grad};

/// Parameters that are looked at.
const PARAMETERS: usize = 6;
/// Random halves of each.
const HALVES: u64 = 2;
/// Widths, each half of the one before.
const WIDTHS: usize = 9;
/// The share of a slope that may be off: what rounding in an f32 loss leaves, with room. A gradient
/// that misses a term is off by far more.
const BOUND: f64 = 0.01;
/// The same with ReLU, whose kinks a step may cross; small post-norm models were off by 0.044.
const BOUND_WITH_KINKS: f64 = 0.1;
/// The loss must change by at least this share, or rounding hides the slope.
const LEAST_CHANGE: f64 = 1e-3;

/// The slope of `loss` along `direction` at the value of `parameter`, which keeps it.
fn slope(
    parameter: &Param,
    direction: &[f32],
    widest: f64,
    loss: &dyn Fn() -> Result<f64>,
) -> Result<f64> {
    let start = parameter.value();
    let at = |x: f64| -> Result<f64> {
        let mut moved = start.clone();
        for (w, d) in moved.data_mut().iter_mut().zip(direction) {
            *w += (x * f64::from(*d)) as f32;
        }
        parameter.set_value(moved);
        loss()
    };
    let differences = || -> Result<Vec<f64>> {
        let widths = (0..WIDTHS).map(|i| widest / f64::from(1 << i));
        widths.map(|x| Ok((at(x)? - at(-x)?) / (2.0 * x))).collect()
    };
    let differences = differences();
    parameter.set_value(start);
    let differences = differences?;
    let refined: Vec<f64> = differences.windows(2).map(|d| (4.0 * d[1] - d[0]) / 3.0).collect();
    // Two widths may agree by chance; three hardly do.
    let spread = |three: &[f64]| (three[1] - three[0]).abs().max((three[2] - three[1]).abs());
    let agreeing = refined.windows(3).min_by(|a, b| spread(a).total_cmp(&spread(b)));
    Ok(agreeing.map_or(f64::NAN, |three| three[1]))
}

pub(super) fn check(model: &dyn Model, sample: &Sample) -> Result<Finding> {
    const NAME: &str = "gradients";
    let Some(targets) = &sample.targets else {
        return Ok(Finding::skipped(NAME, "the model has no head, and so no loss"));
    };
    if model.config().stack().is_some_and(StackConfig::chooses) {
        return Ok(Finding::skipped(
            NAME,
            "the model chooses experts, keys or buckets, so its loss jumps; 'hearken doctor' checks \
             the operations with choices held fixed",
        ));
    }
    let loss = || {
        fed(model, &sample.ids, sample.rows, Layout::default(), |tokens| {
            models::loss(model, tokens, targets, &Pass::evaluate(), Options::default())
                .map(|loss| loss.mean())
        })
    };
    let kept: Vec<_> = model.parameters().iter().map(|p| (p, p.gradient())).collect();
    model.parameters().iter().for_each(|p| p.set_gradient(None));
    let now = loss()?;
    now.backward();
    let now = f64::from(now.value().item());
    let gradients: Vec<Option<Tensor>> = model.parameters().iter().map(Param::gradient).collect();
    for (parameter, gradient) in kept {
        parameter.set_gradient(gradient);
    }
    let plain = || no_grad(loss).map(|loss| f64::from(loss.value().item()));
    let (mut worst, mut at, mut checked) = (0.0_f64, "", 0);
    for (parameter, gradient) in chosen(model.parameters(), &gradients, now) {
        for seed in 0..HALVES {
            let (direction, want) = half(gradient, seed);
            let found = slope(parameter, &direction, widest(parameter, want), &plain)?;
            let error = (found - want).abs() / want;
            if error.is_nan() || error >= worst {
                (worst, at) = (error, parameter.name());
            }
            if error.is_nan() {
                break;
            }
        }
        checked += 1;
    }
    if checked == 0 {
        return Ok(Finding::skipped(NAME, "all slopes are too small to be seen in the loss"));
    }
    let kinks = |stack: &StackConfig| stack.feed_forward.kind == FeedForwardKind::Relu;
    let kinks = model.config().stack().is_some_and(kinks);
    let bound = if kinks { BOUND_WITH_KINKS } else { BOUND };
    let detail = format!(
        "backward against differences of the loss, {checked} of {} parameters, the worst: {at}",
        model.parameters().len()
    );
    Ok(Finding::measured(NAME, worst, bound, true, detail))
}

/// How far a parameter is moved at most: 3 % of its length, or until the loss changes by
/// about 0.5.
fn widest(parameter: &Param, slope: f64) -> f64 {
    let value = parameter.value();
    let norm = norm(value.data()).max(1e-3 * (value.shape().len() as f64).sqrt());
    (0.03 * norm).min(0.5 / slope)
}

fn norm(numbers: &[f32]) -> f64 {
    numbers.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt()
}

/// A random half of a gradient, scaled to length 1, and its slope.
fn half(gradient: &Tensor, seed: u64) -> (Vec<f32>, f64) {
    let mut rng = Rng::new(seed);
    let mut part: Vec<f32> =
        gradient.data().iter().map(|g| if rng.below(2) == 0 { *g } else { 0.0 }).collect();
    if norm(&part) == 0.0 {
        part = gradient.data().to_vec();
    }
    let length = norm(&part);
    for d in &mut part {
        *d = (f64::from(*d) / length) as f32;
    }
    let slope = part.iter().zip(gradient.data()).map(|(d, g)| f64::from(*d) * f64::from(*g)).sum();
    (part, slope)
}

/// Parameters spread over the model, of those whose slope can be seen.
fn chosen<'a>(
    parameters: &'a [Param],
    gradients: &'a [Option<Tensor>],
    loss: f64,
) -> Vec<(&'a Param, &'a Tensor)> {
    let pairs = parameters.iter().zip(gradients);
    let seen: Vec<(&Param, &Tensor)> = pairs
        .filter_map(|(parameter, gradient)| Some((parameter, gradient.as_ref()?)))
        .filter(|(parameter, gradient)| {
            let slope = half(gradient, 0).1;
            slope > 0.0 && slope * widest(parameter, slope) > LEAST_CHANGE * loss.abs().max(1e-3)
        })
        .collect();
    let count = seen.len().min(PARAMETERS);
    (0..count).map(|i| seen[i * (seen.len() - 1) / (count - 1).max(1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::Role;

    #[test]
    fn a_slope_is_found_and_the_parameter_kept() {
        let start = Tensor::new([3], &[0.3, -0.2, 0.5]);
        let parameter = Param::new("w", Role::Hidden, start.clone());
        let loss = || {
            let value = parameter.value();
            Ok(value.data().iter().map(|x| f64::from(*x).sin()).sum::<f64>())
        };
        let want = 0.3_f64.cos();
        let found = slope(&parameter, &[1.0, 0.0, 0.0], 0.1, &loss).unwrap();
        assert!((found - want).abs() < 1e-6, "{found} and {want}");
        assert_eq!(parameter.value().data(), start.data());
    }
}
