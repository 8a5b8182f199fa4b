//! Texts to look at a model with: those that its run has held out, or the user's own.

use crate::commands::eval::Split;
use crate::commands::eval::subject::{generated, read};
use crate::failure::Failure;
use crate::kept::Kept;
use crate::terminal::Progress;
use hearken::data::frames::Frame;
use hearken::data::tokenizer::Tokenizer;
use hearken::show::number::plural;
use hearken::tasks::OpenModel;
use hearken::tasks::config::DataConfig;
use hearken::tasks::translate::Translator;
use std::path::{Path, PathBuf};

/// Tokens of a piece of a running text: enough to know what it is about, and short enough for a file to
/// have many.
const PIECE: usize = 128;

/// Texts as a model reads them. Those of an encoder-decoder are sources.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// What they are.
    pub(crate) name: String,
    /// The tokens of each.
    pub(crate) rows: Vec<Vec<u32>>,
}

/// Up to `most` tokens of the given files, or of what the run has held out that the model is of. Files are
/// running text in pieces, for models that read from left to right, and else a text per line.
pub(crate) fn texts(
    open: &OpenModel,
    tokenizer: &Tokenizer,
    files: &[PathBuf],
    most: usize,
) -> Result<Texts, Failure> {
    let mut found =
        if files.is_empty() { held_out(open, tokenizer)? } else { given(open, tokenizer, files)? };
    let context = open.model.config().context();
    let mut left = most;
    found.rows.retain_mut(|row| {
        row.truncate(context);
        let fits = !row.is_empty() && left > 0;
        left = left.saturating_sub(row.len());
        fits
    });
    if found.rows.is_empty() {
        return Err(Failure::input("the texts are empty", "name another file with --data"));
    }
    found.name = format!("{} of {}", plural(found.rows.len(), "text"), found.name);
    Ok(found)
}

fn held_out(open: &OpenModel, tokenizer: &Tokenizer) -> Result<Texts, Failure> {
    let hint = "name a file with --data FILE";
    let none = || {
        let message =
            format!("{} is not of a run that has held out a text", open.directory.display());
        Failure::input(message, hint)
    };
    let run = open.run_config()?.ok_or_else(none)?;
    let (count, seed) = (run.data.stories, run.train.seed);
    if !run.data.paths.is_empty() {
        if let Some(gone) = run.data.paths.iter().find(|path| !path.exists()) {
            let message = format!("the text of the run, {}, is not here", gone.display());
            return Err(Failure::input(message, hint));
        }
        if !reads_on(open) {
            return Err(none());
        }
        return pieces(open, tokenizer, &run.data.paths, Some(&run.data), "what was held out");
    }
    let what = run.data.generates(&run.model);
    let name = format!("the {} that were held out", what.name());
    if let Some(conversion) = what.conversion() {
        let pairs = conversion.held_out(count.max(1), seed);
        let sources: Vec<String> = pairs.into_iter().map(|[source, _]| source).collect();
        return Ok(Texts { name, rows: Translator::new(open, tokenizer)?.sources(&sources)?.list });
    }
    if !reads_on(open) {
        return Err(none());
    }
    let measured = generated(what, (count, seed), run.model.context(), false)?;
    let row = |i: usize| {
        let batch = measured.examples.batch_of(&[i]);
        let length = batch.lengths.as_ref().map_or(batch.length, |lengths| lengths[0]);
        batch.inputs[..length].to_vec()
    };
    Ok(Texts { name, rows: (0..measured.examples.count()).map(row).collect() })
}

/// Does the model read a text from left to right?
fn reads_on(open: &OpenModel) -> bool {
    open.model.encodes().is_none() && open.model.translates().is_none()
}

fn given(open: &OpenModel, tokenizer: &Tokenizer, files: &[PathBuf]) -> Result<Texts, Failure> {
    let name = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    if reads_on(open) {
        return pieces(open, tokenizer, files, None, &name);
    }
    let mut lines = Vec::new();
    for file in files {
        lines.extend(lines_of(file)?);
    }
    let rows = if open.model.encodes().is_some() {
        let frame = Frame::new(tokenizer, open.model.config().context())?;
        let one = |line: &String| Ok(frame.one(&tokenizer.encode(line)?).ids);
        lines.iter().map(one).collect::<Result<_, Failure>>()?
    } else {
        Translator::new(open, tokenizer)?.sources(&lines)?.list
    };
    Ok(Texts { name, rows })
}

fn lines_of(file: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let message = format!("cannot read {}: {error}", file.display());
        Failure::input(message, "give a text file with a text per line")
    })?;
    Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
}

/// A running text in pieces, each behind the token that begins texts, where there is one.
fn pieces(
    open: &OpenModel,
    tokenizer: &Tokenizer,
    paths: &[PathBuf],
    of_run: Option<&DataConfig>,
    name: &str,
) -> Result<Texts, Failure> {
    let kept = Kept::new("hearken-texts-")?;
    let mut progress = Progress::new();
    let field = of_run.map_or("text", |data| data.field.as_str());
    let split = if of_run.is_some() { Split::Validation } else { Split::All };
    let validation = of_run.map_or(0.1, |data| data.validation);
    let (ids, _) = read(paths, field, split, validation, tokenizer, &kept, &mut progress)?;
    progress.clear();
    let begin = open.begin(tokenizer);
    let length = PIECE
        .min(open.model.config().context())
        .saturating_sub(usize::from(begin.is_some()))
        .max(1);
    let row = |start: usize| {
        let ids = ids.to_vec(start..(start + length).min(ids.len()));
        begin.into_iter().chain(ids).collect()
    };
    Ok(Texts { name: name.to_owned(), rows: (0..ids.len()).step_by(length).map(row).collect() })
}
