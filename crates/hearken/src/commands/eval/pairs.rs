//! How good an encoder-decoder is at texts and their translations.

use super::Arguments;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::terminal::{Progress, Terminal, say};
use hearken::data::tokenizer::Tokenizer;
use hearken::infer::translate::Strategy;
use hearken::tasks::data::Workplace;
use hearken::tasks::encoder::HoldOut;
use hearken::tasks::metrics::TranslationScore;
use hearken::tasks::seq2seq::{Judged, judge};
use hearken::tasks::translate::Options;
use hearken::tasks::{OpenModel, PairData, RunConfig};
use hearken::train::Portion;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Judges the model on the pairs that are named, or on what its run has held out.
pub(super) fn run(
    arguments: &Arguments,
    model: &OpenModel,
    tokenizer: Tokenizer,
) -> Result<(), Failure> {
    let translator = model.translates()?;
    let how = options(arguments)?;
    let (config, hold_out) = configure(arguments, model)?;
    let kept = Kept::new("hearken-eval-")?;
    let place = Workplace { path: kept.path(), resumed: false, stop: kept.stop() };
    let mut progress = Progress::new();
    progress.show("reading");
    let quiet = &mut hearken::data::quiet;
    let given = Some((tokenizer, model.special.clone()));
    let data = PairData::prepare(&config, &place, given, hold_out, quiet)?;
    progress.clear();
    for note in &data.notes {
        say!("note: {note}");
    }
    let start = Instant::now();
    let everything = Portion { sample: 0, whole: true };
    let mut show = |share: f64| progress.show(&format!("{:.0} %", 100.0 * share));
    let judged = judge(translator, &data, everything, usize::MAX, &how, &mut show)?;
    progress.clear();
    let Some(judged) = judged else {
        return Err(Failure::input(
            "nothing is held out to judge the model by",
            "name pairs with --data",
        ));
    };
    write(arguments, model, &data, &judged, start.elapsed().as_secs_f64())
}

fn options(arguments: &Arguments) -> Result<Options, Failure> {
    let usual = Options::default();
    let strategy = match arguments.beams {
        Some(beams) if (1..=1024).contains(&beams) => Strategy::Beams(beams),
        Some(beams) => {
            let message = format!("{beams} beams, expected 1 to 1024");
            return Err(Failure::input(message, "4 is usual"));
        }
        None => usual.strategy,
    };
    let length_penalty = arguments.length_penalty.unwrap_or(usual.length_penalty);
    if !length_penalty.is_finite() {
        let message = format!("length penalty is {length_penalty}");
        return Err(Failure::input(message, "1 is the mean per token"));
    }
    Ok(Options { strategy, length_penalty, ..usual })
}

/// The configuration of the run that the model is of, or one for the data that is named.
fn configure(arguments: &Arguments, model: &OpenModel) -> Result<(RunConfig, HoldOut), Failure> {
    let own = model.run_config()?;
    let searches = arguments.beams.is_some() || arguments.length_penalty.is_some();
    let has_own = own.is_some();
    let mut config = own.unwrap_or_else(|| RunConfig::new(model.model.config()));
    config.model = model.model.config();
    config.task.init = None;
    // A model that has learned to denoise may be judged by pairs, too.
    let pairs = |path: &PathBuf| path.extension().is_some_and(|end| end == "tsv" || end == "csv");
    if !arguments.target.is_empty()
        || arguments.label.is_some()
        || arguments.paths().iter().any(pairs)
    {
        config.task.denoise = false;
    }
    if config.task.denoise && searches {
        let message = "the model restores what is taken out of a text, and translates nothing: there is \
                       nothing to search";
        return Err(Failure::input(
            message,
            "leave --beams and --length-penalty out, or name pairs",
        ));
    }
    if arguments.paths().is_empty() {
        if !has_own {
            let directory = model.directory.display();
            let message =
                format!("{directory} is not of a run, which would have held something out");
            return Err(Failure::input(message, "name pairs with --data"));
        }
        return Ok((config, HoldOut::Share));
    }
    config.data.paths = arguments.paths();
    config.data.targets.clone_from(&arguments.target);
    if let Some(field) = &arguments.field {
        config.data.field.clone_from(field);
    }
    if let Some(label) = &arguments.label {
        config.data.label.clone_from(label);
    }
    config.data.held_out.clear();
    Ok((config, HoldOut::Everything))
}

fn write(
    arguments: &Arguments,
    model: &OpenModel,
    data: &PairData,
    judged: &Judged,
    seconds: f64,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let translated = judged.translated > 0;
    let loss =
        judged.metrics.iter().find(|metric| metric.name == "loss").map(|metric| metric.value);
    let copied = [("bleu", judged.copied.bleu()), ("chrf", judged.copied.chrf())];
    let signatures =
        [("bleu", TranslationScore::BLEU_SIGNATURE), ("chrf", TranslationScore::CHRF_SIGNATURE)];
    if arguments.json {
        let mut metrics: serde_json::Map<String, serde_json::Value> =
            judged.metrics.iter().map(|m| (m.name.clone(), json!(m.value))).collect();
        metrics.insert("perplexity".to_owned(), json!(loss.map(f64::exp)));
        let read = [arguments.paths(), arguments.target.clone()].concat();
        let mut report = json!({
            "model": model.directory,
            "data": read,
            "metrics": metrics,
            "translated": judged.translated,
            "tokens": judged.tokens,
            "seconds": seconds,
        });
        if translated {
            report["signatures"] = signatures.into_iter().collect();
            report["copy_the_source"] = copied.into_iter().collect();
        }
        if let Some((name, most)) = data.ceiling {
            report["at_most"] = json!({ name: most });
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&report).map_err(io::Error::from)?)?;
        return Ok(());
    }
    let terminal = Terminal::stdout();
    let line = |name: &str, text: &str| format!("{} {text}", terminal.bold(&format!("{name:12}")));
    for metric in &judged.metrics {
        let value = metric.value;
        let copied = copied.iter().find(|(name, _)| *name == metric.name);
        let text = match (metric.name.as_str(), copied, data.ceiling) {
            ("loss", ..) => format!("{value:.4} nats per token, perplexity {:.3}", value.exp()),
            (_, Some((_, copied)), _) => {
                format!("{value:.2}, and {copied:.2} if the source is copied")
            }
            (name, None, Some((of, most))) if of == name => {
                format!("{value:.4}, {most:.4} at most")
            }
            _ => format!("{value:.4}"),
        };
        writeln!(out, "{}", line(&metric.name, &text))?;
    }
    let counted = format!("{} pairs, {} tokens", judged.translated, judged.tokens);
    writeln!(out, "{}", line("counted", &counted))?;
    writeln!(out, "{}", line("time", &format!("{seconds:.2} s")))?;
    if translated {
        for (name, signature) in signatures {
            writeln!(out, "{}", line(name, signature))?;
        }
    }
    for table in &judged.tables {
        writeln!(out, "\n{}", terminal.bold(&table.title))?;
        for row in &table.rows {
            for (name, text) in table.columns.iter().zip(row) {
                writeln!(out, "{}", line(name, text))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}
