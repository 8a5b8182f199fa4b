//! `hearken embed`: vectors for texts.

use super::outputs::check_out;
use super::texts::{TextArguments, note_cut};
use crate::failure::Failure;
use crate::model::{ModelArguments, TokenizerArguments};
use crate::terminal::{Progress, say};
use hearken::base::Error;
use hearken::nn::config::Pooling;
use hearken::nn::models::Embedded;
use hearken::store;
use hearken::tasks::Reader;
use hearken::tensor::Tensor;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Embed texts: texts of similar meaning get similar vectors.
///
/// Sentence encoders define their own pooling, maximum length and normalisation. For other encoders
/// the vector is the mean over all tokens, not normalised.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    #[command(flatten)]
    texts: TextArguments,

    /// Which hidden states: the first token's, the mean of all, or the last token's
    /// [default: as the model says, or mean]
    #[arg(long, value_name = "cls|mean|last", value_parser = pooling)]
    pooling: Option<Pooling>,

    /// Scale vectors to length 1, or not [default: as the model says, or not]
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    normalised: Option<bool>,

    /// Cut texts to N tokens [default: as the model says, or its context]
    #[arg(long, value_name = "N")]
    most_tokens: Option<usize>,

    /// The file to write: .jsonl, .npy or .safetensors [default: JSON lines to standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write JSON lines, as without --out (the default)
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken embed --model minilm 'A cat sits on a mat.'
  hearken embed --model minilm --out vectors.npy sentences.txt
  hearken embed --model bert --pooling cls --normalised sentences.jsonl --out v.safetensors

A JSON line per text: {\"embedding\": [...]}. A .npy file has all of them as f32 (texts, width); a
.safetensors file the same as `embeddings`.";

fn pooling(text: &str) -> Result<Pooling, String> {
    match text {
        "cls" => Ok(Pooling::Cls),
        "mean" => Ok(Pooling::Mean),
        "last" => Ok(Pooling::Last),
        _ => Err("expected cls, mean or last".to_owned()),
    }
}

/// How vectors are written.
enum Form {
    Lines,
    Npy,
    Safetensors,
}

impl Form {
    fn of(path: Option<&Path>, json: bool) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Lines) };
        match path.extension().and_then(|end| end.to_str()) {
            Some("npy") if !json => Ok(Self::Npy),
            Some("safetensors") if !json => Ok(Self::Safetensors),
            Some("jsonl" | "ndjson" | "json") => Ok(Self::Lines),
            _ => Err(Failure::input(
                format!("{} ends in nothing that is known", path.display()),
                "name it .jsonl, .npy or .safetensors; --json is JSON lines",
            )),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let form = Form::of(arguments.out.as_deref(), arguments.json)?;
    let given = arguments.texts.read()?;
    let model = arguments.model.open()?;
    let own = model.encodes()?.embedded();
    if let Some(out) = &arguments.out {
        check_out("--out", out, Some(&model.directory), &arguments.texts.files())?;
    }
    let tokenizer = arguments.tokenizer.require(&model, "name one with --tokenizer")?;
    let reader = Reader::new(&model, &tokenizer, arguments.most_tokens)?;
    let how = Embedded {
        pooling: arguments.pooling.unwrap_or(own.pooling),
        normalised: arguments.normalised.unwrap_or(own.normalised),
        most_tokens: reader.most_tokens(),
    };
    let rows = reader.rows(&given.texts, |i| given.place(i))?;
    let (mut status, total, start) = (Progress::new(), given.texts.len(), Instant::now());
    let mut progress = |done: usize| {
        if total > 1 {
            status.show(&format!("{done} of {total} texts"));
        }
    };
    let vectors = reader.embed(&rows, how, &mut progress)?; // (N, C)
    let seconds = start.elapsed().as_secs_f64();
    status.clear();
    note_cut(rows.cut, &given, reader.most_tokens());
    match (&arguments.out, form) {
        (Some(path), Form::Npy) => store::write_npy(path, &vectors)?,
        (Some(path), Form::Safetensors) => store::write(path, [("embeddings", &vectors)])?,
        (Some(path), Form::Lines) => {
            let file = File::create(path).map_err(Error::io("write", path))?;
            lines(BufWriter::new(file), &vectors)?;
        }
        (None, _) => lines(io::stdout().lock(), &vectors)?,
    }
    if let Some(path) = &arguments.out {
        let per_second = total as f64 / seconds.max(1e-9);
        let (shape, path) = (vectors.shape(), path.display());
        say!("{shape} in {path}, {seconds:.2} s, {per_second:.1} texts/s");
    }
    Ok(())
}

fn lines(mut out: impl Write, vectors: &Tensor) -> Result<(), Failure> {
    for vector in vectors.data().chunks(vectors.shape().width().max(1)) {
        writeln!(out, "{}", serde_json::json!({ "embedding": vector }))?;
    }
    out.flush()?;
    Ok(())
}
