//! Embeddings as points.

use crate::{dot, norm, parameter, row};
use hearken_base::{Error, Result};
use hearken_nn::models::Model;
use hearken_tensor::{Param, Tensor};

/// A token near a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// The token.
    pub id: u32,
    /// Of the angle to the point.
    pub cosine: f64,
    /// From the point.
    pub distance: f64,
}

/// The table of a model's tokens.
pub fn table(model: &dyn Model) -> Result<Tensor> {
    let names = ["embedding.weight", "decoder.embedding.weight"];
    let found = names.iter().find_map(|name| parameter(model, name)).map(Param::value);
    found.ok_or_else(|| Error::new("this model has no table of tokens", "use one that reads text"))
}

/// The tokens with the largest cosine to `Σ factor·E[id]`, these tokens left out: `(1, king), (−1, man),
/// (1, woman)` is an analogy.
pub fn nearest(table: &Tensor, sum: &[(f32, u32)], count: usize) -> Vec<Neighbour> {
    let width = table.shape().width();
    let mut point = vec![0.0_f32; width];
    for (factor, id) in sum {
        for (p, x) in point.iter_mut().zip(row(table, *id as usize)) {
            *p += factor * x;
        }
    }
    let own = norm(&point);
    let mut all: Vec<Neighbour> = (0..table.shape().rows() as u32)
        .filter(|id| sum.iter().all(|(_, given)| given != id))
        .map(|id| {
            let x = row(table, id as usize);
            let cosine = dot(x, &point) / (norm(x) * own).max(f64::MIN_POSITIVE);
            let square = x.iter().zip(&point).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            Neighbour { id, cosine, distance: square.sqrt() }
        })
        .collect();
    all.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then(a.id.cmp(&b.id)));
    all.truncate(count);
    all
}

/// The two directions in which points differ most.
#[derive(Clone, Debug, PartialEq)]
pub struct Plane {
    mean: Vec<f64>,
    axes: [Vec<f64>; 2],
    /// The share of all variance along each axis.
    pub explained: [f64; 2],
}

/// Rounds of the power method.
const ROUNDS: usize = 60;

/// The first two principal components of these rows of a table, by the power method.
pub fn plane(table: &Tensor, rows: &[u32]) -> Plane {
    let width = table.shape().width();
    let n = rows.len().max(1) as f64;
    let points = || rows.iter().map(|id| row(table, *id as usize));
    let mut mean = vec![0.0; width];
    for x in points() {
        mean.iter_mut().zip(x).for_each(|(m, x)| *m += f64::from(*x) / n);
    }
    let square =
        |x: &[f32]| x.iter().zip(&mean).map(|(x, m)| (f64::from(*x) - m).powi(2)).sum::<f64>();
    let variance: f64 = points().map(square).sum::<f64>() / n;
    let mut axes: Vec<Vec<f64>> = Vec::new();
    let mut explained = [0.0; 2];
    for k in 0..2 {
        // A start that is not orthogonal to anything in particular.
        let mut axis: Vec<f64> = (0..width).map(|i| ((i * 7 + k * 3) % 11) as f64 - 4.9).collect();
        for _ in 0..ROUNDS {
            let mut next = vec![0.0; width];
            for x in points() {
                let along: f64 =
                    x.iter().zip(&mean).zip(&axis).map(|((x, m), a)| (f64::from(*x) - m) * a).sum();
                for ((next, x), m) in next.iter_mut().zip(x).zip(&mean) {
                    *next += along * (f64::from(*x) - m) / n;
                }
            }
            for other in &axes {
                let along: f64 = next.iter().zip(other).map(|(a, b)| a * b).sum();
                next.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
            }
            let length = next.iter().map(|a| a * a).sum::<f64>().sqrt();
            explained[k] = length / variance.max(f64::MIN_POSITIVE);
            if length <= f64::MIN_POSITIVE {
                next.fill(0.0);
            } else {
                for a in &mut next {
                    *a /= length;
                }
            }
            axis = next;
        }
        axes.push(axis);
    }
    let second = axes.pop().unwrap_or_default();
    let first = axes.pop().unwrap_or_default();
    Plane { mean, axes: [first, second], explained }
}

impl Plane {
    /// Where a point lies in the plane.
    pub fn place(&self, x: &[f32]) -> [f64; 2] {
        self.axes.each_ref().map(|axis| {
            x.iter().zip(&self.mean).zip(axis).map(|((x, m), a)| (f64::from(*x) - m) * a).sum()
        })
    }
}
