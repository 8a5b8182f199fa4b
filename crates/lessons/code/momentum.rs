use hearken::tensor::{Param, Role, Tensor};
use hearken::train::{DecayRule, Optimizer, OptimizerConfig};

fn main() {
    for (averaged, expected) in [(false, 1.0), (true, 0.1)] {
        let sgd = OptimizerConfig::Sgd { momentum: 0.9, nesterov: false, averaged, l2: 0.0 };
        let p = Param::new("p", Role::Vector, Tensor::zeros([1]));
        let mut optimizer = Optimizer::new(sgd, DecayRule::Hidden, [p.clone()]);
        let mut before = 0.0;
        for _ in 0..100 {
            before = p.value().item();
            p.set_gradient(Some(Tensor::full([1], 1.0))); // always the same gradient
            optimizer.step(0.1, 1.0);
        }
        let step = before - p.value().item();
        println!("averaged {averaged}: a step of {step:.3}");
        assert!((step - expected).abs() < 1e-3);
    }
}
