//! How the learning rate changes from step to step.
//!
//! With `s` the steps done before this one (from 0), `n` the steps of the run and `w` the steps of
//! warm-up, every schedule begins with the line `(s + 1)/(w + 1)` for `s < w` and then follows
//! its own formula in `u = (s − w)/(n − w)`, the share of the rest that is done:
//!
//! | kind | factor of `lr` |
//! |---|---|
//! | `constant` | 1 |
//! | `linear` | floor + (1 − floor)(1 − u) |
//! | `cosine` | floor + (1 − floor)·½(1 + cos πu) (Loshchilov and Hutter 2017) |
//! | `inverse-sqrt` | √((w + 1)/(s + 1)) (Vaswani et al. 2017) |
//! | `wsd` | 1 until the last `decay`·n steps, then down to floor by line or root (Hu et al. 2024) |
//!
//! `floor` is a share of `lr`. Noam's `C^−½ · min(t^−½, t·w^−1.5)` of 1-based `t` is
//! `inverse-sqrt` with `lr = (C·w)^−½`, which is what it is at its peak; here the peak is at
//! `t = w + 1`, the first step after the warm-up.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use hearken_base::settings::{self, Setting, Value};
use hearken_base::{Error, Result, names};
use serde::Serialize;
use std::f64::consts::PI;

/// Which schedule. See the [module](self) for the formulas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ScheduleConfig {
    /// The same all along, after the warm-up.
    Constant {
        /// Steps of warm-up.
        warmup: u64,
    },
    /// Straight down to the floor.
    Linear {
        /// Steps of warm-up.
        warmup: u64,
        /// Where it ends, as a share of `lr`.
        floor: f64,
    },
    /// Half a cosine down to the floor.
    Cosine {
        /// Steps of warm-up.
        warmup: u64,
        /// Where it ends, as a share of `lr`.
        floor: f64,
    },
    /// Falls with the root of the step, without an end.
    InverseSqrt {
        /// Steps of warm-up.
        warmup: u64,
    },
    /// Warm-up, stable, decay.
    Wsd {
        /// Steps of warm-up.
        warmup: u64,
        /// The share of all steps in which it falls.
        decay: f64,
        /// Where it ends, as a share of `lr`.
        floor: f64,
        /// How it falls.
        shape: DecayShape,
    },
}

impl Setting for ScheduleConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        let kinds = ["cosine", "linear", "constant", "inverse-sqrt", "wsd"];
        value.choice(&kinds, |kind, t| {
            // The default schedule has a warm-up and a floor, also if another kind is set over it; one
            // that the file names has what it says.
            let (usual_warmup, usual_floor) =
                if t.is_in_file("kind") { (0, 0.0) } else { (100, 0.1) };
            let warmup = t.or("warmup", usual_warmup)?;
            let floor = || t.or("floor", usual_floor);
            Ok(match kind {
                "constant" => Self::Constant { warmup },
                "linear" => Self::Linear { warmup, floor: floor()? },
                // Its peak is where the warm-up ends: there is no usual one.
                "inverse-sqrt" if t.is_in_file("kind") => {
                    Self::InverseSqrt { warmup: t.required("warmup")? }
                }
                "inverse-sqrt" => Self::InverseSqrt { warmup },
                "wsd" => Self::Wsd {
                    warmup,
                    decay: t.or("decay", 0.2)?,
                    floor: floor()?,
                    shape: t.or("shape", DecayShape::default())?,
                },
                _ => Self::Cosine { warmup, floor: floor()? },
            })
        })
    }
}

/// The longest warm-up that a run of `steps` steps gets unless it is told: a tenth.
pub fn usual_warmup(steps: u64) -> u64 {
    steps / 10
}

/// How the last part of [`ScheduleConfig::Wsd`] falls from 1 to 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecayShape {
    /// 1 − v
    Linear,
    /// 1 − √v, which falls fast first (Hägele et al. 2024).
    #[default]
    Root,
}

names!(DecayShape { "linear" => Linear, "root" => Root });

impl Default for ScheduleConfig {
    /// Cosine down to a tenth, after 100 steps of warm-up.
    fn default() -> Self {
        settings::default()
    }
}

impl ScheduleConfig {
    /// Steps of warm-up.
    pub fn warmup(&self) -> u64 {
        match *self {
            Self::Constant { warmup }
            | Self::Linear { warmup, .. }
            | Self::Cosine { warmup, .. }
            | Self::InverseSqrt { warmup }
            | Self::Wsd { warmup, .. } => warmup,
        }
    }

    /// The same with a warm-up of at most `most` steps.
    pub fn with_warmup_at_most(mut self, most: u64) -> Self {
        match &mut self {
            Self::Constant { warmup }
            | Self::Linear { warmup, .. }
            | Self::Cosine { warmup, .. }
            | Self::InverseSqrt { warmup }
            | Self::Wsd { warmup, .. } => *warmup = most.min(*warmup),
        }
        self
    }

    /// What `lr` is multiplied by in the step after `step` steps, of `steps` in all.
    pub fn factor(&self, step: u64, steps: u64) -> f64 {
        let warmup = self.warmup();
        if step < warmup {
            return (step + 1) as f64 / (warmup + 1) as f64;
        }
        let share_done = |from: f64| {
            let rest = steps as f64 - from;
            if rest <= 0.0 { 1.0 } else { ((step as f64 - from) / rest).clamp(0.0, 1.0) }
        };
        let u = share_done(warmup as f64);
        match *self {
            Self::Constant { .. } => 1.0,
            Self::Linear { floor, .. } => floor + (1.0 - floor) * (1.0 - u),
            Self::Cosine { floor, .. } => floor + (1.0 - floor) * 0.5 * (1.0 + (PI * u).cos()),
            Self::InverseSqrt { .. } => ((warmup + 1) as f64 / (step + 1) as f64).sqrt(),
            Self::Wsd { decay, floor, shape, .. } => {
                let fall_begins = (steps as f64 * (1.0 - decay)).max(warmup as f64);
                if (step as f64) < fall_begins {
                    return 1.0;
                }
                let v = share_done(fall_begins);
                let left = match shape {
                    DecayShape::Linear => 1.0 - v,
                    DecayShape::Root => 1.0 - v.sqrt(),
                };
                floor + (1.0 - floor) * left
            }
        }
    }

    /// What the types alone do not rule out.
    pub fn validate(&self, steps: u64) -> Result<()> {
        if self.warmup() > steps {
            return Err(Error::new(
                format!(
                    "train.schedule.warmup is {}, more than train.steps, {steps}",
                    self.warmup()
                ),
                format!("a tenth is usual: --set train.schedule.warmup={}", usual_warmup(steps)),
            ));
        }
        let (floor, decay) = match *self {
            Self::Linear { floor, .. } | Self::Cosine { floor, .. } => (floor, 0.0),
            Self::Wsd { floor, decay, .. } => (floor, decay),
            _ => (0.0, 0.0),
        };
        for (name, share) in [("floor", floor), ("decay", decay)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::new(
                    format!("train.schedule.{name} is {share}, expected a share from 0 to 1"),
                    format!("{name} is a share, not an absolute value: 0.1 is a tenth"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_base::settings::Settings;

    /// A few roundings of f64.
    const TOLERANCE: f64 = 1e-12;

    fn assert_values(schedule: ScheduleConfig, steps: u64, expected: &[(u64, f64)]) {
        schedule.validate(steps).unwrap();
        for &(step, want) in expected {
            let got = schedule.factor(step, steps);
            assert!((got - want).abs() < TOLERANCE, "{schedule:?} at {step}: {got}, not {want}");
        }
    }

    #[test]
    fn constant_after_a_warm_up() {
        assert_values(ScheduleConfig::Constant { warmup: 0 }, 10, &[(0, 1.0), (9, 1.0)]);
        let schedule = ScheduleConfig::Constant { warmup: 4 };
        assert_values(schedule, 10, &[(0, 0.2), (3, 0.8), (4, 1.0), (9, 1.0)]);
    }

    #[test]
    fn linear_to_its_floor() {
        let schedule = ScheduleConfig::Linear { warmup: 0, floor: 0.2 };
        assert_values(schedule, 10, &[(0, 1.0), (5, 0.6), (10, 0.2), (99, 0.2)]);
    }

    #[test]
    fn cosine_as_nanogpt_has_it() {
        // 2,000 steps, 100 of warm-up, 1e-3 down to 1e-4.
        let schedule = ScheduleConfig::Cosine { warmup: 100, floor: 0.1 };
        let middle = 0.1 + 0.9 * 0.5; // half way between 100 and 2,000: cos(π/2) = 0
        let third = 0.1 + 0.9 * 0.75; // cos(π/3) = ½, at 100 + 1900/3
        assert_values(
            schedule,
            2000,
            &[(0, 1.0 / 101.0), (99, 100.0 / 101.0), (100, 1.0), (1050, middle), (2000, 0.1)],
        );
        assert_values(schedule, 100 + 3 * 600, &[(100 + 600, third)]);
    }

    #[test]
    fn inverse_sqrt_is_noam() {
        let (width, warmup) = (512.0_f64, 4000_u64);
        let noam = |t: f64, w: f64| width.powf(-0.5) * t.powf(-0.5).min(t * w.powf(-1.5));
        // The peak lies one step later here, so compare with Noam of w + 1.
        let w = (warmup + 1) as f64;
        let peak = (width * w).powf(-0.5);
        let schedule = ScheduleConfig::InverseSqrt { warmup };
        for step in [0, 1, 100, 3999, 4000, 4001, 50_000] {
            let want = noam((step + 1) as f64, w) / peak;
            assert_values(schedule, 100_000, &[(step, want)]);
        }
    }

    #[test]
    fn wsd_is_stable_then_falls() {
        let wsd = |shape| ScheduleConfig::Wsd { warmup: 10, decay: 0.2, floor: 0.0, shape };
        let before = [(0, 1.0 / 11.0), (10, 1.0), (79, 1.0), (80, 1.0)];
        for shape in [DecayShape::Linear, DecayShape::Root] {
            assert_values(wsd(shape), 100, &before);
            assert_values(wsd(shape), 100, &[(100, 0.0)]);
        }
        assert_values(wsd(DecayShape::Linear), 100, &[(90, 0.5)]);
        assert_values(wsd(DecayShape::Root), 100, &[(85, 0.5)]); // 1 − √¼
    }

    #[test]
    fn a_shorter_warm_up_keeps_the_rest() {
        let cosine = ScheduleConfig::Cosine { warmup: 100, floor: 0.1 };
        let shorter = ScheduleConfig::Cosine { warmup: 4, floor: 0.1 };
        assert_eq!(cosine.with_warmup_at_most(usual_warmup(40)), shorter);
        assert_eq!(cosine.with_warmup_at_most(usual_warmup(2000)), cosine);
        let none = ScheduleConfig::Constant { warmup: 0 };
        assert_eq!(none.with_warmup_at_most(usual_warmup(1)), none);
    }

    #[test]
    fn every_kind_reads_its_defaults_and_comes_back() {
        use ScheduleConfig::{Constant, Cosine, InverseSqrt, Linear, Wsd};
        let read = |text: &str| Settings::parse(text, "s.toml").unwrap().read::<ScheduleConfig>();
        let (warmup, floor) = (0, 0.0);
        for (kind, want) in [
            ("constant", Constant { warmup }),
            ("linear", Linear { warmup, floor }),
            ("cosine", Cosine { warmup, floor }),
            ("wsd", Wsd { warmup, floor, decay: 0.2, shape: DecayShape::Root }),
        ] {
            assert_eq!(read(&format!("kind = \"{kind}\"")).unwrap(), want);
            assert_eq!(read(&toml::to_string(&want).unwrap()).unwrap(), want);
        }
        assert_eq!(read("kind = \"inverse-sqrt\"\nwarmup = 9").unwrap(), InverseSqrt { warmup: 9 });
        assert!(read("kind = \"inverse-sqrt\"").is_err());
        assert_eq!(read("").unwrap(), Cosine { warmup: 100, floor: 0.1 });
        assert_eq!(read("warmup = 3").unwrap(), Cosine { warmup: 3, floor: 0.1 });
        let other = Wsd { warmup, floor, decay: 0.5, shape: DecayShape::Linear };
        assert_eq!(read(&toml::to_string(&other).unwrap()).unwrap(), other);
        assert!(read("kind = \"constant\"\nfloor = 0.1").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(ScheduleConfig::Cosine { warmup: 11, floor: 0.1 }.validate(10).is_err());
        let error = ScheduleConfig::Cosine { warmup: 1, floor: 1e2 }.validate(10).unwrap_err();
        assert!(error.to_string().contains("share from 0 to 1"), "{error}");
    }

    #[test]
    fn no_steps_at_all_divide_by_nothing() {
        assert!(ScheduleConfig::default().factor(500, 100).is_finite());
        assert!(ScheduleConfig::Cosine { warmup: 0, floor: 0.0 }.factor(0, 0).is_finite());
    }
}
