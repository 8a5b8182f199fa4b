//! An encoder with its data, as a task that can be trained and judged.

use super::classes::Classes;
use super::data::{EncoderData, Held};
use super::encoding::Purpose;
use super::masks::Masks;
use super::numbers::Numbers;
use super::objective::{Common, Objective, table};
use super::pairs::Contrast;
use super::spans::Spans;
use super::tags::TagWords;
use crate::batch::{Selection, evaluation_rows, tokens};
use crate::config::{RunConfig, TaskConfig};
use crate::observe;
use crate::rehearsal::cost;
use hearken_base::{Error, Result};
use hearken_data::batches::{Examples, InOrder};
use hearken_data::tokenizer::Special;
use hearken_formats::{self as formats, SpecialTokens};
use hearken_nn::config::ModelConfig;
use hearken_nn::models::Model;
use hearken_nn::pass::Noise;
use hearken_show::Table;
use hearken_tensor::Param;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_train::{
    Evaluation, Metric, MicroLoss, Moment, Observation, Portion, Task, TrainConfig,
};
use std::path::Path;
use std::sync::OnceLock;

/// What belongs to the head of a model.
const HEAD: &str = "head.";

/// An encoder that learns what its head is for.
pub struct EncoderTask {
    model: Box<dyn Model>,
    data: EncoderData,
    objective: Box<dyn Objective>,
    types: bool,
    /// The learning rate of the body, as a multiple of the head's.
    body_rate: f64,
    special: SpecialTokens,
    /// Of the last evaluation.
    tables: Vec<Table>,
    /// Counted when it is first asked for.
    operations: OnceLock<f64>,
}

impl EncoderTask {
    /// The task of a model and its data, which must have been prepared for it.
    pub fn new(model: Box<dyn Model>, data: EncoderData, config: &RunConfig) -> Result<Self> {
        Self::with(model, data, &config.train, &config.task)
    }

    /// The same, of the parts of a configuration that it depends on.
    pub fn with(
        mut model: Box<dyn Model>,
        data: EncoderData,
        train: &TrainConfig,
        task: &TaskConfig,
    ) -> Result<Self> {
        if data.batches.is_none() {
            return Err(Error::new("there is nothing to learn from", "give data"));
        }
        let purpose = Purpose::of(&model.config())?;
        if purpose == Purpose::Pairs && train.rows_at_once() / train.parts_at_once() < 2 {
            return Err(Error::new(
                "pairs are compared within a micro-batch, and one has a single pair",
                "set a larger train.batch_size, or train.accumulate=1 and train.parallel_parts=1",
            ));
        }
        model.set_checkpointing(train.gradient_checkpointing);
        freeze(model.as_ref(), task)?;
        let objective = objective(model.as_ref(), &data, Some(train), task)?;
        let special = SpecialTokens {
            begin: data.tokenizer.special(Special::Bos),
            ends: data.tokenizer.special(Special::Eos).into_iter().collect(),
            pad: data.tokenizer.special(Special::Pad),
            ..SpecialTokens::default()
        };
        let body_rate = task.body_lr.map_or(1.0, |lr| lr / train.lr.max(f64::MIN_POSITIVE));
        let types = knows_types(model.as_ref());
        let tables = Vec::new();
        let operations = OnceLock::new();
        Ok(Self { model, data, objective, types, body_rate, special, tables, operations })
    }
}

fn knows_types(model: &dyn Model) -> bool {
    matches!(model.config(), ModelConfig::Encoder(config) if config.types > 1)
}

fn objective(
    model: &dyn Model,
    data: &EncoderData,
    train: Option<&TrainConfig>,
    task: &TaskConfig,
) -> Result<Box<dyn Objective>> {
    let options = Options {
        label_smoothing: train.map_or(0.0, |train| train.label_smoothing),
        z_loss: train.map_or(0.0, |train| train.z_loss),
        ..Options::default()
    };
    let common = Common { options, types: knows_types(model) };
    let labels = data.labels.clone();
    let weights = data.weights.clone();
    Ok(match Purpose::of(&model.config())? {
        Purpose::Masks => Box::new(Masks { common }),
        Purpose::Classes => Box::new(Classes { common, labels, weights, several: false }),
        Purpose::Several => Box::new(Classes { common, labels, weights: None, several: true }),
        Purpose::Tags => Box::new(TagWords { common, labels }),
        Purpose::Spans => Box::new(Spans { common, longest: task.longest_answer }),
        Purpose::Numbers => Box::new(Numbers { common }),
        Purpose::Pairs => Box::new(Contrast { common, temperature: task.temperature }),
    })
}

/// Lets the embeddings and the first `task.freeze` blocks stay as they are.
fn freeze(model: &dyn Model, task: &TaskConfig) -> Result<()> {
    if task.freeze == 0 {
        return Ok(());
    }
    let layers = model.config().stack().map_or(0, |stack| stack.layers);
    if task.freeze > layers {
        return Err(Error::new(
            format!("task.freeze is {}, and the model has {layers} blocks", task.freeze),
            format!("{layers} freezes everything but the head"),
        ));
    }
    for parameter in model.parameters() {
        let name = parameter.name();
        let block = name.strip_prefix("blocks.").and_then(|rest| rest.split('.').next());
        let block = block.and_then(|number| number.parse::<usize>().ok());
        let frozen = match block {
            Some(block) => block < task.freeze,
            // Whatever comes before the blocks; what comes after them, if all are frozen.
            None if name.starts_with(HEAD) || name.starts_with("pooler.") => false,
            None => task.freeze == layers || !name.starts_with("norm"),
        };
        parameter.set_trainable(!frozen);
    }
    Ok(())
}

/// What judging came to.
pub struct Evaluated {
    /// The measures, the deciding one first.
    pub metrics: Vec<Metric>,
    /// Details.
    pub tables: Vec<Table>,
    /// Tokens that were read.
    pub tokens: usize,
    /// Was everything looked at?
    pub whole: bool,
}

/// Judges a model by all that is held out of `data`.
pub fn evaluate(
    model: &dyn Model,
    data: &EncoderData,
    task: &TaskConfig,
    progress: &mut dyn FnMut(f64),
) -> Result<Option<Evaluated>> {
    let objective = objective(model, data, None, task)?;
    let everything = Portion { sample: 0, whole: true };
    Ok(data.held.as_ref().map(|held| judge(objective.as_ref(), model, held, everything, progress)))
}

fn judge(
    objective: &dyn Objective,
    model: &dyn Model,
    held: &Held,
    portion: Portion,
    progress: &mut dyn FnMut(f64),
) -> Evaluated {
    let length = held.examples.longest();
    let rows = evaluation_rows(length);
    let mut batches = InOrder::new(&held.examples, rows);
    let count = batches.batches();
    let selection = Selection::new(portion, count, length);
    let mut all = objective.judge(held);
    let mut sample = (!selection.samples_all()).then(|| objective.judge(held));
    let (mut next, mut tokens) = (0, 0);
    for i in selection.batches() {
        progress(i as f64 / count.max(1) as f64);
        let Some(batch) = batches.nth(i - next) else { break };
        next = i + 1;
        tokens += (0..batch.rows).map(|row| batch.length_of(row)).sum::<usize>();
        let outputs = objective.outputs(model, &batch);
        let examples = i * rows..i * rows + batch.rows;
        if let Some(sample) = sample.as_mut().filter(|_| selection.in_sample(i)) {
            sample.see(examples.clone(), &batch, &outputs);
        }
        all.see(examples, &batch, &outputs);
    }
    let mut metrics = all.metrics();
    if let Some(sample) = sample {
        for of_sample in sample.metrics() {
            if let Some(metric) = metrics.iter_mut().find(|metric| metric.name == of_sample.name) {
                metric.sample = of_sample.value;
            }
        }
    }
    Evaluated { metrics, tables: all.tables(), tokens, whole: selection.is_whole() }
}

impl Task for EncoderTask {
    fn parameters(&self) -> Vec<Param> {
        self.model.parameters().to_vec()
    }

    fn rate(&self, parameter: &Param) -> f64 {
        if parameter.name().starts_with(HEAD) { 1.0 } else { self.body_rate }
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        let batches = self.data.batches.as_ref().expect("checked when it was made");
        let batch = batches.micro_batch(at.step, at.micro_batch, at.micro_batches);
        let noise = Noise { seed: at.seed, step: at.counter() };
        let loss = self.objective.loss(self.model.as_ref(), &batch, noise);
        let others = batch.source.as_ref().map_or(0, |source| source.ids.len());
        Ok(MicroLoss::new(loss.sum, loss.weight, batch.inputs.len() + others))
    }

    fn loss_unit(&self) -> &'static str {
        self.objective.unit()
    }

    fn evaluate(
        &mut self,
        portion: Portion,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Option<Evaluation>> {
        let Some(held) = &self.data.held else { return Ok(None) };
        let judged = judge(self.objective.as_ref(), self.model.as_ref(), held, portion, progress);
        self.tables = judged.tables;
        if let Some((name, best)) = self.data.ceiling {
            let reached = judged.metrics.iter().find(|metric| metric.name == name);
            let reached = reached.map_or(String::new(), |metric| format!("{:.4}", metric.value));
            let rows = vec![vec![name.to_owned(), format!("{best:.4}"), reached]];
            self.tables.insert(0, table("Best possible", &["metric", "at most", "now"], rows));
        }
        let Evaluated { metrics, tokens, whole, .. } = judged;
        Ok((tokens > 0).then_some(Evaluation { metrics, tokens, whole }))
    }

    fn tables(&self) -> Vec<Table> {
        self.tables.clone()
    }

    fn observe(&mut self, step: u64) -> Result<Observation> {
        let (Some(batches), Some(model)) = (&self.data.batches, self.model.encodes()) else {
            return Ok(Observation::default());
        };
        // One row is enough to see whether heads have collapsed.
        let batch = batches.rows_of(step, 0..1);
        Ok(observe::attention(|pass| {
            model.encode(&tokens(&batch, self.types), pass);
        }))
    }

    fn save_model(&self, dir: &Path) -> Result<()> {
        formats::save(dir, self.model.as_ref(), &self.special)?;
        self.data.tokenizer.save_directory(dir)
    }

    fn load_model(&mut self, dir: &Path) -> Result<()> {
        let hint = "resume with the configuration that the run was started with";
        formats::load_into(dir, self.model.as_ref()).map_err(|error| error.with_hint(hint))
    }

    fn flops_per_token(&self) -> f64 {
        *self.operations.get_or_init(|| {
            let length = self.data.batches.as_ref().map_or(1, |batches| batches.length());
            // Pairs are compared with each other: one alone is none.
            let train = TrainConfig { batch_size: 2, ..TrainConfig::default() };
            let cost = cost(&self.model.config(), &train, length);
            cost.map_or(0.0, |cost| cost.training.all())
        })
    }
}
