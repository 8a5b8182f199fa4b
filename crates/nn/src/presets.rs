//! The configurations that come with Hearken: the files of `configs/`, built into the binary.

use crate::config::ModelConfig;
use hearken_base::settings::Settings;
use hearken_base::{Error, Result};

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every preset.
        pub const ALL: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../configs/", $name, ".toml")))),*];
    };
}

presets![
    "stories",
    "repeats",
    "nanogpt-cpu",
    "shakespeare-fast",
    "gpt2-small",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "gpt3-small",
    "gpt3-medium",
    "gpt3-large",
    "gpt3-xl",
    "gpt3-2.7b",
    "gpt3-6.7b",
    "gpt3-13b",
    "gpt3-175b",
    "llama-style",
    "lstm-small",
    "gru-small",
    "rnn-small",
    "convolution-small",
    "numbers-bahdanau",
    "numbers-fixed",
    "experts-small",
    "bert-base",
    "bert-large",
    "encoder-small",
    "story-labels",
    "story-entities",
    "story-questions",
    "story-masks",
    "story-pairs",
    "few-shot",
    "classifier",
    "dates",
    "numbers",
    "translation",
    "transformer-base",
    "transformer-big",
    "t5-small",
    "t5-base",
    "transformer-tiny",
];

/// The text of a preset.
pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// What a preset is, in a line: the first sentence of the comment that its text starts with.
pub fn about(text: &str) -> String {
    let comment = text.lines().map_while(|line| line.strip_prefix('#'));
    let comment = comment.map(str::trim).collect::<Vec<_>>().join(" ");
    // A full stop before a digit belongs to an abbreviation: "Radford et al. 2019".
    let ends =
        |(at, _): &(usize, &str)| !comment[at + 2..].starts_with(|c: char| c.is_ascii_digit());
    let end = comment.match_indices(". ").find(ends).map(|(at, _)| at);
    let end = end.or_else(|| comment.strip_suffix('.').map(str::len));
    comment[..end.unwrap_or(comment.len())].to_owned()
}

/// The `[model]` part of a configuration file's text, whatever else is in it.
pub fn model_of(text: &str, name: &str) -> Result<ModelConfig> {
    let missing = || {
        Error::new(
            format!("{name} has no [model]"),
            "'hearken presets stories' shows a complete example",
        )
    };
    Settings::parse(text, name)?.read_only("model")?.ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_parses_and_is_valid() {
        for (name, text) in ALL {
            model_of(text, name).unwrap().validate().unwrap();
        }
        assert!(find("gpt2-small").is_some() && find("gpt5").is_none());
        for (name, text) in ALL {
            let about = about(text);
            assert!((20..=120).contains(&about.chars().count()), "{name}: {about}");
            assert_eq!(about.matches('(').count(), about.matches(')').count(), "{name}: {about}");
        }
    }

    #[test]
    fn every_file_of_configs_is_a_preset() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "toml") {
                let name = path.file_stem().unwrap().to_str().unwrap();
                assert!(find(name).is_some(), "configs/{name}.toml is not in the list above");
            }
        }
    }
}
