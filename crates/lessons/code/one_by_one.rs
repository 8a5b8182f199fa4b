use hearken::tensor::ops::{activations::relu, feed_forward::feed_forward, matmul::matmul, transpose::transpose};
use hearken::tensor::{Activation, Var, rng::Rng};

fn main() {
    let mut rng = Rng::new(1);
    let x = Var::constant(rng.normal([5, 8], 1.0)); // five positions, eight channels
    let up = Var::constant(rng.normal([32, 8], 0.3));
    let down = Var::constant(rng.normal([8, 32], 0.3));
    let out = feed_forward(&x, &up, Activation::Relu, &down, None);
    // A convolution of length 1, channels first.
    let conv = matmul(&down, &relu(matmul(&up, &transpose(&x, 0, 1))));
    for (a, b) in transpose(&conv, 0, 1).value().data().iter().zip(out.value().data()) {
        assert!((a - b).abs() < 1e-5);
    }
}
