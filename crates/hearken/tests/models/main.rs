//! The commands that use a model, as a person runs them, on a tiny one made here.

#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod evaluate;
mod explain;
mod generate;
mod inspect;
mod plan;
mod recurrent;
mod translate;

use common::hearken;
use hearken::data::tokenizer::Tokenizer;
use hearken::formats::SpecialTokens;
use hearken::nn::config::DecoderConfig;
use hearken::nn::models::Decoder;
use hearken::nn::variants;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// What the tiny model can say.
const CHARACTERS: &str = "\n abcdefghijklmnopqrstuvwxyz.";

fn config() -> DecoderConfig {
    DecoderConfig { vocabulary: CHARACTERS.len(), context: 16, ..variants::base() }
}

/// A directory with a model and a tokenizer.
fn model_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_model(directory.path());
    directory
}

fn write_model(path: &Path) -> Decoder {
    std::fs::create_dir_all(path).unwrap();
    let model = Decoder::drawn(config(), 3);
    hearken::formats::save(path, &model, &SpecialTokens::default()).unwrap();
    let characters: Vec<char> = CHARACTERS.chars().collect();
    Tokenizer::of_characters(&characters).save(&path.join("tokenizer.json")).unwrap();
    model
}

/// `hearken COMMAND --model DIR …`
fn with_model(command: &[&str], directory: &Path, rest: &[&str]) -> Command {
    let path = directory.to_str().unwrap();
    hearken(&[command, &["--model", path], rest].concat())
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("stdout is one JSON value")
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
}
