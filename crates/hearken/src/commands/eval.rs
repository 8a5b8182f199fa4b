//! `hearken eval`: how good is a model at what it is for?
//!
//! Encoders are judged by labelled data (`encoders.rs`), language models by how well they predict a
//! text. With targets t₁ … tₙ, every token of the text but the first,
//!
//! ```text
//! loss = −1/n Σ ln p(tᵢ | what stands before it in its window)
//! perplexity = e^loss          bits per byte = n·loss / (ln 2 · bytes of t₁ … tₙ)
//! ```
//! Without `--stride` the windows do not overlap, so that the first target of a window is
//! predicted from one token and the last from T; with a stride of s they overlap, and every target
//! (but those of the first window) is predicted from at least T − s + 1 tokens.

mod encoders;

use crate::failure::Failure;
use crate::kept::Kept;
use crate::model::{ModelArguments, TokenizerArguments};
use crate::terminal::{Progress, Terminal};
use hearken::data::batches::{Examples, InOrder, Windows};
use hearken::data::corpus::{Corpus, Ids, Keeping, Source, Validation};
use hearken::data::tokenizer::Tokenizer;
use hearken::data::{self, Stage};
use hearken::nn::models::Tokens;
use hearken::nn::pass::Layout;
use hearken::show::number::bytes as size;
use hearken::tasks::OpenModel;
use hearken::tasks::config::GeneratedKind;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

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
    #[arg(long, value_name = "PATH")]
    data: Vec<PathBuf>,

    /// The key of the text in JSON lines, or its column [default: text, or that of the run]
    #[arg(long, value_name = "KEY")]
    field: Option<String>,

    /// The key or column of the label, the number or the similarity (encoders) [default: label]
    #[arg(long, value_name = "KEY")]
    label: Option<String>,

    /// The key or column of the second text (encoders)
    #[arg(long, value_name = "KEY")]
    second: Option<String>,

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
  hearken eval --model runs/reviews                  what the run of an encoder has held out
  hearken eval --model runs/reviews --data test.csv --label stars --json

Keys of --json for encoders: model, data, rows, tokens, seconds, and metrics, an object with those
that fit the model: loss, accuracy, f1, micro_f1, exact_match, mae, rmse, spearman, recall_at_1, …

Keys of --json for language models:
  model, data, split
  loss              mean of -ln p over all targets, in nats
  perplexity        e to the loss
  bits_per_byte     targets * loss / (ln 2 * bytes)
  targets           tokens that were predicted: all but the first, or all where the model
                    has a token that begins a text of its own (stories)
  bytes             of the text that the targets stand for
  windows, context, stride, seconds, tokens_per_second";

/// A part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Split {
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
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = arguments.model.open()?;
    let hint = "name one with --tokenizer; without one a text has no tokens";
    let tokenizer = arguments.tokenizer.require(&model, hint)?;
    if model.model.encodes().is_some() {
        return encoders::run(arguments, &model, tokenizer);
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
            generated(*what, *count, *seed, context, arguments.stride.is_some())?
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
    let stride = stride.min(context);
    let count = examples.count();
    let windows = InOrder::new(examples, arguments.batch_size);
    let batches = windows.batches();
    let start = Instant::now();
    let mut sum = 0.0;
    for (done, batch) in windows.enumerate() {
        if kept.as_ref().is_some_and(Kept::is_stopped) {
            return Err(Failure::Interrupted);
        }
        let mut tokens = Tokens::new(&batch.inputs, batch.rows);
        if let Some(lengths) = &batch.lengths {
            tokens = tokens.laid_out(Layout::padded(lengths));
        }
        let losses = predictor.token_losses(&tokens, &batch.targets);
        sum += losses.data().iter().map(|loss| f64::from(*loss)).sum::<f64>();
        let percent = 100 * (done + 1) / batches;
        progress.show(&format!("{percent} % of {targets} tokens"));
    }
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
    };
    write(&report, arguments.json)
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

impl Arguments {
    /// The files that are named, as FILE or by --data.
    fn paths(&self) -> Vec<PathBuf> {
        [&self.files[..], &self.data].concat()
    }
}

/// What is evaluated on.
enum Subject {
    /// A text, or a part of it.
    Text { paths: Vec<PathBuf>, field: String, split: Split, validation: f64 },
    /// The stories, or sequences, that a run has held out.
    Generated { what: GeneratedKind, count: usize, seed: u64 },
}

impl Subject {
    /// What the arguments name, or what the run has held out that the model is of.
    fn of(arguments: &Arguments, model: &OpenModel) -> Result<Self, Failure> {
        let paths = arguments.paths();
        let given = !paths.is_empty();
        let run = if given { None } else { model.run_config()? };
        let data = run.as_ref().map(|run| &run.data);
        if let (Some(run), true) = (&run, data.is_some_and(|data| data.paths.is_empty())) {
            let (what, count) = (run.data.generated, run.data.stories);
            return Ok(Self::Generated { what, count, seed: run.train.seed });
        }
        let paths = data.map_or(paths, |data| data.paths.clone());
        if paths.is_empty() {
            return Err(Failure::input(
                format!(
                    "{} is not of a run, which would have held out a text",
                    model.directory.display()
                ),
                "name a text: eval FILE, or --data FILE",
            ));
        }
        if let Some(gone) = paths.iter().find(|path| !given && !path.exists()) {
            return Err(Failure::input(
                format!("the text of the run, {}, is not here", gone.display()),
                "run eval in the directory where the run was started, or name a text with --data",
            ));
        }
        let default = if given { Split::All } else { Split::Validation };
        let field = arguments.field.clone().or_else(|| data.map(|data| data.field.clone()));
        Ok(Self::Text {
            paths,
            field: field.unwrap_or_else(|| "text".to_owned()),
            split: arguments.split.unwrap_or(default),
            validation: arguments.validation.or(data.map(|data| data.validation)).unwrap_or(0.1),
        })
    }

    fn paths(&self) -> Vec<PathBuf> {
        match self {
            Self::Text { paths, .. } => paths.clone(),
            Self::Generated { what, .. } => vec![PathBuf::from(what.name())],
        }
    }

    fn split(&self) -> Split {
        match self {
            Self::Text { split, .. } => *split,
            Self::Generated { .. } => Split::Validation,
        }
    }
}

/// Windows of `context` tokens, how many tokens count, and the bytes that those stand for.
struct Measured {
    examples: Box<dyn Examples>,
    targets: usize,
    bytes: u64,
    context: usize,
}

/// What a run has generated and held out, in the windows in which its evaluations see it.
fn generated(
    what: GeneratedKind,
    count: usize,
    seed: u64,
    context: usize,
    strided: bool,
) -> Result<Measured, Failure> {
    if strided {
        return Err(Failure::input(
            "generated stories are in windows of whole stories, which do not overlap",
            "leave --stride out",
        ));
    }
    if what == GeneratedKind::Repeats {
        let held = hearken::data::repeats::Validation::new(count, context, seed)?;
        let targets = held.characters();
        return Ok(Measured { examples: Box::new(held), targets, bytes: targets as u64, context });
    }
    let held = hearken::data::stories::Validation::new(count, context, seed)?;
    // Stories are written in ASCII.
    let (targets, bytes) = (held.characters, held.characters as u64);
    Ok(Measured { examples: Box::new(held), targets, bytes, context })
}

/// A text in windows, behind the token that begins a text if that is one of the text's own.
fn text(
    ids: Ids,
    bytes: u64,
    model: &OpenModel,
    tokenizer: &Tokenizer,
    context: usize,
    stride: usize,
) -> Result<Measured, Failure> {
    let first = ids.to_vec(0..ids.len().min(1));
    let begin = model.begin(tokenizer).filter(|begin| !tokenizer.is_special(*begin));
    let (ids, bytes) = match begin {
        Some(begin) if first != [begin] => {
            let mut all = vec![begin];
            all.extend(ids.to_vec(0..ids.len()));
            (Ids::from(all), bytes)
        }
        // Nothing predicts the first token, so its bytes do not count either.
        _ => (ids, bytes.saturating_sub(tokenizer.decode(&first)?.len() as u64)),
    };
    // A window longer than the text would be padding.
    let context = context.min(ids.len().saturating_sub(1)).max(1);
    let windows = Windows::sliding(ids, context, stride.min(context))?;
    Ok(Measured { targets: windows.targets(), examples: Box::new(windows), bytes, context })
}

/// The tokens of the part that was asked for, and its bytes.
fn read(
    paths: &[PathBuf],
    field: &str,
    split: Split,
    validation: f64,
    tokenizer: &Tokenizer,
    kept: &Kept,
    progress: &mut Progress,
) -> Result<(Ids, u64), Failure> {
    let validation = match split {
        Split::All => Validation::None,
        Split::Train | Split::Validation => Validation::Fraction(validation),
    };
    let mut report = |at: data::Progress| {
        let doing = if at.stage == Stage::Tokenising { "tokenising" } else { "reading" };
        progress.show(&match at.total {
            Some(total) => format!("{doing}: {} %", 100 * at.done / total.max(1)),
            None => format!("{doing}: {}", size(at.done)),
        });
    };
    let keeping = Keeping { stop: Some(kept.stop()), ..Keeping::new(kept.path()) };
    let source = Source::open_keeping(paths, field, &keeping, &mut report)?;
    let cache = kept.path().join("ids");
    let corpus = Corpus::prepare(&source, &validation, tokenizer, &cache, &mut report)?;
    Ok(match split {
        Split::All | Split::Train => (corpus.train, corpus.train_bytes),
        Split::Validation => (corpus.validation, corpus.validation_bytes),
    })
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
        ("counted", format!("{targets} tokens of {bytes} bytes")),
        ("windows", format!("{windows} of {context} tokens, {stride} apart")),
        ("time", format!("{seconds:.2} s, {tokens_per_second:.0} tokens/s")),
    ];
    let terminal = Terminal::stdout();
    for (name, text) in lines {
        writeln!(out, "{} {text}", terminal.bold(&format!("{name:10}")))?;
    }
    Ok(())
}
