use hearken::tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken::tensor::{Tensor, Var};

fn main() {
    let (alpha, vocabulary) = (0.1f32, 37_000);
    let spread = alpha / vocabulary as f32;
    let mut logits = vec![spread.ln(); vocabulary]; // exactly what is asked for
    logits[0] = (1.0 - alpha + spread).ln();
    let logits = Var::constant(Tensor::new([1, vocabulary], &logits));
    let options = Options { label_smoothing: alpha, ..Options::default() };
    let floor = cross_entropy(logits, &[0], options).value().item();
    println!("the loss cannot fall below {floor:.4}");
    assert!((floor - 1.3769).abs() < 1e-3);
}
