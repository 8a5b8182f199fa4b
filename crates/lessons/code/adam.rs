use hearken::tensor::{Param, Role, Tensor};
use hearken::train::{DecayRule, Optimizer, OptimizerConfig};

fn main() {
    let (beta1, beta2, eps) = (0.9, 0.999, 1e-8);
    let adam = OptimizerConfig::Adam { beta1, beta2, eps, l2: 0.0, beta2_warmup: None };
    for gradient in [0.001, 1.0, 1000.0] {
        let p = Param::new("p", Role::Vector, Tensor::full([1], 1.0));
        let mut optimizer = Optimizer::new(adam, DecayRule::Hidden, [p.clone()]);
        p.set_gradient(Some(Tensor::full([1], gradient)));
        optimizer.step(0.1, 1.0);
        println!("gradient {gradient}: 1 became {}", p.value().item());
        assert!((p.value().item() - 0.9).abs() < 1e-3); // the first step is η, always
    }
}
