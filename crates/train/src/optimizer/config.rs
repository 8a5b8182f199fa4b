//! Which optimiser, with its constants; what a parameter is for, and whether it decays.

use crate::error::Error;
use serde::{Deserialize, Serialize};

/// An optimiser. `l2` is added to the gradient, `weight_decay` shrinks the weights beside the
/// step: the same for SGD up to a factor, not the same for the others (see
/// [`crate::optimizer`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum OptimizerConfig {
    /// Gradient descent, with or without momentum.
    Sgd {
        /// μ; 0 for plain gradient descent.
        #[serde(default)]
        momentum: f64,
        /// Looks one step ahead.
        #[serde(default)]
        nesterov: bool,
        /// m ← μm + (1−μ)g in the place of μm + g: an average of gradients, not their sum.
        #[serde(default)]
        averaged: bool,
        /// λ in g + λθ.
        #[serde(default)]
        l2: f64,
    },
    /// Kingma and Ba 2015, with L2 regularisation inside the moments if `l2` is not 0.
    Adam {
        /// β₁
        #[serde(default = "beta1")]
        beta1: f64,
        /// β₂
        #[serde(default = "beta2")]
        beta2: f64,
        /// ε
        #[serde(default = "eps")]
        eps: f64,
        /// λ in g + λθ.
        #[serde(default)]
        l2: f64,
        /// Lets β₂ rise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beta2_warmup: Option<Beta2Warmup>,
    },
    /// Loshchilov and Hutter 2019: decay beside the moments.
    #[serde(rename = "adamw")]
    AdamW {
        /// β₁
        #[serde(default = "beta1")]
        beta1: f64,
        /// β₂
        #[serde(default = "beta2_of_language_models")]
        beta2: f64,
        /// ε
        #[serde(default = "eps")]
        eps: f64,
        /// λ
        #[serde(default = "weight_decay")]
        weight_decay: f64,
        /// Lets β₂ rise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beta2_warmup: Option<Beta2Warmup>,
    },
    /// Chen et al. 2023: steps of one size, in the direction of a sign. Wants a learning rate 3 to
    /// 10 times smaller than AdamW, and a decay as much larger.
    Lion {
        /// β₁, of the direction.
        #[serde(default = "beta1")]
        beta1: f64,
        /// β₂, of the memory.
        #[serde(default = "lion_beta2")]
        beta2: f64,
        /// λ
        #[serde(default = "weight_decay")]
        weight_decay: f64,
    },
    /// Jordan et al. 2024: orthogonalised momentum for hidden matrices, AdamW for the rest.
    Muon {
        /// μ
        #[serde(default = "muon_momentum")]
        momentum: f64,
        /// Looks one step ahead.
        #[serde(default = "yes")]
        nesterov: bool,
        /// Newton–Schulz iterations.
        #[serde(default = "muon_iterations")]
        iterations: usize,
        /// How the size of the step depends on the matrix's shape.
        #[serde(default)]
        adjust: MuonAdjust,
        /// The learning rate of hidden matrices, as a multiple of `lr`.
        #[serde(default = "one")]
        lr_factor: f64,
        /// λ
        #[serde(default = "weight_decay")]
        weight_decay: f64,
        /// β₁ of AdamW for the rest.
        #[serde(default = "beta1")]
        beta1: f64,
        /// β₂ of AdamW for the rest.
        #[serde(default = "beta2_of_language_models")]
        beta2: f64,
        /// ε of AdamW for the rest.
        #[serde(default = "eps")]
        eps: f64,
    },
}

fn beta1() -> f64 {
    0.9
}
fn beta2() -> f64 {
    0.999
}
/// Short memory: language models see rare tokens and sudden changes.
fn beta2_of_language_models() -> f64 {
    0.95
}
fn lion_beta2() -> f64 {
    0.99
}
fn eps() -> f64 {
    1e-8
}
fn weight_decay() -> f64 {
    0.1
}
fn muon_momentum() -> f64 {
    0.95
}
fn muon_iterations() -> usize {
    5
}
fn one() -> f64 {
    1.0
}
fn yes() -> bool {
    true
}

impl Default for OptimizerConfig {
    /// AdamW as language models use it.
    fn default() -> Self {
        Self::AdamW {
            beta1: beta1(),
            beta2: beta2_of_language_models(),
            eps: eps(),
            weight_decay: weight_decay(),
            beta2_warmup: None,
        }
    }
}

/// β₂ rises on a line from `from` to its value within `steps` steps: early on the second moment
/// forgets the first, wild gradients quickly; later it averages over many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beta2Warmup {
    /// Where it starts, say 0.99.
    pub from: f64,
    /// When it arrives.
    pub steps: u64,
}

impl Beta2Warmup {
    /// β₂ in the step after `step` steps, on the way to `to`.
    pub fn at(&self, step: u64, to: f64) -> f64 {
        let share = (step as f64 / self.steps.max(1) as f64).min(1.0);
        self.from + (to - self.from) * share
    }
}

/// How Muon's step, which is an orthogonal matrix, is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MuonAdjust {
    /// 0.2·√max(rows, columns): the root mean square of a step is that of AdamW's, so the two
    /// share a learning rate (Liu et al. 2025).
    #[default]
    MatchAdamw,
    /// √max(1, rows/columns): Jordan's own, for learning rates around 0.02.
    Shape,
}

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

    /// Numbers kept per parameter, for the planner; Muon keeps one for hidden matrices and two
    /// for the rest.
    pub fn state_per_parameter(&self, role: Role) -> usize {
        match self {
            Self::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
            Self::Adam { .. } | Self::AdamW { .. } => 2,
            Self::Lion { .. } => 1,
            Self::Muon { .. } => 1 + usize::from(role != Role::Hidden),
        }
    }

    /// What the types alone do not rule out.
    pub fn validate(&self) -> Result<(), Error> {
        let mut shares = Vec::new(); // must be in [0, 1)
        let mut not_negative = Vec::new();
        match *self {
            Self::Sgd { momentum, l2, nesterov, .. } => {
                shares.push(("momentum", momentum));
                not_negative.push(("l2", l2));
                if nesterov && momentum == 0.0 {
                    return Err(Error::config(
                        "train.optimizer.nesterov is true, but its momentum is 0",
                        "set momentum = 0.9",
                    ));
                }
            }
            Self::Adam { beta1, beta2, eps, l2, beta2_warmup } => {
                shares.extend([("beta1", beta1), ("beta2", beta2)]);
                shares.extend(beta2_warmup.map(|warmup| ("beta2_warmup.from", warmup.from)));
                not_negative.extend([("eps", eps), ("l2", l2)]);
            }
            Self::AdamW { beta1, beta2, eps, weight_decay, beta2_warmup } => {
                shares.extend([("beta1", beta1), ("beta2", beta2)]);
                shares.extend(beta2_warmup.map(|warmup| ("beta2_warmup.from", warmup.from)));
                not_negative.extend([("eps", eps), ("weight_decay", weight_decay)]);
            }
            Self::Lion { beta1, beta2, weight_decay } => {
                shares.extend([("beta1", beta1), ("beta2", beta2)]);
                not_negative.push(("weight_decay", weight_decay));
            }
            Self::Muon { momentum, weight_decay, beta1, beta2, eps, lr_factor, .. } => {
                shares.extend([("momentum", momentum), ("beta1", beta1), ("beta2", beta2)]);
                not_negative.extend([("weight_decay", weight_decay), ("eps", eps)]);
                not_negative.push(("lr_factor", lr_factor));
            }
        }
        for (name, value) in shares {
            if !(0.0..1.0).contains(&value) {
                return Err(Error::config(
                    format!("train.optimizer.{name} is {value}, expected 0 or more and below 1"),
                    "0.9 remembers about 10 steps, 0.99 about 100",
                ));
            }
        }
        for (name, value) in not_negative {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::config(
                    format!("train.optimizer.{name} is {value}, expected 0 or more"),
                    "check for a slip in the number",
                ));
            }
        }
        Ok(())
    }
}

/// Which parameters shrink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl DecayRule {
    /// Does a parameter of this role and number of dimensions shrink?
    pub fn applies(self, role: Role, rank: usize) -> bool {
        match self {
            Self::Hidden => matches!(role, Role::Hidden | Role::Head),
            Self::Matrices => rank >= 2,
            Self::All => true,
        }
    }
}

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A table that is looked up: tokens, positions, distances; also when the output head is tied
    /// to it.
    Embedding,
    /// The output matrix, if it is not an embedding.
    Head,
    /// A matrix inside the model.
    Hidden,
    /// A bias, the gain of a norm: what is added or multiplied element by element.
    Vector,
}

impl Role {
    /// A guess from the usual names.
    pub fn of(name: &str, shape: &[usize]) -> Self {
        if shape.len() < 2 {
            return Self::Vector;
        }
        let tables = ["embed", "position", "relative", "distance"];
        for part in name.split('.') {
            if matches!(part, "wte" | "wpe") || tables.iter().any(|table| part.contains(table)) {
                return Self::Embedding;
            }
            if matches!(part, "lm_head" | "head" | "unembedding") {
                return Self::Head;
            }
        }
        Self::Hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_guessed_from_the_usual_names() {
        let matrix = [4, 4];
        for (name, role) in [
            ("transformer.wte.weight", Role::Embedding),
            ("transformer.wpe.weight", Role::Embedding),
            ("model.embed_tokens.weight", Role::Embedding),
            ("token_embedding", Role::Embedding),
            ("layers.0.relative_bias", Role::Embedding),
            ("lm_head.weight", Role::Head),
            ("transformer.h.0.attn.c_attn.weight", Role::Hidden),
            ("model.layers.3.mlp.gate_proj.weight", Role::Hidden),
        ] {
            assert_eq!(Role::of(name, &matrix), role, "{name}");
        }
        assert_eq!(Role::of("transformer.h.0.ln_1.weight", &[4]), Role::Vector);
    }

    #[test]
    fn decay_groups_are_as_documented() {
        use Role::{Embedding, Head, Hidden, Vector};
        let rows = [(Embedding, 2, false, true), (Head, 2, true, true), (Hidden, 2, true, true)];
        for (role, rank, hidden, matrices) in rows.into_iter().chain([(Vector, 1, false, false)]) {
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

    #[test]
    fn a_table_is_read_with_its_defaults_and_refused_with_unknown_keys() {
        let read = |json| serde_json::from_str::<OptimizerConfig>(json);
        assert_eq!(read(r#"{"kind": "adamw"}"#).unwrap(), OptimizerConfig::default());
        assert!(read(r#"{"kind": "adamw", "l2": 0.1}"#).is_err());
        assert!(read(r#"{"kind": "lion", "beta_1": 0.1}"#).is_err());
        let one = r#"{"kind": "sgd", "momentum": 1.0}"#;
        assert!(read(one).unwrap().validate().is_err());
    }
}
