use hearken::tensor::ops::{matmul::matmul, transpose::transpose};
use hearken::tensor::{Tensor, Var};

fn main() {
    let a = Var::constant(Tensor::new([2, 3], &[1.0, 2.0, 0.0, -1.0, 0.5, 3.0]));
    let b = Var::constant(Tensor::new([3, 2], &[2.0, 1.0, 0.0, -1.0, 1.0, 4.0]));
    let x = Var::leaf(Tensor::new([3, 3], &[1.0, 0.0, 2.0, 3.0, -1.0, 1.0, 0.0, 1.0, 1.0]));
    matmul(&matmul(&a, &x), &b).sum().backward(); // L = Σ (AXB)ᵢⱼ, so G is all ones
    let g = Var::constant(Tensor::full([2, 2], 1.0));
    let by_hand = matmul(&matmul(&transpose(&a, 0, 1), &g), &transpose(&b, 0, 1)); // AᵀGBᵀ
    for (p, q) in x.gradient().unwrap().data().iter().zip(by_hand.value().data()) {
        assert!((p - q).abs() < 1e-5);
    }
}
