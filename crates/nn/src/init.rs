//! How weights start: matrices by the chosen distribution, biases at 0, norms at 1.
//!
//! Every parameter draws from a stream of its own, keyed by the seed and its name, so adding a
//! layer does not change how the others start.

use crate::config::{InitConfig, InitKind};
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Tensor};

/// Makes the parameters of a model.
#[derive(Clone, Copy, Debug)]
pub struct Init {
    seed: u64,
    config: InitConfig,
    layers: usize,
    zeros: bool,
}

/// What a matrix is for, where its start depends on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Any linear layer.
    Hidden,
    /// Its output is added to the residual stream, as are 2L of them.
    Residual,
    /// A table of vectors, one per token or position.
    Table,
}

impl Init {
    /// For a model of `layers` layers.
    pub fn new(seed: u64, config: InitConfig, layers: usize) -> Self {
        Self { seed, config, layers, zeros: false }
    }

    /// All zeros: for a model whose weights come from a file.
    pub fn zeros(config: InitConfig, layers: usize) -> Self {
        Self { seed: 0, config, layers, zeros: true }
    }

    fn rng(&self, name: &str) -> Rng {
        // FNV-1a over the name, from the seed.
        let start = self.seed ^ 0xcbf2_9ce4_8422_2325;
        Rng::new(name.bytes().fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)))
    }

    /// A matrix (rows, columns) that takes `columns` numbers and gives `rows`.
    pub fn matrix(&self, name: &str, rows: usize, columns: usize, role: Role) -> Param {
        if self.zeros {
            return Param::new(name, Tensor::zeros([rows, columns]));
        }
        let (fan_in, fan_out) = (columns as f64, rows as f64);
        let given = f64::from(self.config.deviation);
        let mut deviation = match (self.config.kind, role) {
            // A table is not multiplied from the left: its fans mean nothing.
            (InitKind::Normal | InitKind::TruncatedNormal, _) | (_, Role::Table) => given,
            (InitKind::Xavier, _) => (2.0 / (fan_in + fan_out)).sqrt(),
            (InitKind::Kaiming, _) => (2.0 / fan_in).sqrt(),
        };
        if role == Role::Residual && self.config.scale_residual {
            deviation /= (2.0 * self.layers as f64).sqrt();
        }
        let mut rng = self.rng(name);
        let value = if self.config.kind == InitKind::TruncatedNormal {
            rng.truncated_normal([rows, columns], deviation)
        } else {
            rng.normal([rows, columns], deviation)
        };
        Param::new(name, value)
    }

    /// The packed projection to queries, keys and values: the first `query_key_rows` rows, which
    /// make queries and keys, start smaller by the configured factor.
    pub fn query_key_value(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
        query_key_rows: usize,
    ) -> Param {
        let param = self.matrix(name, rows, columns, Role::Hidden);
        let factor = self.config.query_key_scale;
        if factor == 1.0 {
            return param;
        }
        let mut value = param.value();
        for x in &mut value.data_mut()[..query_key_rows * columns] {
            *x *= factor;
        }
        Param::new(name, value)
    }

    /// `len` times `value`.
    pub fn constant(&self, name: &str, len: usize, value: f32) -> Param {
        Param::new(name, Tensor::full([len], value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deviation(param: &Param) -> f64 {
        let value = param.value();
        let sum: f64 = value.data().iter().map(|x| f64::from(*x).powi(2)).sum();
        (sum / value.data().len() as f64).sqrt()
    }

    #[test]
    fn deviations_are_those_of_the_formulas() {
        let with = |kind| Init::new(1, InitConfig { kind, ..InitConfig::default() }, 8);
        let (rows, columns) = (300, 100);
        // (kind, role, expected); 30,000 draws are within 2 % of their deviation.
        for (kind, role, want) in [
            (InitKind::Normal, Role::Hidden, 0.02),
            (InitKind::Normal, Role::Residual, 0.02 / 4.0), // 1/√(2·8)
            (InitKind::Xavier, Role::Hidden, (2.0_f64 / 400.0).sqrt()),
            (InitKind::Kaiming, Role::Hidden, (2.0_f64 / 100.0).sqrt()),
            (InitKind::Kaiming, Role::Table, 0.02),
            // A normal cut at 2σ keeps 0.8796 of its deviation.
            (InitKind::TruncatedNormal, Role::Hidden, 0.02 * 0.8796),
        ] {
            let got = deviation(&with(kind).matrix("w", rows, columns, role));
            assert!((got / want - 1.0).abs() < 0.02, "{kind:?} {role:?}: {got}, expected {want}");
        }
    }

    #[test]
    fn a_parameter_depends_on_the_seed_and_its_name_alone() {
        let init = |seed| Init::new(seed, InitConfig::default(), 2);
        let first =
            |seed, name: &str| init(seed).matrix(name, 4, 4, Role::Hidden).value().data()[0];
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }

    #[test]
    fn queries_and_keys_can_start_smaller() {
        let config = InitConfig { query_key_scale: 0.25, ..InitConfig::default() };
        let param = Init::new(1, config, 1).query_key_value("qkv", 6, 100, 4);
        let plain = Init::new(1, InitConfig::default(), 1).query_key_value("qkv", 6, 100, 4);
        let (param, plain) = (param.value(), plain.value());
        assert_eq!(param.data()[0], 0.25 * plain.data()[0]);
        assert_eq!(param.data()[599], plain.data()[599]);
    }
}
