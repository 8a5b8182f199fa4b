use hearken::tensor::ops::{linear::linear, matmul::matmul_transposed, transpose::transpose};
use hearken::tensor::{Tensor, Var};

fn main() {
    let x = Var::constant(Tensor::new([3, 2], &[1.0, 0.0, 0.8, 0.6, 0.0, 1.0]));
    let wq = Var::constant(Tensor::new([2, 2], &[1.0, 0.0, 0.0, 1.0]));
    let wk = Var::constant(Tensor::new([2, 2], &[0.0, 1.0, 0.2, 0.0]));
    let asymmetry = |scores: &Var| {
        let difference = scores.clone() - &transpose(scores, 0, 1);
        difference.value().data().iter().fold(0.0f32, |most, x| most.max(x.abs()))
    };
    assert_eq!(asymmetry(&matmul_transposed(&x, &x)), 0.0);
    let (q, k) = (linear(&x, &wq, None), linear(&x, &wk, None));
    assert!(asymmetry(&matmul_transposed(&q, &k)) > 0.5);
}
