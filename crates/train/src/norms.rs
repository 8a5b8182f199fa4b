//! Norms of gradients, weights and updates, in a fixed order of additions.

use hearken_kernels::threads;
use hearken_tensor::{Param, Tensor};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements per partial sum. Depends on nothing, so the same numbers give the same bits.
const CHUNK: usize = 16 * 1024;

/// Σ xᵢ², in f64: no f32 overflows it, and a NaN or infinity comes through.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    let chunks: Vec<AtomicU64> =
        (0..x.len().div_ceil(CHUNK)).map(|_| AtomicU64::new(0)).collect();
    threads::for_each(chunks.len(), |i| {
        let chunk = &x[i * CHUNK..((i + 1) * CHUNK).min(x.len())];
        chunks[i].store(squares_of_chunk(chunk).to_bits(), Ordering::Relaxed);
    });
    chunks.iter().map(|bits| f64::from_bits(bits.load(Ordering::Relaxed))).sum()
}

/// Eight sums side by side, which the compiler turns into vectors.
fn squares_of_chunk(x: &[f32]) -> f64 {
    let mut sums = [0.0_f64; 8];
    let (lanes, rest) = x.as_chunks::<8>();
    for lane in lanes {
        for (sum, &x) in sums.iter_mut().zip(lane) {
            *sum += f64::from(x) * f64::from(x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum += f64::from(x) * f64::from(x);
    }
    sums.iter().sum()
}

/// The layer that a parameter belongs to: its name up to the first number (`layers.3`), or
/// without its last part if it has none (`transformer.wte`).
pub fn layer_of(name: &str) -> &str {
    let mut end = 0;
    for part in name.split('.') {
        end += part.len();
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            return &name[..end];
        }
        end += 1; // the dot
    }
    name.rsplit_once('.').map_or(name, |(front, _)| front)
}

/// Does the name of a layer end in its number? Only such layers can be compared with each other.
pub fn is_numbered(layer: &str) -> bool {
    let last = layer.rsplit('.').next().unwrap_or(layer);
    !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit())
}

/// Parameters by layer, in order of first appearance.
#[derive(Clone, Debug)]
pub struct Layers {
    names: Vec<String>,
    /// The layer of each parameter.
    of: Vec<usize>,
    /// Numbers in each layer.
    sizes: Vec<usize>,
}

impl Layers {
    /// Groups `parameters` by [`layer_of`] their names.
    pub fn new(parameters: &[Param]) -> Self {
        let (mut names, mut of, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        let mut index = HashMap::new();
        for parameter in parameters {
            let layer = layer_of(parameter.name());
            let i = *index.entry(layer.to_owned()).or_insert_with(|| {
                names.push(layer.to_owned());
                sizes.push(0);
                names.len() - 1
            });
            of.push(i);
            sizes[i] += parameter.shape().len();
        }
        Self { names, of, sizes }
    }

    /// The names of the layers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many numbers each layer has.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Roots of the sums by layer of a square per parameter.
    pub fn norms(&self, squares: &[f64]) -> Vec<f64> {
        assert_eq!(squares.len(), self.of.len(), "one square per parameter");
        let mut sums = vec![0.0; self.names.len()];
        for (&layer, square) in self.of.iter().zip(squares) {
            sums[layer] += square;
        }
        sums.into_iter().map(f64::sqrt).collect()
    }
}

/// ‖g‖² of every parameter, of the gradient times `factor`; 0 where there is none.
pub fn gradient_squares(parameters: &[Param], factor: f64) -> Vec<f64> {
    let square = |p: &Param| p.gradient().map_or(0.0, |g| sum_of_squares(g.data()));
    parameters.iter().map(|p| square(p) * factor * factor).collect()
}

/// What gradients are multiplied by so that their norm is at most `most`; 1 if `most` is 0.
pub fn clip_factor(norm: f64, most: f64) -> f64 {
    if most > 0.0 && norm > most { most / norm } else { 1.0 }
}

/// ‖new − old‖² and ‖old‖² of every parameter.
pub fn update_squares(old: &[Tensor], parameters: &[Param]) -> (Vec<f64>, Vec<f64>) {
    let update = |(old, parameter): (&Tensor, &Param)| {
        let mut difference = parameter.value();
        hearken_kernels::elementwise::axpy(difference.data_mut(), -1.0, old.data());
        sum_of_squares(difference.data())
    };
    (
        old.iter().zip(parameters).map(update).collect(),
        old.iter().map(|old| sum_of_squares(old.data())).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::rng::Rng;

    #[test]
    fn squares_are_those_of_the_plain_sum_with_any_number_of_threads() {
        for len in [0, 1, 7, 8, 9, CHUNK - 1, CHUNK + 1, 3 * CHUNK + 5] {
            let x = Rng::new(1).normal([len], 2.0);
            let want: f64 = x.data().iter().map(|&x| f64::from(x).powi(2)).sum();
            let one = threads::with_threads(1, || sum_of_squares(x.data()));
            // About len roundings of 1e-16, of both signs.
            assert!((one - want).abs() <= 1e-12 * want, "{len}: {one}, not {want}");
            for n in [2, 3, 4] {
                let many = threads::with_threads(n, || sum_of_squares(x.data()));
                assert_eq!(one.to_bits(), many.to_bits());
            }
        }
    }

    #[test]
    fn huge_gradients_do_not_overflow_but_infinite_ones_show() {
        assert_eq!(sum_of_squares(&[1e30, 0.0]).sqrt(), f64::from(1e30_f32));
        assert!(sum_of_squares(&[1.0, f32::INFINITY]).is_infinite());
        assert!(sum_of_squares(&[1.0, f32::NAN]).is_nan());
    }

    #[test]
    fn layers_end_at_the_first_number() {
        for (name, layer) in [
            ("transformer.h.11.attn.c_attn.weight", "transformer.h.11"),
            ("layers.0.experts.3.up", "layers.0"),
            ("transformer.wte.weight", "transformer.wte"),
            ("embedding", "embedding"),
            ("h0.weight", "h0"),
        ] {
            assert_eq!(layer_of(name), layer);
        }
        assert!(is_numbered("layers.0") && !is_numbered("transformer.wte"));
    }

    #[test]
    fn norm_50_clipped_to_5_is_a_tenth() {
        assert_eq!(clip_factor(50.0, 5.0), 0.1);
        assert_eq!(clip_factor(4.0, 5.0), 1.0);
        assert_eq!(clip_factor(50.0, 0.0), 1.0);
    }

    #[test]
    fn norms_by_layer_add_up_to_the_whole() {
        let names = ["a.0.w", "a.0.b", "a.1.w", "z.weight"];
        let params: Vec<Param> = names.map(|n| Param::new(n, Tensor::zeros([2]))).into();
        for (i, p) in params.iter().enumerate() {
            p.set_gradient(Some(Tensor::full([2], i as f32)));
        }
        let layers = Layers::new(&params);
        assert_eq!(layers.names(), ["a.0", "a.1", "z"]);
        assert_eq!(layers.sizes(), [4, 2, 2]);
        let squares = gradient_squares(&params, 2.0);
        assert_eq!(squares, [0.0, 8.0, 32.0, 72.0]); // 2 · (2i)²
        assert_eq!(layers.norms(&squares), [8.0_f64.sqrt(), 32.0_f64.sqrt(), 72.0_f64.sqrt()]);
    }
}
