//! An exponential moving average of the weights, which is often better than the weights
//! themselves: ē ← d·ē + (1 − d)·θ after every step.
//!
//! Early on, when the first weights are still in it, the average follows faster:
//! d = min(decay, (1 + t)/(10 + t)) after t updates.

use crate::config::below_one;
use hearken_base::Result;
use hearken_base::settings::{Setting, Value};
use hearken_tensor::{Param, Tensor};
use serde::Serialize;

/// The `ema` table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EmaConfig {
    /// d; 0.999 averages over about the last 1,000 steps.
    pub decay: f64,
}

impl Setting for EmaConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| Ok(Self { decay: t.required("decay")? }))
    }
}

impl EmaConfig {
    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<()> {
        let hint = "0.999 averages over about the last 1,000 steps";
        below_one(("train.ema.decay", self.decay), hint)
    }
}

/// The averages of a list of parameters.
pub struct Ema {
    decay: f64,
    updates: u64,
    averages: Vec<Tensor>,
}

impl Ema {
    /// Starts from the parameters as they are.
    pub fn new(config: EmaConfig, parameters: &[Param]) -> Self {
        let averages = parameters.iter().map(Param::value).collect();
        Self { decay: config.decay, updates: 0, averages }
    }

    /// How often it was updated.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Moves the averages towards the parameters as they are now.
    pub fn update(&mut self, parameters: &[Param]) {
        let t = self.updates as f64;
        let decay = self.decay.min((1.0 + t) / (10.0 + t));
        let (keep, take) = (decay as f32, (1.0 - decay) as f32);
        for (average, parameter) in self.averages.iter_mut().zip(parameters) {
            let value = parameter.value();
            let average = average.data_mut();
            hearken_kernels::elementwise::scale(average, keep);
            hearken_kernels::elementwise::axpy(average, take, value.data());
        }
        self.updates += 1;
    }

    /// Runs `f` with the averages in place of the parameters, which come back afterwards.
    pub fn with_averages<R>(&self, parameters: &[Param], f: impl FnOnce() -> R) -> R {
        let weights: Vec<Tensor> = parameters.iter().map(Param::value).collect();
        set(parameters, &self.averages);
        let result = f();
        set(parameters, &weights);
        result
    }

    /// Takes the averages back from a checkpoint.
    pub fn restore(&mut self, updates: u64, averages: Vec<Tensor>) {
        self.updates = updates;
        self.averages = averages;
    }
}

fn set(parameters: &[Param], values: &[Tensor]) {
    parameters.iter().zip(values).for_each(|(p, value)| p.set_value(value.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::Role;

    fn one_parameter(value: f32) -> Vec<Param> {
        vec![Param::new("p", Role::Vector, Tensor::full([3], value))]
    }

    #[test]
    fn follows_the_formula() {
        let p = one_parameter(0.0);
        let mut ema = Ema::new(EmaConfig { decay: 0.5 }, &p);
        p[0].set_value(Tensor::full([3], 1.0));
        let mut want = 0.0;
        for t in 0..20 {
            ema.update(&p);
            let decay = f64::min(0.5, (1.0 + f64::from(t)) / (10.0 + f64::from(t)));
            want = decay * want + (1.0 - decay);
            // Two roundings per update, halved by each next one.
            assert!((f64::from(ema.averages[0].data()[1]) - want).abs() < 4e-7);
        }
        assert_eq!(ema.updates(), 20);
    }

    #[test]
    fn weights_come_back_after_a_look_at_the_averages() {
        let p = one_parameter(1.0);
        let ema = Ema::new(EmaConfig { decay: 0.9 }, &p);
        p[0].set_value(Tensor::full([3], 2.0));
        let inside = ema.with_averages(&p, || p[0].value().data().to_vec());
        assert_eq!(inside, [1.0; 3]);
        assert_eq!(p[0].value().data(), [2.0; 3]);
    }

    #[test]
    fn a_decay_of_one_would_never_move() {
        assert!(EmaConfig { decay: 1.0 }.validate().is_err());
        assert!(EmaConfig { decay: 0.999 }.validate().is_ok());
    }
}
