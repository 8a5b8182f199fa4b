//! One gradient against differences of the loss.
//!
//! The loss is computed at w ± k·h for several k. f(w + x) − f(w − x) = 2·(g·x + c·x³ + d·x⁵ + …), so
//! a least-squares fit of g, c and d gives the slope with rounding averaged out.

use crate::flow::Flow;
use crate::{checked, parameter, target_at};
use hearken_base::{Error, Result};
use hearken_nn::models::{self, Model};
use hearken_nn::pass::Pass;
use hearken_nn::taps::{Pattern, Taps};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::{Var, no_grad};
use std::sync::Arc;

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

/// How many losses are computed: two sides, points on each, widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Points on each side.
    pub points: usize,
    /// Widths that are tried after the first, each half of the one before.
    pub halvings: usize,
}

impl Effort {
    /// Three digits and more: 144 losses.
    pub const THOROUGH: Self = Self { points: 12, halvings: 5 };
    /// For large models: 24 losses.
    pub const QUICK: Self = Self { points: 4, halvings: 2 };

    /// How many losses that is.
    pub fn losses(self) -> usize {
        2 * self.points * (1 + self.halvings)
    }
}

/// The gradient of number `index` of a parameter, both ways. Weights and gradients are left as they
/// were.
pub fn check(
    model: &dyn Model,
    ids: &[u32],
    target: (usize, u32),
    name: &str,
    index: usize,
) -> Result<Check> {
    check_weight(model, ids, target, name, index, Effort::THOROUGH)
}

/// As [`check`], with a given effort.
pub fn check_weight(
    model: &dyn Model,
    ids: &[u32],
    target: (usize, u32),
    name: &str,
    index: usize,
    effort: Effort,
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
    let own = original.data()[index];
    let at = |x: f64| -> Result<(f64, f64)> {
        let mut moved = original.clone();
        let new = (f64::from(own) + x) as f32;
        moved.data_mut()[index] = new;
        weight.set_value(moved);
        let found = no_grad(loss).map(|loss| f64::from(loss.mean().value().item()));
        weight.set_value(original.clone());
        Ok((f64::from(new) - f64::from(own), found?))
    };
    slope(&at, rms(original.data()), f64::from(now.value().item()), gradient, effort)
}

/// The gradient of number `index` of a value inside (of the whole tensor, in row-major order), both
/// ways: the value is moved by a hook.
pub fn check_value(
    model: &dyn Model,
    flow: &Flow,
    target: (usize, u32),
    name: &str,
    index: usize,
    effort: Effort,
) -> Result<Check> {
    let missing = || {
        Error::new(
            format!("there is no number {index} with a gradient of a value '{name}'"),
            "trace it with a target first",
        )
    };
    let stage = flow.stage(name).ok_or_else(missing)?;
    let gradient = stage.gradient.as_ref().and_then(|g| g.data().get(index)).ok_or_else(missing)?;
    let (own, now) = (stage.value.data()[index], flow.loss.ok_or_else(missing)?);
    if !own.is_finite() {
        return Err(Error::new(format!("{name} is {own} there"), "a hidden score has no slope"));
    }
    let targets = target_at(model, flow.ids.len(), target.0, target.1)?;
    let pattern = Pattern::parse(name)?;
    let at = |x: f64| -> Result<(f64, f64)> {
        let new = (f64::from(own) + x) as f32;
        let taps = Taps::new().replace(pattern.clone(), move |value: &Var| {
            let mut moved = value.value().clone();
            moved.data_mut()[index] = new;
            Var::constant(moved)
        });
        let taps = Arc::new(taps);
        let pass = Pass::evaluate().watched(&taps);
        let tokens = checked(model, &flow.ids)?;
        let loss = no_grad(|| models::loss(model, &tokens, &targets, &pass, Options::default()))?;
        Ok((f64::from(new) - f64::from(own), f64::from(loss.mean().value().item())))
    };
    let finite: Vec<f32> = stage.value.data().iter().copied().filter(|x| x.is_finite()).collect();
    slope(&at, rms(&finite), f64::from(now), f64::from(*gradient), effort)
}

fn rms(x: &[f32]) -> f64 {
    crate::norm(x) / (x.len().max(1) as f64).sqrt()
}

/// The slope of `at`, which gives for a change of the number the change that f32 made of it and the
/// loss there.
fn slope(
    at: &dyn Fn(f64) -> Result<(f64, f64)>,
    scale: f64,
    now: f64,
    gradient: f64,
    effort: Effort,
) -> Result<Check> {
    // Too wide, and the loss bends more than the fit follows; too narrow, and rounding shows. Where
    // neighbouring widths agree best, neither matters; the gradient has no part in that choice.
    let slope_within = |widest: f64| -> Result<f64> {
        let mut points = Vec::new();
        for k in 1..=effort.points {
            let x = widest * k as f64 / effort.points as f64;
            let ((up, high), (down, low)) = (at(x)?, at(-x)?);
            points.push(((up - down) / 2.0 / widest, (high - low) / 2.0));
        }
        Ok(fit(&points) / widest)
    };
    let mut widest = (2.0 * scale).clamp(0.02, 0.2);
    let mut found = vec![(widest, slope_within(widest)?)];
    for _ in 0..effort.halvings {
        widest /= 2.0;
        found.push((widest, slope_within(widest)?));
    }
    // Two may agree by chance: one in the middle has to agree with both of its neighbours, and an end
    // twice as well.
    let off = |a: usize, b: usize| (found[a].1 - found[b].1).abs();
    let disagreement = |i: &usize| match (i.checked_sub(1), i + 1 < found.len()) {
        (Some(before), true) => off(*i, before).max(off(*i, i + 1)),
        (Some(before), false) => 2.0 * off(*i, before),
        (None, true) => 2.0 * off(*i, 1),
        (None, false) => 0.0,
    };
    let order = |a: &usize, b: &usize| disagreement(a).total_cmp(&disagreement(b));
    let best = (0..found.len()).min_by(order).unwrap_or(0);
    let (chosen, slope) = found[best];
    // A small loss is the difference of larger numbers, whose rounding it keeps.
    let rounding = 100.0 * f64::from(f32::EPSILON) * now.abs().max(1.0) / chosen;
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
