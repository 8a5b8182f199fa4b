//! What a model of any kind computes for given tokens, and its loss for given targets: for whoever
//! looks at models without knowing what they are for, as `inspect` does.

use super::{Model, PredictsTokens, Tokens};
use crate::layers::Loss;
use crate::pass::Pass;
use hearken_base::{Error, Result};
use hearken_tensor::Var;
use hearken_tensor::ops::concat::concat;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::ops::reshape::reshape;

/// What a model should have answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// A token or a label for each token, (B, T), or `IGNORED`.
    Tokens(Vec<u32>),
    /// A label for each text, (B), or `IGNORED`.
    Classes(Vec<u32>),
    /// For each text and each label 0 or 1, (B, N).
    Several(Vec<f32>),
    /// Numbers for each text, (B, N).
    Numbers(Vec<f32>),
    /// The first and the last token of each answer, (B) each, or `IGNORED`.
    Spans {
        /// The first.
        starts: Vec<u32>,
        /// The last.
        ends: Vec<u32>,
    },
}

/// What [`Targets`] a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A token for each token.
    Tokens,
    /// A label for each token, one of so many.
    Tags(usize),
    /// A label for each text, one of so many.
    Classes(usize),
    /// 0 or 1 for each text and each of so many labels.
    Several(usize),
    /// So many numbers for each text.
    Numbers(usize),
    /// Two places for each text.
    Spans,
}

impl TargetKind {
    /// Of a model; nothing, if it has no loss of its own.
    pub fn of(model: &dyn Model) -> Option<Self> {
        if predictor(model).is_some() {
            Some(Self::Tokens)
        } else if let Some(model) = model.classifies() {
            let labels = model.labels().len();
            Some(if model.several() { Self::Several(labels) } else { Self::Classes(labels) })
        } else if let Some(model) = model.tags() {
            Some(Self::Tags(model.labels().len()))
        } else if model.finds_spans().is_some() {
            Some(Self::Spans)
        } else if model.predicts_numbers().is_some() {
            Some(Self::Numbers(model.config().outputs()))
        } else {
            None
        }
    }
}

/// The model as one that predicts tokens, be it with a source or without.
fn predictor(model: &dyn Model) -> Option<&dyn PredictsTokens> {
    model.translates().map(|model| model as &dyn PredictsTokens).or(model.predicts_tokens())
}

/// The loss of a model of any kind. The targets must be of the kind that it takes, and have its
/// shape.
pub fn loss(
    model: &dyn Model,
    tokens: &Tokens<'_>,
    targets: &Targets,
    pass: &Pass,
    options: Options,
) -> Result<Loss> {
    let found = match targets {
        Targets::Tokens(targets) => match (predictor(model), model.tags()) {
            (Some(model), _) => Some(model.loss(tokens, targets, pass, options)),
            (None, Some(model)) => Some(model.tag_loss(tokens, targets, pass, options)),
            (None, None) => None,
        },
        Targets::Classes(targets) => model
            .classifies()
            .filter(|model| !model.several())
            .map(|model| model.class_loss(tokens, targets, pass, options)),
        Targets::Several(targets) => model
            .classifies()
            .filter(|model| model.several())
            .map(|model| model.several_loss(tokens, targets, pass)),
        Targets::Numbers(targets) => {
            model.predicts_numbers().map(|model| model.number_loss(tokens, targets, pass))
        }
        Targets::Spans { starts, ends } => {
            model.finds_spans().map(|model| model.span_loss(tokens, starts, ends, pass))
        }
    };
    found.ok_or_else(|| {
        let takes = TargetKind::of(model);
        Error::new(
            format!("the targets do not fit the model, which takes {takes:?}"),
            "give targets of its kind",
        )
    })
}

/// All results of a model by name: `hidden` (B, T, C), `pooled` (B, C) and `logits`, as far as it
/// has them; `start_logits` and `end_logits` of one that finds spans, and `embedding` of one that
/// embeds; `encoder_hidden` (B, S, C) of one that translates. A pass that is watched sees every value once.
pub fn outputs(model: &dyn Model, tokens: &Tokens<'_>, pass: &Pass) -> Vec<(&'static str, Var)> {
    if let (Some(model), Some(source)) = (model.translates(), tokens.source) {
        let sources = model.read(source, pass);
        let hidden = model.continued(tokens, &sources, pass);
        let logits = model.logits_of(&hidden, pass);
        let last = sources.into_iter().next_back().map(|memory| ("encoder_hidden", memory.hidden));
        return last.into_iter().chain([("hidden", hidden), ("logits", logits)]).collect();
    }
    let Some(encoder) = model.encodes() else {
        let Some(model) = model.predicts_tokens() else { return Vec::new() };
        let hidden = model.hidden(tokens, pass);
        let logits = model.head().logits(&hidden, pass);
        return vec![("hidden", hidden), ("logits", logits)];
    };
    let hidden = encoder.encode(tokens, pass); // (B, T, C)
    let mut found = vec![("hidden", hidden.clone())];
    if let Some(model) = model.predicts_tokens() {
        found.push(("logits", model.logits_of(&hidden, pass)));
    } else if let Some(model) = model.classifies() {
        found.push(("logits", model.classify(&hidden, pass)));
    } else if let Some(model) = model.tags() {
        found.push(("logits", model.tag(&hidden, pass)));
    } else if let Some(model) = model.predicts_numbers() {
        found.push(("logits", model.numbers(&hidden, pass)));
    } else if let Some(model) = model.finds_spans() {
        let [start, end] = model.spans(&hidden, pass); // (B, T)
        let [batch, length] = start.value().dims();
        let [a, b] = [&start, &end].map(|x| reshape(x.clone(), [batch, length, 1]));
        found.push(("logits", concat(&[&a, &b], 2))); // (B, T, 2)
        found.extend([("start_logits", start), ("end_logits", end)]);
    } else {
        let how = encoder.embedded();
        let lengths = tokens.layout.lengths.as_deref();
        let pooled = crate::layers::pool(&hidden, lengths, how.pooling);
        let vector = if how.normalised { crate::layers::normalised(&pooled) } else { pooled };
        found.push(("embedding", vector));
    }
    let unwatched = Pass::evaluate();
    let bare = model.classifies().is_none() && model.predicts_numbers().is_none();
    // What went through the pooler has been seen.
    let pass = if bare { pass } else { &unwatched };
    if let Some(pooled) = encoder.pooled(&hidden, pass) {
        found.push(("pooled", pooled));
    }
    found
}
