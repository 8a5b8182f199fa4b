//! What a run writes down as it goes.

use super::{Trainer, instruction_set};
use crate::diagnose::{LayerFacts, Warning};
use crate::evaluation::{Evaluation, Metric};
use crate::exhibit::Exhibits;
use crate::metrics::{Dated, Entry, Log, Row, Score, all_finite, final_training_loss, finite};
use crate::plot;
use crate::progress::{Now, duration, short};
use crate::report::{Report, Table};
use crate::run_dir::{RunDirectory, Samples};
use crate::stepper::StepResult;
use crate::task::Observation;
use crate::tensorboard::EventFile;
use hearken_base::Result;
use hearken_show::number::{plural, thousands};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the report says beside the numbers.
pub(super) struct ReportContext {
    pub(super) title: String,
    pub(super) config_text: String,
    pub(super) tables: Vec<Table>,
    pub(super) about: Vec<String>,
    pub(super) exhibits: Exhibits,
    pub(super) floor: Option<f64>,
    pub(super) why_training_is_above: Option<&'static str>,
    pub(super) peak_flops: Option<f64>,
    pub(super) flops_per_token: f64,
    /// Numbers in all parameters, and in those that learn.
    pub(super) parameters: usize,
    pub(super) trained: usize,
    pub(super) loss_label: String,
}

/// The files that grow.
pub(super) struct Records {
    metrics: Log<Row>,
    diagnostics: Log<Entry>,
    samples: Samples,
    events: EventFile,
    /// When events were last handed to the system.
    flushed: Instant,
    /// When the run would have started, had it never been interrupted.
    wall_start: f64,
    facts: ReportContext,
    /// Tokens and seconds of the last steps, for a speed that does not flicker.
    recent_tokens: f64,
    recent_seconds: f64,
    /// The last value of the metric that decides.
    val: Option<f64>,
}

impl Records {
    /// Opens the files of a run and cuts them back to `step`. The file of events is written anew
    /// from the metrics.
    pub(super) fn open(run: &RunDirectory, step: u64, facts: ReportContext) -> Result<Self> {
        let metrics = Log::<Row>::open(&run.file("metrics.jsonl"), step)?;
        let diagnostics = Log::<Entry>::open(&run.file("diagnostics.jsonl"), step)?;
        let samples = Samples::open(&run.file("samples.txt"), step)?;
        let elapsed = metrics.rows().last().map_or(0.0, |row| row.elapsed_seconds);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let wall_start = now - elapsed;
        let mut events = EventFile::create(run.path(), wall_start)?;
        let mut entries = diagnostics.rows().iter().peekable();
        for row in metrics.rows() {
            let wall = wall_start + row.elapsed_seconds;
            write_row(&mut events, wall, row)?;
            while let Some(entry) = entries.next_if(|entry| entry.step() <= row.step) {
                write_entry(&mut events, wall, entry)?;
            }
        }
        let val = metrics.rows().iter().rev().find_map(|row| row.validation.first()?.value);
        Ok(Self {
            val,
            metrics,
            diagnostics,
            samples,
            events,
            flushed: Instant::now(),
            wall_start,
            facts,
            recent_tokens: 0.0,
            recent_seconds: 0.0,
        })
    }

    pub(super) fn rows(&self) -> &[Row] {
        self.metrics.rows()
    }

    pub(super) fn entries(&self) -> &[Entry] {
        self.diagnostics.rows()
    }

    fn row(&mut self, row: Row) -> Result<()> {
        write_row(&mut self.events, self.wall_start + row.elapsed_seconds, &row)?;
        self.metrics.push(row)?;
        if self.flushed.elapsed() > Duration::from_secs(2) {
            self.flushed = Instant::now();
            self.events.flush()?;
        }
        Ok(())
    }

    /// A look inside.
    pub(super) fn layers(
        &mut self,
        step: u64,
        elapsed_seconds: f64,
        facts: &LayerFacts<'_>,
        seen: &Observation,
    ) -> Result<()> {
        let mean = |entropy: &[f32]| {
            finite(entropy.iter().map(|&e| f64::from(e)).sum::<f64>() / entropy.len() as f64)
        };
        let entry = Entry::Layers {
            step,
            layers: facts.names.to_vec(),
            gradient_norm: all_finite(facts.gradient_norms),
            update_ratio: all_finite(facts.update_ratios),
            attention_layers: seen.attention.iter().map(|layer| layer.layer.clone()).collect(),
            attention_entropy: seen.attention.iter().map(|layer| mean(&layer.entropy)).collect(),
        };
        write_entry(&mut self.events, self.wall_start + elapsed_seconds, &entry)?;
        self.diagnostics.push(entry)
    }

    /// Something that looked wrong.
    pub(super) fn warning(&mut self, step: u64, warning: Warning) -> Result<()> {
        let Warning { kind, message, hint } = warning;
        self.diagnostics.push(Entry::Warning { step, about: kind, message, hint })
    }

    /// What the model wrote.
    pub(super) fn sample(&mut self, step: u64, sample: &str) -> Result<()> {
        self.samples.push(step, sample)
    }

    /// What the report shows of the model.
    pub(super) fn exhibit(&mut self, exhibits: Exhibits) {
        self.facts.exhibits = exhibits;
    }

    /// Forces everything to disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.metrics.sync()?;
        self.diagnostics.sync()?;
        self.samples.sync()?;
        self.events.flush()
    }
}

fn write_row(events: &mut EventFile, wall: f64, row: &Row) -> Result<()> {
    let validation =
        row.validation.iter().map(|score| (format!("{}/val", score.name), score.value));
    let validation: Vec<(String, Option<f64>)> = validation.collect();
    let mut scalars = vec![("lr", row.lr), ("speed/tokens_per_second", row.tokens_per_second)];
    let optional = [("loss/train", row.train_loss), ("grad_norm", row.grad_norm)];
    let validation = validation.iter().map(|(tag, value)| (tag.as_str(), *value));
    let optional = optional.into_iter().chain(validation);
    scalars.extend(optional.filter_map(|(tag, value)| Some((tag, value?))));
    events.scalars(wall, row.step, &scalars)
}

fn write_entry(events: &mut EventFile, wall: f64, entry: &Entry) -> Result<()> {
    let Entry::Layers {
        step,
        layers,
        gradient_norm,
        update_ratio,
        attention_layers,
        attention_entropy,
    } = entry
    else {
        return Ok(());
    };
    let mut scalars: Vec<(String, f64)> = Vec::new();
    for (group, names, values) in [
        ("grad_norm_per_layer", layers, gradient_norm),
        ("update_ratio_per_layer", layers, update_ratio),
        ("attention_entropy_per_layer", attention_layers, attention_entropy),
    ] {
        let values = names.iter().zip(values);
        scalars.extend(
            values.filter_map(|(name, value)| Some((format!("{group}/{name}"), (*value)?))),
        );
    }
    let scalars: Vec<(&str, f64)> = scalars.iter().map(|(tag, x)| (tag.as_str(), *x)).collect();
    events.scalars(wall, *step, &scalars)
}

impl Trainer<'_> {
    /// Writes down a step and shows it.
    pub(super) fn record(
        &mut self,
        result: &StepResult,
        evaluation: Option<&Evaluation>,
    ) -> Result<()> {
        let elapsed_seconds = self.seconds();
        let metrics = evaluation.map_or(&[] as &[Metric], |evaluation| &evaluation.metrics);
        self.records.row(Row {
            step: self.step,
            train_loss: finite(result.loss),
            validation: metrics.iter().filter_map(Score::of).collect(),
            lr: result.lr,
            grad_norm: finite(result.gradient_norm),
            tokens_per_second: result.tokens as f64 / result.seconds.max(1e-9),
            elapsed_seconds,
        })?;
        let records = &mut self.records;
        records.val = metrics.first().map(|metric| metric.value).or(records.val);
        // Each older step counts a twentieth less.
        records.recent_tokens = 0.95 * records.recent_tokens + result.tokens as f64;
        records.recent_seconds = 0.95 * records.recent_seconds + result.seconds;
        let tokens_per_second = records.recent_tokens / records.recent_seconds.max(1e-9);
        let flops = tokens_per_second * records.facts.flops_per_token;
        let done = (self.step - self.clock.started_from) as f64;
        let now = Now {
            step: self.step,
            steps: self.config.steps,
            loss: result.loss,
            val: records.val,
            lr: result.lr,
            gradient_norm: result.gradient_norm,
            tokens_per_second,
            share_of_peak: records
                .facts
                .peak_flops
                .filter(|_| flops > 0.0)
                .map(|peak| flops / peak),
            seconds_left: Some(
                self.clock.started.elapsed().as_secs_f64() / done
                    * (self.config.steps - self.step) as f64,
            ),
        };
        if evaluation.is_some() {
            self.progress.show(&now);
        } else {
            self.progress.update(&now);
        }
        Ok(())
    }

    /// Writes `loss.svg` and `report.html`.
    pub(super) fn write_report(&self) -> Result<()> {
        let Records { facts, samples, .. } = &self.records;
        let rows = self.records.rows();
        let mut chart = plot::loss_chart(rows, facts.floor);
        chart.y_label.clone_from(&facts.loss_label);
        self.run.replace("loss.svg", &chart.svg())?;
        let mut tables = self.task.tables();
        tables.extend_from_slice(&facts.tables);
        let report = Report {
            title: &facts.title,
            facts: &self.facts(),
            rows,
            entries: self.records.entries(),
            samples: samples.all(),
            config: &facts.config_text,
            tables: &tables,
            loss_label: &facts.loss_label,
            floor: facts.floor,
            why_training_is_above: facts.why_training_is_above,
            about: &facts.about,
            exhibits: &facts.exhibits.sections,
        };
        self.run.replace("report.html", &report.html())
    }

    fn facts(&self) -> Vec<(String, String)> {
        let facts = &self.records.facts;
        let steps = if self.step == self.config.steps {
            thousands(self.step as f64)
        } else {
            [self.step, self.config.steps].map(|n| thousands(n as f64)).join(" of ")
        };
        let mut list = vec![("steps", steps), ("parameters", short(facts.parameters as f64))];
        if facts.trained != facts.parameters {
            list.push(("trained", short(facts.trained as f64)));
        }
        list.extend([
            ("tokens seen", short(self.clock.tokens as f64)),
            ("time", duration(self.seconds())),
            ("instruction set", instruction_set::of_run().to_owned()),
        ]);
        let mut list: Vec<(String, String)> =
            list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let training = final_training_loss(self.records.rows());
        if let Some((count, loss)) = training {
            let name = format!("training loss, last {}", plural(count, "step"));
            list.push((name, format!("{loss:.4}")));
        }
        let best = self.evaluations.best.as_ref();
        let of = if best.is_some_and(|best| !best.whole) { ", on a sample" } else { "" };
        let metrics = best.map_or(&[] as &[Metric], |best| &best.metrics);
        for (i, metric) in metrics.iter().enumerate() {
            let name = if i == 0 { "best validation" } else { "validation" };
            list.push((format!("{name} {}", metric.name), format!("{:.4}{of}", metric.value)));
        }
        list.extend(facts.exhibits.facts.iter().cloned());
        let validation = self.records.rows().iter().rev().find_map(|row| row.value(Metric::LOSS));
        if let (Some(validation), Some((_, training))) = (validation, training) {
            let gap = validation - training;
            list.push(("last validation − training".to_owned(), format!("{gap:+.4}")));
        }
        if let Some(floor) = facts.floor {
            let loss = metrics.iter().find(|metric| metric.name == Metric::LOSS);
            list.push(match loss {
                Some(loss) => ("above the floor".to_owned(), format!("{:.4}", loss.value - floor)),
                None => ("entropy floor".to_owned(), format!("{floor:.4}")),
            });
        }
        list
    }
}
