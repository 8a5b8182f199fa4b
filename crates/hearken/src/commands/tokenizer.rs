//! `hearken tokenizer train|encode|decode|report`.

mod report;

use crate::failure::Failure;
use crate::terminal::{say, visible_path};
use clap::{Args, Subcommand, ValueEnum};
use hearken::data::corpus::{Chunk, Source, chunks_of};
use hearken::data::tokenizer::{CutRule, Kind, Special, SpecialText, Tokenizer, Training};
use hearken::data::{Progress, Stage};
use hearken::show::StatusLine;
use hearken::show::number::{bytes, plural};
use hearken::show::terminal::seen;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Train a tokenizer, encode text as token ids, and decode ids to text.
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(TrainArguments),
    Encode(EncodeArguments),
    Decode(DecodeArguments),
    Report(report::Arguments),
}

/// Learn a vocabulary from text and save it as tokenizer.json, which Hugging Face loads too.
#[derive(Args)]
#[command(after_help = "\
Kinds:
  character  every character is a token; knows the characters of its text (or all, as bytes,
             with --byte-fallback; or marks others with --special unk)
  byte       every byte is a token: 256, nothing to learn
  bpe        byte-level BPE as in GPT-2: any text, any language
  wordpiece  longest piece first, as in BERT, over bytes: any text comes back as it was
  unigram    the most likely pieces, as in T5, over bytes: any text comes back as it was
  word       every word and every run of punctuation; knows the words of its text, others become
             the unknown token; spaces are not kept

Examples:
  hearken tokenizer train --kind bpe --vocab-size 8192 --out tokenizer.json book.txt
  hearken tokenizer train --kind character --out tokenizer.json shakespeare.txt
  hearken tokenizer train --kind wordpiece --out my-model/ articles.jsonl --field body
  hearken tokenizer train --kind unigram --special eos --special pad=<pad> --out t.json texts/
  zcat big.txt.gz | hearken tokenizer train --kind bpe --out tokenizer.json")]
struct TrainArguments {
    /// Text files, directories and .jsonl files; stdin if none is given
    files: Vec<PathBuf>,
    /// How to cut text into tokens
    #[arg(long, value_enum)]
    kind: KindName,
    /// The most tokens there may be, special ones included [default: 8192; character: all]
    #[arg(long, value_name = "N")]
    vocab_size: Option<usize>,
    /// Merge only pairs that are seen this often (bpe, wordpiece); keep only words that are (word)
    #[arg(long, value_name = "N", default_value_t = 2)]
    min_frequency: u64,
    /// A special token, with its text or the usual one: bos, eos, pad, unk, mask, sep, cls.
    /// May be repeated, and replaces the default set; --special none for no special tokens
    #[arg(long, value_name = "NAME[=TEXT]")]
    special: Vec<String>,
    /// Characters that are not in the vocabulary become their bytes (character)
    #[arg(long)]
    byte_fallback: bool,
    /// The field of .jsonl files that holds the text
    #[arg(long, value_name = "FIELD", default_value = "text")]
    field: String,
    /// A file name that ends in .json, or a directory for tokenizer.json and tokenizer_config.json
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum KindName {
    #[value(alias = "char")]
    Character,
    Byte,
    Bpe,
    Wordpiece,
    Unigram,
    Word,
}

impl From<KindName> for Kind {
    fn from(name: KindName) -> Self {
        match name {
            KindName::Character => Self::Character,
            KindName::Byte => Self::Byte,
            KindName::Bpe => Self::Bpe,
            KindName::Wordpiece => Self::WordPiece,
            KindName::Unigram => Self::Unigram,
            KindName::Word => Self::Word,
        }
    }
}

/// Print the token ids of a text, one line in all.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken tokenizer encode --tokenizer gpt2/ --text 'The cat sat on'
  hearken tokenizer encode --tokenizer tokenizer.json --json < book.txt
  hearken tokenizer encode --tokenizer t.json book.txt | hearken tokenizer decode --tokenizer t.json")]
struct EncodeArguments {
    /// Text files, read one after the other; stdin if none is given
    #[arg(conflicts_with = "text")]
    files: Vec<PathBuf>,
    /// A tokenizer.json, a directory that holds one, or one with vocab.json and merges.txt
    #[arg(long, value_name = "PATH")]
    tokenizer: PathBuf,
    /// The text itself
    #[arg(long)]
    text: Option<String>,
    /// Special tokens in the text are meant as such; otherwise they are plain text
    #[arg(long)]
    allow_special: bool,
    /// Print {"ids": […], "tokens": […]}
    #[arg(long)]
    json: bool,
}

/// Print the text of token ids, to the byte.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hearken tokenizer decode --tokenizer gpt2/ 464 3797 3332 319
  echo '[464, 3797]' | hearken tokenizer decode --tokenizer gpt2/")]
struct DecodeArguments {
    /// Ids, separated by spaces or commas; stdin if none is given
    ids: Vec<String>,
    /// A tokenizer.json, a directory that holds one, or one with vocab.json and merges.txt
    #[arg(long, value_name = "PATH")]
    tokenizer: PathBuf,
    /// Leave special tokens out
    #[arg(long)]
    skip_special: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Train(arguments) => train(arguments),
        Command::Encode(arguments) => encode(arguments),
        Command::Decode(arguments) => decode(arguments),
        Command::Report(arguments) => report::run(arguments),
    }
}

fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    let kind = Kind::from(arguments.kind);
    let usual = Training::new(kind);
    let training = Training {
        kind,
        vocabulary: arguments.vocab_size.or(usual.vocabulary),
        minimum_frequency: arguments.min_frequency,
        specials: specials(&arguments.special)?.unwrap_or(usual.specials),
        byte_fallback: arguments.byte_fallback,
    };
    let mut line = StatusLine::new();
    let mut report = |progress| line.show(&describe(progress));
    let mut notes = Vec::new();
    let mut note = |text| notes.push(text);
    let tokenizer = if reads_stdin(&arguments.files) {
        let chunks = chunks_of(io::stdin(), "stdin", CutRule::BeforeSpace);
        let texts = chunks.map(|chunk| chunk.map(|chunk| chunk.text));
        training.train_noting(texts, None, &mut report, &mut note)?
    } else {
        let source = Source::open(&arguments.files, &arguments.field)?;
        training.train_noting(source.texts(), Some(source.length()), &mut report, &mut note)?
    };
    line.clear();
    for note in &notes {
        say!("note: {note}");
    }
    if arguments.out.extension().is_some_and(|extension| extension == "json") {
        tokenizer.save(&arguments.out)?;
    } else {
        tokenizer.save_directory(&arguments.out)?;
    }
    writeln!(
        io::stdout(),
        "{}: {} tokenizer, {}, {} of them special",
        visible_path(&arguments.out),
        kind.name(),
        plural(tokenizer.vocabulary_size(), "token"),
        tokenizer.special_ids().len()
    )?;
    Ok(())
}

/// The special tokens asked for; `None` if nothing was asked.
fn specials(asked: &[String]) -> Result<Option<Vec<SpecialText>>, Failure> {
    if asked == ["none"] {
        return Ok(Some(Vec::new()));
    }
    let parse = |asked: &String| {
        let (name, text) = match asked.split_once('=') {
            Some((name, text)) => (name, Some(text)),
            None => (asked.as_str(), None),
        };
        let special = Special::from_name(name).ok_or_else(|| {
            let names = Special::ALL.map(Special::name).join(", ");
            Failure::input(
                format!("there is no special token '{name}'"),
                format!("choose among {names}; or none alone"),
            )
        })?;
        Ok(text.map_or_else(|| special.into(), |text| SpecialText::new(special, text)))
    };
    let all: Result<Vec<SpecialText>, Failure> = asked.iter().map(parse).collect();
    Ok(Some(all?).filter(|all| !all.is_empty()))
}

fn encode(arguments: &EncodeArguments) -> Result<(), Failure> {
    let tokenizer = Tokenizer::load(&arguments.tokenizer)?;
    let encode = |text: &str| {
        if arguments.allow_special {
            tokenizer.encode_allowing_special(text)
        } else {
            tokenizer.encode(text)
        }
    };
    let mut ids = Vec::new();
    if let Some(text) = &arguments.text {
        ids = encode(text)?;
    } else {
        let mut line = StatusLine::new();
        let mut done = 0;
        let mut take = |chunk: hearken::data::Result<Chunk>| {
            let text = chunk?.text;
            ids.extend(encode(&text)?);
            done += text.len() as u64;
            line.show(&describe(Progress { stage: Stage::Tokenising, done, total: None }));
            Ok::<_, hearken::data::Error>(())
        };
        // A special token could lie across a cut between any two characters.
        let rule = match tokenizer.cut_rule() {
            CutRule::Anywhere if arguments.allow_special => CutRule::BehindLine,
            rule => rule,
        };
        if reads_stdin(&arguments.files) {
            chunks_of(io::stdin(), "stdin", rule).try_for_each(&mut take)?;
        } else {
            let source = Source::open(&arguments.files, "text")?;
            source.chunks(rule).try_for_each(&mut take)?;
        }
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    if arguments.json {
        let tokens: Vec<Option<String>> = ids.iter().map(|&id| tokenizer.token(id)).collect();
        let json = serde_json::json!({"ids": ids, "tokens": tokens});
        writeln!(out, "{json}")?;
    } else {
        let mut line = String::with_capacity(ids.len() * 5);
        for (i, id) in ids.iter().enumerate() {
            let _ = write!(line, "{}{id}", if i > 0 { " " } else { "" });
        }
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

fn decode(arguments: &DecodeArguments) -> Result<(), Failure> {
    let tokenizer = Tokenizer::load(&arguments.tokenizer)?;
    let written =
        if arguments.ids.is_empty() { crate::stdin::read("ids")? } else { arguments.ids.join(" ") };
    let ids = parse_ids(&written)?;
    let text = if arguments.skip_special {
        tokenizer.decode_without_special(&ids)?
    } else {
        tokenizer.decode(&ids)?
    };
    let mut out = io::stdout().lock();
    out.write_all(seen(&text, out.is_terminal()).as_bytes())?;
    if out.is_terminal() && !text.ends_with('\n') {
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

const IDS_HINT: &str = "give ids apart by spaces or commas, as in 464 3797 or [464, 3797]";

/// Numbers apart by white space or commas, in brackets or not; or what `encode --json` prints.
fn parse_ids(text: &str) -> Result<Vec<u32>, Failure> {
    let trimmed = text.trim();
    if trimmed.starts_with('{') {
        let json: Option<serde_json::Value> = serde_json::from_str(trimmed).ok();
        let ids = json.and_then(|json| serde_json::from_value(json["ids"].clone()).ok());
        return ids
            .ok_or_else(|| Failure::input("the JSON on stdin has no list \"ids\"", IDS_HINT));
    }
    let inner = trimmed.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(trimmed);
    inner
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.parse()
                .map_err(|_| Failure::input(format!("'{word}' is not a token id"), IDS_HINT))
        })
        .collect()
}

fn reads_stdin(files: &[PathBuf]) -> bool {
    files.is_empty() || files == [Path::new("-")]
}

fn describe(progress: Progress) -> String {
    let what = match progress.stage {
        Stage::Keeping | Stage::Reading => "reading",
        Stage::Training => return "choosing the vocabulary".to_owned(),
        Stage::Surveying => "checking",
        Stage::Tokenising => "tokenising",
    };
    let done = bytes(progress.done);
    match progress.total {
        Some(total) => format!("{what} {done} of {}", bytes(total)),
        None => format!("{what} {done}"),
    }
}
