//! The files of a directory that hold tensors: one, or shards with an index; and their way into and
//! out of the parameters of a model, piece by piece.
//!
//! Names and shapes are checked against the headers of the files before anything is allocated. Then
//! each parameter gets its memory and is filled from the file, a few megabytes at a time.

mod check;
mod transfer;

pub(crate) use check::check;
pub(crate) use transfer::{cut, fill, write};

use crate::json;
use hearken_base::{Error, Kind, Result};
use hearken_store::{Entry, TensorFile};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// All tensors in the weight files of a directory.
#[derive(Debug)]
pub struct WeightFiles {
    files: Vec<TensorFile>,
    /// The file that holds a tensor.
    by_name: HashMap<String, usize>,
    /// What a message names: the file, or the index.
    path: PathBuf,
}

impl WeightFiles {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names, and checks
    /// their headers.
    pub fn open(directory: &Path) -> Result<Self> {
        let single = directory.join("model.safetensors");
        let index = directory.join("model.safetensors.index.json");
        if !index.exists() || single.exists() {
            let hint = "a model directory has config.json and model.safetensors; weights in \
                        another format, as in pytorch_model.bin, must be converted first";
            let file = TensorFile::open(&single);
            let file =
                file.map_err(|error| if single.exists() { error } else { error.with_hint(hint) })?;
            return Ok(Self::of(vec![file], single));
        }
        let shards = read_index(&index)?;
        let hint = format!("{} names it: get all files of the model", index.display());
        let open = |shard: &String| {
            TensorFile::open(&directory.join(shard)).map_err(|error| match error.kind() {
                Kind::Io(_) => error.with_hint(hint.as_str()),
                _ => error,
            })
        };
        let files = shards.keys().map(open).collect::<Result<Vec<TensorFile>>>()?;
        for (file, listed) in files.iter().zip(shards.values()) {
            agree(&index, file, listed)?;
        }
        Ok(Self::of(files, index))
    }

    fn of(files: Vec<TensorFile>, path: PathBuf) -> Self {
        let names = |(i, file): (usize, &TensorFile)| {
            file.entries().iter().map(move |entry| (entry.name.clone(), i)).collect::<Vec<_>>()
        };
        let by_name = files.iter().enumerate().flat_map(names).collect();
        Self { files, by_name, path }
    }

    /// The files, in order.
    pub fn files(&self) -> &[TensorFile] {
        &self.files
    }

    /// What a message about all of them names.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that holds a tensor, if one does.
    pub fn find(&self, name: &str) -> Option<&TensorFile> {
        self.by_name.get(name).and_then(|i| self.files.get(*i))
    }

    /// Everything that is there.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.files.iter().flat_map(TensorFile::entries)
    }
}

/// What counts of an index: the shard of each tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The tensors of each shard, as the index has them.
fn read_index(path: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let index: Index = json::read_as(path, json::MOST_INDEX)?;
    let mut shards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, shard) in index.weight_map {
        // A shard lies beside the index and nowhere else.
        if Path::new(&shard).file_name().is_none_or(|own| own != shard.as_str()) {
            let message = format!("weight_map names {shard:?}, expected a file beside it");
            let message = format!("{}: {message}", path.display());
            return Err(Error::new(message, "get the file again"));
        }
        shards.entry(shard).or_default().insert(name);
    }
    Ok(shards)
}

/// Complains unless a shard holds the tensors that the index lists for it, and no others.
fn agree(index: &Path, file: &TensorFile, listed: &BTreeSet<String>) -> Result<()> {
    let missing = listed.iter().filter(|name| file.find(name).is_none()).cloned();
    let others = file.entries().iter().map(|entry| &entry.name);
    let others = others.filter(|name| !listed.contains(*name)).cloned();
    let mut problems = Vec::new();
    for (what, names) in [("lacks", missing.collect::<Vec<_>>()), ("also has", others.collect())] {
        if !names.is_empty() {
            problems.push(format!("{what} {}", check::some_of(&names)));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        format!("{} {}", file.path().display(), problems.join(", and ")),
        format!("{} says otherwise: get all files of the model again", index.display()),
    ))
}
