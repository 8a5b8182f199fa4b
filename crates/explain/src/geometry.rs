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
    let found = parameter(model, "embedding.weight").map(Param::value);
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
