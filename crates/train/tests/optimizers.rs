//! Every optimiser against PyTorch over several steps, with weight decay for hidden matrices only.
//! `fixtures/optimizers.py` makes the numbers.

use hearken_base::settings::Settings;
use hearken_tensor::{Param, Role, Tensor};
use hearken_train::{DecayRule, Optimizer, OptimizerConfig};
use serde_json::Value;

/// Eight steps of a few roundings each, of numbers up to 1.3: 6e-8 · 1.3 · about 10. Muon: the
/// roundings go through five iterations that stretch small singular values up to 3.4⁵ times.
fn tolerance(optimizer: &OptimizerConfig) -> f64 {
    match optimizer {
        OptimizerConfig::Muon { .. } => 5e-6,
        _ => 1e-6,
    }
}

const SHAPES: [(&str, Role, &[usize]); 4] = [
    ("layers.0.weight", Role::Hidden, &[5, 3]),
    ("layers.1.weight", Role::Residual, &[3, 7]),
    ("layers.0.bias", Role::Vector, &[5]),
    ("embedding", Role::Table, &[4, 3]),
];

fn numbers(shape: &[usize], scale: f64, phase: f64) -> Tensor {
    let number = |i: usize| {
        let i = i as f64;
        (scale * (1.7 * i + phase).sin() * (1.0 + 0.3 * (0.9 * i).cos())) as f32
    };
    let data: Vec<f32> = (0..shape.iter().product()).map(number).collect();
    Tensor::new(hearken_tensor::Shape::new(shape), &data)
}

#[test]
fn every_optimiser_matches_pytorch() {
    let fixture: Value = serde_json::from_str(include_str!("fixtures/optimizers.json")).unwrap();
    let cases = fixture["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let config: OptimizerConfig =
            Settings::from_json(&case["optimizer"], "case").unwrap().read().unwrap();
        let parameters: Vec<Param> = (0..)
            .zip(SHAPES)
            .map(|(k, (name, role, shape))| {
                Param::new(name, role, numbers(shape, 1.0, f64::from(k)))
            })
            .collect();
        let mut optimizer = Optimizer::new(config, DecayRule::Hidden, parameters.iter().cloned());
        for (t, after) in case["after"].as_array().unwrap().iter().enumerate() {
            // Twice the gradient, halved as it is read: how clipping and loss scaling enter.
            for (k, p) in parameters.iter().enumerate() {
                let (k, step) = (k as f64, t as f64);
                let gradient =
                    numbers(p.shape().dims(), 2.0 * 0.5 / (1.0 + step), 0.4 * k + 1.3 * step);
                p.set_gradient(Some(gradient));
            }
            optimizer.step(0.01, 0.5);
            for p in &parameters {
                let want = after[p.name()].as_array().unwrap();
                assert_eq!(want.len(), p.shape().len());
                for (i, (got, want)) in p.value().data().iter().zip(want).enumerate() {
                    let (got, want) = (f64::from(*got), want.as_f64().unwrap());
                    let difference = (got - want).abs();
                    assert!(
                        difference < tolerance(&config),
                        "{config:?}: {}[{i}] is {got} after step {t}, PyTorch has {want} \
                         ({difference:.1e} apart)",
                        p.name()
                    );
                }
            }
        }
    }
}

#[test]
fn a_parameter_without_a_gradient_stays() {
    let p = Param::new("p", Role::Vector, numbers(&[3], 1.0, 0.0));
    let before = p.value();
    let mut optimizer = Optimizer::new(OptimizerConfig::default(), DecayRule::All, [p.clone()]);
    optimizer.step(0.1, 1.0);
    assert_eq!(p.value().data(), before.data());
    assert_eq!(optimizer.counters().steps, 1);
}

#[test]
fn a_stack_of_matrices_is_orthogonalised_one_by_one() {
    let muon: OptimizerConfig = Settings::parse("kind = \"muon\"", "o").unwrap().read().unwrap();
    let step = |name: &str, value: Tensor, gradient: Tensor| {
        let p = Param::new(name, Role::Hidden, value);
        p.set_gradient(Some(gradient));
        let mut optimizer = Optimizer::new(muon, DecayRule::Hidden, [p.clone()]);
        optimizer.step(0.01, 1.0);
        p.value().data().to_vec()
    };
    let (value, gradient) = (numbers(&[2, 4, 3], 1.0, 0.0), numbers(&[2, 4, 3], 1.0, 1.0));
    let both = step("experts", value.clone(), gradient.clone());
    let second = step(
        "expert",
        Tensor::new([4, 3], &value.data()[12..]),
        Tensor::new([4, 3], &gradient.data()[12..]),
    );
    assert_eq!(both[12..], second);
}

#[test]
fn a_frozen_parameter_gets_no_state_and_no_update() {
    let [p, q] = ["p", "q"].map(|name| Param::new(name, Role::Hidden, numbers(&[2, 2], 1.0, 0.0)));
    p.set_trainable(false);
    let both = [p.clone(), q.clone()];
    let mut optimizer = Optimizer::new(OptimizerConfig::default(), DecayRule::All, both.clone());
    let names: Vec<String> = optimizer.tensors().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["first.q", "second.q"]);
    for p in &both {
        p.set_gradient(Some(numbers(&[2, 2], 1.0, 1.0)));
    }
    let before = p.value();
    optimizer.step(0.1, 1.0);
    assert_eq!(p.value().data(), before.data());
    assert_ne!(q.value().data(), before.data());
}

#[test]
fn a_parameter_may_have_a_learning_rate_of_its_own() {
    let muon: OptimizerConfig = Settings::parse("kind = \"muon\"", "o").unwrap().read().unwrap();
    let lion: OptimizerConfig = Settings::parse("kind = \"lion\"", "o").unwrap().read().unwrap();
    for config in [OptimizerConfig::default(), muon, lion] {
        let step = |rate: f64, lr: f64| {
            let p = Param::new("p", Role::Hidden, numbers(&[4, 3], 1.0, 0.0));
            p.set_gradient(Some(numbers(&[4, 3], 1.0, 1.0)));
            let mut optimizer = Optimizer::new(config, DecayRule::Hidden, [p.clone()]);
            optimizer.scale_rates(|p| if p.name() == "p" { rate } else { 7.0 });
            optimizer.step(lr, 1.0);
            p.value().data().to_vec()
        };
        assert_eq!(step(0.25, 0.04), step(1.0, 0.01));
        assert_ne!(step(0.25, 0.04), step(1.0, 0.04));
    }
}
