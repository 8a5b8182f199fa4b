//! From TOML to configuration, with errors that help: where, what was expected, and for a
//! misspelt key the nearest one.

use crate::config::ConfigError;
use serde::de::DeserializeOwned;

/// Reads `text`; `name` is the file's name, for messages.
pub fn from_toml<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let message = error.message();
        // Inside a choice the deserialiser knows only where the choice begins.
        let guilty = toml::from_str(text).ok().and_then(|table| guilty::<T>(&table, message));
        let start = guilty.as_ref().and_then(|path| start_of(path, text));
        let start = start.or_else(|| error.span().map(|span| span.start));
        // The line in which that byte is, from 1.
        let line = start.map(|start| text[..start.min(text.len())].split('\n').count());
        let place = line.map_or(name.to_owned(), |line| format!("{name}, line {line}"));
        error_at(&place, guilty.as_deref(), message)
    })
}

/// Makes a configuration of `table`; `place` says where a key, as `["model", "width"]`, comes from,
/// for messages: the key that is at fault, if it is one.
pub fn from_table<T: DeserializeOwned>(
    table: &toml::Table,
    place: impl Fn(Option<&[String]>) -> String,
) -> Result<T, ConfigError> {
    table.clone().try_into().map_err(|error: toml::de::Error| {
        let guilty = guilty::<T>(table, error.message());
        error_at(&place(guilty.as_deref()), guilty.as_deref(), error.message())
    })
}

fn error_at(place: &str, guilty: Option<&[String]>, message: &str) -> ConfigError {
    // An unknown field is named by the message itself.
    let key = guilty.filter(|_| !message.starts_with("unknown field"));
    let key = key.map_or(String::new(), |path| format!("{}: ", path.join(".")));
    ConfigError::new(format!("{place}: {key}{}", plain(message)), hint(message))
}

/// The key without which this message would not come. A `kind` decides what else is read, so that
/// without it hardly any message comes: it must be the one that the message quotes. And without a key
/// that must be there another message comes as soon as its table has been read: it is at fault only if
/// no other is, and of several the one that is read last.
fn guilty<T: DeserializeOwned>(table: &toml::Table, message: &str) -> Option<Vec<String>> {
    if message.starts_with("missing field") {
        return None; // no key that is there
    }
    let mut paths = Vec::new();
    leaves(table, &mut Vec::new(), &mut paths);
    let mut needed = None;
    for path in paths {
        let mut without = table.clone();
        let Some((last, tables)) = path.split_last() else { continue };
        let inner =
            tables.iter().try_fold(&mut without, |table, name| table.get_mut(name)?.as_table_mut());
        let Some(value) = inner.and_then(|inner| inner.remove(last)) else { continue };
        let quoted = value.as_str().is_none_or(|value| message.contains(&format!("`{value}`")));
        if last == "kind" && !quoted {
            continue;
        }
        match without.try_into::<T>() {
            Err(error) if error.message() == message => {}
            Err(error) if error.message().starts_with("missing field") => needed = Some(path),
            _ => return Some(path),
        }
    }
    needed
}

/// The paths of all values that are not tables.
fn leaves(table: &toml::Table, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    for (key, value) in table {
        path.push(key.clone());
        match value.as_table() {
            Some(inner) => leaves(inner, path, found),
            None => found.push(path.clone()),
        }
        path.pop();
    }
}

/// The byte at which the value of a key begins.
fn start_of(path: &[String], text: &str) -> Option<usize> {
    fn named<'a, 'i>(
        table: &'a toml::de::DeTable<'i>,
        name: &str,
    ) -> Option<&'a toml::Spanned<toml::de::DeValue<'i>>> {
        table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
    }
    let table = toml::de::DeTable::parse(text).ok()?;
    let (first, rest) = path.split_first()?;
    let value = rest.iter().try_fold(named(table.get_ref(), first)?, |value, name| {
        named(value.get_ref().as_table()?, name)
    })?;
    Some(value.span().start)
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
    fn what_is_wrong_is_named_with_its_line() {
        for (right, wrong, told) in [
            ("width = 8", "width = \"x\"", "m.toml, line 4: width: invalid type: string \"x\""),
            ("heads = 2", "heads = 2\n\nnorm = { kind = \"rsm\" }", "m.toml, line 7: norm.kind: "),
            ("heads = 2", "heads = 2\n[norm]\nkind = \"rms\"\neps = true", "line 8: norm.eps: "),
            ("heads = 2", "heads = 2 2", "m.toml, line 5: "),
            ("heads = 2\n", "", "missing field `heads`"),
        ] {
            let text = GOOD.replace(right, wrong);
            let error = from_toml::<ModelConfig>(&text, "m.toml").unwrap_err();
            assert!(error.message.contains(told), "{error}");
        }
        // Of two that are wrong in the same way none is without the other; the message stands alone.
        let error = from_toml::<ModelConfig>(&GOOD.replace('8', "\"x\""), "m.toml").unwrap_err();
        assert!(error.message.starts_with("m.toml"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_in_a_table_after_one_whose_keys_must_all_be_there() {
        #[derive(serde::Deserialize)]
        #[expect(dead_code, reason = "only whether it can be read matters")]
        struct File {
            model: ModelConfig,
            train: Train,
        }
        #[derive(serde::Deserialize)]
        #[expect(dead_code, reason = "only whether it can be read matters")]
        struct Train {
            lr: f32,
            #[serde(default)]
            steps: usize,
        }
        for (train, told) in [
            ("lr = 1\nsteps = \"x\"", "m.toml, line 9: train.steps: invalid type"),
            ("lr = \"x\"", "m.toml, line 8: train.lr: invalid type"),
        ] {
            let text = format!("[model]\n{GOOD}[train]\n{train}");
            let error = from_toml::<File>(&text, "m.toml").err().map(|error| error.message);
            assert!(error.as_ref().is_some_and(|error| error.starts_with(told)), "{error:?}");
        }
    }
}
