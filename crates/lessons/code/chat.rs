use hearken::tensor::ops::{matmul::matmul, matmul::matmul_transposed, softmax::softmax};
use hearken::tensor::{Tensor, Var};

fn main() {
    let query = Var::constant(Tensor::new([1, 4], &[0.9, 0.1, 0.2, 0.3])); // an animal, please
    #[rustfmt::skip]
    let keys = Var::constant(Tensor::new([6, 4], &[
        0.0, 0.0, 0.0, 1.0, /* cat */ 1.0, 0.0, 0.3, 0.0, /* sat */ 0.0, 1.0, 0.0, 0.0,
        0.0, 0.0, 0.0, 0.0, /* the */ 0.0, 0.0, 0.0, 1.0, /* mat */ 0.0, 0.0, 1.0, 0.0,
    ]));
    let weights = softmax(matmul_transposed(&query, &keys), 0.5); // 1/√4
    println!("{:?}", weights.value().data());
    assert!((weights.value().data()[1] - 0.2277).abs() < 1e-4);
    let mixed = matmul(&weights, &keys); // with keys as values
    assert_eq!(mixed.shape().dims(), [1, 4]);
}
