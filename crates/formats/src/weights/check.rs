//! Do the tensors of a file make up a model? Answered from headers alone.

use super::WeightFiles;
use crate::families::Family;
use crate::families::names::{Piece, matches};
use hearken_base::{Error, Result, nearest};
use std::collections::HashSet;

/// Names that a message lists.
const LISTED: usize = 10;
/// Names that are compared with a missing one, and how long they may be: comparing takes the product
/// of the lengths.
const COMPARED: usize = 500;
const LONGEST_COMPARED: usize = 200;

/// Ends of names, and what the first checkpoints of BERT have instead.
const OLDER: [(&str, &str); 2] =
    [(".LayerNorm.weight", ".LayerNorm.gamma"), (".LayerNorm.bias", ".LayerNorm.beta")];

/// The pieces under the names that these files use; an error that lists what is missing, what is
/// not expected and what has another shape.
pub(crate) fn check(
    files: &WeightFiles,
    family: &Family,
    mut pieces: Vec<Piece>,
) -> Result<Vec<Piece>> {
    let prefix = family.optional_prefix;
    let has_prefix =
        !prefix.is_empty() && files.entries().any(|entry| entry.name.starts_with(prefix));
    // A model without a head, whose names are expected without the prefix.
    let bare = !prefix.is_empty() && !pieces.iter().any(|piece| piece.theirs.starts_with(prefix));
    let as_filed = |name: &str| -> String {
        match name.strip_prefix(prefix) {
            Some(rest) if !has_prefix => rest.to_owned(),
            None if has_prefix && bare => format!("{prefix}{name}"),
            _ => name.to_owned(),
        }
    };
    for piece in &mut pieces {
        piece.theirs = as_filed(&piece.theirs);
        if files.find(&piece.theirs).is_none() {
            let older = OLDER
                .iter()
                .filter_map(|(new, old)| Some(format!("{}{old}", piece.theirs.strip_suffix(new)?)));
            if let Some(older) = older.into_iter().find(|older| files.find(older).is_some()) {
                piece.theirs = older;
            }
        }
    }
    let expected: HashSet<&str> = pieces.iter().map(|piece| piece.theirs.as_str()).collect();
    let ignored: Vec<String> = family.ignored.iter().map(|pattern| as_filed(pattern)).collect();
    let is_extra = |name: &str| {
        !expected.contains(name) && !ignored.iter().any(|pattern| matches(pattern, name))
    };
    let names = files.entries().map(|entry| entry.name.as_str());
    let extra: Vec<&str> = names.filter(|name| is_extra(name)).collect();
    let (mut missing, mut misshapen) = (Vec::new(), Vec::new());
    for Piece { theirs, shape, .. } in &pieces {
        match files.find(theirs).and_then(|file| file.find(theirs)) {
            None => missing.push(theirs.as_str()),
            Some(entry) if entry.shape != *shape => {
                misshapen.push(format!("{theirs} {:?} (expected {shape:?})", entry.shape));
            }
            Some(_) => {}
        }
    }
    complain(files, family, &missing, &extra, &misshapen)?;
    Ok(pieces)
}

fn complain(
    files: &WeightFiles,
    family: &Family,
    missing: &[&str],
    extra: &[&str],
    misshapen: &[String],
) -> Result<()> {
    let mut problems = Vec::new();
    if !missing.is_empty() {
        let like = |name: &&str| match near(name, extra) {
            Some(near) => format!("{name} (nearest: {near})"),
            None => (*name).to_owned(),
        };
        // Only those that are shown are compared.
        let mut shown: Vec<String> = missing.iter().take(LISTED).map(like).collect();
        shown.extend(missing.iter().skip(LISTED).map(|name| (*name).to_owned()));
        problems.push(format!("missing tensors: {}", some_of(&shown)));
    }
    if !extra.is_empty() {
        problems.push(format!("unexpected tensors: {}", some_of(extra)));
    }
    if !misshapen.is_empty() {
        problems.push(format!("tensors of the wrong shape: {}", some_of(misshapen)));
    }
    if problems.is_empty() {
        return Ok(());
    }
    let message = format!("{}: {}", files.path().display(), problems.join("; "));
    let hint = format!(
        "config.json says {}: does it belong to these weights? 'hearken inspect weights --model \
         DIR' lists what is there",
        family.model_type
    );
    Err(Error::new(message, hint))
}

/// The nearest of the names that are not expected.
fn near<'a>(name: &str, extra: &[&'a str]) -> Option<&'a str> {
    let short = extra.iter().copied().filter(|name| name.len() <= LONGEST_COMPARED);
    nearest(name, short.take(COMPARED))
}

/// Ten names and how many more there are.
pub(super) fn some_of(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(LISTED).map(AsRef::as_ref).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
