//! Language models: predict every token from those before it.
//!
//! The loss is the sum of −ln p over the targets of a micro-batch; an evaluation is its mean over
//! the validation set, and on the way over a sample of it.
//!
//! Where the rows of a batch go on from step to step, a model that carries a state goes on with what
//! it had at the end of the step before (`Carried`).

use crate::batch::{Selection, tokens};
use crate::carried::Carried;
use crate::data::TextData;
use crate::exhibits;
use crate::expert_use::{self, ExpertUse};
use crate::observe;
use crate::prefix::{Prefixes, with_prefixes};
use crate::rehearsal::cost;
use hearken_base::Result;
use hearken_data::batches::{Batch, IGNORED};
use hearken_formats::{self as formats, SpecialTokens};
use hearken_infer::generate::{Flow, Request, generate};
use hearken_infer::sampler::Sampling;
use hearken_nn::models::{Generates, Model, Tokens};
use hearken_nn::pass::{Noise, Pass};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::{Param, Tensor};
use hearken_train::{
    Evaluation, Exhibits, Metric, MicroLoss, Moment, Observation, Portion, Task, TrainConfig,
};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Tokens of a sample.
const SAMPLE: usize = 200;
/// Tokens of the sample from the second prompt.
const SECOND_SAMPLE: usize = 100;
/// Rows on which the use of experts is watched, at most.
const OBSERVED_ROWS: usize = 16;

/// A model that learns to predict the next token of a text.
pub struct NextToken {
    model: Box<dyn Model>,
    data: TextData,
    options: Options,
    special: SpecialTokens,
    /// What is given of each row, if the model has prefixes.
    prefixes: Option<Prefixes>,
    /// The mean loss over all of the validation set and how many tokens that was, when it was last
    /// looked at as a whole.
    judged: Option<(f64, usize)>,
    /// Counted when it is first asked for.
    operations: OnceLock<f64>,
    /// The states of a recurrent model at the end of the last step.
    carried: Carried,
}

impl NextToken {
    /// Panics if the model does not predict the next token.
    pub fn new(mut model: Box<dyn Model>, data: TextData, config: &TrainConfig) -> Self {
        assert!(model.generates().is_some(), "{:?} does not write", model.config());
        model.set_checkpointing(config.gradient_checkpointing);
        let options = Options {
            label_smoothing: config.label_smoothing,
            z_loss: config.z_loss,
            ..Options::default()
        };
        let special = data.special_tokens();
        Self {
            model,
            data,
            options,
            special,
            prefixes: None,
            judged: None,
            operations: OnceLock::new(),
            carried: Carried::default(),
        }
    }

    /// The same, where the first tokens of each row are given, as these say.
    pub fn with_prefixes(self, prefixes: Option<Prefixes>) -> Self {
        Self { prefixes, ..self }
    }

    /// What follows a prompt: the same for the same weights and step.
    fn continued(&self, prompt: Vec<u32>, most_tokens: usize, step: u64) -> Result<String> {
        let request = Request {
            sampling: Sampling { temperature: 0.8, seed: step, ..Sampling::default() },
            ends: self.special.ends.clone(),
            constraints: self.special.constraints.clone(),
            ..Request::new(prompt, most_tokens)
        };
        let (tokens, _) = generate(self.model(), &request, |_| Flow::Continue)?;
        Ok(self.data.tokenizer.decode_known(&tokens))
    }

    fn model(&self) -> &dyn Generates {
        self.model.generates().expect("checked when it was made")
    }
}

/// A batch as the model reads it, with what is given of its rows.
fn laid_out(batch: &Batch, prefixes: Option<Arc<[usize]>>) -> Tokens<'_> {
    let tokens = tokens(batch, false);
    let layout = with_prefixes(tokens.layout.clone(), prefixes);
    tokens.laid_out(layout)
}

impl Task for NextToken {
    fn parameters(&self) -> Vec<Param> {
        self.model.parameters().to_vec()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        let mut batch = self.data.batches.micro_batch(at.step, at.micro_batch, at.micro_batches);
        let prefixes = self.prefixes.as_ref().map(|prefixes| {
            let first = at.micro_batch * batch.rows;
            prefixes.of_training(&mut batch, [at.seed, at.step], first)
        });
        let pass = Pass::train(Noise { seed: at.seed, step: at.counter() });
        let tokens = laid_out(&batch, prefixes);
        let goes_on = |step| self.data.batches.continues(step);
        let recurrent = self.model.carries_state();
        let recurrent = recurrent.filter(|_| goes_on(at.step) || goes_on(at.step + 1));
        let Some(recurrent) = recurrent else {
            let loss = self.model().loss(&tokens, &batch.targets, &pass, self.options);
            return Ok(MicroLoss::new(loss.sum, loss.weight, batch.inputs.len()));
        };
        let before = self.carried.rows(at, batch.rows).filter(|_| goes_on(at.step));
        let before = before.unwrap_or_else(|| recurrent.first_states(batch.rows));
        let (hidden, carried) = recurrent.hidden_after(&before, &tokens, &pass);
        let loss = recurrent.head().loss(&hidden, &batch.targets, self.options, &pass);
        let tokens = batch.inputs.len();
        Ok(MicroLoss { carried, ..MicroLoss::new(loss.sum, loss.weight, tokens) })
    }

    fn carry(&mut self, at: Moment, carried: Vec<Tensor>) {
        self.carried.store(at, &carried);
    }

    fn state(&self) -> Vec<(String, Tensor)> {
        self.carried.named()
    }

    fn restore_state(&mut self, state: Vec<(String, Tensor)>) -> Result<()> {
        let Some(model) = self.model.carries_state() else { return Ok(()) };
        self.carried.restore(state, &model.first_states(self.data.batches.rows()))
    }

    fn loss_unit(&self) -> &'static str {
        "nats per token"
    }

    fn evaluate(
        &mut self,
        portion: Portion,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Option<Evaluation>> {
        let (count, mut batches) = self.data.validation_batches();
        let selection = Selection::new(portion, count, self.data.batches.length());
        // Of all that is looked at, and of the sample.
        let mut sums = [(0.0, 0); 2];
        let mut next = 0;
        for i in selection.batches() {
            progress(i as f64 / count as f64);
            let Some(mut batch) = batches.nth(i - next) else { break };
            next = i + 1;
            let prefixes = self.prefixes.as_ref().map(|how| how.of_evaluation(&mut batch));
            let tokens = laid_out(&batch, prefixes);
            let losses = self.model().token_losses(&tokens, &batch.targets);
            let loss = losses.data().iter().map(|loss| f64::from(*loss)).sum::<f64>();
            let counted = batch.targets.iter().filter(|target| **target != IGNORED).count();
            for (sum, tokens) in &mut sums[..if selection.in_sample(i) { 2 } else { 1 }] {
                *sum += loss;
                *tokens += counted;
            }
        }
        let [loss, sample] = sums.map(|(sum, tokens)| sum / tokens as f64);
        let tokens = sums[0].1;
        let whole = selection.is_whole();
        if whole && tokens > 0 {
            self.judged = Some((loss, tokens));
        }
        let metrics = vec![Metric::loss(loss).with_sample(sample)];
        Ok((tokens > 0).then_some(Evaluation { metrics, tokens, whole }))
    }

    fn sample(&mut self, step: u64) -> Result<Option<String>> {
        let tokenizer = &self.data.tokenizer;
        let mut text = self.continued(self.data.prompt(), SAMPLE, step)?;
        if let Some(second) = self.data.second_prompt() {
            let prompt = tokenizer.decode_known(second);
            let more = self.continued(second.to_vec(), SECOND_SAMPLE, step)?;
            text = format!("{}\n\n[{}]{more}", text.trim_end_matches('\n'), prompt.trim_start());
        }
        Ok(Some(text))
    }

    fn exhibits(&mut self) -> Result<Exhibits> {
        let mut facts = Vec::new();
        if let Some((loss, tokens)) = self.judged {
            facts.push(("perplexity".to_owned(), format!("{:.3}", loss.exp())));
            let bytes = self.data.validation_bytes() as f64;
            if bytes > 0.0 {
                let bits = loss * tokens as f64 / (std::f64::consts::LN_2 * bytes);
                facts.push(("bits per byte".to_owned(), format!("{bits:.4}")));
            }
        }
        let mut sections = match &self.data.validation {
            Some(held) => exhibits::of(self.model(), held.as_ref(), &self.data.tokenizer),
            None => Vec::new(),
        };
        let (_, batches) = self.data.validation_batches();
        let batches = batches.filter(expert_use::counts);
        if let Some(seen) = ExpertUse::measure(self.model(), batches) {
            facts.extend(seen.fact());
            sections.push(seen.exhibit());
        }
        Ok(Exhibits { facts, sections })
    }

    fn observe(&mut self, step: u64) -> Result<Observation> {
        // One row is enough to see whether heads have collapsed.
        let batch = self.data.batches.rows_of(step, 0..1);
        let observation = observe::attention(|pass| {
            self.model().hidden(&tokens(&batch, false), pass);
        });
        let rows = 0..OBSERVED_ROWS.min(self.data.batches.rows());
        let batch = std::iter::once_with(|| self.data.batches.rows_of(step, rows));
        let experts = ExpertUse::measure(self.model(), batch);
        let experts = experts.map(|seen| seen.observed()).unwrap_or_default();
        Ok(Observation { experts, ..observation })
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
            let train = TrainConfig { batch_size: 1, ..TrainConfig::default() };
            let cost = cost(&self.model.config(), &train, self.data.batches.length());
            cost.map_or(0.0, |cost| cost.training.all())
        })
    }
}
