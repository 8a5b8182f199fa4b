use hearken::tensor::ops::{matmul::matmul, matmul::matmul_transposed};
use hearken::tensor::ops::{reshape::reshape, softmax::softmax, transpose::transpose};
use hearken::tensor::{Var, rng::Rng};

fn main() {
    let mut rng = Rng::new(1);
    let mut heads = || {
        let x = Var::constant(rng.normal([4, 768], 1.0)); // 4 tokens, width 768
        transpose(&reshape(x, [4, 12, 64]), 0, 1) // (12, 4, 64)
    };
    let (q, k, v) = (heads(), heads(), heads());
    let weights = softmax(matmul_transposed(&q, &k), 1.0 / 8.0);
    assert_eq!(weights.shape().dims(), [12, 4, 4]);
    let joined = reshape(transpose(&matmul(&weights, &v), 0, 1), [4, 768]);
    println!("{:?}", joined.shape());
}
