use hearken::tensor::ops::softmax::softmax;
use hearken::tensor::{Tensor, Var};

fn main() {
    let scores = Tensor::new([3], &[0.1, 0.9, 0.5]); // how well each book matches
    for temperature in [1.0, 0.1, 0.01] {
        let weights = softmax(Var::constant(scores.clone()), 1.0 / temperature);
        println!("τ = {temperature}: {:?}", weights.value().data());
    }
    let soft = softmax(Var::constant(scores.clone()), 1.0);
    assert!((soft.value().data()[1] - 0.4718).abs() < 1e-3);
    let hard = softmax(Var::constant(scores), 100.0);
    assert!(hard.value().data()[1] > 0.999); // the argmax
}
