use hearken::tensor::ops::{matmul::matmul, softmax::softmax};
use hearken::tensor::{Tensor, Var};

fn main() {
    let states = [[1.0f32, 0.0], [0.0, 1.0], [1.0, 1.0]]; // of three words
    let wanted = [0.0f32, 1.0]; // s: the decoder looks for the second
    // e = vᵀ·tanh(W₁s + W₂h) with W₁ = W₂ = 1 and v = −5
    let score = |h: &[f32; 2]| -5.0 * ((wanted[0] + h[0]).tanh() + (wanted[1] + h[1]).tanh());
    let scores: Vec<f32> = states.iter().map(score).collect();
    let weights = softmax(Var::constant(Tensor::new([1, 3], &scores)), 1.0);
    let context = matmul(&weights, &Var::constant(Tensor::new([3, 2], states.as_flattened())));
    println!("weights {:?}, context {:?}", weights.value().data(), context.value().data());
    assert!(weights.value().data()[1] > weights.value().data()[0]);
}
