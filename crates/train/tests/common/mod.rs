//! A small network that learns a fixed function of its input, as a [`Task`].

use hearken_store::TensorFile;
use hearken_tensor::ops::dropout::dropout;
use hearken_tensor::ops::linear::linear;
use hearken_tensor::ops::mse::mse;
use hearken_tensor::rng::{Key, Rng};
use hearken_tensor::{Param, Role, Tensor, Var};
use hearken_train::files::{self, write_tensors};
use hearken_train::{
    Better, Error, Evaluation, LayerAttention, Metric, MicroLoss, Moment, Observation,
    OptimizerConfig, Portion, Result, RunDirectory, ScheduleConfig, Setup, Task, TrainConfig,
};
use std::path::Path;

/// Width of the input and of the hidden layer.
const INPUT: usize = 6;
const HIDDEN: usize = 16;

/// y = x·Aᵀ with a hidden layer in between: h = (x·W₀ᵀ + b₀)², ŷ = dropout(h)·W₁ᵀ.
pub(crate) struct Network {
    pub(crate) parameters: Vec<Param>,
    /// Rows per step.
    pub(crate) batch: usize,
    pub(crate) dropout: f32,
    /// From this step on the loss is NaN.
    pub(crate) nan_from: u64,
    /// In these steps, too.
    pub(crate) nan_in: Option<std::ops::Range<u64>>,
    /// The loss is multiplied by 1,000 for three steps from this one on.
    pub(crate) spike_at: u64,
    /// Saving fails from this step on.
    pub(crate) full_from: Option<u64>,
    /// Asks to stop during this step, counted from 1.
    pub(crate) stop_in: Option<(u64, hearken_train::interrupt::Stop)>,
}

impl Network {
    pub(crate) fn new() -> Self {
        let mut rng = Rng::new(11);
        let parameters = vec![
            Param::new("layers.0.weight", Role::Hidden, rng.normal([HIDDEN, INPUT], 0.4)),
            Param::new("layers.0.bias", Role::Vector, Tensor::zeros([HIDDEN])),
            Param::new("layers.1.weight", Role::Residual, rng.normal([1, HIDDEN], 0.2)),
        ];
        Self {
            parameters,
            batch: 12,
            dropout: 0.0,
            nan_from: u64::MAX,
            nan_in: None,
            spike_at: u64::MAX,
            full_from: None,
            stop_in: None,
        }
    }

    /// The rows `range` of a batch that only the key decides on: inputs and what is wanted.
    fn data(&self, seed: u64, step: u64, range: std::ops::Range<usize>) -> (Var, Var) {
        let mut rng = Rng::new(Key { seed, step, site: 0 }.words()[0].into());
        let all = rng.normal([self.batch, INPUT], 1.0);
        let rows = &all.data()[range.start * INPUT..range.end * INPUT];
        let wanted: Vec<f32> = rows
            .chunks(INPUT)
            .map(|x| x[0] * x[1] + 0.5 * x[2] * x[2] - 0.3 * x[5] * x[5])
            .collect();
        let constant = |width, data: &[f32]| Var::constant(Tensor::new([range.len(), width], data));
        (constant(INPUT, rows), constant(1, &wanted))
    }

    fn forward(&self, x: &Var, key: Key, p: f32) -> Var {
        let [w0, b0, w1] = [0, 1, 2].map(|i| &self.parameters[i]);
        let h = linear(x, w0.weight(), Some(&b0.var()));
        let h = dropout(&h * &h, p, key);
        linear(&h, w1.weight(), None)
    }
}

impl Task for Network {
    fn parameters(&self) -> Vec<Param> {
        self.parameters.clone()
    }

    fn loss(&self, at: Moment) -> Result<MicroLoss> {
        if let Some((step, stop)) = &self.stop_in
            && at.step + 1 == *step
        {
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
        }
        let rows = self.batch / at.micro_batches;
        let first = at.micro_batch * rows;
        let (x, y) = self.data(at.seed, at.step, first..first + rows);
        let key = Key { seed: at.seed, step: at.counter(), site: 1 };
        let loss = mse(&self.forward(&x, key, self.dropout), &y);
        let mut factor = rows as f32; // the sum over rows, not the mean
        let nan_here = self.nan_in.as_ref().is_some_and(|steps| steps.contains(&at.step));
        if at.step >= self.nan_from || nan_here {
            factor = f32::NAN;
        }
        if (self.spike_at..self.spike_at.saturating_add(3)).contains(&at.step) {
            factor *= 1000.0;
        }
        let sum = &loss * &Var::constant(Tensor::full(loss.shape(), factor));
        Ok(MicroLoss::new(sum, rows as f64, rows))
    }

    /// In four parts, of which the first is the sample, if there is to be one.
    fn evaluate(
        &mut self,
        portion: Portion,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Option<Evaluation>> {
        let key = Key { seed: 0, step: 0, site: 0 };
        let sampled = if portion.sample > 0 { 1 } else { 4 };
        let parts = if portion.whole { 4 } else { sampled };
        let (mut sum, mut of_sample) = (0.0, 0.0);
        for part in 0..parts {
            let (x, y) = self.data(999_999, part, 0..self.batch);
            sum += f64::from(mse(&self.forward(&x, key, 0.0), &y).value().item());
            if part + 1 == sampled {
                of_sample = sum / sampled as f64;
            }
            progress(part as f64 / 4.0);
        }
        let loss = sum / parts as f64;
        let score = |loss: f64| 1.0 / (1.0 + loss);
        let metrics = vec![
            Metric::loss(loss).with_sample(of_sample),
            Metric::new("score", Better::Higher, score(loss)).with_sample(score(of_sample)),
        ];
        let tokens = parts as usize * self.batch;
        Ok(Some(Evaluation { metrics, tokens, whole: parts == 4 }))
    }

    fn sample(&mut self, step: u64) -> Result<Option<String>> {
        let first = self.parameters[0].value().data()[0];
        Ok(Some(format!("after {step}: <b>{first}</b>")))
    }

    fn observe(&mut self, step: u64) -> Result<Observation> {
        let attention = (0..2).map(|i| LayerAttention {
            layer: format!("layers.{i}"),
            entropy: vec![1.0 + (step as f32 / 50.0).sin() * 0.2, 2.0 - i as f32 * 0.5],
            most: 3.0,
        });
        Ok(Observation { attention: attention.collect(), ..Observation::default() })
    }

    fn save_model(&self, dir: &Path) -> Result<()> {
        let step = dir.to_string_lossy();
        let step = step.rsplit("step-").next().and_then(|s| s.split('-').next()?.parse().ok());
        if step.zip(self.full_from).is_some_and(|(step, full): (u64, u64)| step >= full) {
            std::fs::write(dir.join("model.safetensors"), "half of i").unwrap();
            return Err(Error::io("write", dir)(std::io::ErrorKind::StorageFull.into()));
        }
        save_parameters(&self.parameters, dir)
    }

    fn load_model(&mut self, dir: &Path) -> Result<()> {
        load_parameters(&self.parameters, dir)
    }

    fn flops_per_token(&self) -> f64 {
        6.0 * (INPUT * HIDDEN + HIDDEN) as f64
    }
}

/// 40 steps with something happening at odd distances.
pub(crate) fn config() -> TrainConfig {
    TrainConfig {
        steps: 40,
        batch_size: 12,
        lr: 0.01,
        seed: 7,
        optimizer: OptimizerConfig::default(),
        schedule: ScheduleConfig::Cosine { warmup: 5, floor: 0.1 },
        evaluate_every: 7,
        checkpoint_every: 10,
        sample_every: 10,
        observe_every: 4,
        ..TrainConfig::default()
    }
}

/// The bits of all weights.
pub(crate) fn bits(network: &Network) -> Vec<u32> {
    let values: Vec<Tensor> = network.parameters.iter().map(Param::value).collect();
    values.iter().flat_map(Tensor::data).map(|x| x.to_bits()).collect()
}

/// A quiet setup in a new directory, or one that continues what is there.
pub(crate) fn setup(path: &Path) -> Setup {
    let run = if RunDirectory::holds_run(path) {
        RunDirectory::open(path)
    } else {
        RunDirectory::create(path, &[])
    };
    Setup::new(run.unwrap(), "seed = 7\n")
}

/// A file of JSON lines without its timings.
pub(crate) fn untimed(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        let object = value.as_object_mut().unwrap();
        object.remove("tokens_per_second");
        object.remove("elapsed_seconds");
        value
    };
    text.lines().map(line).collect()
}

/// Writes `parameters` into the directory of a model.
pub(crate) fn save_parameters(parameters: &[Param], dir: &Path) -> Result<()> {
    let named = parameters.iter().map(|p| (p.name().to_owned(), p.value()));
    write_tensors(&dir.join("model.safetensors"), &named.collect::<Vec<_>>())
}

/// Reads back what [`save_parameters`] wrote.
pub(crate) fn load_parameters(parameters: &[Param], dir: &Path) -> Result<()> {
    let file = TensorFile::open(&dir.join("model.safetensors"))?;
    for p in parameters {
        p.set_value(files::tensor(&file, p.name(), p.shape())?);
    }
    Ok(())
}
