//! Files that once did harm. Each must be refused within the limits.

use crate::subjects::{self, Subject};
use hearken_base::{Error, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A file that once did harm.
pub struct Past {
    /// What it does.
    pub name: &'static str,
    /// The reader it is for.
    subject: &'static str,
    /// Makes it from good files.
    spoil: fn(&Path) -> Result<()>,
}

/// All of them.
pub const ALL: &[Past] = &[
    past("a width of 65,536 was allocated", "config-gpt2", |d| {
        edit(d, "config.json", |json| json["n_embd"] = json!(65_536))
    }),
    past("a width of 16,384 was allocated", "config-gpt2", |d| {
        edit(d, "config.json", |json| json["n_embd"] = json!(16_384))
    }),
    past("a hidden width of 2³¹ was allocated", "config-llama", |d| {
        edit(d, "config.json", |json| json["intermediate_size"] = json!(1_u64 << 31))
    }),
    past("a billion layers were built", "config-llama", |d| {
        edit(d, "config.json", |json| json["num_hidden_layers"] = json!(1_000_000_000))
    }),
    past("an inserted byte shifted all weights", "weights", |d| {
        let path = d.join("model.safetensors");
        let mut bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        bytes.insert(bytes.len() - 40, 7);
        put(&path, &bytes)
    }),
    past("bytes behind the last tensor were ignored", "safetensors", |d| {
        let path = d.join("model.safetensors");
        let mut bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        bytes.extend([0; 16]);
        put(&path, &bytes)
    }),
    past("a type that nobody knows took 137 GB", "safetensors", |d| {
        let path = d.join("model.safetensors");
        let header = br#"{"a":{"dtype":"B","shape":[8,4294967296],"data_offsets":[0,8]}}"#;
        put(&path, &[&(header.len() as u64).to_le_bytes()[..], header, &[0; 8]].concat())
    }),
    past("a pipe as weights was waited for", "weights", |d| pipe(&d.join("model.safetensors"))),
    past("a pipe as configuration was waited for", "config-gpt2", |d| pipe(&d.join("config.json"))),
    past("a pipe beside the configuration was waited for", "generation-config", |d| {
        pipe(&d.join("generation_config.json"))
    }),
    past("a pipe as index was waited for", "index", |d| {
        pipe(&d.join("model.safetensors.index.json"))
    }),
    past("a pipe as tokenizer was waited for", "tokenizer-bpe", |d| {
        pipe(&d.join("tokenizer.json"))
    }),
    past("a pipe beside the tokenizer was waited for", "tokenizer-config", |d| {
        pipe(&d.join("tokenizer_config.json"))
    }),
    past("a pipe as checksums was waited for", "checksums", |d| {
        pipe(&d.join("run/checkpoints/step-000002/SHA256SUMS"))
    }),
    past("a broken file for generation was ignored", "generation-config", |d| {
        put(&d.join("generation_config.json"), b"{ \"eos_token_id\": ")
    }),
    past("one id of 2³¹ − 1 took 8 GB", "tokenizer-bpe", |d| {
        edit(d, "tokenizer.json", |json| json["model"]["vocab"]["far"] = json!(2_147_483_647_u32))
    }),
    past("an added token of id 2³¹ − 1 took 8 GB", "tokenizer-bpe", |d| {
        edit(d, "tokenizer.json", |json| {
            json["added_tokens"] = json!([{ "id": 2_147_483_647_u32, "content": "far",
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": true }]);
        })
    }),
    past("nested replacements took 3 GB", "tokenizer-pieces", |d| {
        edit(d, "tokenizer.json", |json| {
            let twice = json!({ "type": "Replace", "pattern": { "String": "e" },
                "content": "e".repeat(30) });
            json["normalizer"] = json!({ "type": "Sequence", "normalizers": vec![twice; 7] });
        })
    }),
    past("an empty pattern panicked", "tokenizer-pieces", |d| {
        edit(d, "tokenizer.json", |json| {
            json["pre_tokenizer"] = json!({ "type": "Split", "pattern": { "Regex": "" },
                "behavior": "Isolated", "invert": false });
        })
    }),
    past("a broken character map panicked", "tokenizer-pieces", |d| {
        edit(d, "tokenizer.json", |json| {
            json["normalizer"] = json!({ "type": "Precompiled", "precompiled_charsmap": "AAAA" });
        })
    }),
    past("pieces of length 0 panicked", "tokenizer-pieces", |d| {
        edit(d, "tokenizer.json", |json| {
            json["pre_tokenizer"] = json!({ "type": "FixedLength", "length": 0 });
        })
    }),
    past("a prefix of pieces panicked", "tokenizer-pieces", |d| {
        edit(d, "tokenizer.json", |json| {
            json["model"]["continuing_subword_prefix"] = json!("##########");
        })
    }),
    past("a merge of unknown pieces panicked", "tokenizer-pieces", |d| {
        edit(d, "tokenizer.json", |json| json["model"]["merges"] = json!([["zz", "yy"]]))
    }),
    past("a distance of 2⁶⁰ hung", "toml", |d| {
        setting(d, "position = { kind = \"t5\", buckets = 32, max_distance = 1152921504606846976 }")
    }),
];

const fn past(name: &'static str, subject: &'static str, spoil: fn(&Path) -> Result<()>) -> Past {
    Past { name, subject, spoil }
}

impl Past {
    /// Its reader.
    pub fn subject(&self) -> Option<Subject> {
        subjects::all().into_iter().find(|subject| subject.name == self.subject)
    }

    /// Writes it, with what belongs to it.
    pub fn prepare(&self, subject: &Subject, directory: &Path) -> Result<()> {
        (subject.prepare)(directory)?;
        (self.spoil)(directory)
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(Error::io("write", path))
}

fn edit(directory: &Path, name: &str, change: impl Fn(&mut Value)) -> Result<()> {
    let path = directory.join(name);
    let text = fs::read(&path).map_err(Error::io("read", &path))?;
    let mut json: Value = serde_json::from_slice(&text).unwrap_or_default();
    change(&mut json);
    put(&path, json.to_string().as_bytes())
}

/// Puts a line in the place of the setting that begins like it.
fn setting(directory: &Path, line: &str) -> Result<()> {
    let path = directory.join("config.toml");
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let key = line.split(" =").next().unwrap_or_default();
    let lines = text.lines().map(|old| if old.starts_with(key) { line } else { old });
    put(&path, lines.collect::<Vec<_>>().join("\n").as_bytes())
}

/// Puts a pipe, into which nobody writes, in the place of a file.
fn pipe(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(Error::io("remove", path))?;
    let made = std::process::Command::new("mkfifo").arg(path).status();
    made.map(|_| ()).map_err(Error::io("make a pipe at", path))
}
