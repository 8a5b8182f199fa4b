use hearken::tensor::ops::{matmul::matmul, mse::mse, transpose::transpose};
use hearken::tensor::{Tensor, Var};

fn main() {
    let x = Var::constant(Tensor::new([3, 2], &[1.0, 2.0, 0.0, 1.0, 2.0, 0.0]));
    let y = Var::constant(Tensor::new([3, 1], &[1.0, 0.0, 2.0]));
    let w = Var::leaf(Tensor::new([2, 1], &[0.5, -0.5]));
    mse(&matmul(&x, &w), &y).backward();
    let residual = matmul(&x, &w) - &y;
    let by_hand = matmul(&transpose(&x, 0, 1), &residual) * (2.0 / 3.0); // (2/N)·Xᵀ(Ŷ − Y)
    let by_machine = w.gradient().unwrap();
    for (a, b) in by_hand.value().data().iter().zip(by_machine.data()) {
        assert!((a - b).abs() < 1e-6);
    }
}
