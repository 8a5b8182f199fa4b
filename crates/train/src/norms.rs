//! Norms of gradients, weights and updates, in a fixed order of additions.

use hearken_kernels::dry;
use hearken_kernels::elementwise::{axpy, sum_of_squares};
use hearken_tensor::Param;
use std::collections::HashMap;

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
    Param::map(parameters, |p| {
        p.gradient().map_or(0.0, |g| sum_of_squares(g.data())) * factor * factor
    })
}

/// What gradients are multiplied by so that their norm is at most `most`; 1 if `most` is 0.
pub fn clip_factor(norm: f64, most: f64) -> f64 {
    if most > 0.0 && norm > most { most / norm } else { 1.0 }
}

/// ‖new − old‖², without a third tensor.
pub fn difference_square(new: &[f32], old: &[f32]) -> f64 {
    assert_eq!(new.len(), old.len(), "{} numbers before, {} after", old.len(), new.len());
    if dry::is_on() {
        return 0.0;
    }
    let mut difference = [0.0; 4096]; // 16 KiB, half of a first-level cache
    let mut sum = 0.0;
    for (new, old) in new.chunks(difference.len()).zip(old.chunks(difference.len())) {
        let difference = &mut difference[..new.len()];
        difference.copy_from_slice(new);
        axpy(difference, -1.0, old);
        sum += sum_of_squares(difference);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::{Role, Tensor};

    #[test]
    fn gradients_that_are_not_finite_show_in_the_norm() {
        for bad in [f32::INFINITY, f32::NAN] {
            let p = Param::new("p", Role::Vector, Tensor::zeros([2]));
            p.set_gradient(Some(Tensor::new([2], &[1.0, bad])));
            assert!(!gradient_squares(&[p], 1.0)[0].is_finite());
        }
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
    fn differences_of_any_length() {
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            let new: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let old: Vec<f32> = (0..len).map(|i| i as f32 + 0.5).collect();
            assert_eq!(difference_square(&new, &old), 0.25 * len as f64);
        }
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
        let params: Vec<Param> =
            names.map(|n| Param::new(n, Role::Vector, Tensor::zeros([2]))).into();
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
