//! The files of the page, built into the binary.

/// The page itself.
pub(crate) const INDEX: &str = include_str!("../assets/index.html");
pub(crate) const STYLE: &str = include_str!("../assets/style.css");

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every module, in an order in which each comes after what it uses.
        pub(crate) const MODULES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../assets/", $name)))),*];
    };
}

modules![
    "state.js",
    "draw.js",
    "heatmap.js",
    "tokens.js",
    "map.js",
    "numbers.js",
    "attention.js",
    "stream.js",
    "sampling.js",
    "cache.js",
    "backward.js",
    "update.js",
    "changes.js",
    "geometry.js",
    "neurons.js",
    "main.js",
];

/// A file by its name, with its type.
pub(crate) fn find(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "index.html" => Some(("text/html; charset=utf-8", INDEX)),
        "style.css" => Some(("text/css; charset=utf-8", STYLE)),
        _ => {
            let (_, text) = MODULES.iter().find(|(known, _)| *known == name)?;
            Some(("text/javascript; charset=utf-8", text))
        }
    }
}

/// All modules as one script: what they import from each other is in the same scope, so that it can
/// stand in a file that is opened from disk, where browsers load no modules.
pub(crate) fn bundle() -> String {
    let mut script = String::new();
    for (name, text) in MODULES {
        script.extend(["\n// ", name, "\n"]);
        for line in text.lines().filter(|line| !line.starts_with("import ")) {
            script.push_str(line.strip_prefix("export ").unwrap_or(line));
            script.push('\n');
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// `function name(`, `const name =`, … at the beginning of a line.
    fn top_level(text: &str) -> Vec<&str> {
        let lines = text.lines().map(|line| line.strip_prefix("export ").unwrap_or(line));
        let names = lines.filter_map(|line| {
            let line = line.strip_prefix("async ").unwrap_or(line);
            let rest = ["function ", "const ", "let ", "class "]
                .iter()
                .find_map(|word| line.strip_prefix(word))?;
            rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
        });
        names.filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn modules_share_one_scope_without_clashes() {
        let mut seen = BTreeSet::new();
        for (file, text) in MODULES {
            for name in top_level(text) {
                assert!(seen.insert(name), "{name} is declared twice, again in {file}");
            }
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                assert!(line.ends_with(';'), "{file}: an import in one line: {line}");
                let from = line.rsplit('\'').nth(1).unwrap_or_default().trim_start_matches("./");
                let at = |name: &str| MODULES.iter().position(|(known, _)| *known == name);
                assert!(at(from).is_some() && at(from) < at(file), "{file} imports {from}");
            }
        }
        assert!(!bundle().contains("\nexport ") && !bundle().contains("\nimport "));
    }

    #[test]
    fn nothing_is_fetched_from_elsewhere() {
        for text in MODULES.iter().map(|(_, text)| *text).chain([INDEX, STYLE]) {
            for line in text.lines().filter(|line| line.contains("://")) {
                assert!(line.contains("http://www.w3.org/2000/svg"), "{line}");
            }
        }
    }
}
