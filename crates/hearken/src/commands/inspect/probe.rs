//! `hearken inspect probe`: what can be read off the residual stream after each layer.

use crate::commands::outputs::check_out;
use crate::failure::Failure;
use crate::model::{ModelArguments, TokenizerArguments};
use crate::terminal::{Progress, Terminal, visible_path};
use hearken::show::table::Columns;
use hearken::tasks::probe::{self, Probed, Probes, Probing};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// Read facts off the residual stream with linear probes, layer by layer.
///
/// Generated stories tell who lost what, and where it was. A logistic regression per layer learns to
/// read each fact from the state right before the story says it again, and is judged on stories that
/// it has not seen. The model must read text from left to right; one trained on stories knows them.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    /// Stories to read; a quarter of them judges the probes
    #[arg(long, value_name = "N", default_value_t = 2000)]
    stories: usize,

    /// Seed of the stories
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the curves as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken inspect probe --model runs/stories
  hearken inspect probe --model runs/stories --stories 4000 --svg probe.svg

Facts: who (the hero), animal, colour, what and where, each read right before it is said again (the
animal before its verb); and parity, whether the position of any token is odd.
Controls: 'unrelated' is a probe on the embedding of any token of another story, 'shuffled' one on
the best layer with the facts of other stories. Both should be near chance, the accuracy of always
saying the most frequent class.

Keys of --json:
  model, layers     the states that were read: embedding, after each block, after the last norm
  trained_on, judged_on
  facts             by name: classes, chance, accuracy (by layer), unrelated, shuffled";

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = arguments.model.open()?;
    let tokenizer = arguments.tokenizer.require(&model, "name one with --tokenizer")?;
    if let Some(path) = &arguments.svg {
        check_out("--svg", path, Some(&model.directory), &[])?;
    }
    let mut progress = Progress::new();
    let mut show = |share: f64| progress.show(&format!("{:.0} %", 100.0 * share));
    let probing = Probing { stories: arguments.stories, seed: arguments.seed };
    let probes = probe::stories(&model, &tokenizer, probing, &mut show)?;
    progress.clear();
    if let Some(path) = &arguments.svg {
        std::fs::write(path, probes.chart().svg()).map_err(|error| {
            let message = format!("cannot write {}: {error}", path.display());
            Failure::input(message, "choose another --svg")
        })?;
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        let fact = |fact: &Probed| {
            let value = json!({
                "classes": fact.classes,
                "chance": fact.chance,
                "accuracy": fact.accuracy,
                "unrelated": fact.unrelated,
                "shuffled": fact.shuffled,
            });
            (fact.name.to_owned(), value)
        };
        let report = json!({
            "model": model.directory,
            "layers": probes.layers,
            "trained_on": probes.trained_on,
            "judged_on": probes.judged_on,
            "facts": probes.facts.iter().map(fact).collect::<serde_json::Map<String, Value>>(),
        });
        writeln!(out, "{report:#}")?;
        return Ok(());
    }
    write(&mut out, arguments, &probes)
}

fn write(out: &mut impl Write, arguments: &Arguments, probes: &Probes) -> Result<(), Failure> {
    let terminal = Terminal::stdout();
    let mut columns = Columns::new().left("accuracy after", 0);
    for fact in &probes.facts {
        columns = columns.right(fact.name, 6);
    }
    let row = |name: &str, of: &dyn Fn(&Probed) -> f64| -> Vec<String> {
        let cells = probes.facts.iter().map(|fact| format!("{:.3}", of(fact)));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let layers = probes.layers.iter().enumerate();
    let mut rows: Vec<Vec<String>> =
        layers.map(|(i, name)| row(name, &|fact| fact.accuracy[i])).collect();
    rows.push(row("control: unrelated token", &|fact| fact.unrelated));
    rows.push(row("control: shuffled facts", &|fact| fact.shuffled));
    rows.push(row("chance", &|fact| fact.chance));
    let columns = columns.holding(&rows).within(terminal.width);
    writeln!(out, "{}", terminal.bold(&columns.head()))?;
    for row in &rows {
        writeln!(out, "{}", columns.row(row))?;
    }
    let Probes { trained_on, judged_on, .. } = probes;
    writeln!(out, "\nprobes trained on {trained_on} stories, judged on {judged_on} others\n")?;
    for line in probes.chart().text(terminal.width.min(90), 12) {
        writeln!(out, "{line}")?;
    }
    if let Some(path) = &arguments.svg {
        writeln!(out, "\nthe curves are in {}", visible_path(path))?;
    }
    Ok(())
}
