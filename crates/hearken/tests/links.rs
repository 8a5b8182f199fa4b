//! Every relative link and image of every Markdown file leads somewhere: to a file of this
//! repository and, where it names one, to a heading in it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The Markdown files under `directory`, without what is built or hidden.
fn documents(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "runs"].contains(&name.as_str()) {
            documents(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The lines of a document that are text, with their numbers from 1: those in fences are left
/// out, and code between backticks is blanked.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((i + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("`…`")));
        }
    }
    lines
}

/// The targets of `[text](target)`, `![text](target)`, `[name]: target`, `href="…"` and `src="…"`.
fn targets(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, end) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
        let mut rest = line;
        while let Some((_, after)) = rest.split_once(start) {
            let Some((target, after)) = after.split_once(end) else { break };
            // A title may follow: [text](target "title").
            found.extend(target.split_whitespace().next().map(str::to_owned));
            rest = after;
        }
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.extend(target.split_whitespace().next().map(str::to_owned));
    }
    found
}

/// The anchors of a document's headings, made as GitHub makes them: lower case, spaces to hyphens,
/// nothing but letters, digits, hyphens and underscores; the second of a name gets `-1`.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut fenced = false;
    let mut anchors = Vec::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        let name: String = kept.flat_map(char::to_lowercase).collect();
        let count = seen.entry(name.clone()).or_default();
        anchors.push(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    anchors
}

/// What is wrong with a link to `target` in `document`, if anything.
fn fault(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None; // needs the network
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => document.to_owned(),
        file if file.starts_with('/') => return Some("an absolute path".to_owned()),
        file => document.parent()?.join(file),
    };
    let Ok(path) = path.canonicalize() else { return Some("no such file".to_owned()) };
    if !path.starts_with(root()) {
        return Some("it leads out of the repository".to_owned());
    }
    if anchor.is_empty() || path.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let known = anchors(&std::fs::read_to_string(path).unwrap());
    let missing = !known.iter().any(|known| known == anchor);
    missing.then(|| format!("no such heading; there are {}", known.join(", ")))
}

#[test]
fn every_link_of_every_document_leads_somewhere() {
    let mut found = Vec::new();
    documents(&root(), &mut found);
    let (mut links, mut faults) = (0, Vec::new());
    for document in &found {
        for (number, line) in prose(&std::fs::read_to_string(document).unwrap()) {
            for target in targets(&line) {
                links += 1;
                if let Some(fault) = fault(document, &target) {
                    let name = document.strip_prefix(root()).unwrap().display();
                    faults.push(format!("{name}:{number}: {target}: {fault}"));
                }
            }
        }
    }
    assert!(found.len() > 10 && links > 20, "{} documents, {links} links", found.len());
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn links_and_headings_are_found_where_they_are() {
    let text = "# A *b*: c_d\n## Same\n## Same\n```\n# no [x](heading.md)\n```\n\
        see [one](a.md), ![two](b.svg \"title\") and `[no](c.md)`\n[name]: d.md\n";
    assert_eq!(anchors(text), ["a-b-c_d", "same", "same-1"]);
    let found: Vec<String> = prose(text).iter().flat_map(|(_, line)| targets(line)).collect();
    assert_eq!(found, ["a.md", "b.svg", "d.md"]);
    let readme = root().join("README.md");
    assert_eq!(fault(&readme, "ARCHITECTURE.md#the-map"), None);
    assert_eq!(fault(&readme, "https://example.org/gone"), None);
    for wrong in ["gone.md", "ARCHITECTURE.md#gone", "/etc/passwd", "../"] {
        assert!(fault(&readme, wrong).is_some(), "{wrong}");
    }
}
