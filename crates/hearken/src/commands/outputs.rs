//! Files that commands write, checked before anything is computed: a result takes the place of nothing
//! that it is computed from.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// Can `out`, which `flag` names, be written, without replacing a file of the model's directory or one of
/// those that are `read`?
pub(crate) fn check_out(
    flag: &str,
    out: &Path,
    model: Option<&Path>,
    read: &[PathBuf],
) -> Result<(), Failure> {
    let shown = out.display();
    let refused = |message: String| Err(Failure::input(message, format!("choose another {flag}")));
    if out.is_dir() {
        let message = format!("{shown} is a directory, expected a file to write");
        return Err(Failure::input(message, "give a name in it"));
    }
    let folder = match out.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // A pipe or a terminal has no folder that matters.
    if (!out.exists() || out.is_file()) && tempfile::tempfile_in(folder).is_err() {
        return Err(Failure::input(
            format!("cannot write {shown}"),
            "name a file in a directory that exists and can be written to",
        ));
    }
    if read.iter().any(|file| same_file(file, out)) {
        return refused(format!("{shown} would be replaced, and is what is read"));
    }
    let Some(model) = model else { return Ok(()) };
    let folder = match out.canonicalize() {
        Ok(file) => file.parent().map(Path::to_owned),
        Err(_) => folder.canonicalize().ok(),
    };
    // A picture or a page is not taken for a part of the model.
    if !is_shown(out) && folder.is_some() && folder == model.canonicalize().ok() {
        return refused(format!("{shown} is inside the model directory"));
    }
    let files = std::fs::read_dir(model).into_iter().flatten().flatten();
    let mut parts = files.map(|entry| entry.path()).filter(|file| !is_shown(file));
    if parts.any(|file| same_file(&file, out)) {
        return refused(format!("{shown} is a file of the model that is read"));
    }
    Ok(())
}

/// Is it a picture or a page, by its name?
fn is_shown(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "svg" || end == "html" || end == "htm")
}

/// Are both there and one file, perhaps by different links to it?
#[cfg(unix)]
fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    identity(a).is_some() && identity(a) == identity(b)
}

#[cfg(not(unix))]
fn same_file(a: &Path, b: &Path) -> bool {
    a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("model")).unwrap();
        for name in ["model/weights", "text"] {
            std::fs::write(at(name), "something").unwrap();
        }
        std::fs::hard_link(at("model/weights"), at("link")).unwrap();
        std::fs::hard_link(at("model/weights"), at("link.svg")).unwrap();
        std::fs::write(at("model/old.svg"), "<svg").unwrap();
        let check = |name: &str| check_out("--out", &at(name), Some(&at("model")), &[at("text")]);
        let said = |name: &str| match check(name) {
            Ok(()) => None,
            Err(Failure::Error(error)) => Some(error.to_string()),
            Err(other) => panic!("{other:?}"),
        };
        for (name, message) in [
            ("model", "is a directory"),
            ("missing/x", "cannot write"),
            ("text", "is what is read"),
            ("model/new", "inside the model directory"),
            ("model/../model/weights", "inside the model directory"),
            ("link", "a file of the model"),
            ("link.svg", "a file of the model"),
        ] {
            let said = said(name).unwrap_or_else(|| panic!("{name} is allowed"));
            assert!(said.contains(message), "{name}: {said}");
        }
        for name in ["new", "model/new.svg", "model/old.svg"] {
            assert_eq!(said(name), None, "{name}");
        }
        assert!(check_out("--out", Path::new("/dev/null"), None, &[]).is_ok());
    }
}
