use hearken::kernels::attention::scores::{Alibi, And, Causal};
use hearken::tensor::Tensor;
use hearken::tensor::ops::attention::{Attend, attention_weights};

fn main() {
    println!("slopes of 8 heads: {:?}", Alibi::slopes(8));
    let same = Tensor::zeros([1, 4, 8]); // four equal tokens, 8 heads of width 1
    let rule = And(Causal::new(4, 4), Alibi::new(8, 4, 4));
    let weights = attention_weights(&same, &same, &Attend::new(8).rule(rule));
    let last = &weights.data()[12..16]; // head 1, the last token
    assert!((last[2] / last[3] - (-0.5f32).exp()).abs() < 1e-6); // one token back
}
