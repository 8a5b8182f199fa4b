//! Random vectors that a mechanism is made of: drawn once and saved with the weights, or drawn anew
//! every so many micro-batches of training, as a function of the run's seed and step alone, so that a
//! run that resumes draws what it would have drawn.

use crate::pass::Pass;
use crate::scope::Scope;
use hearken_tensor::rng::{Key, Rng};
use hearken_tensor::{Param, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// How (rows, columns) are drawn.
type Draw = fn(&mut Rng, usize, usize) -> Tensor;

/// Vectors (rows, columns), and when they change.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    /// What evaluation and generation use, and training without `redraw`.
    kept: Param,
    redraw: usize,
    site: u64,
    draw: Draw,
    /// Those of the last pass.
    last: Arc<Mutex<Option<(Key, Tensor)>>>,
}

impl Drawn {
    /// A parameter `name` (rows, columns) that does not learn.
    pub(super) fn new(
        scope: &Scope,
        name: &str,
        [rows, columns]: [usize; 2],
        redraw: usize,
        draw: Draw,
    ) -> Self {
        let kept = scope.constant(name, rows, columns, |rng| draw(rng, rows, columns));
        Self { kept, redraw, site: scope.site(name), draw, last: Arc::default() }
    }

    /// How many there are.
    pub(super) fn rows(&self) -> usize {
        self.kept.shape().rows()
    }

    /// Those of a pass.
    pub(super) fn of(&self, pass: &Pass) -> Tensor {
        let key = pass.key(self.site).filter(|_| self.redraw > 0);
        let Some(key) = key else { return self.kept.value() };
        let key = Key { step: key.step / self.redraw as u64, ..key };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, vectors)) = &*last
            && *of == key
            && !vectors.is_dry()
        {
            return vectors.clone();
        }
        let shape = self.kept.shape();
        let [low, high] = key.words().map(u64::from);
        let vectors = (self.draw)(&mut Rng::new(high << 32 | low), shape.rows(), shape.width());
        *last = Some((key, vectors.clone()));
        vectors
    }
}

/// Independent normal vectors.
pub(super) fn normal(rng: &mut Rng, rows: usize, columns: usize) -> Tensor {
    rng.normal([rows, columns], 1.0)
}

/// Normal vectors of which every `columns` neighbours are orthogonal: directions by Gram and Schmidt,
/// lengths as independent normal vectors have them. Each by itself is normal, and together they
/// estimate with less variance than independent ones.
pub(super) fn orthogonal(rng: &mut Rng, rows: usize, columns: usize) -> Tensor {
    let mut drawn = rng.normal([rows, columns], 1.0);
    let lengths = rng.normal([rows, columns], 1.0);
    if drawn.is_dry() {
        return drawn;
    }
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let lengths = lengths.data().chunks_exact(columns.max(1));
    let length = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let mut lengths = lengths.map(length);
    for block in drawn.data_mut().chunks_mut((columns * columns).max(1)) {
        let mut basis: Vec<Vec<f64>> = Vec::with_capacity(columns);
        for row in block.chunks_exact_mut(columns) {
            let mut x: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
            for other in &basis {
                let along = dot(&x, other);
                x.iter_mut().zip(other).for_each(|(x, o)| *x -= along * o);
            }
            let size = dot(&x, &x).sqrt().max(f64::MIN_POSITIVE);
            for x in &mut x {
                *x /= size;
            }
            let wanted = lengths.next().unwrap_or(1.0);
            row.iter_mut().zip(&x).for_each(|(to, x)| *to = (x * wanted) as f32);
            basis.push(x);
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Noise;
    use crate::scope::Weights;

    #[test]
    fn blocks_are_orthogonal_and_lengths_those_of_normal_vectors() {
        let drawn = orthogonal(&mut Rng::new(3), 20, 8);
        let rows: Vec<&[f32]> = drawn.data().chunks(8).collect();
        let mut squares = 0.0;
        for (i, a) in rows.iter().enumerate() {
            for (j, b) in rows.iter().enumerate() {
                let dot: f32 = a.iter().zip(*b).map(|(a, b)| a * b).sum();
                if i == j {
                    squares += f64::from(dot);
                } else if i / 8 == j / 8 {
                    assert!(dot.abs() < 1e-5, "{i} and {j}: {dot}");
                }
            }
        }
        // χ² of 160 degrees of freedom, within four deviations of √320.
        assert!((squares - 160.0).abs() < 4.0 * 320_f64.sqrt(), "{squares}");
    }

    #[test]
    fn training_draws_by_seed_and_step_alone() {
        let scope = Scope::root(Weights::Drawn { seed: 1 });
        let drawn = Drawn::new(&scope, "samples", [6, 4], 3, orthogonal);
        let at = |step| drawn.of(&Pass::train(Noise { seed: 9, step })).data().to_vec();
        let (first, later) = (at(2), at(3));
        assert_ne!(first, later);
        assert_eq!((at(0), at(5)), (first, later.clone()));
        // Another layer object, as after a restart.
        let again = Drawn::new(&Scope::root(Weights::Unset), "samples", [6, 4], 3, orthogonal);
        assert_eq!(again.of(&Pass::train(Noise { seed: 9, step: 4 })).data(), later);
        let kept = drawn.of(&Pass::evaluate()).data().to_vec();
        let fixed = Drawn { redraw: 0, ..drawn };
        assert_eq!(fixed.of(&Pass::train(Noise { seed: 9, step: 4 })).data(), kept);
    }
}
