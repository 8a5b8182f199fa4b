//! Everything that happens in one pass, by name: values and, given targets, their gradients.

use crate::models::{self, Model, PredictsTokens, Targets, Tokens};
use crate::pass::Pass;
use crate::taps::{Pattern, Taps};
use hearken_base::{Error, Result};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::{Tensor, no_grad};
use std::sync::Arc;

/// What is written down of a pass.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// Names of values, with which come their gradients where there are some, or of gradients alone
    /// (`d.…`). Without any, everything.
    pub only: Vec<Pattern>,
    /// How many bytes the numbers may take; any, if `None`.
    pub most_bytes: Option<usize>,
}

/// What happened in a pass.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The mean cross-entropy of the targets that count, if there are targets.
    pub loss: Option<f32>,
    /// By the names of [`taps`](crate::taps), in the order in which they were computed.
    pub tensors: Vec<(String, Tensor)>,
}

/// Takes tokens through a model, without dropout. With targets, one for each token, gradients are
/// those of the mean loss; those of the parameters are left as they were.
pub fn trace(
    model: &dyn PredictsTokens,
    tokens: &Tokens<'_>,
    targets: Option<&[u32]>,
    options: &TraceOptions,
) -> Result<Trace> {
    let targets = targets.map(|targets| Targets::Tokens(targets.to_vec()));
    trace_model(model, tokens, targets.as_ref(), options)
}

/// As [`trace`], of a model of any kind, with targets of that kind.
pub fn trace_model(
    model: &dyn Model,
    tokens: &Tokens<'_>,
    targets: Option<&Targets>,
    options: &TraceOptions,
) -> Result<Trace> {
    let taps = Arc::new(taps(options, targets.is_some())?);
    let pass = Pass::evaluate().watched(&taps);
    let loss = match targets {
        Some(targets) => {
            Some(models::loss(model, tokens, targets, &pass, Options::default())?.mean())
        }
        None => None,
    };
    if loss.is_none() {
        no_grad(|| models::outputs(model, tokens, &pass));
    }
    if let Some(name) = taps.overflow() {
        let most = options.most_bytes.unwrap_or_default() as f64 / 1e6;
        return Err(Error::new(
            format!("the trace needs more than {most:.0} MB: there is no room for {name}"),
            "choose some names, such as blocks.0.*, one head, such as \
             blocks.0.attention.weights[2], or fewer tokens",
        ));
    }
    if let Some(pattern) = taps.unmet().first() {
        return Err(Error::new(
            format!("no value of this model is called '{pattern}'"),
            "'hearken inspect trace' without --only lists all names",
        ));
    }
    if let Some(loss) = &loss {
        let before: Vec<_> = model.parameters().iter().map(|p| (p, p.gradient())).collect();
        loss.backward();
        for (parameter, gradient) in before {
            parameter.set_gradient(gradient);
        }
    }
    Ok(Trace { loss: loss.map(|loss| loss.value().item()), tensors: taps.take() })
}

fn taps(options: &TraceOptions, with_gradients: bool) -> Result<Taps> {
    let all = [Pattern::from("*")];
    let only = if options.only.is_empty() { &all[..] } else { &options.only };
    let mut taps = Taps::new().holding(options.most_bytes.unwrap_or(usize::MAX));
    for pattern in only {
        let gradient = pattern.of_gradients();
        if gradient.is_some() && !with_gradients {
            return Err(Error::new(
                format!("'{pattern}' are gradients, and there are no targets"),
                "give a target for each token",
            ));
        }
        if gradient.is_none() {
            taps = taps.record(pattern.clone());
        }
        if with_gradients {
            taps = taps.record_gradient(gradient.unwrap_or_else(|| pattern.clone()));
        }
    }
    Ok(taps)
}
