use hearken::tensor::ops::attention::{Attend, attention};
use hearken::tensor::{Tensor, Var};

fn main() {
    // One sentence of two tokens, one head of width 3: (B, T, H·D).
    let q = Var::leaf(Tensor::new([1, 2, 3], &[1.0, 0.0, 1.0, 0.0, 1.0, 1.0]));
    let k = Var::leaf(Tensor::new([1, 2, 3], &[1.0, 1.0, 0.0, 1.0, 0.0, 1.0]));
    let v = Var::leaf(Tensor::new([1, 2, 3], &[2.0, 0.0, 1.0, 1.0, 1.0, 0.0]));
    let out = attention(&q, &k, &v, &[], &Attend::new(1));
    println!("O = {:?}", out.value().data());
    assert!((out.value().data()[0] - 1.3595).abs() < 1e-4);
    out.backward_with(Tensor::new([1, 2, 3], &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]));
    let dq = q.gradient().unwrap();
    assert!((dq.data()[1] - 0.2659).abs() < 1e-4);
}
