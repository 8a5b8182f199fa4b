use hearken::tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken::tensor::ops::softmax::softmax;
use hearken::tensor::{Tensor, Var};

fn main() {
    let scores = Tensor::new([1, 4], &[2.1, 0.3, -0.5, 1.8]);
    let p = softmax(Var::constant(scores.clone()), 1.0);
    println!("p = {:?}", p.value().data());
    let z = Var::leaf(scores);
    cross_entropy(z.clone(), &[3], Options::default()).backward(); // the last one is right
    let y = [0.0, 0.0, 0.0, 1.0];
    for i in 0..4 {
        let error = p.value().data()[i] - y[i]; // p − y
        assert!((z.gradient().unwrap().data()[i] - error).abs() < 1e-6);
    }
}
