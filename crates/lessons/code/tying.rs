use hearken::tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken::tensor::ops::{embedding::embedding, matmul::matmul_transposed};
use hearken::tensor::{Tensor, Var};

fn main() {
    let table = || Var::leaf(Tensor::new([3, 2], &[0.5, -0.2, 0.1, 0.8, -0.6, 0.3]));
    let loss = |input: &Var, output: &Var| {
        let h = embedding(input, &[0, 2], [2]); // look two tokens up
        cross_entropy(matmul_transposed(&h, output), &[1, 0], Options::default()).backward();
    };
    let (tied, input, output) = (table(), table(), table());
    loss(&tied, &tied);
    loss(&input, &output);
    for i in 0..6 {
        let parts = input.gradient().unwrap().data()[i] + output.gradient().unwrap().data()[i];
        assert!((tied.gradient().unwrap().data()[i] - parts).abs() < 1e-6);
    }
}
