use hearken::tensor::ops::{activations::relu, linear::linear, matmul::matmul, mse::mse};
use hearken::tensor::{Tensor, Var};

fn main() {
    let x = Var::constant(Tensor::new([1, 2], &[1.0, -0.5]));
    let y = Var::constant(Tensor::new([1, 1], &[1.0]));
    let w1 = Var::leaf(Tensor::new([2, 2], &[0.5, -0.3, 0.8, 0.2])); // (hidden, inputs)
    let w2 = Var::leaf(Tensor::new([1, 2], &[0.7, -0.6])); // (outputs, hidden)
    let a1 = relu(linear(&x, &w1, None));
    let predicted = linear(&a1, &w2, None);
    mse(&predicted, &y).backward();
    let d2 = (predicted - &y) * 2.0; // both hidden units are above 0: ReLU's slope is 1
    let d1 = matmul(&d2, &w2);
    let dw1 = w1.gradient().unwrap();
    assert!((dw1.data()[0] - d1.value().data()[0] * 1.0).abs() < 1e-6); // δ₁·x₁
    assert!((dw1.data()[1] - d1.value().data()[0] * -0.5).abs() < 1e-6); // δ₁·x₂
}
