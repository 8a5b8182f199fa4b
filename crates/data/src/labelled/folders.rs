//! A directory per class: `reviews/good/1.txt`, `reviews/bad/2.txt`, …

use super::record::{Field, LONGEST, Reader, Record};
use super::{Fields, Problem};
use crate::error::{self, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of one class.
const MOST_FILES: usize = 10_000_000;

/// A reader for each file.
pub(super) fn readers(root: &Path, fields: &Fields) -> Result<Vec<(Box<dyn Reader>, PathBuf)>> {
    let mut readers: Vec<(Box<dyn Reader>, PathBuf)> = Vec::new();
    for class in entries(root)? {
        if !class.is_dir() {
            return Err(Error::new(
                format!("{} lies beside the folders of the classes", class.display()),
                "every class has a folder with its texts; move the file into one, or away",
            ));
        }
        let name = class.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let files = entries(&class)?;
        if files.is_empty() {
            return Err(Error::new(
                format!("the class {name} has no texts: {} is empty", class.display()),
                "put texts into it, or remove the folder",
            ));
        }
        for file in files {
            if !file.is_file() {
                return Err(Error::new(
                    format!("{} is not a file", file.display()),
                    "the folder of a class holds text files",
                ));
            }
            let names = [fields.text.clone(), fields.label.clone()];
            let reader = Whole { path: file.clone(), label: name.clone(), names, done: false };
            readers.push((Box::new(reader), file));
        }
    }
    if readers.is_empty() {
        return Err(error::empty(&root.display().to_string()));
    }
    Ok(readers)
}

/// What is in a folder, by name, hidden files left out.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(error::on("read", folder))? {
        let entry = entry.map_err(error::on("read", folder))?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
        if paths.len() > MOST_FILES {
            let message = format!("{} has more than {MOST_FILES} entries", folder.display());
            return Err(Error::new(message, "put the texts into a .jsonl file"));
        }
    }
    paths.sort();
    Ok(paths)
}

/// A file that is one text.
struct Whole {
    path: PathBuf,
    label: String,
    names: [String; 2],
    done: bool,
}

impl Reader for Whole {
    fn next(&mut self, line: &mut u64) -> std::result::Result<Option<Record>, Problem> {
        *line = 1;
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        let text = hearken_store::files::read_text(&self.path, LONGEST as u64);
        let text = text.map_err(|error| {
            let hint = "text must be UTF-8; convert it (iconv -f latin1 -t utf-8)";
            Problem::new(error.message(), error.hint().unwrap_or(hint))
        })?;
        let [name, label] = self.names.clone();
        let fields = [(label, Field::Text(self.label.clone())), (name, Field::Text(text))];
        Ok(Some(Record { fields: fields.into(), others: Vec::new() }))
    }
}
