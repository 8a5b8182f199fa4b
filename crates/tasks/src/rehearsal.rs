//! Training on tokens that mean nothing: what a configuration costs, and how fast it is.
//!
//! `plan` and the line that `train` prints run it dry ([`cost`]); `plan --measure` and `bench train` run it
//! for its time. It is the task that training would use, on data of the same size.

use crate::config::{DataConfig, RunConfig, TaskConfig};
use crate::data::TextData;
use crate::encoder::{EncoderData, EncoderTask, Purpose};
use crate::next_token::NextToken;
use crate::seq2seq::{PairData, Seq2Seq};
use hearken_base::{Error, Result};
use hearken_data::conversions;
use hearken_data::stories::{self, Exercise};
use hearken_formats::{self as formats, SpecialTokens};
use hearken_kernels::dry::Dry;
use hearken_nn::cache::CacheKind;
use hearken_nn::config::{EncoderConfig, HeadConfig, ModelConfig};
use hearken_nn::models::{self, Model, Tokens};
use hearken_nn::pass::{Noise, Pass};
use hearken_nn::scope::Weights;
use hearken_nn::slot;
use hearken_tensor::Param;
use hearken_train::{Cost, Evaluation, MicroLoss, Moment, Portion, Task, TrainConfig};
use std::path::Path;

/// Tokens that are computed at the same time, at most: more would take terabytes.
pub const MOST_TOKENS: usize = 1 << 24;

/// A model with new weights, to be trained as `train` says on sequences of so many tokens.
pub fn task(model: &ModelConfig, train: &TrainConfig, tokens: usize) -> Result<Box<dyn Task>> {
    let built = models::build(model, Weights::Drawn { seed: train.seed });
    match model {
        ModelConfig::Decoder(_) | ModelConfig::Recurrent(_) | ModelConfig::Convolution(_) => {
            let data = TextData::random(train.batch_size, tokens, model.vocabulary())?;
            Ok(Box::new(NextToken::new(built, data, train)))
        }
        ModelConfig::Encoder(EncoderConfig { head: HeadConfig::None {}, .. }) => {
            Ok(Box::new(Bare::new(built, train, tokens)))
        }
        ModelConfig::EncoderDecoder(_) | ModelConfig::RecurrentSeq2seq(_) => {
            let data = PairData::random(model.vocabulary(), train.batch_size, tokens);
            Ok(Box::new(Seq2Seq::with(built, data, train, &TaskConfig::default())?))
        }
        ModelConfig::Encoder(config) => {
            let data = EncoderData::random(config, train.batch_size, tokens)?;
            Ok(Box::new(EncoderTask::with(built, data, train, &TaskConfig::default())?))
        }
    }
}

/// An encoder without a head, on its way to a loss that means nothing.
struct Bare {
    model: Box<dyn Model>,
    rows: usize,
    tokens: usize,
}

impl Bare {
    fn new(mut model: Box<dyn Model>, train: &TrainConfig, tokens: usize) -> Self {
        model.set_checkpointing(train.gradient_checkpointing);
        Self { model, rows: train.batch_size, tokens }
    }
}

impl Task for Bare {
    fn parameters(&self) -> Vec<Param> {
        self.model.parameters().to_vec()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        let rows = self.rows / at.micro_batches;
        let ids = vec![0; rows * self.tokens];
        let pass = Pass::train(Noise { seed: at.seed, step: at.counter() });
        let cannot = || Error::new("the model does not encode", "choose another configuration");
        let model = self.model.encodes().ok_or_else(cannot)?;
        let hidden = model.encode(&Tokens::new(&ids, rows), &pass);
        let out = model.pooled(&hidden, &pass).unwrap_or(hidden);
        Ok(MicroLoss::new(out.mean(), 1.0, ids.len()))
    }

    fn evaluate(&mut self, _: Portion, _: &mut dyn FnMut(f64)) -> Result<Option<Evaluation>> {
        Ok(None)
    }

    fn save_model(&self, dir: &Path) -> Result<()> {
        formats::save(dir, self.model.as_ref(), &SpecialTokens::default())?;
        Ok(())
    }

    fn load_model(&mut self, dir: &Path) -> Result<()> {
        formats::load_into(dir, self.model.as_ref())
    }
}

/// Gives a model what data would tell it: the tokens and labels of the stories that it learns if there
/// are no files, or else two labels. Gives a note of what was assumed.
pub fn fit(model: &mut ModelConfig, data: &DataConfig) -> Option<String> {
    let exercise = Purpose::of(model).ok().and_then(Purpose::exercise);
    let exercise = exercise.filter(|_| data.paths.is_empty() && data.tokenizer_file.is_none());
    if model.has_source()
        && model.vocabulary() == 0
        && data.paths.is_empty()
        && data.generated.is_some_and(|generated| generated.conversion().is_some())
    {
        let tokens = conversions::tokenizer().vocabulary_size();
        model.set_vocabulary(tokens);
        return Some(format!("{tokens} tokens, the words of dates and numbers"));
    }
    let ModelConfig::Encoder(encoder) = model else { return None };
    let mut notes = Vec::new();
    if encoder.vocabulary == 0 && exercise.is_some() {
        encoder.vocabulary = stories::word_tokenizer().vocabulary_size();
        notes.push(format!("{} tokens, the words of the stories", encoder.vocabulary));
    }
    if encoder.head.labels().is_some_and(<[String]>::is_empty) {
        let found = exercise.map(Exercise::labels).filter(|labels| !labels.is_empty());
        let labels = found.unwrap_or_else(|| ["0", "1"].map(str::to_owned).to_vec());
        notes.push(format!("{} labels", labels.len()));
        encoder.head.set_labels(labels);
    }
    (!notes.is_empty()).then(|| notes.join(", "))
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
        match model.translates() {
            Some(model) => Some(slot::bytes_with_source(model, tokens, kind)),
            None => model.generates().map(|model| slot::bytes_for(model, tokens, kind)),
        }
    };
    Dry::new().run(run).map_err(|_| {
        let message = "the model needs more memory than a process has addresses for";
        Error::new(message, "choose a smaller one")
    })
}
