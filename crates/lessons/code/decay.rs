use hearken::tensor::{Param, Role, Tensor, rng::Rng};
use hearken::train::{DecayRule, Optimizer, OptimizerConfig};

fn main() {
    let (beta1, beta2, eps, beta2_warmup) = (0.9, 0.999, 1e-8, None);
    let l2 = OptimizerConfig::Adam { beta1, beta2, eps, l2: 0.1, beta2_warmup };
    let adamw = OptimizerConfig::AdamW { beta1, beta2, eps, weight_decay: 0.1, beta2_warmup };
    let ends = [l2, adamw].map(|config| {
        let p = Param::new("p", Role::Vector, Tensor::full([300], 1.0));
        let mut optimizer = Optimizer::new(config, DecayRule::All, [p.clone()]);
        let mut rng = Rng::new(1);
        for _ in 0..3000 {
            p.set_gradient(Some(rng.normal([300], 10.0))); // nothing but noise
            optimizer.step(0.001, 1.0);
        }
        p.value().data().iter().sum::<f32>() / 300.0
    });
    println!("Adam + L2: {:.3}, AdamW: {:.3}", ends[0], ends[1]);
    assert!(ends[0] > 0.95 && (ends[1] - 0.741).abs() < 0.02);
}
