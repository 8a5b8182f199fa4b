//! Tokenizers from strangers: whatever a file says, loading, encoding and decoding end soon, with a
//! result or with an error that names the file.

use hearken_data::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What an honest file of this size takes, and much to spare for a busy machine.
const SOON: Duration = Duration::from_secs(2);

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tokenizer.json")
    }

    fn write(&self, json: &Value) -> PathBuf {
        fs::write(self.path(), json.to_string()).unwrap();
        self.path()
    }

    /// Loads it, which must work.
    fn load(&self, json: &Value) -> Tokenizer {
        Tokenizer::load(&self.write(json)).unwrap()
    }

    /// Loads it, which must be refused for this reason.
    fn refused(&self, json: &Value, reason: &str) {
        refused(&self.write(json), reason);
    }
}

fn refused(path: &Path, reason: &str) {
    let start = Instant::now();
    let error = Tokenizer::load(path).unwrap_err();
    assert!(start.elapsed() < SOON, "{reason}: {:?}", start.elapsed());
    says(&error, path, reason);
}

fn says(error: &hearken_data::Error, path: &Path, reason: &str) {
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(error.message().contains(name), "{reason}: {error}");
    assert!(error.message().contains(reason), "{reason}: {error}");
    assert!(error.hint().is_some(), "{error}");
}

/// A tokenizer.json of this model, changed by `change`.
fn with(model: &Value, change: &Value) -> Value {
    let mut all = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": model,
    });
    for (key, value) in change.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

fn bpe(vocab: &Value, merges: &Value) -> Value {
    json!({"type": "BPE", "vocab": vocab, "merges": merges})
}

fn plain(change: &Value) -> Value {
    with(&bpe(&json!({"a": 0, "b": 1}), &json!([])), change)
}

fn replace(pattern: &Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

fn sequence(normalizers: &[Value]) -> Value {
    json!({"normalizer": {"type": "Sequence", "normalizers": normalizers}})
}

#[test]
fn ids_far_beyond_the_number_of_tokens_are_refused() {
    let folder = Folder::new();
    for id in [1_000_100_u64, 2_147_483_647, 4_294_967_295] {
        folder.refused(
            &with(&bpe(&json!({"a": 0, "b": id}), &json!([])), &json!({})),
            &format!("the token \"b\" has the id {id}, expected less than"),
        );
        let added = json!([{"id": id, "content": "<x>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}]);
        folder.refused(&plain(&json!({"added_tokens": added})), "has the id");
    }
    // Gaps are allowed.
    let gap = folder.load(&with(&bpe(&json!({"a": 0, "b": 900_000}), &json!([])), &json!({})));
    assert_eq!(gap.encode("ab").unwrap(), [0, 900_000]);
    folder.refused(
        &with(&bpe(&json!({"a": 0, "x".repeat(1 << 20): 1}), &json!([])), &json!({})),
        "a token has 1048576 bytes",
    );
}

#[test]
fn replacements_that_blow_up_text_are_refused() {
    let folder = Folder::new();
    let grow = replace(&json!({"String": "a"}), &"a".repeat(16));
    folder.load(&plain(&sequence(std::slice::from_ref(&grow))));
    folder.refused(&plain(&sequence(&[grow.clone(), grow.clone()])), "256 times as long");
    let nested =
        sequence(&[grow.clone(), sequence(std::slice::from_ref(&grow))["normalizer"].clone()]);
    folder.refused(&plain(&nested), "256 times as long");
    let regex = replace(&json!({"Regex": "a?"}), &"a".repeat(16));
    folder.refused(&plain(&sequence(&[regex])), "17 times as long");
    let prepend = json!({"type": "Prepend", "prepend": "a".repeat(100)});
    folder.refused(&plain(&sequence(&[prepend])), "26 times as long");
    let decoder = json!({"decoder": {"type": "Sequence", "decoders": [grow.clone(), grow]}});
    folder.refused(&plain(&decoder), "256 times as long");
    // Many harmless ones, as published tokenizers have them, are fine.
    let spaces = replace(&json!({"Regex": " {2,}"}), " ");
    let quotes = replace(&json!({"String": "``"}), "\"");
    folder.load(&plain(&sequence(&[vec![spaces; 10], vec![quotes; 10]].concat())));
}

#[test]
fn steps_that_lengthen_a_text_come_once() {
    let folder = Folder::new();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": true});
    let bert = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
        "strip_accents": null, "lowercase": true});
    for (key, list, part) in [
        ("normalizer", "normalizers", json!({"type": "ByteLevel"})),
        ("pre_tokenizer", "pretokenizers", bytes.clone()),
        ("normalizer", "normalizers", bert),
        // The map of nothing: an empty trie and no texts.
        (
            "normalizer",
            "normalizers",
            json!({"type": "Precompiled",
            "precompiled_charsmap": "BAAAAAAAAAAA"}),
        ),
    ] {
        let nested = |parts: Value| json!({ key: {"type": "Sequence", list: parts} });
        folder.refused(&plain(&nested(json!([part, part]))), "more than one step");
        let deep = json!([{"type": "Sequence", list: [part.clone()]}, part]);
        folder.refused(&plain(&nested(deep)), "more than one step");
    }
    // Text to bytes before cutting, and bytes to text after: once each.
    let usual = plain(&json!({"pre_tokenizer": bytes, "post_processor": bytes, "decoder": bytes}));
    assert_eq!(folder.load(&usual).vocabulary_size(), 2);
}

#[test]
fn settings_that_make_the_library_panic_are_refused() {
    let folder = Folder::new();
    for pattern in [json!({"Regex": ""}), json!({"String": ""})] {
        folder.refused(&plain(&sequence(&[replace(&pattern, "b")])), "pattern of a step is empty");
        let split = json!({"type": "Split", "pattern": pattern, "behavior": "Isolated",
            "invert": false});
        folder.refused(&plain(&json!({"pre_tokenizer": split})), "pattern of a step is empty");
    }
    let fixed = json!({"pre_tokenizer": {"type": "FixedLength", "length": 0}});
    folder.refused(&plain(&fixed), "pieces of length 0");
    let maps = [
        (json!(null), "precompiled_charsmap is empty"),
        (json!("AAAA"), "precompiled_charsmap is empty"),
        (json!("!"), "precompiled_charsmap is not base64"),
        (json!("////fwAAAAA="), "has a trie of 2147483647 bytes in 8"),
        (json!("AAAAAAAAAAA="), "has a trie of 0 bytes"),
        // The trie is whole, and 100 letters follow it.
        (json!(format!("BAAAAAAAAAA{}=", "h".repeat(132))), "bytes of a character"),
    ];
    for (map, reason) in maps {
        let step = json!({"type": "Precompiled", "precompiled_charsmap": map});
        folder.refused(&plain(&json!({"normalizer": step})), reason);
    }
    let mut prefixed = bpe(&json!({"a": 0, "b": 1, "ab": 2}), &json!([["a", "b"]]));
    prefixed["continuing_subword_prefix"] = json!("##");
    folder.refused(&with(&prefixed, &json!({})), "does not begin with \"##\"");
    // Cut in the middle of a character, a token would no longer be text.
    let mut cut = bpe(&json!({"a": 0, "é": 1, "aé": 2}), &json!(["a é"]));
    cut["continuing_subword_prefix"] = json!("#");
    folder.refused(&with(&cut, &json!({})), "merge 0 joins \"é\"");
    let missing = bpe(&json!({"a": 0, "b": 1}), &json!([["a", "b"]]));
    folder.refused(&with(&missing, &json!({})), "makes \"ab\", which is not in the vocabulary");
    let missing = bpe(&json!({"a": 0, "b": 1}), &json!(["a c"]));
    folder.refused(&with(&missing, &json!({})), "joins \"c\", which is not in the vocabulary");
}

#[test]
fn patterns_and_steps_have_their_limits() {
    let folder = Folder::new();
    let split = |pattern: &str| {
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
            "invert": false})
    };
    let heavy = json!({"pre_tokenizer": split(r"(?=x)((\w{30}){30}){30}")});
    folder.refused(&plain(&heavy), "its patterns repeat too much");
    let broken = json!({"pre_tokenizer": split("(")});
    folder.refused(&plain(&broken), "not a tokenizer");
    let many = json!({"pre_tokenizer": {"type": "Sequence",
        "pretokenizers": vec![split("a"); 200]}});
    folder.refused(&plain(&many), "more than 100 steps");
    let mut deep = json!({"type": "NFC"});
    for _ in 0..40 {
        deep = json!({"type": "Sequence", "normalizers": [deep]});
    }
    folder.refused(&plain(&json!({"normalizer": deep})), "too deeply nested");
    let word_piece = json!({"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "",
        "max_input_chars_per_word": 1_000_000_000, "vocab": {"a": 0}});
    folder.refused(&with(&word_piece, &json!({})), "max_input_chars_per_word is 1000000000");
    fs::write(folder.path(), "[".repeat(100_000)).unwrap();
    refused(&folder.path(), "it is not JSON");
}

#[test]
fn panics_while_encoding_and_decoding_are_errors() {
    let folder = Folder::new();
    // The trie's only unit points far outside.
    let step = json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAAD8//8A"});
    let tokenizer = folder.load(&plain(&json!({"normalizer": step})));
    let reason = "its settings contradict each other";
    says(&tokenizer.encode("ab").unwrap_err(), &folder.path(), reason);
    says(&tokenizer.encode_allowing_special("ab").unwrap_err(), &folder.path(), reason);
    // Takes more letters off a token than it has.
    let step = json!({"type": "Strip", "content": "a", "start": 0, "stop": 5});
    let tokenizer = folder.load(&plain(&json!({"decoder": step})));
    says(&tokenizer.decode(&[0]).unwrap_err(), &folder.path(), reason);
    assert!(tokenizer.decode_without_special(&[0]).is_err());
    // And what the library says in words.
    let words = json!({"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"});
    let tokenizer = folder.load(&with(&words, &json!({})));
    says(&tokenizer.encode("b").unwrap_err(), &folder.path(), "failed: ");
}

#[test]
fn files_beside_are_checked_as_well() {
    let folder = Folder::new();
    let beside = folder.0.path().join("tokenizer_config.json");
    folder.load(&plain(&json!({})));
    for (bytes, reason) in [(&b"{"[..], "it is not JSON"), (b"\xff", "it is not UTF-8 text")] {
        fs::write(&beside, bytes).unwrap();
        let error = Tokenizer::load(&folder.path()).unwrap_err();
        says(&error, &beside, reason);
    }
    let file = fs::File::create(&beside).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    says(&Tokenizer::load(&folder.path()).unwrap_err(), &beside, "larger than 16777216 bytes");
    fs::remove_file(&beside).unwrap();
    fs::File::create(folder.path()).unwrap().set_len(200 << 20).unwrap();
    refused(&folder.path(), "larger than 134217728 bytes");
    fs::remove_file(folder.path()).unwrap();
    let vocabulary = folder.0.path().join("vocab.json");
    let merges = folder.0.path().join("merges.txt");
    fs::write(&vocabulary, json!({"a": 0, "b": 2_147_483_647_u32}).to_string()).unwrap();
    fs::write(&merges, "").unwrap();
    let error = Tokenizer::load(folder.0.path()).unwrap_err();
    says(&error, &merges, "has the id 2147483647");
    fs::write(&vocabulary, json!({"a": 0, "b": 1}).to_string()).unwrap();
    fs::write(&merges, "a b\n").unwrap();
    let error = Tokenizer::load(folder.0.path()).unwrap_err();
    says(&error, &merges, "makes \"ab\", which is not in the vocabulary");
}

/// Opening a pipe would wait for a writer, for ever.
#[cfg(unix)]
#[test]
fn pipes_in_place_of_files_are_refused() {
    let pipe = |path: &Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let folder = Folder::new();
    pipe(&folder.path());
    refused(&folder.path(), "is not a regular file");
    let error = Tokenizer::load(folder.0.path()).unwrap_err();
    says(&error, &folder.path(), "is not a regular file");
    fs::remove_file(folder.path()).unwrap();
    folder.write(&plain(&json!({})));
    let beside = folder.0.path().join("tokenizer_config.json");
    pipe(&beside);
    let error = Tokenizer::load(&folder.path()).unwrap_err();
    says(&error, &beside, "is not a regular file");
}
