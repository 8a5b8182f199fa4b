//! `hearken eval`: how good is a model at what it is for?
//!
//! Encoders are judged by labelled data (`encoders.rs`), encoder-decoders by pairs of texts
//! (`pairs.rs`), language models by how well they predict a text. With targets t₁ … tₙ, every token of
//! the text but the first,
//!
//! ```text
//! loss = −1/n Σ ln p(tᵢ | what comes before it in its window)
//! perplexity = e^loss          bits per byte = n·loss / (ln 2 · bytes of t₁ … tₙ)
//! ```
//! Without `--stride` the windows do not overlap, so that the first target of a window is
//! predicted from one token and the last from T; with a stride of s they overlap, and every target
//! (but those of the first window) is predicted from at least T − s + 1 tokens.

mod calibration;
mod encoders;
mod pairs;
mod shots;
pub(crate) mod subject;

use super::outputs::check_out;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::model::{ModelArguments, TokenizerArguments};
use crate::terminal::{Progress, Terminal, visible};
use hearken::data::batches::{Batch, Examples, InOrder};
use hearken::nn::models::{PredictsTokens, Tokens};
use hearken::nn::pass::{Layout, Pass};
use hearken::nn::taps::{Pattern, Taps, zero};
use hearken::show::number::{plural, thousands};
use hearken::tasks::OpenModel;
use hearken::tasks::calibration::{BINS, of_tokens};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use subject::{Measured, Subject, generated, read, text};

/// Measure how good a model is: how well it predicts a text, labels it, answers or embeds.
///
/// Of a language model, every token but the first counts once. Loss is the mean of −ln p in nats, perplexity is e to
/// the loss, and bits per byte is what the model would need to store the text, which compares
/// models with different tokenizers.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    /// Text: files, directories, JSON lines, pipes, or - for stdin; for encoders, labelled data
    /// [default: what the run has held out]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The same as FILE (may be given several times)
    #[arg(long, visible_alias = "source", value_name = "PATH")]
    data: Vec<PathBuf>,

    /// The key of the text in JSON lines, or its column [default: text, or that of the run]
    #[arg(long, value_name = "KEY")]
    field: Option<String>,

    /// The key or column of the label, the number or the similarity (encoders) or of the translation
    /// (encoder-decoders) [default: label, or target]
    #[arg(long, value_name = "KEY")]
    label: Option<String>,

    /// The key or column of the second text (encoders)
    #[arg(long, value_name = "KEY")]
    second: Option<String>,

    /// The files of translations, line by line of those of FILE (encoder-decoders)
    #[arg(long, value_name = "FILE")]
    target: Vec<PathBuf>,

    /// Translate by beam search with so many candidates (encoder-decoders) [default: greedily]
    #[arg(long, value_name = "N")]
    beams: Option<usize>,

    /// A translation of n tokens scores Σ ln p / nᴬ (encoder-decoders) [default: 1]
    #[arg(long, value_name = "A", allow_negative_numbers = true, requires = "beams")]
    length_penalty: Option<f32>,

    /// Which part of the text: all, or as 'hearken train' splits it [default: all of a text that is
    /// given, validation of a run's own]
    #[arg(long)]
    split: Option<Split>,

    /// The share at the end that is for validation [default: 0.1, or that of the run]
    #[arg(long, value_name = "F")]
    validation: Option<f64>,

    /// Move windows by N tokens, so that they overlap [default: the context, without overlap]
    #[arg(long, value_name = "N")]
    stride: Option<usize>,

    /// Tokens in a window [default: the model's context]
    #[arg(long, value_name = "N")]
    context: Option<usize>,

    /// Windows at a time: changes speed and memory, not the result
    #[arg(long, value_name = "N", default_value_t = 8)]
    batch_size: usize,

    /// Evaluate with these values set to 0, to see what they are worth, such as
    /// 'blocks.1.attention.mixed[2]', which is head 2 of block 1 (several times for more; decoders)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["calibration", "shots"])]
    ablate: Vec<String>,

    /// Is the model right as often as it is sure? Fits a temperature on one half of the examples and
    /// judges on the other
    #[arg(long, conflicts_with = "shots")]
    calibration: bool,

    /// Bins of the calibration error
    #[arg(long, value_name = "N", default_value_t = BINS, requires = "calibration")]
    bins: usize,

    /// Keep the fitted temperature in the model directory, for classify and generate
    #[arg(long, requires = "calibration")]
    save_temperature: bool,

    /// Examples in the prompt: accuracy by how many there are, as in 0,1,2,4,8 (decoders)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    shots: Option<Vec<usize>>,

    /// Questions for each number of examples [default: 200 rows of the data, 1000 generated ones]
    #[arg(long, value_name = "N", requires = "shots")]
    questions: Option<usize>,

    /// How an example is written [default: 'Text: {text}\nLabel: {label}\n\n', or '{text} => {label}\n'
    /// with --second]
    #[arg(long, value_name = "TEXT", requires = "shots")]
    template: Option<String>,

    /// Write the diagram of --calibration (.svg or .html) or the curve of --shots (.svg)
    #[arg(long, value_name = "FILE")]
    diagram: Option<PathBuf>,

    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken eval                      what the newest run has held out
  hearken eval book.txt
  hearken eval --model runs/mine --data shakespeare.txt --split validation
  hearken eval --model gpt2 --data book.txt --stride 512 --json
  hearken eval --ablate 'blocks.1.attention.mixed[2]'    without head 2 of block 1
  hearken eval --ablate blocks.1.attention.out --ablate blocks.1.feed_forward.out   without block 1
  hearken eval --model runs/reviews                  what the run of an encoder has held out
  hearken eval --model runs/reviews --data test.csv --label stars --json
  hearken eval --model runs/es --data test.en --target test.es --beams 4
  hearken eval --model runs/reviews --calibration --save-temperature --diagram reliability.html
  hearken eval --model runs/few-shot --shots 0,1,2,4,8,16
  hearken eval --model gpt2 --data reviews.jsonl --shots 0,1,4 --template '{text}\\nSentiment: {label}\\n\\n'
  hearken eval --model gpt2 --data pairs.tsv --field en --second es --shots 1,4

Keys of --json with --calibration: model, data, metrics (loss, accuracy, ece and ece_equal_mass at
the temperature that the model is used with), and calibration: bins, fitted_on, judged_on, and the
same with temperature and bins as trained (before), as saved (saved) and as fitted (after).
Keys of --json with --shots: model, data, metrics (accuracy with the most examples), questions,
majority, and shots: a list of shots, accuracy, margin (95 %), f1 and at_most where they exist.

Keys of --json for encoders: model, data, rows, tokens, seconds, and metrics, an object with those
that fit the model: loss, accuracy, f1, micro_f1, exact_match, mae, rmse, spearman, recall_at_1, …

Keys of --json for encoder-decoders: model, data, translated, tokens, seconds; metrics, an object with
loss, perplexity, exact_match, bleu, chrf; signatures of the last two in sacreBLEU's notation; and
copy_the_source, what they are if the source is handed out as its own translation

Keys of --json for language models:
  model, data, split
  loss              mean of -ln p over all targets, in nats
  perplexity        e to the loss
  bits_per_byte     targets * loss / (ln 2 * bytes)
  targets           tokens that were predicted: all but the first, or all where the model
                    has a token that begins a text of its own (stories)
  bytes             of the text that the targets stand for
  windows, context, stride, seconds, tokens_per_second
  ablated           the names of --ablate, if there are any

'hearken inspect trace --prompt TEXT' lists the names of the values that --ablate can take.";

/// A part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Split {
    All,
    Train,
    Validation,
}

#[derive(Serialize)]
struct Report {
    model: PathBuf,
    data: Vec<PathBuf>,
    split: Split,
    loss: f64,
    perplexity: f64,
    bits_per_byte: f64,
    targets: usize,
    bytes: u64,
    windows: usize,
    context: usize,
    stride: usize,
    seconds: f64,
    tokens_per_second: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ablated: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = arguments.model.open()?;
    let hint = "name one with --tokenizer; without one a text has no tokens";
    let tokenizer = arguments.tokenizer.require(&model, hint)?;
    let kind = if model.model.translates().is_some() {
        Fits::Pairs
    } else if model.model.encodes().is_some() {
        Fits::Labelled
    } else {
        Fits::Text
    };
    arguments.check(kind)?;
    if let Some(diagram) = &arguments.diagram {
        check_out("--diagram", diagram, Some(&model.directory), &arguments.paths())?;
    }
    if kind == Fits::Pairs {
        return pairs::run(arguments, &model, tokenizer);
    }
    if model.model.encodes().is_some() {
        return encoders::run(arguments, &model, tokenizer);
    }
    if let Some(list) = &arguments.shots {
        return shots::run(arguments, list, &model, &tokenizer);
    }
    let predictor = model.predicts_tokens()?;
    let (context, stride) = window(arguments, model.model.config().context())?;
    if arguments.batch_size == 0 {
        return Err(Failure::input("a batch size of 0", "8 is usual"));
    }
    let mut progress = Progress::new();
    let subject = Subject::of(arguments, &model)?;
    let kept = Kept::new("hearken-eval-")?;
    let measured = match &subject {
        Subject::Generated { what, count, seed } => {
            generated(*what, (*count, *seed), context, arguments.stride.is_some())?
        }
        Subject::Text { paths, field, split, validation } => {
            let (ids, bytes) =
                read(paths, field, *split, *validation, &tokenizer, &kept, &mut progress)?;
            text(ids, bytes, &model, &tokenizer, context, stride)?
        }
    };
    // The ids stay readable without a name. Elsewhere a file in use cannot be removed.
    let kept = if cfg!(unix) {
        drop(kept);
        None
    } else {
        Some(kept)
    };
    let Measured { examples, targets, bytes, context } = measured;
    if arguments.calibration {
        let paths = subject.paths();
        return calibrated(arguments, &model, paths, examples.as_ref(), &mut progress);
    }
    let stride = stride.min(context);
    let count = examples.count();
    let windows = InOrder::new(examples, arguments.batch_size);
    let batches = windows.batches();
    let (start, of) = (Instant::now(), plural(targets, "token"));
    let stopped = || kept.as_ref().is_some_and(Kept::is_stopped);
    let taps = ablating(&arguments.ablate)?;
    let sum = sum_of_losses(predictor, windows, &taps, &stopped, |done| {
        progress.show(&format!("{} % of {of}", 100 * done / batches.max(1)));
    })?;
    progress.clear();
    let seconds = start.elapsed().as_secs_f64();
    let loss = sum / targets as f64;
    if !loss.is_finite() {
        return Err(Failure::input(
            format!("the loss is {loss}: the model in {} is broken", model.directory.display()),
            "'hearken inspect weights' shows which tensors are not finite",
        ));
    }
    let report = Report {
        model: model.directory,
        data: subject.paths(),
        split: subject.split(),
        loss,
        perplexity: loss.exp(),
        bits_per_byte: sum / (std::f64::consts::LN_2 * bytes as f64),
        targets,
        bytes,
        windows: count,
        context,
        stride,
        seconds,
        tokens_per_second: (count * context) as f64 / seconds.max(1e-9),
        ablated: arguments.ablate.clone(),
    };
    write(&report, arguments.json)
}

/// Sets the values of these names to 0.
fn ablating(names: &[String]) -> Result<Arc<Taps>, Failure> {
    let mut taps = Taps::new();
    for name in names {
        taps = taps.replace(Pattern::parse(name)?, zero);
    }
    Ok(Arc::new(taps))
}

/// Σ −ln p over all targets; `show` is told how many batches are done.
fn sum_of_losses(
    predictor: &dyn PredictsTokens,
    batches: impl Iterator<Item = Batch>,
    taps: &Arc<Taps>,
    stopped: &dyn Fn() -> bool,
    mut show: impl FnMut(usize),
) -> Result<f64, Failure> {
    let mut sum = 0.0;
    for (done, batch) in batches.enumerate() {
        if stopped() {
            return Err(Failure::Interrupted);
        }
        let mut tokens = Tokens::new(&batch.inputs, batch.rows);
        if let Some(lengths) = &batch.lengths {
            tokens = tokens.laid_out(Layout::padded(lengths));
        }
        let pass = Pass::evaluate().watched(taps);
        let losses = predictor.token_losses_with(&tokens, &batch.targets, &pass);
        if let Some(name) = taps.unmet().first() {
            let message = format!("no value of this model is called '{name}'");
            return Err(Failure::input(
                message,
                "'hearken inspect trace --prompt TEXT' lists all names",
            ));
        }
        sum += losses.data().iter().map(|loss| f64::from(*loss)).sum::<f64>();
        show(done + 1);
    }
    Ok(sum)
}

/// Is a language model right as often as it is sure?
fn calibrated(
    arguments: &Arguments,
    model: &OpenModel,
    data: Vec<PathBuf>,
    examples: &dyn Examples,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut show = |share: f64| progress.show(&format!("{:.0} %", 100.0 * share));
    let (rows, bins, saved) = (arguments.batch_size, arguments.bins, model.temperature()?);
    let found = of_tokens(model.predicts_tokens()?, examples, rows, bins, saved, &mut show)?;
    progress.clear();
    let asked = calibration::Subject { model, data, unit: "tokens" };
    calibration::finish(arguments, &asked, &found)
}

/// Writes a picture as SVG, or the page around it if the file is called .html.
fn save_picture(
    path: &Path,
    svg: &str,
    page: impl FnOnce() -> Result<String, Failure>,
) -> Result<(), Failure> {
    let is_page = path.extension().is_some_and(|end| end == "html" || end == "htm");
    let content = if is_page { page()? } else { svg.to_owned() };
    std::fs::write(path, content).map_err(|error| {
        let message = format!("cannot write {}: {error}", path.display());
        Failure::input(message, "choose another --diagram")
    })
}

/// The length of a window, and how far apart they begin.
fn window(arguments: &Arguments, most: usize) -> Result<(usize, usize), Failure> {
    let context = arguments.context.unwrap_or(most);
    if context == 0 || context > most {
        return Err(Failure::input(
            format!("a window of {context} tokens, expected 1 to {most}, the model's context"),
            "leave --context out",
        ));
    }
    let stride = arguments.stride.unwrap_or(context);
    if stride == 0 || stride > context {
        return Err(Failure::input(
            format!("a stride of {stride}, expected 1 to {context}, the length of a window"),
            "half of it is usual; with more, tokens would be left out",
        ));
    }
    Ok((context, stride))
}

/// What a model is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fits {
    /// Language models: a text.
    Text,
    /// Encoders: labelled rows.
    Labelled,
    /// Encoder-decoders: texts and their translations.
    Pairs,
}

impl Fits {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "a language model",
            Self::Labelled => "an encoder",
            Self::Pairs => "an encoder-decoder",
        }
    }
}

impl Arguments {
    /// What the flags alone do not rule out, for a model of this kind.
    fn check(&self, kind: Fits) -> Result<(), Failure> {
        use Fits::{Labelled, Pairs, Text};
        let second: &[Fits] = if self.shots.is_some() { &[Text] } else { &[Labelled] };
        let labelled: &[Fits] = if self.shots.is_some() { &[Text] } else { &[Labelled, Pairs] };
        let flags: [(&str, bool, &[Fits]); 11] = [
            ("--ablate", !self.ablate.is_empty(), &[Text]),
            ("--shots", self.shots.is_some(), &[Text]),
            ("--split", self.split.is_some(), &[Text]),
            ("--validation", self.validation.is_some(), &[Text]),
            ("--stride", self.stride.is_some(), &[Text]),
            ("--context", self.context.is_some(), &[Text]),
            ("--calibration", self.calibration, &[Text, Labelled]),
            ("--second", self.second.is_some(), second),
            ("--label", self.label.is_some(), labelled),
            ("--target", !self.target.is_empty(), &[Pairs]),
            ("--beams", self.beams.is_some(), &[Pairs]),
        ];
        for (flag, given, fits) in flags {
            if given && !fits.contains(&kind) {
                let (needs, is) = (fits.iter().map(|fits| fits.name()), kind.name());
                let message = format!(
                    "{flag} is for {}, and this model is {is}",
                    needs.collect::<Vec<_>>().join(" or ")
                );
                return Err(Failure::input(message, format!("leave {flag} out")));
            }
        }
        if !self.target.is_empty() && self.paths().is_empty() {
            let message = "--target has the translations of texts, and no texts are named";
            return Err(Failure::input(message, "name the texts with --data"));
        }
        let fields = [
            ("--field", self.field.is_some()),
            ("--label", self.label.is_some()),
            ("--second", self.second.is_some()),
        ];
        if let Some((flag, _)) = fields.iter().find(|(_, given)| *given) {
            let whole_lines = !self.target.is_empty();
            if whole_lines || self.paths().is_empty() {
                let message = format!("{flag} names a field of rows, and there are none");
                let hint = if whole_lines {
                    "the lines of --data and --target are read as they are"
                } else {
                    "name the rows with --data"
                };
                return Err(Failure::input(message, hint));
            }
        }
        if self.diagram.is_some() && !self.calibration && self.shots.is_none() {
            let message = "--diagram has nothing to draw";
            return Err(Failure::input(message, "give --calibration or --shots with it"));
        }
        Ok(())
    }

    /// The files that are named, as FILE or by --data.
    fn paths(&self) -> Vec<PathBuf> {
        [&self.files[..], &self.data].concat()
    }
}

fn write(report: &Report, json: bool) -> Result<(), Failure> {
    let mut out = io::stdout();
    if json {
        let text = serde_json::to_string_pretty(report).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
        return Ok(());
    }
    let Report { loss, perplexity, bits_per_byte, targets, bytes, windows, .. } = report;
    let Report { context, stride, seconds, tokens_per_second, .. } = report;
    let lines = [
        ("loss", format!("{loss:.4} nats per token")),
        ("perplexity", format!("{perplexity:.3}")),
        ("bits/byte", format!("{bits_per_byte:.4}")),
        (
            "counted",
            format!("{} of {}", plural(*targets, "token"), plural(*bytes as usize, "byte")),
        ),
        ("windows", format!("{} of {context} tokens, {stride} apart", thousands(*windows as f64))),
        ("time", format!("{seconds:.2} s, {} tokens/s", thousands(*tokens_per_second))),
    ];
    let ablated = report.ablated.iter().map(|name| ("without", visible(name).into_owned()));
    let terminal = Terminal::stdout();
    for (name, text) in lines.into_iter().chain(ablated) {
        writeln!(out, "{} {text}", terminal.bold(&format!("{name:10}")))?;
    }
    Ok(())
}
