use hearken::kernels::attention::scores::{Causal, Mask};
use hearken::tensor::ops::attention::{Attend, attention, attention_weights};
use hearken::tensor::{Var, rng::Rng};

fn main() {
    let x = Rng::new(1).normal([1, 3, 8], 1.0); // three tokens
    let causal = attention_weights(&x, &x, &Attend::new(1).rule(Causal::new(3, 3)));
    assert_eq!(causal.data()[..3], [1.0, 0.0, 0.0]); // the first sees itself only
    let nothing = Attend::new(1).rule(Mask::new(vec![false; 9], [1, 1, 3, 3]));
    let x = Var::constant(x);
    let out = attention(&x, &x, &x, &[], &nothing);
    assert!(out.value().data().iter().all(|x| *x == 0.0)); // zeros, not NaN
}
