use hearken::tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken::tensor::{Tensor, Var};

fn main() {
    assert!((1000.0f32.exp() / 1000.0f32.exp()).is_nan()); // ∞/∞
    let z = Var::leaf(Tensor::new([1, 2], &[1e4, -1e4]));
    let loss = cross_entropy(z.clone(), &[1], Options::default());
    println!("loss = {}", loss.value().item());
    assert_eq!(loss.value().item(), 20_000.0);
    loss.backward();
    assert_eq!(z.gradient().unwrap().data(), [1.0, -1.0]); // p − y
}
