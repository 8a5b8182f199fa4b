//! `hearken generate`: text from a model, as it comes.

mod interrupt;
mod prompt;
mod samples;
mod write;

use crate::failure::Failure;
use crate::invocation::runnable;
use crate::model::{IdList, ModelArguments, TokenizerArguments, note_temperature, parse_id_list};
use crate::terminal::{Terminal, say};
use hearken::data::tokenizer::Tokenizer;
use hearken::infer::beam::BeamSearch;
use hearken::infer::contrastive::Contrastive;
use hearken::infer::generate::Request;
use hearken::infer::sampler::Sampling;
use hearken::nn::cache::CacheKind;
use hearken::tasks::OpenModel;
use prompt::Prompt;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use write::{Form, Writer};

/// Write text with a model.
///
/// Continues a prompt token by token and shows the text as it comes. Without a prompt it asks for
/// one: line by line on a terminal (Ctrl-D ends), or all of stdin. In a pipe only the new text is
/// written; on a terminal the prompt comes before it.
#[derive(clap::Args)]
#[command(after_help = HELP)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    /// The text to continue
    #[arg(value_name = "TEXT", conflicts_with_all = ["prompt", "prompt_file", "ids"])]
    text: Option<String>,

    /// The same as TEXT
    #[arg(long, short, value_name = "TEXT", conflicts_with_all = ["prompt_file", "ids"])]
    prompt: Option<String>,

    /// A file with the text to continue
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    prompt_file: Option<PathBuf>,

    /// The tokens to continue, such as 464,3797; works without a tokenizer
    #[arg(long, value_name = "IDS", value_parser = parse_id_list)]
    ids: Option<IdList>,

    /// Write at most N tokens
    #[arg(long, short = 'n', value_name = "N", default_value_t = 200)]
    tokens: usize,

    /// Logits are divided by it: 0 always takes the most likely token, 1 is as trained (times the
    /// temperature that is saved with the model, if there is one)
    #[arg(
        long,
        short,
        value_name = "T",
        allow_negative_numbers = true,
        default_value_t = 0.8,
        conflicts_with = "beams"
    )]
    temperature: f32,

    /// Choose among the K most likely tokens
    #[arg(long, value_name = "K", conflicts_with = "beams")]
    top_k: Option<usize>,

    /// Choose among the most likely tokens that together reach this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true, conflicts_with = "beams")]
    top_p: Option<f32>,

    /// Choose among tokens at least P times as likely as the most likely one
    #[arg(long, value_name = "P", allow_negative_numbers = true, conflicts_with = "beams")]
    min_p: Option<f32>,

    /// Above 1, makes tokens that have occurred less likely
    #[arg(
        long,
        value_name = "R",
        allow_negative_numbers = true,
        default_value_t = 1.0,
        conflicts_with = "beams"
    )]
    repetition_penalty: f32,

    /// Search for the likeliest text with this many candidates at a time
    #[arg(long, value_name = "N")]
    beams: Option<usize>,

    /// A text of n tokens scores Σ ln p / nᴬ: above 0 favours longer ones
    #[arg(
        long,
        value_name = "A",
        allow_negative_numbers = true,
        default_value_t = 1.0,
        requires = "beams"
    )]
    length_penalty: f32,

    /// A smaller model with the same tokenizer, which drafts tokens for this one to check: faster, and
    /// every text stays as likely as without it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["beams", "samples", "contrastive"])]
    draft: Option<PathBuf>,

    /// Tokens that are drafted at a time, 1 to 7
    #[arg(long, value_name = "N", default_value_t = 4, requires = "draft",
        value_parser = clap::value_parser!(u8).range(1..=7))]
    draft_tokens: u8,

    /// Search among the K most likely tokens for one unlike those before: (1 − A)·p − A·likeness
    #[arg(long, value_name = "A,K", value_parser = parse_contrastive, allow_hyphen_values = true,
        conflicts_with_all = ["beams", "samples", "temperature", "top_k", "top_p", "min_p",
            "repetition_penalty", "seed", "uncalibrated"])]
    contrastive: Option<Contrastive>,

    /// Stop before this text (may be given several times)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Continue after the token that ends a text
    #[arg(long)]
    ignore_end: bool,

    /// The same seed gives the same text [default: another one every time]
    #[arg(long, value_name = "N", conflicts_with = "beams")]
    seed: Option<u64>,

    /// Write N texts at a time, with the seeds from --seed on
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["beams", "show_probabilities"],
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    samples: u32,

    /// Do without the temperature that is saved with the model ('hearken eval --calibration')
    #[arg(long)]
    uncalibrated: bool,

    /// How keys and values are stored; none recomputes everything for every token
    #[arg(long, value_name = "KIND", default_value = "f32")]
    cache: CacheChoice,

    /// Show each token with its probability and the most likely alternatives
    #[arg(long, conflicts_with = "beams")]
    show_probabilities: bool,

    /// Print the speed and the seed to stderr
    #[arg(long, short)]
    verbose: bool,

    /// Write one JSON object at the end
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken generate 'ROMEO:'
  hearken generate --model runs/mine --prompt 'Once upon' --temperature 0.7 --top-p 0.9
  hearken generate --model gpt2 --prompt 'The cat' --beams 4 --tokens 20
  echo 'Dear Sir,' | hearken generate --stop 'Yours' --seed 7
  hearken generate --model DIR --ids 464,3797 --tokens 5 --json
  hearken generate --prompt 'Once' --samples 4 --seed 1
  hearken generate --model large --draft small --prompt 'Once' --verbose
  hearken generate --prompt 'Once' --contrastive 0.6,4

Keys of --json:
  model, seed       the directory; the seed (null for beams and --contrastive)
  prompt_ids        the tokens of the prompt
  ids, text         the new tokens and their text (null without a tokenizer)
  finish            length, end (the token that ends a text came) or stop (a --stop text came)
  seconds, tokens_per_second
  steps             with --show-probabilities: id, text, probability, and candidates,
                    the five most likely with the same keys
  beams             with --beams: ids, text, log_probability and score of each, best first
  draft             with --draft: drafted, kept, steps (of the large model) and rate
  samples           with --samples: seed, ids, text and finish of each; ids, text and finish
                    above are those of the first";

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CacheChoice {
    F32,
    F16,
    Int8,
    None,
}

impl CacheChoice {
    fn kind(self) -> Option<CacheKind> {
        match self {
            Self::F32 => Some(CacheKind::F32),
            Self::F16 => Some(CacheKind::F16),
            Self::Int8 => Some(CacheKind::Int8),
            Self::None => None,
        }
    }
}

/// Reads `0.6,4`.
fn parse_contrastive(text: &str) -> Result<Contrastive, String> {
    let parts = text.split_once(',').and_then(|(penalty, candidates)| {
        Some((penalty.trim().parse().ok()?, candidates.trim().parse().ok()?))
    });
    let (penalty, candidates) =
        parts.ok_or("expected a penalty from 0 to 1 and a number of candidates, such as 0.6,4")?;
    Ok(Contrastive { penalty, candidates })
}

/// Everything that was asked for, checked.
struct Job {
    model: OpenModel,
    tokenizer: Option<Tokenizer>,
    decoding: Decoding,
    most_tokens: usize,
    ends: Vec<u32>,
    stops: Vec<String>,
    cache: Option<CacheKind>,
    samples: usize,
    draft: Option<Drafting>,
}

/// A model that drafts, and how many tokens at a time.
struct Drafting {
    model: OpenModel,
    tokens: usize,
}

impl Drafting {
    /// Opens it and checks that its tokens are those of `tokenizer`.
    fn open(
        path: &Path,
        tokens: usize,
        tokenizer: Option<&Tokenizer>,
        arguments: &Arguments,
    ) -> Result<Self, Failure> {
        if arguments.cache == CacheChoice::None {
            let message = "drafts are checked in a cache, and --cache is none";
            return Err(Failure::input(message, "leave --cache out"));
        }
        let model = OpenModel::open(Some(path), &mut |text| say!("warning: {text}"))?;
        model.generates()?;
        let own = model.tokenizer(None)?;
        if let (Some(own), Some(tokenizer)) = (own, tokenizer)
            && own.fingerprint() != tokenizer.fingerprint()
        {
            return Err(Failure::input(
                format!("{} has another tokenizer than the model", path.display()),
                "a draft must be written in the same tokens: train both with one tokenizer",
            ));
        }
        Ok(Self { model, tokens })
    }
}

/// How tokens are chosen.
enum Decoding {
    Sample(Sampling),
    Contrast(Contrastive),
    Search { beams: usize, length_penalty: f32 },
}

impl Job {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let decoding = match (arguments.beams, arguments.contrastive) {
            (None, None) => Decoding::Sample(sampling(arguments)?),
            (None, Some(contrastive)) => {
                contrastive.validate()?;
                if arguments.cache == CacheChoice::None {
                    let message = "contrastive search reads its candidates after a cache, and --cache is none";
                    return Err(Failure::input(message, "leave --cache out"));
                }
                Decoding::Contrast(contrastive)
            }
            (Some(beams), _) => search(arguments, beams)?,
        };
        let model = arguments.model.open()?;
        model.generates()?;
        let decoding = calibrated(decoding, arguments, &model)?;
        let tokenizer = arguments.tokenizer.of(&model)?;
        if tokenizer.is_none() {
            let hint = "give the prompt as tokens with --ids 1,2,3, or name a --tokenizer";
            if arguments.ids.is_none() {
                arguments.tokenizer.require(&model, hint)?;
            } else if !arguments.stop.is_empty() {
                let message = "--stop is a text, and the model has no tokenizer";
                return Err(Failure::input(message, "name a --tokenizer"));
            }
        }
        let ends = if arguments.ignore_end { Vec::new() } else { model.ends(tokenizer.as_ref()) };
        let tokens = usize::from(arguments.draft_tokens);
        let open = |path: &PathBuf| Drafting::open(path, tokens, tokenizer.as_ref(), arguments);
        let draft = arguments.draft.as_ref().map(open).transpose()?;
        Ok(Self {
            draft,
            model,
            tokenizer,
            decoding,
            most_tokens: arguments.tokens,
            ends,
            stops: arguments.stop.clone(),
            cache: arguments.cache.kind(),
            samples: arguments.samples as usize,
        })
    }

    /// With the seed moved on: every line of a conversation has its own.
    fn request(&self, prompt: Vec<u32>, sampling: Sampling, turn: u64) -> Request {
        Request {
            prompt,
            sampling: Sampling { seed: sampling.seed.wrapping_add(turn), ..sampling },
            most_tokens: self.most_tokens,
            ends: self.ends.clone(),
            constraints: self.model.special.constraints.clone(),
            cache: self.cache,
        }
    }

    fn beam_search(&self, beams: usize, length_penalty: f32) -> BeamSearch {
        BeamSearch {
            length_penalty,
            ends: self.ends.clone(),
            constraints: self.model.special.constraints.clone(),
            ..BeamSearch::new(beams, self.most_tokens)
        }
    }
}

fn sampling(arguments: &Arguments) -> Result<Sampling, Failure> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    let sampling = Sampling {
        temperature: arguments.temperature,
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        min_p: arguments.min_p,
        repetition_penalty: arguments.repetition_penalty,
        // 32 bits are easy to type again.
        seed: arguments.seed.unwrap_or_else(|| clock() & 0xffff_ffff),
    };
    sampling.validate()?;
    Ok(sampling)
}

/// With the temperature that is saved with the model. Beams compare whole texts by the model's own
/// probabilities.
fn calibrated(
    decoding: Decoding,
    arguments: &Arguments,
    model: &OpenModel,
) -> Result<Decoding, Failure> {
    let Decoding::Sample(sampling) = decoding else { return Ok(decoding) };
    let saved = if arguments.uncalibrated { None } else { model.temperature()? };
    let Some(saved) = saved.filter(|_| sampling.temperature > 0.0) else {
        return Ok(Decoding::Sample(sampling));
    };
    note_temperature(saved);
    let temperature = sampling.temperature * saved as f32;
    let sampling = Sampling { temperature, ..sampling };
    sampling.validate()?;
    Ok(Decoding::Sample(sampling))
}

fn search(arguments: &Arguments, beams: usize) -> Result<Decoding, Failure> {
    if !(1..=1024).contains(&beams) {
        let message = format!("{beams} beams, expected 1 to 1024");
        return Err(Failure::input(message, "4 is usual"));
    }
    if arguments.cache == CacheChoice::None {
        let message = "beams live in a cache, and --cache is none";
        return Err(Failure::input(message, "leave --cache out"));
    }
    if !arguments.length_penalty.is_finite() {
        let message = format!("length penalty is {}", arguments.length_penalty);
        return Err(Failure::input(message, "1 is the mean per token"));
    }
    Ok(Decoding::Search { beams, length_penalty: arguments.length_penalty })
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let job = Job::new(arguments)?;
    let given = Prompt::given(
        arguments.text.as_deref().or(arguments.prompt.as_deref()),
        arguments.prompt_file.as_deref(),
        arguments.ids.as_ref().map(|ids| ids.0.as_slice()),
    )?;
    let mut writer = Writer {
        job: &job,
        out: io::stdout(),
        terminal: Terminal::stdout(),
        on_terminal: io::stdout().is_terminal(),
        form: Form::new(arguments.json, arguments.show_probabilities),
        verbose: arguments.verbose,
    };
    if let Some(prompt) = given {
        return writer.write(&prompt, 0);
    }
    if io::stdin().is_terminal() && !arguments.json {
        return converse(&mut writer);
    }
    let text = crate::stdin::read("the prompt")?;
    // `echo` ends its line; the prompt does not.
    writer.write(&Prompt::Text(text.strip_suffix('\n').unwrap_or(&text).to_owned()), 0)
}

/// Continues line after line until the input ends. Lines can be edited; the arrow keys bring back
/// earlier ones.
fn converse(writer: &mut Writer<'_, io::Stdout>) -> Result<(), Failure> {
    interrupt::watch();
    let cannot = |error: ReadlineError| {
        Failure::input(format!("cannot read from the terminal: {error}"), "give a --prompt")
    };
    let mut editor = DefaultEditor::new().map_err(cannot)?;
    say!("type a beginning and press Enter; Ctrl-C stops a text, Ctrl-D ends the program");
    for turn in 0.. {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Interrupted) => return Err(Failure::Interrupted),
            Err(error) => return Err(cannot(error)),
        };
        let _ = editor.add_history_entry(&line); // a line that is not remembered is no loss
        match interrupt::while_writing(|| writer.write(&Prompt::Text(line), turn)) {
            // A character that the tokenizer does not know ends the line, not the conversation.
            Err(Failure::Error(error)) => say!("error: {}", runnable(&error.to_string())),
            other => other?,
        }
    }
    Ok(())
}
