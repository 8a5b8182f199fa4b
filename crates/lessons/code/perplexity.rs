use hearken::tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken::tensor::{Tensor, Var};

fn main() {
    let loss = |choices: usize| {
        let logits = Var::constant(Tensor::zeros([1, choices])); // all equally likely
        cross_entropy(logits, &[0], Options::default()).value().item()
    };
    assert!((loss(8).exp() - 8.0).abs() < 1e-4); // perplexity 8
    // One of 16 letters at a time, or one of 256 pairs at a time: the same guess.
    let bits = |loss: f32, bytes: f32| loss / 2f32.ln() / bytes;
    assert!((bits(loss(16), 1.0) - bits(loss(256), 2.0)).abs() < 1e-5);
    println!("perplexities {:.0} and {:.0}", loss(16).exp(), loss(256).exp());
}
