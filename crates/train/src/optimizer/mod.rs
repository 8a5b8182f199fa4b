//! Optimisers: from gradients to new weights.
//!
//! With `g` the gradient (already scaled and clipped), `θ` the weight, `λ` the decay:
//!
//! | kind | step |
//! |---|---|
//! | `sgd` | θ ← θ − lr·(g + λθ), or with momentum m ← μm + g + λθ, θ ← θ − lr·m |
//! | `adam` | the moments of g + λθ: m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g²; θ ← θ − lr·m̂/(√v̂ + ε) |
//! | `adamw` | the moments of g alone; θ ← θ − lr·λθ − lr·m̂/(√v̂ + ε) |
//! | `lion` | θ ← θ − lr·λθ − lr·sign(β₁m + (1−β₁)g); m ← β₂m + (1−β₂)g |
//! | `muon` | hidden matrices: θ ← θ − lr·λθ − lr·s·orthogonal(m); the rest by `adamw` |
//!
//! `m̂ = m/(1 − Π β₁)` and `v̂ = v/(1 − Π β₂)` over the steps so far; with a constant β that is
//! the usual `1 − βᵗ`, and under β₂ warm-up it is still exact.
//!
//! One pass over memory per parameter: the factor that undoes the loss scale, divides by the weight of
//! the batch and clips is applied as the gradient is read.

mod config;
mod muon;

pub use config::{Beta2Warmup, DecayRule, MuonAdjust, OptimizerConfig, role_for_optimizer};
pub use muon::orthogonalize;

use hearken_kernels::optimizer::{self as kernels, Decay};
use hearken_kernels::{dry, threads};
use hearken_tensor::{Param, Role, Shape, Tensor};
use serde::{Deserialize, Serialize};

/// An optimiser with its memory of past gradients.
pub struct Optimizer {
    config: OptimizerConfig,
    slots: Vec<Slot>,
    counters: Counters,
}

/// The numbers of an optimiser that are not tensors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Steps taken.
    pub steps: u64,
    /// Π β₁ over them.
    pub beta1_product: f64,
    /// Π β₂ over them.
    pub beta2_product: f64,
}

/// A parameter and what is remembered about its gradients.
struct Slot {
    parameter: Param,
    /// As the optimiser treats it.
    role: Role,
    decays: bool,
    /// Its learning rate is so many times that of the step.
    rate: f64,
    /// The first moment, or momentum; empty if the kind has none.
    first: Tensor,
    /// The second moment; empty if the kind has none.
    second: Tensor,
}

impl Optimizer {
    /// Starts with moments of zero. Parameters that are not trainable are left out: they get no
    /// state, no decay and no update.
    pub fn new(
        config: OptimizerConfig,
        decay: DecayRule,
        parameters: impl IntoIterator<Item = Param>,
    ) -> Self {
        let slot = |parameter: Param| {
            let (shape, role) = (parameter.shape(), role_for_optimizer(&parameter));
            let moment = |n| {
                let wanted = config.state_per_parameter(role) >= n;
                if wanted { Tensor::zeros(shape) } else { Tensor::zeros([0]) }
            };
            let (first, second) = (moment(1), moment(2));
            let decays = decay.applies(role, shape.rank());
            Slot { parameter, role, decays, rate: 1.0, first, second }
        };
        let parameters = parameters.into_iter().filter(Param::is_trainable);
        let slots = parameters.map(slot).collect();
        let counters = Counters { steps: 0, beta1_product: 1.0, beta2_product: 1.0 };
        Self { config, slots, counters }
    }

    /// Gives every parameter a learning rate of its own: that of the step times `factor`.
    pub fn scale_rates(&mut self, factor: impl Fn(&Param) -> f64) {
        for slot in &mut self.slots {
            slot.rate = factor(&slot.parameter);
        }
    }

    /// What it was made from.
    pub fn config(&self) -> &OptimizerConfig {
        &self.config
    }

    /// Changes every parameter that has a gradient, which is multiplied by `factor` as it is read.
    pub fn step(&mut self, lr: f64, factor: f32) {
        let adam = self.begin(lr);
        let (slots, config) = (&mut self.slots, &self.config);
        // Threads share out whole parameters, each of which is then stepped by one of them, if
        // none is more than a quarter of a thread's share: the last to be done is not waited for
        // long, whichever it is. Else they share out each parameter.
        let sizes = || slots.iter().map(|slot| slot.parameter.shape().len());
        let largest = sizes().max().unwrap_or(0);
        let per_task =
            if 4 * largest * threads::count() <= sizes().sum() { 1 } else { slots.len() };
        if dry::is_on() {
            // Regions are not run there, and a step takes memory.
            return slots.iter_mut().for_each(|slot| slot.step(config, lr, factor, adam));
        }
        threads::for_row_chunks(slots.len(), per_task, [(slots, 1)], |_, [slots]| {
            for slot in slots {
                slot.step(config, lr, factor, adam);
            }
        });
    }

    /// As [`Optimizer::step`]; `seen` is shown every parameter with what it was before. Needs
    /// memory for a copy of the largest.
    pub fn step_seen(&mut self, lr: f64, factor: f32, mut seen: impl FnMut(&Param, &Tensor)) {
        let adam = self.begin(lr);
        for slot in &mut self.slots {
            // A second handle: the first write makes a copy.
            let before = slot.parameter.value();
            slot.step(&self.config, lr, factor, adam);
            seen(&slot.parameter, &before);
        }
    }

    /// Counts a step; gives the betas and corrections of it.
    fn begin(&mut self, lr: f64) -> kernels::Adam {
        let before = self.counters.steps;
        self.counters.steps += 1;
        let (beta1, beta2) = match self.config {
            OptimizerConfig::Adam { beta1, beta2, beta2_warmup, .. }
            | OptimizerConfig::AdamW { beta1, beta2, beta2_warmup, .. } => {
                (beta1, beta2_warmup.map_or(beta2, |warmup| warmup.at(before, beta2)))
            }
            OptimizerConfig::Muon { beta1, beta2, .. } => (beta1, beta2),
            OptimizerConfig::Sgd { .. } | OptimizerConfig::Lion { .. } => (0.0, 0.0),
        };
        // Of the betas as the kernel has them, so that the corrections fit its moments.
        self.counters.beta1_product *= f64::from(beta1 as f32);
        self.counters.beta2_product *= f64::from(beta2 as f32);
        kernels::Adam {
            learning_rate: lr as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            epsilon: 0.0,
            weight_decay: 0.0,
            decay: Decay::Decoupled,
            correction1: 1.0 - self.counters.beta1_product,
            correction2: 1.0 - self.counters.beta2_product,
        }
    }

    /// Forgets the gradients of all parameters.
    pub fn zero_gradients(&self) {
        self.slots.iter().for_each(|slot| slot.parameter.set_gradient(None));
    }

    /// The numbers that are not tensors.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What is remembered, under names made from the parameters' names.
    pub fn tensors(&self) -> Vec<(String, Tensor)> {
        let moments = |slot: &Slot| {
            let name = slot.parameter.name();
            [(format!("first.{name}"), &slot.first), (format!("second.{name}"), &slot.second)]
                .map(|(name, moment)| (name, moment.clone()))
        };
        let all = self.slots.iter().flat_map(moments);
        all.filter(|(_, moment)| !moment.shape().is_empty()).collect()
    }

    /// Takes back what [`Optimizer::counters`] and [`Optimizer::tensors`] gave; `find` gives a
    /// tensor of the name and shape asked for.
    pub fn restore<E>(
        &mut self,
        counters: Counters,
        mut find: impl FnMut(&str, &Tensor) -> Result<Tensor, E>,
    ) -> Result<(), E> {
        for slot in &mut self.slots {
            let name = slot.parameter.name();
            for (prefix, moment) in [("first", &mut slot.first), ("second", &mut slot.second)] {
                if !moment.shape().is_empty() {
                    *moment = find(&format!("{prefix}.{name}"), moment)?;
                }
            }
        }
        self.counters = counters;
        Ok(())
    }
}

impl Slot {
    /// `adam` has the betas and corrections of this step.
    fn step(&mut self, config: &OptimizerConfig, lr: f64, factor: f32, adam: kernels::Adam) {
        let Self { parameter, role, decays, rate, first, second } = self;
        let lr = lr * *rate;
        let adam = kernels::Adam { learning_rate: lr as f32, ..adam };
        let shape = parameter.shape();
        let if_decays = |decay: f64| if *decays { decay as f32 } else { 0.0 };
        parameter.update(|value, gradient| match *config {
            OptimizerConfig::Sgd { momentum, nesterov, averaged, l2 } => {
                let sgd = kernels::Sgd {
                    learning_rate: lr as f32,
                    momentum: momentum as f32,
                    classic: !averaged,
                    nesterov,
                    weight_decay: if_decays(l2),
                    decay: Decay::Gradient,
                };
                if momentum == 0.0 {
                    kernels::sgd_step(sgd, factor, gradient, value);
                } else {
                    kernels::momentum_step(sgd, factor, gradient, value, first.data_mut());
                }
            }
            OptimizerConfig::Adam { eps, l2, .. } => {
                let epsilon = eps as f32;
                let weight_decay = if_decays(l2);
                let adam = kernels::Adam { epsilon, weight_decay, decay: Decay::Gradient, ..adam };
                let (first, second) = (first.data_mut(), second.data_mut());
                kernels::adam_step(adam, factor, gradient, value, first, second);
            }
            OptimizerConfig::Muon {
                momentum,
                nesterov,
                iterations,
                adjust,
                lr_factor,
                weight_decay,
                ..
            } if role.is_hidden() => {
                let muon = MuonStep {
                    lr: lr * lr_factor,
                    momentum,
                    nesterov,
                    iterations,
                    adjust,
                    weight_decay: if *decays { weight_decay } else { 0.0 },
                };
                muon.apply(shape, factor, gradient, value, first.data_mut());
            }
            OptimizerConfig::AdamW { eps, weight_decay, .. }
            | OptimizerConfig::Muon { eps, weight_decay, .. } => {
                let epsilon = eps as f32;
                let adam = kernels::Adam { epsilon, weight_decay: if_decays(weight_decay), ..adam };
                let (first, second) = (first.data_mut(), second.data_mut());
                kernels::adam_step(adam, factor, gradient, value, first, second);
            }
            OptimizerConfig::Lion { beta1, beta2, weight_decay } => {
                let lion = kernels::Lion {
                    learning_rate: lr as f32,
                    beta1: beta1 as f32,
                    beta2: beta2 as f32,
                    weight_decay: if_decays(weight_decay),
                };
                kernels::lion_step(lion, factor, gradient, value, first.data_mut());
            }
        });
    }
}

/// A step of Muon for a hidden matrix, or a stack of them.
struct MuonStep {
    lr: f64,
    momentum: f64,
    nesterov: bool,
    iterations: usize,
    adjust: MuonAdjust,
    /// 0 if the matrix does not decay.
    weight_decay: f64,
}

impl MuonStep {
    fn apply(
        &self,
        shape: Shape,
        factor: f32,
        gradient: &[f32],
        value: &mut [f32],
        memory: &mut [f32],
    ) {
        let mut direction = Tensor::unset(shape);
        let (momentum, out) = (self.momentum as f32, direction.data_mut());
        kernels::muon_momentum(momentum, self.nesterov, factor, gradient, memory, out);
        // More than two dimensions are a stack of matrices, such as the experts of a mixture: each is
        // orthogonalised by itself.
        let columns = shape.width();
        let rows = shape.dims()[shape.rank() - 2];
        for matrix in direction.data_mut().chunks_exact_mut((rows * columns).max(1)) {
            orthogonalize(matrix, rows, columns, self.iterations);
        }
        let (rows, columns) = (rows as f64, columns as f64);
        let size = match self.adjust {
            MuonAdjust::MatchAdamw => 0.2 * rows.max(columns).sqrt(),
            MuonAdjust::Shape => (rows / columns).max(1.0).sqrt(),
        };
        // θ ← θ − (lr·size)·(direction + λ/size·θ)
        let descent = kernels::Sgd {
            learning_rate: (self.lr * size) as f32,
            momentum: 0.0,
            classic: true,
            nesterov: false,
            weight_decay: (self.weight_decay / size) as f32,
            decay: Decay::Decoupled,
        };
        kernels::sgd_step(descent, 1.0, direction.data(), value);
    }
}
