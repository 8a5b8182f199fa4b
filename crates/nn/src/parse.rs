//! From TOML to configuration, with errors that help: where, what was expected, and for a
//! misspelt key the nearest one.

use crate::config::ConfigError;
use serde::de::DeserializeOwned;

/// Reads `text`; `name` is the file's name, for messages.
pub fn from_toml<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let message = error.message();
        let line =
            error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
        // Inside a choice the deserialiser knows only where the choice begins.
        let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
        let line = unknown.and_then(|(key, _)| line_of(key, text)).or(line);
        let place = line.map_or(name.to_owned(), |line| format!("{name}, line {line}"));
        ConfigError::new(format!("{place}: {}", plain(message)), hint(message))
    })
}

/// The first line, from 1, in which `key` is given a value.
fn line_of(key: &str, text: &str) -> Option<usize> {
    let gives = |line: &str| {
        line.match_indices(key).any(|(at, _)| {
            let before = line[..at].trim_end().chars().next_back();
            let begins = matches!(before, None | Some('{' | ',' | '.'));
            begins && line[at + key.len()..].trim_start().starts_with('=')
        })
    };
    text.lines().position(gives).map(|line| line + 1)
}

/// Makes a configuration of `table`; `name` says where it comes from, for messages.
pub fn from_table<T: DeserializeOwned>(table: toml::Table, name: &str) -> Result<T, ConfigError> {
    table.try_into().map_err(|error: toml::de::Error| {
        ConfigError::new(format!("{name}: {}", plain(error.message())), hint(error.message()))
    })
}

/// What the deserialiser expected, in words that are not Rust's.
fn plain(message: &str) -> String {
    let Some((what, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "usize" | "u64" | "u32" => "a whole number of 0 or more",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        choice if choice.contains("tagged enum") => "a table with its kind",
        other => other,
    };
    format!("{what}, expected {expected}")
}

/// A hint for a message of the deserialiser.
fn hint(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    if let (true, [wrong, known @ ..]) = (unknown, quoted.as_slice())
        && let Some(near) = nearest(wrong, known.iter().copied())
    {
        return format!("did you mean `{near}`?");
    }
    if message.contains("tagged enum") {
        return "as in { kind = \"…\" }, or set its .kind".to_owned();
    }
    if message.contains("missing field") {
        return "add it; configs/ has complete examples".to_owned();
    }
    "see the examples in configs/".to_owned()
}

/// The candidate that needs the fewest edits to become `word`, if they are few.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (edits(word, candidate), candidate))
        .min()
        .filter(|(edits, candidate)| *edits <= 2 + candidate.len() / 3)
        .map(|(_, candidate)| candidate)
}

/// Insertions, removals and replacements that turn `a` into `b` (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    const GOOD: &str = "kind = \"decoder\"\ncontext = 8\nlayers = 1\nwidth = 8\nheads = 2\n";

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("heads", "heads"), 0);
    }

    #[test]
    fn a_misspelt_key_names_the_nearest() {
        let error =
            from_toml::<ModelConfig>(&GOOD.replace("heads", "haeds"), "m.toml").unwrap_err();
        assert!(error.message.starts_with("m.toml, line 5: unknown field `haeds`"), "{error}");
        assert_eq!(error.hint, "did you mean `heads`?");
        let error =
            from_toml::<ModelConfig>(&format!("{GOOD}position = {{ kind = \"roep\" }}"), "m.toml");
        assert_eq!(error.unwrap_err().hint, "did you mean `rope`?");
    }

    #[test]
    fn a_stray_key_inside_a_choice_is_an_error() {
        for bad in [
            "position = { kind = \"rope\", bsae = 3.0 }",
            "attention = { kind = \"full\", size = 3 }",
            "norm = { kind = \"rms\", epsilon = 1e-5 }",
        ] {
            assert!(from_toml::<ModelConfig>(&format!("{GOOD}{bad}"), "m.toml").is_err(), "{bad}");
        }
        assert!(from_toml::<ModelConfig>(GOOD, "m.toml").is_ok());
    }

    #[test]
    fn a_wrong_type_is_told_in_plain_words() {
        for (right, wrong, told, hint) in [
            ("= 8", "= -8", "integer `-8`, expected a whole number of 0 or more", "configs/"),
            ("= 8", "= \"x\"", "string \"x\", expected a whole number of 0 or more", "configs/"),
            ("heads = 2", "heads = 2\ntied = 1", "integer `1`, expected true or false", "configs/"),
            ("heads = 2", "heads = 2\nposition = \"rope\"", "a table with its kind", "{ kind ="),
        ] {
            let error =
                from_toml::<ModelConfig>(&GOOD.replace(right, wrong), "m.toml").unwrap_err();
            assert!(error.message.contains(told) && error.hint.contains(hint), "{error}");
        }
    }

    #[test]
    fn a_wrong_type_says_where() {
        let error = from_toml::<ModelConfig>(&GOOD.replace('8', "\"x\""), "m.toml").unwrap_err();
        assert!(error.message.starts_with("m.toml"), "{error}");
    }
}
