//! Where parameters come from: a path in the model, under which a layer asks for its matrices.
//!
//! `scope / "attention"` is the scope of a part. `scope.matrix("weight", …)` makes the parameter
//! under its full name (`blocks.0.attention.qkv.weight`), with numbers of its own random stream, and
//! registers it with the model: no layer lists its parameters. The path is also what dropout is
//! keyed by. So adding a layer changes neither how the others start nor what is dropped in them.

use crate::config::{InitConfig, InitKind};
use crate::layers::Dropout;
use crate::taps::Place;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Role, Tensor};
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Div;
use std::sync::{Arc, Mutex, PoisonError};

/// Where the numbers of parameters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Drawn, as the configuration says, from streams of this seed.
    Drawn {
        /// The seed.
        seed: u64,
    },
    /// From a file, later: parameters take no memory before.
    Unset,
}

/// A path in a model that is being built.
#[derive(Clone, Debug)]
pub struct Scope {
    path: String,
    init: InitConfig,
    /// Layers that add to the residual stream: 2L of L blocks.
    branches: usize,
    trainable: bool,
    model: Arc<Registry>,
}

#[derive(Debug)]
struct Registry {
    weights: Weights,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    /// In the order in which they were asked for.
    parameters: Vec<Param>,
    names: HashSet<String>,
}

impl Scope {
    /// The root of a model.
    pub fn root(weights: Weights) -> Self {
        Self {
            path: String::new(),
            init: InitConfig::default(),
            branches: 1,
            trainable: true,
            model: Arc::new(Registry { weights, made: Mutex::default() }),
        }
    }

    /// The same place, where matrices start as `init` says in a stack with so many residual branches.
    pub fn starting(&self, init: InitConfig, branches: usize) -> Self {
        Self { init, branches, ..self.clone() }
    }

    /// The same place, where parameters do not learn.
    pub fn frozen(&self) -> Self {
        Self { trainable: false, ..self.clone() }
    }

    /// The full name of `name` here.
    pub fn path(&self, name: impl Display) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }

    /// This place, for the names of what happens here.
    pub fn place(&self) -> Place {
        Place::new(self.path.clone())
    }

    /// All parameters that were made under the root so far, in order.
    pub fn parameters(&self) -> Vec<Param> {
        self.model.made.lock().unwrap_or_else(PoisonError::into_inner).parameters.clone()
    }

    /// A matrix (rows, columns) that takes `columns` numbers and gives `rows`.
    pub fn matrix(&self, name: &str, rows: usize, columns: usize, role: Role) -> Param {
        self.make(name, role, &[rows, columns], |rng| {
            let deviation = self.deviation(rows, columns, role);
            match self.init.kind {
                InitKind::TruncatedNormal => rng.truncated_normal([rows, columns], deviation),
                _ => rng.normal([rows, columns], deviation),
            }
        })
    }

    /// A projection whose first `query_key_rows` rows make queries and keys, which start smaller by
    /// the configured factor.
    pub fn query_key_matrix(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
        query_key_rows: usize,
    ) -> Param {
        let matrix = self.matrix(name, rows, columns, Role::Hidden);
        let factor = self.init.query_key_scale;
        if factor != 1.0 && self.model.weights != Weights::Unset {
            let mut value = matrix.value();
            if value.is_dry() {
                return matrix;
            }
            for x in &mut value.data_mut()[..query_key_rows * columns] {
                *x *= factor;
            }
            matrix.set_value(value);
        }
        matrix
    }

    /// A bias or gain: `len` times `value`.
    pub fn vector(&self, name: &str, len: usize, value: f32) -> Param {
        self.make(name, Role::Vector, &[len], |_| Tensor::full([len], value))
    }

    /// A bias of several parts, each of `len` numbers that start at the part's value.
    pub fn vector_of_parts(&self, name: &str, len: usize, values: &[f32]) -> Param {
        self.make(name, Role::Vector, &[len * values.len()], |_| {
            let mut tensor = Tensor::zeros([len * values.len()]);
            if !tensor.is_dry() {
                let parts = tensor.data_mut().chunks_mut(len.max(1));
                parts.zip(values).for_each(|(part, value)| part.fill(*value));
            }
            tensor
        })
    }

    /// Numbers (rows, columns) that do not learn but are saved with the weights, drawn in a way of
    /// their own.
    pub fn constant(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
        draw: impl FnOnce(&mut Rng) -> Tensor,
    ) -> Param {
        self.frozen().make(name, Role::Table, &[rows, columns], draw)
    }

    /// A number for a place in the model, which keys its noise.
    pub fn site(&self, name: &str) -> u64 {
        stream(0, &self.path(name))
    }

    /// Dropout with chance `p`, keyed by this path.
    pub fn dropout(&self, name: &str, p: f32) -> Dropout {
        Dropout::new(p, self.site(name))
    }

    fn make(
        &self,
        name: &str,
        role: Role,
        dims: &[usize],
        draw: impl FnOnce(&mut Rng) -> Tensor,
    ) -> Param {
        let name = self.path(name);
        let parameter = match self.model.weights {
            Weights::Unset => Param::unset(name, role, hearken_tensor::Shape::new(dims)),
            Weights::Drawn { seed } => {
                let value = draw(&mut Rng::new(stream(seed, &name)));
                Param::new(name, role, value)
            }
        };
        parameter.set_trainable(self.trainable);
        let mut made = self.model.made.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = made.names.insert(parameter.name().to_owned());
        assert!(is_new, "two parameters are called {}", parameter.name());
        made.parameters.push(parameter.clone());
        parameter
    }

    fn deviation(&self, rows: usize, columns: usize, role: Role) -> f64 {
        let (fan_in, fan_out) = (columns as f64, rows as f64);
        let given = f64::from(self.init.deviation);
        let deviation = match (self.init.kind, role) {
            // A table is not multiplied from the left: its fans mean nothing.
            (InitKind::Normal | InitKind::TruncatedNormal, _) | (_, Role::Table | Role::Head) => {
                given
            }
            (InitKind::Xavier, _) => (2.0 / (fan_in + fan_out)).sqrt(),
            (InitKind::Kaiming, _) => (2.0 / fan_in).sqrt(),
        };
        if role == Role::Residual && self.init.scale_residual {
            deviation / (self.branches as f64).sqrt()
        } else {
            deviation
        }
    }
}

/// The scope of a part.
impl<N: Display> Div<N> for &Scope {
    type Output = Scope;

    fn div(self, part: N) -> Scope {
        Scope { path: self.path(part), ..self.clone() }
    }
}

/// A number for a name: FNV-1a, from the seed.
fn stream(seed: u64, name: &str) -> u64 {
    let start = seed ^ 0xcbf2_9ce4_8422_2325;
    name.bytes().fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, init: InitConfig, branches: usize) -> Scope {
        Scope::root(Weights::Drawn { seed }).starting(init, branches)
    }

    fn deviation(param: &Param) -> f64 {
        let value = param.value();
        let sum: f64 = value.data().iter().map(|x| f64::from(*x).powi(2)).sum();
        (sum / value.data().len() as f64).sqrt()
    }

    #[test]
    fn deviations_are_those_of_the_formulas() {
        let (rows, columns) = (300, 100);
        // (kind, role, expected); 30,000 draws are within 2 % of their deviation.
        for (kind, role, want) in [
            (InitKind::Normal, Role::Hidden, 0.02),
            (InitKind::Normal, Role::Residual, 0.02 / 4.0), // 1/√16
            (InitKind::Xavier, Role::Hidden, (2.0_f64 / 400.0).sqrt()),
            (InitKind::Kaiming, Role::Hidden, (2.0_f64 / 100.0).sqrt()),
            (InitKind::Kaiming, Role::Table, 0.02),
            (InitKind::Xavier, Role::Head, 0.02),
            // A normal cut at 2σ keeps 0.8796 of its deviation.
            (InitKind::TruncatedNormal, Role::Hidden, 0.02 * 0.8796),
        ] {
            let scope = drawn(1, InitConfig { kind, ..InitConfig::default() }, 16);
            let got = deviation(&scope.matrix("w", rows, columns, role));
            assert!((got / want - 1.0).abs() < 0.02, "{kind:?} {role:?}: {got}, expected {want}");
        }
    }

    #[test]
    fn a_parameter_depends_on_the_seed_and_its_path_alone() {
        let first = |seed, part: &str| {
            let scope = drawn(seed, InitConfig::default(), 2);
            scope.matrix("other", 4, 4, Role::Hidden);
            (&scope / part).matrix("w", 4, 4, Role::Hidden).value().data()[0]
        };
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }

    #[test]
    fn everything_made_is_registered_in_order_under_its_full_name() {
        let scope = Scope::root(Weights::Unset);
        let block = &(&scope / "blocks") / 3;
        block.matrix("w", 2, 3, Role::Residual);
        (&block / "norm").vector("weight", 3, 1.0);
        block.frozen().vector("bias", 3, 0.0);
        let all = scope.parameters();
        let names: Vec<&str> = all.iter().map(Param::name).collect();
        assert_eq!(names, ["blocks.3.w", "blocks.3.norm.weight", "blocks.3.bias"]);
        assert_eq!((all[0].role(), all[1].role()), (Role::Residual, Role::Vector));
        assert!(all[1].is_trainable() && !all[2].is_trainable());
    }

    #[test]
    #[should_panic(expected = "two parameters are called a.w")]
    fn a_name_is_given_once() {
        let scope = Scope::root(Weights::Unset);
        (&scope / "a").vector("w", 1, 0.0);
        scope.vector("a.w", 1, 0.0);
    }

    #[test]
    fn queries_and_keys_can_start_smaller() {
        let config = InitConfig { query_key_scale: 0.25, ..InitConfig::default() };
        let param = drawn(1, config, 1).query_key_matrix("qkv", 6, 100, 4);
        let plain = drawn(1, InitConfig::default(), 1).query_key_matrix("qkv", 6, 100, 4);
        let (param, plain) = (param.value(), plain.value());
        assert_eq!(param.data()[0], 0.25 * plain.data()[0]);
        assert_eq!(param.data()[599], plain.data()[599]);
    }
}
