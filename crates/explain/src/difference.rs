//! One gradient against differences of the loss.
//!
//! The loss is computed at w ± k·h for several k. f(w + x) − f(w − x) = 2·(g·x + c·x³ + d·x⁵ + …), so
//! a least-squares fit of g, c and d gives the slope with rounding averaged out.

use crate::{checked, parameter, target_at};
use hearken_base::{Error, Result};
use hearken_nn::models::{self, Model};
use hearken_nn::pass::Pass;
use hearken_tensor::no_grad;
use hearken_tensor::ops::cross_entropy::Options;

/// A gradient, and the slope that differences of the loss find.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// By backward.
    pub gradient: f64,
    /// By differences.
    pub slope: f64,
    /// Slopes below this drown in the rounding of the loss.
    pub rounding: f64,
}

impl Check {
    /// Does rounding hide the answer?
    pub fn is_hidden(&self) -> bool {
        self.gradient.abs() < self.rounding
    }

    /// |slope − gradient| as a share of the gradient.
    pub fn error(&self) -> f64 {
        (self.slope - self.gradient).abs() / self.gradient.abs().max(f64::MIN_POSITIVE)
    }
}

/// Points on each side.
const POINTS: usize = 12;
/// Widths that are tried after the first, each half of the one before.
const HALVINGS: usize = 5;

/// The gradient of number `index` of a parameter, both ways. Weights and gradients are left as they
/// were.
pub fn check(
    model: &dyn Model,
    ids: &[u32],
    target: (usize, u32),
    name: &str,
    index: usize,
) -> Result<Check> {
    let missing = || {
        Error::new(
            format!("there is no number {index} of a parameter '{name}'"),
            "'hearken inspect weights' lists the weights",
        )
    };
    let weight = parameter(model, name).ok_or_else(missing)?;
    let original = weight.value();
    if index >= original.shape().len() {
        return Err(missing());
    }
    let targets = target_at(model, ids.len(), target.0, target.1)?;
    let loss = || {
        let tokens = checked(model, ids)?;
        models::loss(model, &tokens, &targets, &Pass::evaluate(), Options::default())
    };
    let kept: Vec<_> = model.parameters().iter().map(|p| (p, p.gradient())).collect();
    model.parameters().iter().for_each(|p| p.set_gradient(None));
    let now = loss()?.mean();
    now.backward();
    let gradient = weight.gradient().map_or(0.0, |g| f64::from(g.data()[index]));
    for (parameter, gradient) in kept {
        parameter.set_gradient(gradient);
    }
    let rms = crate::norm(original.data()) / (original.shape().len() as f64).sqrt();
    let widest = (2.0 * rms).clamp(0.02, 0.2);
    let at = |x: f64| -> Result<(f64, f64)> {
        let mut moved = original.clone();
        let new = (f64::from(original.data()[index]) + x) as f32;
        moved.data_mut()[index] = new;
        weight.set_value(moved);
        let found = no_grad(loss).map(|loss| f64::from(loss.mean().value().item()));
        weight.set_value(original.clone());
        Ok((f64::from(new) - f64::from(original.data()[index]), found?))
    };
    // Too wide, and the loss bends more than the fit follows; too narrow, and rounding shows. Where
    // two widths agree best, neither matters; the gradient has no part in that choice.
    let slope_within = |widest: f64| -> Result<f64> {
        let mut points = Vec::new();
        for k in 1..=POINTS {
            let x = widest * k as f64 / POINTS as f64;
            let ((up, high), (down, low)) = (at(x)?, at(-x)?);
            points.push(((up - down) / 2.0 / widest, (high - low) / 2.0));
        }
        Ok(fit(&points) / widest)
    };
    let mut widest = widest;
    let mut before = slope_within(widest)?;
    let (mut slope, mut best, mut chosen) = (before, f64::INFINITY, widest);
    for _ in 0..HALVINGS {
        widest /= 2.0;
        let now = slope_within(widest)?;
        if (now - before).abs() < best {
            (slope, best, chosen) = (now, (now - before).abs(), widest);
        }
        before = now;
    }
    let rounding = 100.0 * f64::from(f32::EPSILON) * f64::from(now.value().item()).abs() / chosen;
    Ok(Check { gradient, slope, rounding })
}

/// The first coefficient of the least-squares fit y = a·x + b·x³ + c·x⁵.
fn fit(points: &[(f64, f64)]) -> f64 {
    let basis = |x: f64| [x, x.powi(3), x.powi(5)];
    let mut m = [[0.0; 4]; 3];
    for (x, y) in points {
        let b = basis(*x);
        for i in 0..3 {
            for j in 0..3 {
                m[i][j] += b[i] * b[j];
            }
            m[i][3] += b[i] * y;
        }
    }
    for i in 0..3 {
        let pivot = m[i][i];
        for j in i + 1..3 {
            let factor = m[j][i] / pivot;
            for k in i..4 {
                m[j][k] -= factor * m[i][k];
            }
        }
    }
    let c = m[2][3] / m[2][2];
    let b = (m[1][3] - m[1][2] * c) / m[1][1];
    (m[0][3] - m[0][1] * b - m[0][2] * c) / m[0][0]
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_fit_finds_the_slope_of_a_polynomial() {
        let points: Vec<(f64, f64)> = (1..=12)
            .map(|k| f64::from(k) / 12.0)
            .map(|x| (x, 0.7 * x - 2.0 * x.powi(3) + 0.3 * x.powi(5)))
            .collect();
        assert!((super::fit(&points) - 0.7).abs() < 1e-9);
    }
}
