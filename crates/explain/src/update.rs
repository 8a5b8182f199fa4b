//! The optimiser's change of the weights: step by step, and back.

use crate::{checked, target_at};
use hearken_base::{Error, Result};
use hearken_nn::models::{self, Model};
use hearken_nn::pass::Pass;
use hearken_tensor::Tensor;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_train::norms;
use hearken_train::optimizer::{
    Counters, DecayRule, Optimizer, OptimizerConfig, role_for_optimizer,
};

/// Steps on one target, each of which can be taken back to the bit.
pub struct Updates<'a> {
    model: &'a dyn Model,
    optimizer: Optimizer,
    rate: f64,
    clip: f64,
    past: Vec<Past>,
}

struct Past {
    /// Of the step, before clipping.
    gradients: Vec<Option<Tensor>>,
    clip_factor: f64,
    rate: f64,
    weights: Vec<Tensor>,
    counters: Counters,
    moments: Vec<(String, Tensor)>,
}

/// What the last step did to one number of a parameter, by AdamW:
///
/// ```text
/// g = clip·∂L    m ← β₁·m + (1 − β₁)·g    v ← β₂·v + (1 − β₂)·g²
/// w ← w − lr·( (m/(1 − β₁ᵗ)) / (√(v/(1 − β₂ᵗ)) + ε) + decay·w )
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightStep {
    /// w before the step.
    pub before: f32,
    /// w after it.
    pub after: f32,
    /// ∂L, before clipping.
    pub gradient: f32,
    /// Gradients were multiplied by it.
    pub clip_factor: f64,
    /// m before and after.
    pub first: [f32; 2],
    /// v before and after.
    pub second: [f32; 2],
    /// 1 − β₁ᵗ and 1 − β₂ᵗ.
    pub corrections: [f64; 2],
    /// 0, if this parameter does not decay.
    pub decay: f64,
    /// lr
    pub rate: f64,
    /// t
    pub step: u64,
}

impl WeightStep {
    /// w after the step, computed again in f64 by the formula above.
    pub fn computed(&self) -> f64 {
        let m = f64::from(self.first[1]) / self.corrections[0];
        let v = f64::from(self.second[1]) / self.corrections[1];
        let before = f64::from(self.before);
        before - self.rate * (m / (v.sqrt() + EPSILON) + self.decay * before)
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Before it.
    pub before: f64,
    /// After it.
    pub after: f64,
    /// The norm of all gradients.
    pub gradient_norm: f64,
    /// Gradients were multiplied by it.
    pub clip_factor: f64,
}

/// β₁ and β₂, ε and the decay of [`adamw`].
pub const BETAS: [f64; 2] = [0.9, 0.999];
/// ε
pub const EPSILON: f64 = 1e-8;
/// Of the parameters that decay.
pub const DECAY: f64 = 0.01;

/// AdamW's usual numbers.
pub fn adamw() -> OptimizerConfig {
    let ([beta1, beta2], eps, weight_decay) = (BETAS, EPSILON, DECAY);
    OptimizerConfig::AdamW { beta1, beta2, eps, weight_decay, beta2_warmup: None }
}

impl<'a> Updates<'a> {
    /// Bytes that it takes beside the model: gradients and two moments, and for every step that can
    /// be taken back the weights and the moments.
    pub fn bytes(model: &dyn Model, steps: usize) -> u64 {
        let numbers: usize = model.parameters().iter().map(|p| p.shape().len()).sum();
        4 * numbers as u64 * (3 + 3 * steps as u64)
    }

    /// Refuses if `steps` steps would take more than `most_bytes`.
    pub fn new(
        model: &'a dyn Model,
        rate: f64,
        clip: f64,
        steps: usize,
        most_bytes: Option<u64>,
    ) -> Result<Self> {
        let needed = Self::bytes(model, steps);
        if most_bytes.is_some_and(|most| needed > most) {
            let message =
                format!("{steps} steps that can be taken back take {} MB", needed / 1_000_000);
            return Err(Error::new(message, "take fewer steps, or use a smaller model"));
        }
        let parameters = model.parameters().iter().cloned();
        let optimizer = Optimizer::new(adamw(), DecayRule::default(), parameters);
        Ok(Self { model, optimizer, rate, clip, past: Vec::new() })
    }

    fn loss(&self, ids: &[u32], target: (usize, u32)) -> Result<hearken_tensor::Var> {
        let targets = target_at(self.model, ids.len(), target.0, target.1)?;
        let tokens = checked(self.model, ids)?;
        let pass = Pass::evaluate();
        Ok(models::loss(self.model, &tokens, &targets, &pass, Options::default())?.mean())
    }

    /// One step towards `target` (place, token).
    pub fn step(&mut self, ids: &[u32], target: (usize, u32)) -> Result<Step> {
        let parameters = self.model.parameters();
        self.optimizer.zero_gradients();
        let loss = self.loss(ids, target)?; // before anything is remembered: it may be refused
        loss.backward();
        let squares = norms::gradient_squares(parameters, 1.0);
        let gradient_norm = squares.iter().sum::<f64>().sqrt();
        let clip_factor = norms::clip_factor(gradient_norm, self.clip);
        // Of earlier steps only what undoing them needs is kept.
        if let Some(past) = self.past.last_mut() {
            past.gradients.clear();
        }
        self.past.push(Past {
            gradients: parameters.iter().map(hearken_tensor::Param::gradient).collect(),
            clip_factor,
            rate: self.rate,
            weights: parameters.iter().map(hearken_tensor::Param::value).collect(),
            counters: self.optimizer.counters(),
            moments: self.optimizer.tensors(),
        });
        self.optimizer.step(self.rate, clip_factor as f32);
        self.optimizer.zero_gradients();
        let before = f64::from(loss.value().item());
        let after = hearken_tensor::no_grad(|| self.loss(ids, target))?;
        Ok(Step { before, after: f64::from(after.value().item()), gradient_norm, clip_factor })
    }

    /// Takes the last step back; false if there is none.
    pub fn undo(&mut self) -> bool {
        let Some(Past { weights, counters, moments, .. }) = self.past.pop() else { return false };
        for (parameter, weight) in self.model.parameters().iter().zip(weights) {
            parameter.set_value(weight);
        }
        let mut moments: std::collections::HashMap<String, Tensor> = moments.into_iter().collect();
        let restored = self.optimizer.restore(counters, |name, old| {
            Ok::<_, std::convert::Infallible>(moments.remove(name).unwrap_or_else(|| old.clone()))
        });
        restored.is_ok()
    }

    /// How many steps can be taken back.
    pub fn steps(&self) -> usize {
        self.past.len()
    }

    /// The learning rate of the steps that follow.
    pub fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// What the last step did to a number; nothing, if it was taken back or there is no such number.
    pub fn of_weight(&self, name: &str, index: usize) -> Option<WeightStep> {
        let past = self.past.last()?;
        let at = self.model.parameters().iter().position(|p| p.name() == name)?;
        let parameter = self.model.parameters().get(at)?;
        let moment = |which: &str| {
            let name = format!("{which}.{name}");
            let (_, before) = past.moments.iter().find(|(n, _)| *n == name)?;
            Some([*before.data().get(index)?, self.moment(which, parameter.name(), index)?])
        };
        let counters = self.optimizer.counters();
        let role = role_for_optimizer(parameter);
        let decays = DecayRule::default().applies(role, parameter.shape().rank());
        Some(WeightStep {
            before: *past.weights.get(at)?.data().get(index)?,
            after: *parameter.value().data().get(index)?,
            gradient: *past.gradients.get(at)?.as_ref()?.data().get(index)?,
            clip_factor: past.clip_factor,
            first: moment("first")?,
            second: moment("second")?,
            corrections: [1.0 - counters.beta1_product, 1.0 - counters.beta2_product],
            decay: if decays { DECAY } else { 0.0 },
            rate: past.rate,
            step: counters.steps,
        })
    }

    /// A moment of a number: `first` or `second`.
    pub fn moment(&self, which: &str, name: &str, index: usize) -> Option<f32> {
        let name = format!("{which}.{name}");
        let (_, tensor) = self.optimizer.tensors().into_iter().find(|(n, _)| *n == name)?;
        tensor.data().get(index).copied()
    }
}
