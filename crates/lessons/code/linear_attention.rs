use hearken::tensor::ops::{matmul::matmul, matmul::matmul_transposed, transpose::transpose};
use hearken::tensor::{Var, rng::Rng};

fn main() {
    let mut rng = Rng::new(1);
    let mut positive = || Var::constant(rng.uniform([256, 16], 0.1, 1.0)); // φ(Q), φ(K)
    let (q, k, v) = (positive(), positive(), positive());
    let quadratic = matmul(&matmul_transposed(&q, &k), &v); // 256×256 in between
    let linear = matmul(&q, &matmul(&transpose(&k, 0, 1), &v)); // 16×16 in between
    for (a, b) in quadratic.value().data().iter().zip(linear.value().data()) {
        assert!((a / b - 1.0).abs() < 1e-4);
    }
}
