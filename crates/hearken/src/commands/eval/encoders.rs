//! How good an encoder is at what its head is for.

use super::{Arguments, calibration};
use crate::failure::Failure;
use crate::kept::Kept;
use crate::terminal::{Progress, Terminal, say};
use hearken::data::tokenizer::Tokenizer;
use hearken::nn::config::HeadConfig;
use hearken::show::table::Columns;
use hearken::tasks::data::Workplace;
use hearken::tasks::encoder::{self, Evaluated, HoldOut};
use hearken::tasks::{EncoderData, OpenModel, RunConfig};
use hearken::train::RunDirectory;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// Judges the model on the data that is named, or on what its run has held out.
pub(super) fn run(
    arguments: &Arguments,
    model: &OpenModel,
    tokenizer: Tokenizer,
) -> Result<(), Failure> {
    let (config, hold_out) = configure(arguments, model)?;
    let kept = Kept::new("hearken-eval-")?;
    let place = Workplace { path: kept.path(), resumed: false, stop: kept.stop() };
    let mut progress = Progress::new();
    progress.show("reading");
    let data = EncoderData::prepare(
        &config,
        &place,
        Some(tokenizer),
        hold_out,
        &mut hearken::data::quiet,
    )?;
    progress.clear();
    for note in &data.notes {
        say!("note: {note}");
    }
    if arguments.calibration {
        let mut show = |share: f64| progress.show(&format!("{:.0} %", 100.0 * share));
        let (bins, saved) = (arguments.bins, model.temperature()?);
        let found = encoder::calibrated(model.model.as_ref(), &data, bins, saved, &mut show)?;
        progress.clear();
        let data = arguments.paths();
        let asked = calibration::Subject { model, data, unit: "answers" };
        return calibration::finish(arguments, &asked, &found);
    }
    let held = data.held.as_ref().map_or(0, encoder::Held::count);
    let start = Instant::now();
    let mut show = |share: f64| progress.show(&format!("{:.0} %", 100.0 * share));
    let judged = encoder::evaluate(model.model.as_ref(), &data, &config.task, &mut show)?;
    progress.clear();
    let Some(judged) = judged else {
        return Err(Failure::input(
            "nothing is held out to judge the model by",
            "name labelled data with --data",
        ));
    };
    let seconds = start.elapsed().as_secs_f64();
    write(arguments, model, &data, &judged, held, seconds)
}

/// The configuration of the run that the model is of, or one for the data that is named.
fn configure(arguments: &Arguments, model: &OpenModel) -> Result<(RunConfig, HoldOut), Failure> {
    // runs/NAME/checkpoints/step-0000100
    let run = model.directory.parent().and_then(Path::parent);
    let run = run.filter(|run| run.join("config.toml").is_file());
    let own = match run {
        Some(run) => {
            let text = RunDirectory::read_config(run)?;
            let name = run.join("config.toml").display().to_string();
            Some(RunConfig::parse(&text, &name, &[])?)
        }
        None => None,
    };
    let has_own = own.is_some();
    let mut config = match own {
        Some(config) => config,
        None => RunConfig::parse(hearken::tasks::config::FINE_TUNING, "evaluation", &[])?,
    };
    config.model = model.model.config();
    // An encoder without a head embeds.
    if let hearken::nn::config::ModelConfig::Encoder(encoder) = &mut config.model
        && encoder.head == (HeadConfig::None {})
    {
        encoder.head = HeadConfig::Embedding {
            pooling: hearken::nn::config::Pooling::Mean,
            normalised: true,
            most_tokens: None,
        };
    }
    config.task.init = None;
    if arguments.paths().is_empty() {
        if !has_own {
            return Err(Failure::input(
                format!(
                    "{} is not of a run, which would have held something out",
                    model.directory.display()
                ),
                "name labelled data with --data",
            ));
        }
        return Ok((config, HoldOut::Share));
    }
    config.data.paths = arguments.paths();
    if let Some(field) = &arguments.field {
        config.data.field.clone_from(field);
    }
    if let Some(label) = &arguments.label {
        config.data.label.clone_from(label);
    }
    if arguments.second.is_some() {
        config.data.second.clone_from(&arguments.second);
    }
    config.data.held_out.clear();
    Ok((config, HoldOut::Everything))
}

fn write(
    arguments: &Arguments,
    model: &OpenModel,
    data: &EncoderData,
    judged: &Evaluated,
    rows: usize,
    seconds: f64,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if arguments.json {
        let metrics: serde_json::Map<String, serde_json::Value> =
            judged.metrics.iter().map(|m| (m.name.clone(), json!(m.value))).collect();
        let mut report = json!({
            "model": model.directory,
            "data": arguments.paths(),
            "metrics": metrics,
            "rows": rows,
            "tokens": judged.tokens,
            "seconds": seconds,
        });
        if let Some((name, most)) = data.ceiling {
            report["at_most"] = json!({ name: most });
        }
        if let Some(floor) = data.floor {
            report["at_least"] = json!({ "loss": floor });
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&report).map_err(io::Error::from)?)?;
        return Ok(());
    }
    let terminal = Terminal::stdout();
    let line = |name: &str, text: &str| format!("{} {text}", terminal.bold(&format!("{name:12}")));
    for metric in &judged.metrics {
        let mut text = format!("{:.4}", metric.value);
        if let Some((_, most)) = data.ceiling.filter(|(name, _)| *name == metric.name) {
            let _ = write!(text, ", {most:.4} at most");
        }
        if let Some(floor) = data.floor.filter(|_| metric.name == "loss") {
            let _ = write!(text, ", {floor:.4} at least");
        }
        writeln!(out, "{}", line(&metric.name, &text))?;
    }
    writeln!(out, "{}", line("counted", &format!("{rows} rows, {} tokens", judged.tokens)))?;
    writeln!(out, "{}", line("time", &format!("{seconds:.2} s")))?;
    for table in &judged.tables {
        let columns = table.columns.iter().skip(1);
        let first = Columns::new().left(table.columns.first().map_or("", String::as_str), 0);
        let columns = columns.fold(first, |columns, name| columns.right(name, 0));
        let columns = columns.holding(&table.rows).within(terminal.width);
        writeln!(out, "\n{}\n{}", terminal.bold(&table.title), columns.head())?;
        for row in &table.rows {
            writeln!(out, "{}", columns.row(row))?;
        }
    }
    Ok(())
}
