//! What the commands of `hearken inspect` are given: sequences of tokens, their targets, and a file to
//! write.

use crate::failure::Failure;
use hearken::tasks::OpenModel;
use hearken::tensor::ops::cross_entropy::IGNORED;
use std::path::Path;

/// Sequences of equal length, at least one of at least one token.
pub(super) fn sequences(
    texts: &[String],
    parse: fn(&str) -> Result<Vec<u32>, String>,
) -> Result<Vec<Vec<u32>>, Failure> {
    let hint = |message: String| Failure::input(message, "write --ids 1,2,3");
    let all: Result<Vec<Vec<u32>>, String> = texts.iter().map(|text| parse(text)).collect();
    let all = all.map_err(hint)?;
    match all.iter().find(|sequence| sequence.len() != all[0].len()) {
        None => Ok(all),
        Some(other) => Err(Failure::input(
            format!("sequences of {} and {} tokens", all[0].len(), other.len()),
            "all sequences of a batch are of equal length",
        )),
    }
}

/// Every token has one target.
pub(super) fn check_targets(ids: &[Vec<u32>], targets: &[Vec<u32>]) -> Result<(), Failure> {
    if ids.len() != targets.len() || ids[0].len() != targets[0].len() {
        return Err(Failure::input(
            format!(
                "{} × {} tokens, but {} × {} targets",
                ids.len(),
                ids[0].len(),
                targets.len(),
                targets[0].len()
            ),
            "every token has one target",
        ));
    }
    Ok(())
}

/// The model knows all tokens and has room for them.
pub(super) fn check_tokens<'a>(
    model: &OpenModel,
    sequences: impl IntoIterator<Item = &'a Vec<u32>>,
) -> Result<(), Failure> {
    for sequence in sequences {
        let real: Vec<u32> = sequence.iter().copied().filter(|id| *id != IGNORED).collect();
        model.check(&real)?;
    }
    Ok(())
}

/// The result must not replace a file of the model that it is computed from, nor look like one.
pub(super) fn check_out(out: &Path, model: &Path) -> Result<(), Failure> {
    if out.is_dir() {
        let message = format!("{} is a directory, expected a file to write", out.display());
        return Err(Failure::input(message, "give a name in it, such as out.safetensors"));
    }
    let folder = match (out.canonicalize(), out.parent()) {
        (Ok(file), _) => file.parent().map(Path::to_owned),
        (Err(_), Some(folder)) if folder == Path::new("") => Path::new(".").canonicalize().ok(),
        (Err(_), folder) => folder.and_then(|folder| folder.canonicalize().ok()),
    };
    if folder.is_some() && folder == model.canonicalize().ok() {
        let message = format!("{} is inside the model directory", out.display());
        return Err(Failure::input(message, "choose another --out"));
    }
    if is_of(out, model) {
        let message = format!("{} is a file of the model that is read", out.display());
        return Err(Failure::input(message, "choose another --out"));
    }
    Ok(())
}

/// Does `out` name a file of the model directory, perhaps by another link to it?
#[cfg(unix)]
fn is_of(out: &Path, model: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let Some(target) = identity(out) else { return false };
    let files = std::fs::read_dir(model).into_iter().flatten().flatten();
    files.map(|entry| entry.path()).any(|path| identity(&path) == Some(target))
}

#[cfg(not(unix))]
fn is_of(out: &Path, model: &Path) -> bool {
    let Ok(target) = out.canonicalize() else { return false };
    let files = std::fs::read_dir(model).into_iter().flatten().flatten();
    files.filter_map(|entry| entry.path().canonicalize().ok()).any(|path| path == target)
}
