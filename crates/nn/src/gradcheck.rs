//! The gradient of a whole model against differences of its loss: for the tests of every kind.

use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Tensor, Var, no_grad};

/// Random directions in the space of all parameters.
const DIRECTIONS: u64 = 3;

/// The largest error of the gradient of `loss` along random directions in the space of all
/// `parameters` that learn, each of which must take part, against differences over `step` (four points:
/// fourth order). Relative to the slope, or absolute where that is below 1. Parameters are left as
/// they were, with gradients.
pub fn gradient_error(parameters: &[Param], loss: impl Fn() -> Var, step: f32) -> f64 {
    let learning: Vec<Param> = parameters.iter().filter(|p| p.is_trainable()).cloned().collect();
    let parameters = &learning[..];
    for parameter in parameters {
        parameter.set_gradient(None);
    }
    loss().backward();
    let start: Vec<Tensor> = parameters.iter().map(Param::value).collect();
    let mut worst = 0.0_f64;
    for seed in 0..DIRECTIONS {
        let mut rng = Rng::new(seed);
        let direction: Vec<Tensor> =
            parameters.iter().map(|p| rng.normal(p.shape(), 1.0)).collect();
        let mut slope = 0.0;
        for (parameter, direction) in parameters.iter().zip(&direction) {
            let Some(gradient) = parameter.gradient() else {
                panic!("{} takes no part in the loss", parameter.name())
            };
            let pairs = gradient.data().iter().zip(direction.data());
            slope += pairs.map(|(g, d)| f64::from(*g) * f64::from(*d)).sum::<f64>();
        }
        let at = |step: f32| {
            for ((parameter, start), direction) in parameters.iter().zip(&start).zip(&direction) {
                let mut moved = start.clone();
                for (x, d) in moved.data_mut().iter_mut().zip(direction.data()) {
                    *x += step * d;
                }
                parameter.set_value(moved);
            }
            f64::from(no_grad(&loss).value().item())
        };
        let near = at(step) - at(-step);
        let far = at(2.0 * step) - at(-2.0 * step);
        let differences = (8.0 * near - far) / (12.0 * f64::from(step));
        let error = (slope - differences).abs() / (slope.abs() + 1.0);
        worst = if error.is_nan() { error } else { worst.max(error) };
    }
    for (parameter, start) in parameters.iter().zip(start) {
        parameter.set_value(start);
    }
    worst
}
