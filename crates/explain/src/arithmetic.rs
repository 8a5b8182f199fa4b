//! The sum behind one number of a stage, with the numbers put in.
//!
//! Every line is computed here, in f64, from the stage before and the weights, and not read off the
//! stage: so it is also a check of what it explains.

mod stages;

use crate::dot;
use crate::flow::{Flow, Focus, Stage};
use hearken_nn::config::{FeedForwardKind, NormKind};
use hearken_nn::models::Model;
use stages::Behind;

/// One number and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Such as `0.36 = e^0.58 / (e^0.58 + e^1.15)`.
    pub text: String,
    /// What the right-hand side comes to.
    pub computed: f64,
    /// What the engine computed.
    pub actual: f32,
    /// All numbers that went in.
    pub terms: Terms,
}

/// The numbers behind a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Terms {
    /// The text says it all.
    #[default]
    Plain,
    /// Σ a·b, divided by a number, with what is added.
    Products {
        /// What a says: `x`, `query`, …
        names: [&'static str; 2],
        /// a
        left: Vec<f32>,
        /// b
        right: Vec<f32>,
        /// √D of scores, else 1.
        divisor: f64,
        /// A bias, if there is one.
        plus: Option<f64>,
    },
    /// e^s / Σ e^s
    Softmax {
        /// All of s.
        scores: Vec<f32>,
        /// Which of them.
        at: usize,
    },
    /// (x − mean)/deviation·gain + bias
    Norm {
        /// The vector.
        x: Vec<f32>,
        /// 0 for an RMS norm.
        mean: f64,
        /// √(var + ε), or the root of the mean square.
        deviation: f64,
        /// w
        gain: f64,
        /// b, if there is one.
        bias: Option<f64>,
    },
}

/// The right-hand side of a line.
struct Right {
    text: String,
    value: f64,
    terms: Terms,
}

impl Right {
    fn plain(text: String, value: f64) -> Self {
        Self { text, value, terms: Terms::Plain }
    }

    /// Says what the factors of its products are.
    fn called(mut self, a: &'static str, b: &'static str) -> Self {
        if let Terms::Products { names, .. } = &mut self.terms {
            *names = [a, b];
        }
        self
    }
}

/// How many terms of a long sum are shown.
const TERMS: usize = 3;

/// The line of a stage's number, if this stage is understood.
pub fn line(model: &dyn Model, flow: &Flow, stage: &Stage, focus: Focus) -> Option<Line> {
    let (index, place) = stage.at(focus);
    let actual = *stage.value.data().get(index)?;
    let Right { text, value, terms } = Behind::of(model, flow, stage)?.right_side(&place)?;
    let text = format!("{} = {text}", short(f64::from(actual)));
    Some(Line { text, computed: value, actual, terms })
}

/// Σ a·b + bias: the largest terms, and how many there are.
fn sum_of_products(a: &[f32], b: &[f32], bias: Option<f32>) -> Right {
    let term = |(a, b): (&f32, &f32)| format!("{}·{}", short((*a).into()), short((*b).into()));
    let mut terms: Vec<String> = a.iter().zip(b).take(TERMS).map(term).collect();
    if a.len() > TERMS {
        terms.push(format!("… {} products", a.len()));
    }
    let bias = bias.map(f64::from);
    if let Some(bias) = bias {
        terms.push(format!("bias {}", short(bias)));
    }
    let products = Terms::Products {
        names: ["x", "weight"],
        left: a.to_vec(),
        right: b.to_vec(),
        divisor: 1.0,
        plus: bias,
    };
    Right { text: terms.join(" + "), value: dot(a, b) + bias.unwrap_or(0.0), terms: products }
}

/// e^s / Σ e^s. Scores are taken as they are: the largest is subtracted only where e^s would
/// overflow.
pub fn softmax(scores: &[f32], at: usize) -> Option<(String, f64)> {
    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = scores.iter().map(|s| f64::from(s - top).exp()).sum();
    let own = *scores.get(at)?;
    if own == f32::NEG_INFINITY {
        return Some(("e^−∞ / …: hidden".to_owned(), 0.0));
    }
    let seen: Vec<f32> = scores.iter().copied().filter(|s| *s != f32::NEG_INFINITY).collect();
    let mut terms: Vec<String> =
        seen.iter().take(2 * TERMS).map(|s| format!("e^{}", short((*s).into()))).collect();
    if seen.len() > 2 * TERMS {
        terms.push(format!("… {} terms", seen.len()));
    }
    let text = format!("e^{} / ({})", short(own.into()), terms.join(" + "));
    Some((text, f64::from(own - top).exp() / total))
}

fn softmax_terms(scores: &[f32], at: usize) -> Option<Right> {
    let (text, value) = softmax(scores, at)?;
    Some(Right { text, value, terms: Terms::Softmax { scores: scores.to_vec(), at } })
}

fn normed(
    x: &[f32],
    column: usize,
    kind: NormKind,
    eps: f64,
    gain: f32,
    bias: Option<f32>,
) -> Right {
    let n = x.len() as f64;
    let (own, gain) = (f64::from(x[column]), f64::from(gain));
    if kind == NormKind::Rms {
        let rms = (dot(x, x) / n + eps).sqrt();
        let text = format!("{} / {}·{}", short(own), short(rms), short(gain));
        let terms = Terms::Norm { x: x.to_vec(), mean: 0.0, deviation: rms, gain, bias: None };
        return Right { text, value: own / rms * gain, terms };
    }
    let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
    let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
    let deviation = (variance + eps).sqrt();
    let plus = bias.map(|b| format!(" + {}", short(b.into()))).unwrap_or_default();
    let text =
        format!("({} − {}) / {}·{}{plus}", short(own), short(mean), short(deviation), short(gain));
    let bias = bias.map(f64::from);
    let terms = Terms::Norm { x: x.to_vec(), mean, deviation, gain, bias };
    Right { text, value: (own - mean) / deviation * gain + bias.unwrap_or(0.0), terms }
}

fn name_of(kind: FeedForwardKind) -> &'static str {
    match kind {
        FeedForwardKind::Relu => "relu",
        FeedForwardKind::SquaredRelu => "relu²",
        FeedForwardKind::Gelu | FeedForwardKind::Geglu => "gelu",
        FeedForwardKind::GeluTanh | FeedForwardKind::GegluTanh => "gelu_tanh",
        FeedForwardKind::Silu | FeedForwardKind::Swiglu => "silu",
    }
}

fn activated(kind: FeedForwardKind, x: f64) -> f64 {
    use std::f64::consts::{PI, SQRT_2};
    match kind {
        FeedForwardKind::Relu => x.max(0.0),
        FeedForwardKind::SquaredRelu => x.max(0.0).powi(2),
        FeedForwardKind::Gelu | FeedForwardKind::Geglu => 0.5 * x * (1.0 + erf(x / SQRT_2)),
        FeedForwardKind::GeluTanh | FeedForwardKind::GegluTanh => {
            0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        FeedForwardKind::Silu | FeedForwardKind::Swiglu => x / (1.0 + (-x).exp()),
    }
}

/// By its Taylor series, which converges everywhere and is exact enough where |x| < 4.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// Three digits after the point, or an exponent for what would vanish.
pub fn short(x: f64) -> String {
    if x == 0.0 {
        "0".to_owned()
    } else if x.abs() < 5e-4 || x.abs() >= 1e5 {
        format!("{x:.2e}")
    } else {
        format!("{x:.3}")
    }
}
