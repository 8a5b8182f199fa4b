//! An encoder-decoder with its data, as a task that can be trained and judged.

use super::data::PairData;
use super::judge::{Judged, judge};
use crate::batch::{other_tokens, tokens};
use crate::config::{RunConfig, TaskConfig};
use crate::encoder::table;
use crate::observe;
use crate::rehearsal::cost;
use crate::translate::{self, Alignment, tokens_by, written_by};
use hearken_base::{Error, Result};
use hearken_formats as formats;
use hearken_nn::models::{Model, Translates};
use hearken_nn::pass::{Noise, Pass};
use hearken_show::Table;
use hearken_tensor::Param;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_train::exhibit::Exhibit;
use hearken_train::{
    Evaluation, Exhibits, MicroLoss, Moment, Observation, Portion, Task, TrainConfig,
};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

/// Pairs that samples show.
const SAMPLES: usize = 4;
/// Alignments that the report shows.
const ALIGNED: usize = 4;
/// Tokens of the longest side of an alignment that is shown.
const MOST_ALIGNED: usize = 48;

/// An encoder-decoder that learns to write targets.
pub struct Seq2Seq {
    model: Box<dyn Model>,
    data: PairData,
    options: Options,
    /// Translations of an evaluation of everything, at most.
    most: usize,
    /// Of the last evaluation.
    tables: Vec<Table>,
    /// Counted when it is first asked for.
    operations: OnceLock<f64>,
}

impl Seq2Seq {
    /// The task of a model and its data, which must have been prepared for it.
    pub fn new(model: Box<dyn Model>, data: PairData, config: &RunConfig) -> Result<Self> {
        Self::with(model, data, &config.train, &config.task)
    }

    /// The same, of the parts of a configuration that it depends on.
    pub fn with(
        mut model: Box<dyn Model>,
        data: PairData,
        train: &TrainConfig,
        task: &TaskConfig,
    ) -> Result<Self> {
        if data.batches.is_none() {
            return Err(Error::new("there is nothing to learn from", "give data"));
        }
        if model.translates().is_none() {
            let message = "the model does not read one text and write another";
            return Err(Error::new(message, "set model.kind=encoder-decoder"));
        }
        model.set_checkpointing(train.gradient_checkpointing);
        let options = Options {
            label_smoothing: train.label_smoothing,
            z_loss: train.z_loss,
            ..Options::default()
        };
        let (most, tables, operations) = (task.translations, Vec::new(), OnceLock::new());
        Ok(Self { model, data, options, most, tables, operations })
    }

    fn model(&self) -> &dyn Translates {
        self.model.translates().expect("checked when it was made")
    }

    /// What the model makes of these texts, greedily. What is too long is cut.
    pub fn written(
        &self,
        texts: &[impl AsRef<str>],
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<String>> {
        let PairData { tokenizer, frame, special, .. } = &self.data;
        let mut sources = Vec::new();
        for text in texts {
            let mut ids = tokenizer.encode(text.as_ref())?;
            ids.truncate(self.model().context().saturating_sub(1));
            ids.push(frame.end);
            sources.push(ids);
        }
        let how = translate::Options::default();
        let said = tokens_by(self.model(), special, &sources, &how, progress)?;
        Ok(said.iter().map(|ids| tokenizer.decode_known(ids)).collect())
    }

    /// The sources of the first held-out pairs, and what the model makes of them, with its end.
    fn translated(&self, count: usize) -> Result<Vec<[Vec<u32>; 2]>> {
        let Some(held) = &self.data.held else { return Ok(Vec::new()) };
        let count = count.min(held.examples.count());
        let sources: Vec<Vec<u32>> = (0..count).map(|i| held.source(i)).collect();
        let how = translate::Options::default();
        let said = written_by(self.model(), &self.data.special, &sources, &how, &mut |_| ())?;
        Ok(sources.into_iter().zip(said).map(|(source, said)| [source, said]).collect())
    }
}

impl Task for Seq2Seq {
    fn parameters(&self) -> Vec<Param> {
        self.model.parameters().to_vec()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        let batches = self.data.batches.as_ref().expect("checked when it was made");
        let batch = batches.micro_batch(at.step, at.micro_batch, at.micro_batches);
        let Some(source) = &batch.source else { unreachable!("pairs have sources") };
        let source = other_tokens(source, batch.rows);
        let pass = Pass::train(Noise { seed: at.seed, step: at.counter() });
        let targets = tokens(&batch, false).about(&source);
        let loss = self.model().loss(&targets, &batch.targets, &pass, self.options);
        let read = batch.inputs.len() + source.ids.len();
        Ok(MicroLoss::new(loss.sum, loss.weight, read))
    }

    fn loss_unit(&self) -> &'static str {
        "nats per token"
    }

    fn evaluate(
        &mut self,
        portion: Portion,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Option<Evaluation>> {
        let judged = judge(
            self.model(),
            &self.data,
            portion,
            self.most,
            &translate::Options::default(),
            progress,
        )?;
        let Some(Judged { metrics, tables, tokens, whole, .. }) = judged else { return Ok(None) };
        self.tables = tables;
        if let Some((name, best)) = self.data.ceiling {
            let reached = metrics.iter().find(|metric| metric.name == name);
            let reached = reached.map_or(String::new(), |metric| format!("{:.4}", metric.value));
            let rows = vec![vec![name.to_owned(), format!("{best:.4}"), reached]];
            self.tables.insert(0, table("Best possible", &["metric", "at most", "now"], rows));
        }
        Ok(Some(Evaluation { metrics, tokens, whole }))
    }

    fn tables(&self) -> Vec<Table> {
        self.tables.clone()
    }

    fn sample(&mut self, _: u64) -> Result<Option<String>> {
        let tokenizer = &self.data.tokenizer;
        let mut text = String::new();
        for [source, said] in self.translated(SAMPLES)? {
            // Sentinels say where something was taken out.
            let source = &source[..source.len().saturating_sub(1)];
            let [source, said] = [source, &said[..]].map(|ids| {
                let known = ids.iter().filter(|id| !self.data.special.ends.contains(id));
                let known: Vec<u32> = known.copied().collect();
                tokenizer.decode(&known).unwrap_or_else(|_| tokenizer.decode_known(&known))
            });
            let _ = writeln!(text, "{}\n→ {}\n", source.trim(), said.trim());
        }
        Ok((!text.is_empty()).then(|| text.trim_end().to_owned()))
    }

    fn exhibits(&mut self) -> Result<Exhibits> {
        if !self.model.config().attends_to_source() {
            return Ok(Exhibits::default());
        }
        let mut body = String::from("<div class=\"heads\">\n");
        let mut shown = 0;
        for [source, said] in self.translated(4 * ALIGNED)? {
            if shown == ALIGNED || said.is_empty() || source.len().max(said.len()) > MOST_ALIGNED {
                continue;
            }
            let alignment = Alignment::of(
                self.model(),
                Some(&self.data.tokenizer),
                self.data.frame.begin,
                [&source, &said],
                None,
                None,
            )?;
            let _ = writeln!(body, "<figure>{}</figure>", alignment.small_svg());
            shown += 1;
        }
        body.push_str("</div>\n");
        let about = "Where the last layer of the decoder looks in the source while it writes each \
            token of its translation, the mean over its heads: a row is a token that was written, a \
            column one of the source, and deep blue is all of the attention.";
        let sections = (shown > 0).then(|| Exhibit {
            title: "Alignment".to_owned(),
            about: about.to_owned(),
            body,
        });
        Ok(Exhibits { facts: Vec::new(), sections: sections.into_iter().collect() })
    }

    fn observe(&mut self, step: u64) -> Result<Observation> {
        let Some(batches) = &self.data.batches else { return Ok(Observation::default()) };
        // One row is enough to see whether heads have collapsed.
        let batch = batches.rows_of(step, 0..1);
        let Some(source) = &batch.source else { return Ok(Observation::default()) };
        let source = other_tokens(source, batch.rows);
        Ok(observe::attention(|pass| {
            self.model().hidden(&tokens(&batch, false).about(&source), pass);
        }))
    }

    fn save_model(&self, dir: &Path) -> Result<()> {
        formats::save(dir, self.model.as_ref(), &self.data.special)?;
        self.data.tokenizer.save_directory(dir)
    }

    fn load_model(&mut self, dir: &Path) -> Result<()> {
        let hint = "resume with the configuration that the run was started with";
        formats::load_into(dir, self.model.as_ref()).map_err(|error| error.with_hint(hint))
    }

    fn flops_per_token(&self) -> f64 {
        *self.operations.get_or_init(|| {
            let train = TrainConfig { batch_size: 1, ..TrainConfig::default() };
            let length = self.data.batches.as_ref().map_or(1, |batches| batches.length());
            let cost = cost(&self.model.config(), &train, length);
            cost.map_or(0.0, |cost| cost.training.all())
        })
    }
}
