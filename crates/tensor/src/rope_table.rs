//! The angles of rotary position embeddings (Su et al. 2021, arXiv:2104.09864), and the ways to
//! stretch them to contexts longer than a model was trained on.
//!
//! Pair i of the R rotated numbers of a head turns by p·ωᵢ at position p, ωᵢ = base^(−2i/R).
//! [`Scaling`] changes the ωᵢ:
//!
//! - `Linear` (Chen et al. 2023, arXiv:2306.15595): ωᵢ / s, positions squeezed to the old range.
//! - `Ntk`: base · s^(R/(R−2)), so that the slowest pair is slowed by s and the fastest not at all.
//! - `Yarn` (Peng et al. 2023, arXiv:2309.00071): pairs that turn more than β_fast times within
//!   the old context stay, those that turn less than β_slow times are slowed by s, a ramp between;
//!   and all cosines and sines are multiplied by 0.1·ln s + 1, which sharpens attention.
//! - `Llama3`: pairs with a wavelength below old/high stay, above old/low are slowed by s, a
//!   ramp in the inverse wavelength between.
//!
//! Another base is just another `base`. The formulas agree with `modeling_rope_utils` of the
//! `transformers` library; `tests/fixtures/rope.py` makes the numbers they are held against.

use crate::growing::GrowingTable;
use crate::tensor::Tensor;
use hearken_kernels::rope::Pairing;
use std::f64::consts::TAU;
use std::sync::{Arc, LazyLock};

/// How frequencies are changed for long contexts.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Scaling {
    /// Not at all.
    #[default]
    None,
    /// All frequencies divided by `factor`.
    Linear {
        /// s
        factor: f64,
    },
    /// The base raised so that the lowest frequency is divided by `factor`.
    Ntk {
        /// s
        factor: f64,
    },
    /// Low frequencies divided, high ones kept, attention sharpened.
    Yarn {
        /// s
        factor: f64,
        /// The context that the model was trained on.
        trained: usize,
        /// Turns within `trained` above which a frequency is kept; 32 in the paper.
        beta_fast: f64,
        /// Turns within `trained` below which a frequency is divided; 1 in the paper.
        beta_slow: f64,
        /// What cosines and sines are multiplied by; `None` for 0.1·ln s + 1.
        attention: Option<f64>,
        /// Do the ends of the ramp lie on whole pairs? Yes in most models.
        truncate: bool,
    },
    /// As in Llama 3.1 and later.
    Llama3 {
        /// s; 8 in Llama 3.1.
        factor: f64,
        /// The context that the model was trained on; 8,192.
        trained: usize,
        /// Turns within `trained` below which a frequency is divided; 1.
        low: f64,
        /// Turns within `trained` above which a frequency is kept; 4.
        high: f64,
    },
}

impl Scaling {
    /// NTK scaling for a context of `length` in a model trained on `trained`, as the "dynamic"
    /// kind of `transformers` has it: s = factor·length/trained − (factor − 1), and at least 1.
    pub fn dynamic_ntk(factor: f64, trained: usize, length: usize) -> Self {
        let length = length.max(trained) as f64;
        Self::Ntk { factor: factor * length / trained as f64 - (factor - 1.0) }
    }
}

/// ωᵢ of each pair of `rotated` numbers, and what cosines and sines are multiplied by.
pub fn frequencies(rotated: usize, base: f64, scaling: Scaling) -> (Vec<f64>, f64) {
    assert!(rotated.is_multiple_of(2), "rotation takes pairs: {rotated} is odd");
    assert!(base > 0.0, "the base of rotary frequencies is positive, not {base}");
    let pairs = rotated / 2;
    let plain = |base: f64| -> Vec<f64> {
        (0..pairs).map(|i| base.powf(-2.0 * i as f64 / rotated as f64)).collect()
    };
    match scaling {
        Scaling::None => (plain(base), 1.0),
        Scaling::Linear { factor } => (plain(base).iter().map(|w| w / factor).collect(), 1.0),
        Scaling::Ntk { factor } => {
            // One pair alone turns at ω₀ = 1 whatever the base: there is no slowest to slow.
            let exponent = if pairs > 1 { rotated as f64 / (rotated - 2) as f64 } else { 0.0 };
            (plain(base * factor.powf(exponent)), 1.0)
        }
        Scaling::Yarn { factor, trained, beta_fast, beta_slow, attention, truncate } => {
            // The (fractional) pair that turns `turns` times within the trained context:
            // trained·base^(−2i/R) = 2π·turns, solved for i.
            let pair_of = |turns: f64| {
                rotated as f64 * (trained as f64 / (turns * TAU)).ln() / (2.0 * base.ln())
            };
            let (mut first, mut last) = (pair_of(beta_fast), pair_of(beta_slow));
            if truncate {
                (first, last) = (first.floor(), last.ceil());
            }
            let (first, mut last) = (first.max(0.0), last.min(rotated as f64 - 1.0));
            if first == last {
                last += 0.001; // a step instead of a ramp
            }
            let scaled = plain(base).into_iter().enumerate().map(|(i, w)| {
                let slowed = ((i as f64 - first) / (last - first)).clamp(0.0, 1.0);
                w / factor * slowed + w * (1.0 - slowed)
            });
            let default = if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 };
            (scaled.collect(), attention.unwrap_or(default))
        }
        Scaling::Llama3 { factor, trained, low, high } => {
            let scaled = plain(base).into_iter().map(|w| {
                let turns = trained as f64 * w / TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                w / factor * (1.0 - kept) + w * kept
            });
            (scaled.collect(), 1.0)
        }
    }
}

/// Cosines and sines for every position and pair, computed as positions are asked for.
#[derive(Clone, Debug)]
pub struct RopeTable {
    head_width: usize,
    pairing: Pairing,
    cos: GrowingTable, // (positions, R/2)
    sin: GrowingTable, // (positions, R/2)
}

impl RopeTable {
    /// For heads of width `head_width`, of which the first `rotated` numbers turn, at positions
    /// 0, …, `positions` − 1.
    pub fn new(
        head_width: usize,
        rotated: usize,
        base: f64,
        scaling: Scaling,
        pairing: Pairing,
        positions: usize,
    ) -> Self {
        assert!(
            rotated <= head_width,
            "{rotated} numbers of a head of width {head_width} cannot be rotated"
        );
        assert!(rotated.is_multiple_of(2), "rotation takes pairs: {rotated} is odd");
        let turns = Arc::new(LazyLock::new(move || frequencies(rotated, base, scaling)));
        let table = |of: fn(f64) -> f64| {
            let turns = turns.clone();
            GrowingTable::new(positions, rotated / 2, move |p, row| {
                let (frequencies, factor) = &**turns;
                for (x, w) in row.iter_mut().zip(frequencies) {
                    *x = (of(p as f64 * w) * factor) as f32;
                }
            })
        };
        Self { head_width, pairing, cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// D
    pub fn head_width(&self) -> usize {
        self.head_width
    }

    /// How many numbers of a head turn: R ≤ D.
    pub fn rotated(&self) -> usize {
        2 * self.cos.width()
    }

    /// Which numbers make a pair.
    pub fn pairing(&self) -> Pairing {
        self.pairing
    }

    /// How many positions the table can have.
    pub fn positions(&self) -> usize {
        self.cos.most()
    }

    /// Cosines of at least the first `positions`: (positions or more, R/2)
    pub fn cos(&self, positions: usize) -> Tensor {
        self.cos.first(positions)
    }

    /// Sines of at least the first `positions`: (positions or more, R/2)
    pub fn sin(&self, positions: usize) -> Tensor {
        self.sin.first(positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: &serde_json::Value, name: &str) -> f64 {
        value[name].as_f64().unwrap_or_else(|| panic!("{name} is missing in {value}"))
    }

    fn scaling(case: &serde_json::Value) -> Scaling {
        let parameters = &case["parameters"];
        let number = |name| number(parameters, name);
        let trained = parameters["original_max_position_embeddings"].as_u64().unwrap_or(0) as usize;
        match parameters["rope_type"].as_str().unwrap() {
            "default" => Scaling::None,
            "linear" => Scaling::Linear { factor: number("factor") },
            "dynamic" => Scaling::dynamic_ntk(
                number("factor"),
                case["trained"].as_u64().unwrap() as usize,
                case["length"].as_u64().unwrap() as usize,
            ),
            "yarn" => Scaling::Yarn {
                factor: number("factor"),
                trained,
                beta_fast: parameters["beta_fast"].as_f64().unwrap_or(32.0),
                beta_slow: parameters["beta_slow"].as_f64().unwrap_or(1.0),
                attention: parameters["attention_factor"].as_f64(),
                truncate: parameters["truncate"].as_bool().unwrap_or(true),
            },
            "llama3" => Scaling::Llama3 {
                factor: number("factor"),
                trained,
                low: number("low_freq_factor"),
                high: number("high_freq_factor"),
            },
            other => panic!("unknown kind {other}"),
        }
    }

    #[test]
    fn frequencies_agree_with_transformers() {
        let text = include_str!("../tests/fixtures/rope.json");
        let fixture: serde_json::Value = serde_json::from_str(text).unwrap();
        let cases = fixture["cases"].as_array().unwrap();
        assert!(cases.len() >= 8);
        for case in cases {
            let name = &case["name"];
            let rotated = case["rotated"].as_u64().unwrap() as usize;
            let base = number(&case["parameters"], "rope_theta");
            let (got, factor) = frequencies(rotated, base, scaling(case));
            let want = case["frequencies"].as_array().unwrap();
            assert_eq!(got.len(), want.len(), "{name}");
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                let want = want.as_f64().unwrap();
                // transformers computes in f32: a power good to about 2⁻²², a quotient and a
                // weighted sum.
                let error = (got / want - 1.0).abs();
                assert!(error < 1e-6, "{name}, pair {i}: {got} instead of {want}");
            }
            assert!((factor - number(case, "attention_factor")).abs() < 1e-12, "{name}");
        }
    }

    #[test]
    fn cosines_and_sines_agree_with_llamas_in_transformers() {
        let text = include_str!("../tests/fixtures/rope.json");
        let fixture: serde_json::Value = serde_json::from_str(text).unwrap();
        for case in fixture["cases"].as_array().unwrap() {
            let rotated = case["rotated"].as_u64().unwrap() as usize;
            let base = number(&case["parameters"], "rope_theta");
            let positions = case["positions"].as_array().unwrap();
            let most = positions.iter().map(|p| p.as_u64().unwrap() as usize).max().unwrap();
            let table =
                RopeTable::new(rotated, rotated, base, scaling(case), Pairing::Halves, most + 1);
            for (p, (cos, sin)) in positions
                .iter()
                .zip(case["cos"].as_array().unwrap().iter().zip(case["sin"].as_array().unwrap()))
            {
                let p = p.as_u64().unwrap() as usize;
                for i in 0..rotated / 2 {
                    let at = p * (rotated / 2) + i;
                    // Their angle p·ω is in f32: off by up to p·2⁻²² (see above).
                    let bound = 1e-6 + p as f64 * 2.4e-7;
                    let got = [table.cos(p + 1).data()[at], table.sin(p + 1).data()[at]];
                    let want = [cos[i].as_f64().unwrap(), sin[i].as_f64().unwrap()];
                    for (got, want) in got.into_iter().zip(want) {
                        let error = (f64::from(got) - want).abs();
                        assert!(error < bound, "{}: position {p}, pair {i}: {error}", case["name"]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_table_knows_its_shape() {
        let table = RopeTable::new(10, 6, 1e4, Scaling::None, Pairing::Neighbours, 4);
        assert_eq!((table.head_width(), table.rotated(), table.positions()), (10, 6, 4));
        assert_eq!(table.cos(1).data()[..3], [1.0; 3]);
        assert_eq!(table.sin(1).data()[..3], [0.0; 3]);
        assert_eq!(RopeTable::new(4, 4, 1e4, Scaling::None, Pairing::Halves, 0).positions(), 0);
    }

    #[test]
    #[should_panic(expected = "12 numbers of a head of width 10 cannot be rotated")]
    fn no_more_is_rotated_than_there_is() {
        let _ = RopeTable::new(10, 12, 1e4, Scaling::None, Pairing::Halves, 4);
    }
}
