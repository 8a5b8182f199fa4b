//! How far gradients reach: back in time, and down through layers.
//!
//! ```text
//! ‖∂L_t/∂x₀‖     by the distance t of a loss from the token whose vector is x₀
//! ‖∂L/∂x_l‖      by the layer l whose input is x_l
//! ```
//! Through a recurrent network a gradient is multiplied once per token by the Jacobian of the state, and
//! through layers without a residual connection once per layer: what is multiplied again and again
//! vanishes or explodes as a power. Attention reaches every token in one step.

mod depth;
mod distance;

use crate::outcome::Outcome;
use crate::request::Request;
use crate::statistics::{Sample, slope};
use crate::study::{Contender, Study};
use hearken_base::Result;
use hearken_tensor::Tensor;
use serde_json::json;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "gradients",
    line: "how far gradients reach: by distance in recurrent networks and attention, by depth",
    question: "What a model can learn about an early token depends on the gradient that arrives there. \
               How does ‖∂L/∂x‖ fall with the distance between a loss and the token that it depends on, \
               in recurrent networks and with attention; and how does it change from the last layer to \
               the first, with norms before or after the layers, or without residual connections?",
    contenders: &[
        Contender {
            name: "rnn",
            about: "by distance: simple recurrent network (tanh), two layers",
        },
        Contender { name: "gru", about: "by distance: GRU, two layers" },
        Contender { name: "lstm", about: "by distance: LSTM, two layers, forget bias 1" },
        Contender { name: "transformer", about: "by distance: two blocks, rotary positions" },
        Contender { name: "post-norm", about: "by depth: norm(x + f(x)), as in 2017" },
        Contender { name: "pre-norm", about: "by depth: x + f(norm(x)), as today" },
        Contender { name: "no-residual", about: "by depth: f(norm(x))" },
    ],
    reads_text: false,
    minutes: [1.0, 2.0],
    run,
};

/// Smaller norms are too near to the smallest f32 to be fitted.
const SMALLEST: f64 = 1e-30;

fn run(request: &Request) -> Result<Outcome> {
    let seeds = request.seeds(3, 3);
    let mut outcome = Outcome::default();
    let seconds = distance::estimate(request, seeds.len())? + depth::estimate(request, seeds.len());
    request.announce(seconds)?;
    let by_distance = distance::run(request, &seeds, &mut outcome)?;
    let by_depth = depth::run(request, &seeds, &mut outcome)?;
    outcome.numbers = json!({"by_distance": by_distance, "by_depth": by_depth});
    Ok(outcome)
}

/// Its place in the list of contenders, for its colour.
fn color(name: &str) -> usize {
    STUDY.contenders.iter().position(|c| c.name == name).unwrap_or(0)
}

/// √Σx²
fn norm<'a>(values: impl IntoIterator<Item = &'a f32>) -> f64 {
    values.into_iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

/// The norm of all of a tensor.
fn norm_of(tensor: &Tensor) -> f64 {
    norm(tensor.data())
}

/// The factor by which y changes from x to x + 1, if it is the same everywhere: y ∝ factorˣ.
fn factor(points: &[(f64, f64)]) -> f64 {
    let steep: Vec<(f64, f64)> = (points.iter())
        .filter(|(_, y)| *y > SMALLEST)
        .map(|(x, y)| (x.exp(), *y)) // ln y over x
        .collect();
    slope(&steep).exp()
}

/// Of each seed: `of` its points.
fn by_seed(points: &[(f64, Sample)], of: impl Fn(&[(f64, f64)]) -> f64) -> Sample {
    let seeds = points.first().map_or(0, |(_, sample)| sample.values.len());
    (0..seeds)
        .map(|i| of(&points.iter().map(|(x, sample)| (*x, sample.values[i])).collect::<Vec<_>>()))
        .collect()
}

/// `0.83`, `1.2e-7`
fn shown(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        size if (0.01..1000.0).contains(&size) => format!("{x:.3}"),
        _ => format!("{x:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_and_seeds() {
        let points: Vec<(f64, f64)> =
            [1.0, 2.0, 8.0, 64.0].map(|x: f64| (x, 3.0 * 0.9_f64.powf(x))).to_vec();
        assert!((factor(&points) - 0.9).abs() < 1e-9);
        let samples =
            [(1.0, [1.0, 1.0].into_iter().collect()), (2.0, [0.5, 0.25].into_iter().collect())];
        assert_eq!(by_seed(&samples, factor).values.len(), 2);
        assert!((by_seed(&samples, factor).values[1] - 0.25).abs() < 1e-9);
        assert_eq!([shown(0.0), shown(0.5), shown(1.2e-7)], ["0", "0.500", "1.2e-7"]);
    }
}
