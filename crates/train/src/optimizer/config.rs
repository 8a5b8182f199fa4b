//! Which optimiser, with its constants, and which parameters decay.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::config::{LARGEST_FACTOR, MOST_STEPS, below_one, in_range, whole_in_range};
use hearken_base::settings::{self, Setting, Value};
use hearken_base::{Error, Result, names};
use hearken_tensor::{Param, Role};
use serde::Serialize;

/// An optimiser. `l2` is added to the gradient, `weight_decay` shrinks the weights beside the
/// step: the same for SGD up to a factor, not the same for the others (see
/// [`crate::optimizer`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum OptimizerConfig {
    /// Gradient descent, with or without momentum.
    Sgd {
        /// μ; 0 for plain gradient descent.
        momentum: f64,
        /// Looks one step ahead.
        nesterov: bool,
        /// m ← μm + (1−μ)g in the place of μm + g: an average of gradients, not their sum.
        averaged: bool,
        /// λ in g + λθ.
        l2: f64,
    },
    /// Kingma and Ba 2015, with L2 regularisation inside the moments if `l2` is not 0.
    Adam {
        /// β₁
        beta1: f64,
        /// β₂
        beta2: f64,
        /// ε
        eps: f64,
        /// λ in g + λθ.
        l2: f64,
        /// Lets β₂ rise.
        #[serde(skip_serializing_if = "Option::is_none")]
        beta2_warmup: Option<Beta2Warmup>,
    },
    /// Loshchilov and Hutter 2019: decay beside the moments.
    #[serde(rename = "adamw")]
    AdamW {
        /// β₁
        beta1: f64,
        /// β₂
        beta2: f64,
        /// ε
        eps: f64,
        /// λ
        weight_decay: f64,
        /// Lets β₂ rise.
        #[serde(skip_serializing_if = "Option::is_none")]
        beta2_warmup: Option<Beta2Warmup>,
    },
    /// Chen et al. 2023: steps of one size, in the direction of a sign. Wants a learning rate 3 to
    /// 10 times smaller than AdamW, and a decay as much larger.
    Lion {
        /// β₁, of the direction.
        beta1: f64,
        /// β₂, of the memory.
        beta2: f64,
        /// λ
        weight_decay: f64,
    },
    /// Jordan et al. 2024: orthogonalised momentum for hidden matrices, AdamW for the rest.
    Muon {
        /// μ
        momentum: f64,
        /// Looks one step ahead.
        nesterov: bool,
        /// Newton–Schulz iterations.
        iterations: usize,
        /// How the size of the step depends on the matrix's shape.
        adjust: MuonAdjust,
        /// The learning rate of hidden matrices, as a multiple of `lr`.
        lr_factor: f64,
        /// λ
        weight_decay: f64,
        /// β₁ of AdamW for the rest.
        beta1: f64,
        /// β₂ of AdamW for the rest.
        beta2: f64,
        /// ε of AdamW for the rest.
        eps: f64,
    },
}

impl Setting for OptimizerConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.choice(&["adamw", "adam", "sgd", "lion", "muon"], |kind, t| {
            let beta1 = || t.or("beta1", 0.9);
            // Short memory: language models see rare tokens and sudden changes.
            let beta2 = || t.or("beta2", 0.95);
            let eps = || t.or("eps", 1e-8);
            let weight_decay = || t.or("weight_decay", 0.1);
            Ok(match kind {
                "sgd" => Self::Sgd {
                    momentum: t.or("momentum", 0.0)?,
                    nesterov: t.or("nesterov", false)?,
                    averaged: t.or("averaged", false)?,
                    l2: t.or("l2", 0.0)?,
                },
                "adam" => Self::Adam {
                    beta1: beta1()?,
                    beta2: t.or("beta2", 0.999)?,
                    eps: eps()?,
                    l2: t.or("l2", 0.0)?,
                    beta2_warmup: t.optional("beta2_warmup")?,
                },
                "lion" => Self::Lion {
                    beta1: beta1()?,
                    beta2: t.or("beta2", 0.99)?,
                    weight_decay: weight_decay()?,
                },
                "muon" => Self::Muon {
                    momentum: t.or("momentum", 0.95)?,
                    nesterov: t.or("nesterov", true)?,
                    iterations: t.or("iterations", 5)?,
                    adjust: t.or("adjust", MuonAdjust::default())?,
                    lr_factor: t.or("lr_factor", 1.0)?,
                    weight_decay: weight_decay()?,
                    beta1: beta1()?,
                    beta2: beta2()?,
                    eps: eps()?,
                },
                _ => Self::AdamW {
                    beta1: beta1()?,
                    beta2: beta2()?,
                    eps: eps()?,
                    weight_decay: weight_decay()?,
                    beta2_warmup: t.optional("beta2_warmup")?,
                },
            })
        })
    }
}

impl Default for OptimizerConfig {
    /// AdamW as language models use it.
    fn default() -> Self {
        settings::default()
    }
}

/// β₂ rises on a line from `from` to its value within `steps` steps: early on the second moment
/// forgets the first, wild gradients quickly; later it averages over many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beta2Warmup {
    /// Where it starts, say 0.99.
    pub from: f64,
    /// When it arrives.
    pub steps: u64,
}

impl Setting for Beta2Warmup {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| Ok(Self { from: t.required("from")?, steps: t.required("steps")? }))
    }
}

impl Beta2Warmup {
    /// β₂ in the step after `step` steps, on the way to `to`.
    pub fn at(&self, step: u64, to: f64) -> f64 {
        let share = (step as f64 / self.steps.max(1) as f64).min(1.0);
        self.from + (to - self.from) * share
    }
}

/// How Muon's step, which is an orthogonal matrix, is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MuonAdjust {
    /// 0.2·√max(rows, columns): the root mean square of a step is that of AdamW's, so the two
    /// share a learning rate (Liu et al. 2025).
    #[default]
    MatchAdamw,
    /// √max(1, rows/columns): Jordan's own, for learning rates around 0.02.
    Shape,
}

names!(MuonAdjust { "match-adamw" => MatchAdamw, "shape" => Shape });

impl OptimizerConfig {
    /// The name, as in `kind = "…"`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Adam { .. } => "adam",
            Self::AdamW { .. } => "adamw",
            Self::Lion { .. } => "lion",
            Self::Muon { .. } => "muon",
        }
    }

    /// Numbers that the optimiser keeps per weight of a trainable parameter, by what
    /// [`role_for_optimizer`] gives; none for others. The planner and the optimiser both ask here.
    /// Muon keeps one for hidden matrices and two for the rest.
    pub fn state_per_parameter(&self, role: Role) -> usize {
        match self {
            Self::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
            Self::Adam { .. } | Self::AdamW { .. } => 2,
            Self::Lion { .. } => 1,
            Self::Muon { .. } => 1 + usize::from(!role.is_hidden()),
        }
    }

    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<()> {
        let mut below = Vec::new(); // 0 or more and below 1
        let mut factors = Vec::new(); // 0 or more
        let mut warmup = None;
        match *self {
            Self::Sgd { momentum, l2, nesterov, .. } => {
                below.push(("momentum", momentum));
                factors.push(("l2", l2));
                if nesterov && momentum == 0.0 {
                    return Err(Error::new(
                        "train.optimizer.nesterov is true, but its momentum is 0",
                        "set momentum = 0.9",
                    ));
                }
            }
            Self::Adam { beta1, beta2, l2, beta2_warmup, .. } => {
                below.extend([("beta1", beta1), ("beta2", beta2)]);
                factors.push(("l2", l2));
                warmup = beta2_warmup;
            }
            Self::AdamW { beta1, beta2, weight_decay, beta2_warmup, .. } => {
                below.extend([("beta1", beta1), ("beta2", beta2)]);
                factors.push(("weight_decay", weight_decay));
                warmup = beta2_warmup;
            }
            Self::Lion { beta1, beta2, weight_decay } => {
                below.extend([("beta1", beta1), ("beta2", beta2)]);
                factors.push(("weight_decay", weight_decay));
            }
            Self::Muon { momentum, iterations, weight_decay, beta1, beta2, lr_factor, .. } => {
                below.extend([("momentum", momentum), ("beta1", beta1), ("beta2", beta2)]);
                factors.extend([("weight_decay", weight_decay), ("lr_factor", lr_factor)]);
                whole_in_range("train.optimizer.iterations", iterations as u64, 1, 100)?;
            }
        }
        if let Self::Adam { eps, .. } | Self::AdamW { eps, .. } | Self::Muon { eps, .. } = *self {
            // With 0, a weight without a gradient would become 0/0.
            in_range(("train.optimizer.eps", eps), 1e-30, 1.0, "1e-8 is usual")?;
        }
        if let Some(warmup) = warmup {
            below.push(("beta2_warmup.from", warmup.from));
            whole_in_range("train.optimizer.beta2_warmup.steps", warmup.steps, 1, MOST_STEPS)?;
        }
        for (name, value) in below {
            let name = format!("train.optimizer.{name}");
            below_one((&name, value), "0.9 remembers about 10 steps, 0.99 about 100")?;
        }
        for (name, value) in factors {
            let name = format!("train.optimizer.{name}");
            in_range((&name, value), 0.0, LARGEST_FACTOR, "check for a slip in the number")?;
        }
        Ok(())
    }
}

/// Which parameters shrink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecayRule {
    /// Matrices, but not embeddings: what is multiplied, not what is looked up or added.
    #[default]
    Hidden,
    /// All with two or more dimensions, embeddings included: nanoGPT's rule.
    Matrices,
    /// All.
    All,
}

names!(DecayRule { "hidden" => Hidden, "matrices" => Matrices, "all" => All });

impl DecayRule {
    /// Does a parameter of this role and number of dimensions shrink?
    pub fn applies(self, role: Role, rank: usize) -> bool {
        match self {
            Self::Hidden => role.is_hidden() || role == Role::Head,
            Self::Matrices => rank >= 2,
            Self::All => true,
        }
    }
}

/// The role by which an optimiser treats a parameter: its own, but for a hidden one without two
/// dimensions, which cannot be orthogonalised and is treated as a vector.
pub fn role_for_optimizer(parameter: &Param) -> Role {
    let role = parameter.role();
    if role.is_hidden() && parameter.shape().rank() < 2 { Role::Vector } else { role }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_base::settings::Settings;

    #[test]
    fn decay_groups_are_as_documented() {
        use Role::{Head, Hidden, Residual, Table, Vector};
        for (role, rank, hidden, matrices) in [
            (Table, 2, false, true),
            (Head, 2, true, true),
            (Hidden, 2, true, true),
            (Residual, 2, true, true),
            (Vector, 1, false, false),
        ] {
            assert_eq!(DecayRule::Hidden.applies(role, rank), hidden, "{role:?}");
            assert_eq!(DecayRule::Matrices.applies(role, rank), matrices, "{role:?}");
            assert!(DecayRule::All.applies(role, rank));
        }
    }

    #[test]
    fn beta2_rises_and_stays() {
        let warmup = Beta2Warmup { from: 0.99, steps: 9 };
        assert_eq!(warmup.at(0, 0.999), 0.99);
        assert!((warmup.at(3, 0.999) - 0.993).abs() < 1e-15);
        assert_eq!(warmup.at(9, 0.999), 0.999);
        assert_eq!(warmup.at(1000, 0.999), 0.999);
    }

    fn read(text: &str) -> Result<OptimizerConfig> {
        Settings::parse(text, "o.toml")?.read()
    }

    #[test]
    fn a_table_is_read_with_its_defaults_and_refused_with_unknown_keys() {
        assert_eq!(read("kind = \"adamw\"").unwrap(), OptimizerConfig::default());
        let lion = OptimizerConfig::Lion { beta1: 0.9, beta2: 0.99, weight_decay: 0.1 };
        assert_eq!(read("kind = \"lion\"").unwrap(), lion);
        assert!(read("kind = \"adamw\"\nl2 = 0.1").is_err());
        let error = read("kind = \"lion\"\nbeta_1 = 0.1").unwrap_err();
        assert_eq!(error.hint(), Some("did you mean beta1?"));
    }

    #[test]
    fn every_kind_comes_back_and_knows_its_name() {
        for kind in ["adamw", "adam", "sgd", "lion", "muon"] {
            let config = read(&format!("kind = \"{kind}\"")).unwrap();
            assert_eq!(config.name(), kind);
            config.validate().unwrap();
            assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config);
        }
        let text = "kind = \"adam\"\nbeta2_warmup = { from = 0.9, steps = 3 }";
        let warmed = read(text).unwrap();
        assert_eq!(read(&toml::to_string(&warmed).unwrap()).unwrap(), warmed);
        let shaped = read("kind = \"muon\"\nadjust = \"shape\"").unwrap();
        assert_eq!(read(&toml::to_string(&shaped).unwrap()).unwrap(), shaped);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for text in [
            "kind = \"sgd\"\nmomentum = 1.0",
            "kind = \"sgd\"\nnesterov = true",
            "kind = \"adam\"\nbeta1 = -0.1",
            "kind = \"adam\"\nbeta2 = 0.99999999999",
            "kind = \"adam\"\neps = 0",
            "kind = \"adam\"\nl2 = 1e300",
            "kind = \"adam\"\nbeta2_warmup = { from = 0.9, steps = 0 }",
            "kind = \"adamw\"\nweight_decay = nan",
            "kind = \"muon\"\niterations = 0",
            "kind = \"muon\"\niterations = 1000000000",
            "kind = \"muon\"\nlr_factor = -1",
        ] {
            let error = read(text).unwrap().validate().unwrap_err();
            assert!(error.message().starts_with("train.optimizer."), "{text}: {error}");
            assert!(error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn muon_keeps_less_for_hidden_matrices() {
        let muon = read("kind = \"muon\"").unwrap();
        let kept = |role, shape: &[usize]| {
            let parameter = Param::unset("p", role, shape);
            muon.state_per_parameter(role_for_optimizer(&parameter))
        };
        assert_eq!(kept(Role::Hidden, &[2, 2]), 1);
        assert_eq!(kept(Role::Residual, &[3, 2, 2]), 1);
        assert_eq!(kept(Role::Hidden, &[2]), 2);
        assert_eq!(kept(Role::Table, &[2, 2]), 2);
    }
}
