//! `hearken eval --calibration`: is a model right as often as it is sure?

use super::{Arguments, save_picture};
use crate::failure::Failure;
use crate::terminal::{Terminal, visible_path};
use hearken::infer::calibration::Bin;
use hearken::show::number::thousands;
use hearken::show::page::{Value as PageValue, context, markup, render};
use hearken::show::table::Columns;
use hearken::tasks::OpenModel;
use hearken::tasks::calibration::{Calibration, FILE, Measure};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

const TEMPLATE: &str = include_str!("calibration.html");

/// What was calibrated on what.
pub(super) struct Subject<'a> {
    pub(super) model: &'a OpenModel,
    pub(super) data: Vec<PathBuf>,
    /// What an answer is of: "tokens", "texts".
    pub(super) unit: &'static str,
}

/// Shows what was found, and saves the temperature and the diagram if they are wanted.
pub(super) fn finish(
    arguments: &Arguments,
    subject: &Subject<'_>,
    found: &Calibration,
) -> Result<(), Failure> {
    if arguments.save_temperature {
        found.to_save().write(&subject.model.directory)?;
    }
    if let Some(path) = &arguments.diagram {
        let svg = found.chart().svg();
        let page = || html(arguments, subject, found);
        save_picture(path, &svg, page)?;
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", object(arguments, subject, found))?;
        return Ok(());
    }
    write(&mut out, arguments, subject, found)
}

/// The rows of the table: what it is, and the measures.
fn measures(found: &Calibration) -> Vec<(&'static str, &Measure)> {
    let saved = found.saved.as_ref().map(|saved| ("as saved with the model", saved));
    [Some(("as trained", &found.before)), saved, Some(("fitted", &found.after))]
        .into_iter()
        .flatten()
        .collect()
}

fn cells(name: &str, measure: &Measure) -> Vec<String> {
    let Measure { temperature, loss, accuracy, confidence, ece, ece_equal_mass, .. } = measure;
    let numbers = [loss, accuracy, confidence, ece, ece_equal_mass];
    let numbers = numbers.into_iter().map(|number| format!("{number:.4}"));
    [name.to_owned(), format!("{temperature:.3}")].into_iter().chain(numbers).collect()
}

const COLUMNS: [&str; 7] =
    ["", "T", "loss", "accuracy", "confidence", "ECE (equal width)", "ECE (equal mass)"];

fn summary(arguments: &Arguments, subject: &Subject<'_>, found: &Calibration) -> String {
    let count = |n: usize| thousands(n as f64);
    format!(
        "ECE with {} bins; T fitted on {} {}, everything else measured on {} others",
        arguments.bins,
        count(found.fitted_on),
        subject.unit,
        count(found.judged_on)
    )
}

fn write(
    out: &mut impl Write,
    arguments: &Arguments,
    subject: &Subject<'_>,
    found: &Calibration,
) -> Result<(), Failure> {
    let terminal = Terminal::stdout();
    let names = ["T", "loss", "accuracy", "confidence", "ECE width", "ECE mass"];
    let columns = Columns::new().left("", 0);
    let columns = names.iter().fold(columns, |columns, name| columns.right(name, 0));
    let rows: Vec<Vec<String>> =
        measures(found).into_iter().map(|(name, measure)| cells(name, measure)).collect();
    let columns = columns.holding(&rows).within(terminal.width);
    writeln!(out, "{}", terminal.bold(&columns.head()))?;
    for row in &rows {
        writeln!(out, "{}", columns.row(row))?;
    }
    writeln!(out, "\n{}", summary(arguments, subject, found))?;
    let after = found.saved.as_ref().unwrap_or(&found.after);
    for (name, measure) in [("as trained", &found.before), ("at the temperature", after)] {
        let title = format!("\nReliability, {name}: T = {:.3}", measure.temperature);
        writeln!(out, "{}", terminal.bold(&title))?;
        for line in diagram(&measure.bins) {
            writeln!(out, "{line}")?;
        }
    }
    writeln!(
        out,
        "\n█ accuracy of a bin, ░ up to its confidence (too sure), ▓ beyond it (too modest)"
    )?;
    if found.after.ece > found.before.ece {
        writeln!(
            out,
            "T lowers the loss of the answers that fitted it, but not this ECE: as trained, the model \
             is about as calibrated as so many answers can show"
        )?;
    }
    if arguments.save_temperature {
        let path = subject.model.directory.join(FILE);
        let temperature = found.after.temperature;
        writeln!(
            out,
            "T = {temperature:.4} is saved in {}: classify and generate use it",
            visible_path(&path)
        )?;
    } else if found.saved.is_none() {
        writeln!(out, "--save-temperature keeps T with the model, for classify and generate")?;
    }
    if let Some(path) = &arguments.diagram {
        writeln!(out, "the diagram is in {}", visible_path(path))?;
    }
    Ok(())
}

/// Characters of a bar that stands for 1.
const BAR: usize = 40;

/// A line for every bin that holds something.
fn diagram(bins: &[Bin]) -> Vec<String> {
    let width = 1.0 / bins.len().max(1) as f64;
    let mut lines =
        vec![format!("{:<11} {:>9} {:>9} {:>10}", "bin", "answers", "accuracy", "confidence")];
    for (i, bin) in bins.iter().enumerate().filter(|(_, bin)| bin.count > 0) {
        let (low, high) = (i as f64 * width, (i + 1) as f64 * width);
        let length = |share: f64| (share * BAR as f64).round() as usize;
        let (right, sure) = (length(bin.accuracy), length(bin.confidence));
        let bar = if right <= sure {
            "█".repeat(right) + &"░".repeat(sure - right)
        } else {
            "█".repeat(sure) + &"▓".repeat(right - sure)
        };
        lines.push(format!(
            "{low:.2} – {high:.2} {:>9} {:>9.3} {:>10.3}  {bar}",
            thousands(bin.count as f64),
            bin.accuracy,
            bin.confidence
        ));
    }
    lines
}

fn json_of(measure: &Measure) -> Value {
    let bins = |bins: &[Bin]| -> Vec<Value> {
        let bin = |bin: &Bin| json!({ "count": bin.count, "confidence": bin.confidence, "accuracy": bin.accuracy });
        bins.iter().map(bin).collect()
    };
    json!({
        "temperature": measure.temperature,
        "loss": measure.loss,
        "accuracy": measure.accuracy,
        "confidence": measure.confidence,
        "ece": measure.ece,
        "ece_equal_mass": measure.ece_equal_mass,
        "bins": bins(&measure.bins),
        "bins_equal_mass": bins(&measure.bins_equal_mass),
    })
}

fn object(arguments: &Arguments, subject: &Subject<'_>, found: &Calibration) -> Value {
    // As the model is used.
    let used = found.saved.as_ref().unwrap_or(&found.before);
    json!({
        "model": subject.model.directory,
        "data": subject.data,
        "metrics": {
            "loss": used.loss,
            "accuracy": used.accuracy,
            "ece": used.ece,
            "ece_equal_mass": used.ece_equal_mass,
        },
        "calibration": {
            "bins": arguments.bins,
            "fitted_on": found.fitted_on,
            "judged_on": found.judged_on,
            "saved_now": arguments.save_temperature,
            "before": json_of(&found.before),
            "saved": found.saved.as_ref().map(json_of),
            "after": json_of(&found.after),
        },
    })
}

/// A page with the diagram and the tables. Fails only if the template is wrong.
fn html(
    arguments: &Arguments,
    subject: &Subject<'_>,
    found: &Calibration,
) -> Result<String, Failure> {
    let bins = |measure: &Measure| -> Vec<PageValue> {
        let used = measure.bins.iter().filter(|bin| bin.count > 0);
        let row = |bin: &Bin| {
            let gap = bin.accuracy - bin.confidence;
            let numbers = [bin.confidence, bin.accuracy, gap].map(|x| format!("{x:.3}"));
            let [confidence, accuracy, gap] = numbers;
            let count = thousands(bin.count as f64);
            context! { count => count, confidence => confidence, accuracy => accuracy, gap => gap }
        };
        used.map(row).collect()
    };
    let rows: Vec<Vec<String>> =
        measures(found).into_iter().map(|(name, measure)| cells(name, measure)).collect();
    let parts = [("As trained", &found.before), ("At the fitted temperature", &found.after)];
    let parts = parts.map(|(name, measure)| context! { name => name, bins => bins(measure) });
    let values = context! {
        title => format!("Calibration of {}", subject.model.directory.display()),
        summary => summary(arguments, subject, found),
        columns => COLUMNS.to_vec(),
        rows => rows,
        chart => markup(found.chart().svg()),
        parts => parts.to_vec(),
    };
    render(TEMPLATE, values).map_err(|error| Failure::check(error.to_string(), "report this"))
}
