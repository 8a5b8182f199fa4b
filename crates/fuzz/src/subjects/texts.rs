//! Tokenizers and text.

use super::{Kind, Subject};
use crate::mutate::Form;
use hearken_base::{Error, Result};
use hearken_data::corpus::{Corpus, Source, Validation};
use hearken_data::stories;
use hearken_data::tokenizer::{Kind as Tokens, Tokenizer, Training};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

pub(super) fn subjects() -> Vec<Subject> {
    let tokenizer = |name, target, form, prepare| Subject {
        name,
        kind: Kind::Model,
        target,
        form,
        prepare,
        read: use_tokenizer,
    };
    let text = |name, target, form, prepare, read| Subject {
        name,
        kind: Kind::Training,
        target,
        form,
        prepare,
        read,
    };
    vec![
        tokenizer("tokenizer-bpe", TOKENIZER, Form::Json, |d| train(Tokens::Bpe, d)),
        tokenizer("tokenizer-wordpiece", TOKENIZER, Form::Json, |d| train(Tokens::WordPiece, d)),
        tokenizer("tokenizer-unigram", TOKENIZER, Form::Json, |d| train(Tokens::Unigram, d)),
        tokenizer("tokenizer-character", TOKENIZER, Form::Json, |d| train(Tokens::Character, d)),
        tokenizer("tokenizer-word", TOKENIZER, Form::Json, |d| train(Tokens::Word, d)),
        tokenizer("tokenizer-pieces", TOKENIZER, Form::Json, unusual),
        tokenizer("tokenizer-config", "tokenizer_config.json", Form::Json, |directory| {
            train(Tokens::Bpe, directory)
        }),
        tokenizer("vocab", "vocab.json", Form::Json, gpt2_files),
        tokenizer("merges", "merges.txt", Form::Text, gpt2_files),
        text("text", "text.txt", Form::Binary, plain, use_text),
        text("jsonl", "text.jsonl", Form::Text, json_lines, use_text),
        text("corpus-cache", "corpus.ids", Form::Binary, cached, use_text),
    ]
}

const TOKENIZER: &str = "tokenizer.json";

/// A few stories.
fn sample() -> String {
    stories::text(1, 1500)
}

fn put(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, text).map_err(Error::io("write", path))
}

fn train(kind: Tokens, directory: &Path) -> Result<()> {
    let mut training = Training::new(kind);
    training.vocabulary = (kind != Tokens::Character).then_some(540);
    training.train_on_text(&sample())?.save_directory(directory)
}

/// A tokenizer with parts that ours do not have, as others write them.
fn unusual(directory: &Path) -> Result<()> {
    put(&directory.join(TOKENIZER), include_str!("unusual.json"))
}

fn gpt2_files(directory: &Path) -> Result<()> {
    let words = ["l", "o", "w", "e", "r", "Ġ", "lo", "low", "er", "Ġlow", "<|endoftext|>"];
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), id.into())).collect();
    put(&directory.join("vocab.json"), serde_json::Value::Object(vocabulary).to_string())?;
    put(&directory.join("merges.txt"), "#version: 0.2\nl o\nlo w\ne r\nĠ low\n")
}

/// Loads it, and takes a text there and back; what it does not know is an error, too.
fn use_tokenizer(directory: &Path) -> Result<()> {
    let tokenizer = Tokenizer::load(directory)?;
    let text = format!("{} low lower <|endoftext|>\u{301}𝕏\n\n  12", &sample()[..200]);
    for text in [text.as_str(), "low", ""] {
        if let Ok(ids) = tokenizer.encode(text) {
            let _ = tokenizer.decode(&ids);
        }
    }
    let last = (tokenizer.vocabulary_size() as u32).saturating_sub(1);
    let _ = tokenizer.decode_without_special(&[0, 1, last]);
    Ok(())
}

fn plain(directory: &Path) -> Result<()> {
    put(&directory.join("text.txt"), sample())
}

fn json_lines(directory: &Path) -> Result<()> {
    let mut lines = String::new();
    for (i, line) in sample().lines().enumerate() {
        let _ = writeln!(lines, "{}", serde_json::json!({ "id": i, "text": line, "tags": ["a"] }));
    }
    put(&directory.join("text.jsonl"), lines)
}

fn cached(directory: &Path) -> Result<()> {
    plain(directory)?;
    use_text(directory)
}

/// Tokenises the text, or takes the tokens that were kept, as training would.
fn use_text(directory: &Path) -> Result<()> {
    let file = ["text.txt", "text.jsonl"].map(|name| directory.join(name));
    let file: Vec<_> = file.into_iter().filter(|path| path.exists()).collect();
    let source = Source::open(&file, "text")?;
    let tokenizer = Training::new(Tokens::Byte).train(source.texts(), None, &mut |_| {})?;
    let cache = directory.join("corpus.ids");
    let corpus =
        Corpus::prepare(&source, &Validation::Fraction(0.1), &tokenizer, &cache, &mut |_| {})?;
    let mut sum = 0_u64;
    for ids in [&corpus.train, &corpus.validation] {
        sum += ids.to_vec(0..ids.len()).iter().map(|id| u64::from(*id)).sum::<u64>();
    }
    assert!(sum < u64::MAX);
    Ok(())
}
