//! What models can do that read a whole text: hidden states, vectors, labels, spans, numbers.

use super::{Model, Tokens};
use crate::config::Pooling;
use crate::layers::{Loss, normalised, pool};
use crate::pass::Pass;
use hearken_tensor::ops::binary_cross_entropy::binary_cross_entropy;
use hearken_tensor::ops::cross_entropy::{IGNORED, Options, Reduction, cross_entropy};
use hearken_tensor::ops::mse::mse;
use hearken_tensor::ops::scale::scale;
use hearken_tensor::ops::softmax::softmax;
use hearken_tensor::{Tensor, Var, no_grad};

/// How a text becomes a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// Which tokens' hidden states.
    pub pooling: Pooling,
    /// Is it scaled to length 1?
    pub normalised: bool,
    /// Texts are cut to so many tokens.
    pub most_tokens: usize,
}

/// A model that reads a whole text.
pub trait Encodes: Model {
    /// The last hidden state, (B, T, C).
    fn encode(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var;

    /// What the pooler makes of the last hidden state (B, T, C), if there is one: (B, C).
    fn pooled(&self, hidden: &Var, pass: &Pass) -> Option<Var>;

    /// How it was made to embed texts; the mean of all tokens, unless it says otherwise.
    fn embedded(&self) -> Embedded;

    /// A vector for each text, (B, C).
    fn embed(&self, tokens: &Tokens<'_>, how: Embedded, pass: &Pass) -> Var {
        assert!(tokens.layout.packing.is_none(), "packed rows hold several texts");
        let hidden = self.encode(tokens, pass);
        let pooled = pool(&hidden, tokens.layout.lengths.as_deref(), how.pooling); // (B, C)
        if how.normalised { normalised(&pooled) } else { pooled }
    }
}

/// A model that labels a text.
pub trait Classifies: Encodes {
    /// A logit for each label, of the last hidden state (B, T, C): (B, N).
    fn classify(&self, hidden: &Var, pass: &Pass) -> Var;

    /// The names of the labels, in the order of the logits.
    fn labels(&self) -> &[String];

    /// May a text have several labels, each decided by itself?
    fn several(&self) -> bool;

    /// A logit for each label: (B, N).
    fn class_logits(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        self.classify(&self.encode(tokens, pass), pass)
    }

    /// The probability of each label: (B, N). Rows sum to 1, unless a text may have several.
    fn class_probabilities(&self, tokens: &Tokens<'_>) -> Tensor {
        self.class_probabilities_at(tokens, 1.0)
    }

    /// The same with logits divided by a temperature.
    fn class_probabilities_at(&self, tokens: &Tokens<'_>, temperature: f32) -> Tensor {
        no_grad(|| {
            let logits = self.class_logits(tokens, &Pass::evaluate());
            if self.several() {
                let mut value = logits.into_value();
                value
                    .data_mut()
                    .iter_mut()
                    .for_each(|z| *z = 1.0 / (1.0 + (-*z / temperature).exp()));
                value
            } else {
                softmax(logits, 1.0 / temperature).into_value()
            }
        })
    }

    /// The cross-entropy of one label per text: its number, or `IGNORED`.
    fn class_loss(
        &self,
        tokens: &Tokens<'_>,
        targets: &[u32],
        pass: &Pass,
        options: Options,
    ) -> Loss {
        Loss::with_auxiliary(pass, |pass| sum_of(self.class_logits(tokens, pass), targets, options))
    }

    /// The binary cross-entropy of every label by itself: `targets` (B, N) are 0 or 1. It counts
    /// every one of them.
    fn several_loss(&self, tokens: &Tokens<'_>, targets: &[f32], pass: &Pass) -> Loss {
        Loss::with_auxiliary(pass, |pass| {
            let logits = self.class_logits(tokens, pass);
            let sum = binary_cross_entropy(&logits, targets, None);
            Loss { sum, weight: targets.len() as f64 }
        })
    }
}

/// A model that labels every token.
pub trait Tags: Encodes {
    /// A logit for each label of each token, of the last hidden state (B, T, C): (B, T, N).
    fn tag(&self, hidden: &Var, pass: &Pass) -> Var;

    /// The names of the labels, in the order of the logits.
    fn labels(&self) -> &[String];

    /// A logit for each label of each token: (B, T, N).
    fn tag_logits(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        self.tag(&self.encode(tokens, pass), pass)
    }

    /// The cross-entropy of a label per token (B, T): its number, or `IGNORED`.
    fn tag_loss(
        &self,
        tokens: &Tokens<'_>,
        targets: &[u32],
        pass: &Pass,
        options: Options,
    ) -> Loss {
        Loss::with_auxiliary(pass, |pass| sum_of(self.tag_logits(tokens, pass), targets, options))
    }
}

/// A model that finds the first and the last token of an answer.
pub trait FindsSpans: Encodes {
    /// The logits of each token to be the first and to be the last, of the last hidden state
    /// (B, T, C): (B, T) each. Those of padding and of the question are there, too.
    fn spans(&self, hidden: &Var, pass: &Pass) -> [Var; 2];

    /// The logits of each token to be the first and to be the last: (B, T) each.
    fn span_logits(&self, tokens: &Tokens<'_>, pass: &Pass) -> [Var; 2] {
        self.spans(&self.encode(tokens, pass), pass)
    }

    /// The cross-entropies of the first and of the last token (B): their places, or `IGNORED`. It
    /// counts both.
    fn span_loss(&self, tokens: &Tokens<'_>, starts: &[u32], ends: &[u32], pass: &Pass) -> Loss {
        Loss::with_auxiliary(pass, |pass| {
            let [start, end] = self.span_logits(tokens, pass);
            let first = sum_of(start, starts, Options::default());
            let last = sum_of(end, ends, Options::default());
            Loss { sum: first.sum + last.sum, weight: first.weight + last.weight }
        })
    }
}

/// A model that predicts numbers of a text.
pub trait PredictsNumbers: Encodes {
    /// The numbers, of the last hidden state (B, T, C): (B, N).
    fn numbers(&self, hidden: &Var, pass: &Pass) -> Var;

    /// The numbers: (B, N).
    fn predicted(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        self.numbers(&self.encode(tokens, pass), pass)
    }

    /// The squared differences from `targets` (B, N). It counts every one of them.
    fn number_loss(&self, tokens: &Tokens<'_>, targets: &[f32], pass: &Pass) -> Loss {
        Loss::with_auxiliary(pass, |pass| {
            let predicted = self.predicted(tokens, pass);
            let targets = Var::constant(Tensor::new(predicted.shape(), targets));
            let count = predicted.shape().len() as f32;
            Loss { sum: scale(mse(&predicted, &targets), count), weight: f64::from(count) }
        })
    }
}

/// The cross-entropies of logits (…, N), as a sum over the targets that count.
fn sum_of(logits: Var, targets: &[u32], options: Options) -> Loss {
    let options = Options { reduction: Reduction::Sum, ..options };
    let weight = targets.iter().filter(|target| **target != IGNORED).count() as f64;
    Loss { sum: cross_entropy(logits, targets, options), weight }
}
