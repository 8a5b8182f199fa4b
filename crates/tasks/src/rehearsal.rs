//! Training on tokens that mean nothing: what a configuration costs, and how fast it is.
//!
//! `plan` and the line that `train` prints run it dry ([`cost`]); `plan --measure` and `bench train` run it
//! for its time. It is the task that training would use, on data of the same size.

use crate::config::RunConfig;
use crate::data::TextData;
use crate::next_token::NextToken;
use hearken_base::{Error, Result};
use hearken_kernels::dry::Dry;
use hearken_nn::cache::CacheKind;
use hearken_nn::config::ModelConfig;
use hearken_nn::models;
use hearken_nn::scope::Weights;
use hearken_nn::slot;
use hearken_train::{Cost, Task, TrainConfig};

/// Tokens that are computed at the same time, at most: more would take terabytes.
pub const MOST_TOKENS: usize = 1 << 24;

/// A model with new weights, to be trained as `train` says on sequences of so many tokens.
pub fn task(model: &ModelConfig, train: &TrainConfig, tokens: usize) -> Result<Box<dyn Task>> {
    let data = TextData::random(train.batch_size, tokens, model.vocabulary())?;
    let model = models::build(model, Weights::Drawn { seed: train.seed });
    if model.generates().is_none() {
        return Err(Error::new(
            format!("there is no task for {}", model.config().summary()),
            "choose another configuration",
        ));
    }
    Ok(Box::new(NextToken::new(model, data, train)))
}

/// What training a model on sequences of so many tokens costs.
pub fn cost(model: &ModelConfig, train: &TrainConfig, tokens: usize) -> Result<Cost> {
    let at_once = train.rows_at_once().saturating_mul(tokens);
    if at_once > MOST_TOKENS {
        return Err(Error::new(
            format!("{at_once} tokens at the same time, expected {MOST_TOKENS} at most"),
            "a smaller batch, or train.accumulate with a larger number",
        ));
    }
    // One round of `accumulate` takes the memory of all.
    let round = TrainConfig { batch_size: train.rows_at_once(), accumulate: 1, ..train.clone() };
    let mut cost = Cost::of(&round, |train| task(model, train, tokens))?;
    cost.tokens = cost.tokens.saturating_mul(train.accumulate);
    cost.step *= train.accumulate as f64;
    Ok(cost)
}

/// What a run costs.
pub fn cost_of_run(config: &RunConfig) -> Result<Cost> {
    cost(&config.model, &config.train, config.model.context())
}

/// Bytes that generating keeps for one sequence of so many tokens; `None` if the model does not write.
pub fn cache_bytes(model: &ModelConfig, tokens: usize, kind: CacheKind) -> Result<Option<u64>> {
    let run = || {
        let model = models::build(model, Weights::Drawn { seed: 0 });
        model.generates().map(|model| slot::bytes_for(model, tokens, kind))
    };
    Dry::new().run(run).map_err(|_| {
        let message = "the model needs more memory than a process has addresses for";
        Error::new(message, "choose a smaller one")
    })
}
