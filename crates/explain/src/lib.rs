//! Every number of a Transformer, forward and backward, with the arithmetic behind it.
//!
//! - [`flow`]: the stages of a prompt in order: sentence, formula, shape, numbers, gradient.
//! - [`arithmetic`]: the sum behind one number of a stage, with the numbers put in.
//! - [`attribution`]: the logit lens, and what each head and layer adds to a logit.
//! - [`roles`]: what heads do, by measurement.
//! - [`intervene`]: ablation and patching, before and after.
//! - [`difference`]: one gradient against differences of the loss.
//! - [`update`]: the optimiser's change of the weights, step by step, and back.
//! - [`geometry`]: embeddings as points: neighbours and analogies.
//! - [`neurons`]: feed-forward neurons by the texts that excite them most.
//! - [`WithSource`]: an encoder-decoder with a source, looked at as a decoder is.
//!
//! Nothing here prints or serves; commands do.

pub mod arithmetic;
pub mod attribution;
pub mod difference;
pub mod flow;
pub mod geometry;
pub mod intervene;
pub mod neurons;
pub mod roles;
pub mod update;
pub mod with_source;

pub use flow::{Flow, Focus, Stage};
pub use with_source::{Source, WithSource};

use hearken_base::{Error, Result};
use hearken_nn::config::{ModelConfig, StackConfig};
use hearken_nn::models::{Model, Targets, Tokens};
use hearken_tensor::ops::cross_entropy::IGNORED;
use hearken_tensor::{Param, Tensor};

/// The blocks of a model, which only Transformers have.
pub fn stack_of(config: &ModelConfig) -> Result<&StackConfig> {
    config.stack().ok_or_else(|| {
        Error::new(
            format!("a model without attention: {}", config.summary()),
            "explain shows Transformers; `inspect trace` shows the values inside any model",
        )
    })
}

/// What the names of the blocks that lead to the logits begin with: `decoder.`, in a model with two stacks.
pub fn stack_prefix(model: &dyn Model) -> &'static str {
    if matches!(model.config(), ModelConfig::EncoderDecoder(_)) { "decoder." } else { "" }
}

/// A parameter by its name.
pub fn parameter<'a>(model: &'a dyn Model, name: &str) -> Option<&'a Param> {
    model.parameters().iter().find(|p| p.name() == name)
}

/// What should come at one place, and nothing elsewhere: a token, or a label where the model labels
/// texts.
pub fn target_at(model: &dyn Model, tokens: usize, place: usize, target: u32) -> Result<Targets> {
    if model.predicts_tokens().is_some() {
        let most = model.config().vocabulary();
        if target as usize >= most || place >= tokens {
            return Err(Error::new(
                format!("there is no token {target}, or no place {place}"),
                format!("tokens are 0 to {}, places 0 to {}", most - 1, tokens.max(1) - 1),
            ));
        }
        let mut targets = vec![IGNORED; tokens];
        targets[place] = target;
        return Ok(Targets::Tokens(targets));
    }
    match model.classifies() {
        Some(labels) if !labels.several() && (target as usize) < labels.labels().len() => {
            Ok(Targets::Classes(vec![target]))
        }
        _ => Err(Error::new(
            format!("{target} is no target of this model"),
            "targets are tokens of models that predict tokens, and labels of those that label texts",
        )),
    }
}

/// One row of tokens that the model can read.
pub fn checked<'a>(model: &dyn Model, ids: &'a [u32]) -> Result<Tokens<'a>> {
    let config = model.config();
    let (most, context) = (config.vocabulary(), config.context());
    if ids.is_empty() || ids.len() > context {
        return Err(Error::new(
            format!("{} tokens, expected 1 to {context}", ids.len()),
            "the context of the model is the most that it reads",
        ));
    }
    if let Some(id) = ids.iter().find(|id| **id as usize >= most) {
        let message = format!("there is no token {id}: the model has {most}");
        return Err(Error::new(message, "tokens count from 0"));
    }
    Ok(Tokens::new(ids, 1))
}

/// Row `row` of the last dimension of a tensor.
fn row(tensor: &Tensor, row: usize) -> &[f32] {
    let width = tensor.shape().width();
    &tensor.data()[row * width..(row + 1) * width]
}

/// Σ a·b in f64.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// √Σ x² in f64.
fn norm(x: &[f32]) -> f64 {
    dot(x, x).sqrt()
}
