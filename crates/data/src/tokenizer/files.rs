//! Tokenizers on disk: `tokenizer.json`, directories that hold one, and GPT-2's own pair of
//! files.

use super::training::SpecialText;
use super::{Special, Tokenizer, assemble, failed};
use crate::error::{self, Result};
use crate::temporary;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;

/// The names that GPT-2's vocabulary and merges go by: Hugging Face's, then OpenAI's.
const GPT2_FILES: [[&str; 2]; 2] = [["vocab.json", "merges.txt"], ["encoder.json", "vocab.bpe"]];
/// No tokenizer file is larger: the largest published ones have about 30 MB.
const LARGEST: u64 = 1 << 30;
const EXPECTED: &str = "expected a tokenizer.json, a directory that holds one, or a directory \
    with vocab.json and merges.txt";

impl Tokenizer {
    /// Loads a `tokenizer.json`, a directory that holds one, or GPT-2's vocabulary: a directory
    /// with `vocab.json` and `merges.txt` (or `encoder.json` and `vocab.bpe`), or either file.
    pub fn load(path: &Path) -> Result<Self> {
        if path.is_dir() {
            let file = path.join("tokenizer.json");
            if file.is_file() {
                return Self::from_file(&file);
            }
            return Self::gpt2_in(path).unwrap_or_else(|| {
                let reason = "the directory holds no tokenizer.json";
                Err(error::not_a_tokenizer(path, reason, EXPECTED))
            });
        }
        let name = path.file_name().unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new("."));
        if GPT2_FILES.iter().flatten().any(|&file| name == file)
            && let Some(tokenizer) = Self::gpt2_in(folder)
        {
            return tokenizer;
        }
        Self::from_file(path)
    }

    /// Loads a `tokenizer.json`. A `tokenizer_config.json` or `special_tokens_map.json` beside
    /// it says which special token is which.
    pub fn from_file(path: &Path) -> Result<Self> {
        let json: Value = read_json(path)?;
        let bad = |reason: &str| error::not_a_tokenizer(path, reason, EXPECTED);
        if json.get("model").is_none() {
            return Err(bad("it has no \"model\""));
        }
        let beside = |name: &str| read_json(&path.with_file_name(name)).ok();
        let roles = beside("tokenizer_config.json").or_else(|| beside("special_tokens_map.json"));
        Self::from_value(&json, roles.as_ref()).map_err(|error| bad(&error.to_string()))
    }

    /// Loads GPT-2's vocabulary (A3) or one of the same form: a JSON object from tokens to ids,
    /// and a list of merges, one pair per line.
    pub fn from_gpt2_files(vocabulary: &Path, merges: &Path) -> Result<Self> {
        let vocab = read_json(vocabulary)?;
        let bad = |path: &Path, reason: &str| {
            let hint = "expected GPT-2's form: a JSON object from tokens to ids, and merges as \
                lines of two tokens";
            error::not_a_tokenizer(path, reason, hint)
        };
        let Some(tokens) = vocab.as_object() else {
            return Err(bad(vocabulary, "it is not a JSON object"));
        };
        if tokens.is_empty() || tokens.values().any(|id| id.as_u64().is_none()) {
            return Err(bad(vocabulary, "it does not map tokens to ids"));
        }
        let text = read_text(merges)?;
        let mut pairs = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.is_empty() || (number == 0 && line.starts_with("#version")) {
                continue;
            }
            let Some((left, right)) = line.split_once(' ').filter(|(_, r)| !r.contains(' ')) else {
                let reason = format!("line {} is not a pair of tokens", number + 1);
                return Err(bad(merges, &reason));
            };
            pairs.push([left, right]);
        }
        let end = Special::Eos.default_text();
        let specials: Vec<SpecialText> = tokens
            .contains_key(end)
            .then(|| SpecialText::new(Special::Eos, end))
            .into_iter()
            .collect();
        let model = json!({
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": pairs,
        });
        Self::from_value(&assemble::bpe(&model, &specials), None)
            .map_err(|error| bad(merges, &error.to_string()))
    }

    /// The `tokenizer.json` of this tokenizer.
    pub fn to_json(&self) -> Result<String> {
        self.inner.to_string(true).map_err(|error| failed(&error))
    }

    /// Writes `tokenizer.json` to `path`, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_atomically(path, self.to_json()?.as_bytes())
    }

    /// Writes `tokenizer.json`, and `tokenizer_config.json` that says which special token is
    /// which, so that `transformers` loads the directory.
    pub fn save_directory(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).map_err(error::on("create", directory))?;
        let mut config = json!({"tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": false});
        for (special, &id) in &self.roles {
            if let Some(text) = self.token(id) {
                config[format!("{}_token", special.name())] = json!(text);
            }
        }
        let config = serde_json::to_string_pretty(&config).unwrap_or_default();
        write_atomically(&directory.join("tokenizer_config.json"), config.as_bytes())?;
        self.save(&directory.join("tokenizer.json"))
    }

    /// GPT-2's pair of files in `folder`, if they are there.
    fn gpt2_in(folder: &Path) -> Option<Result<Self>> {
        let pair = GPT2_FILES.iter().map(|pair| pair.map(|name| folder.join(name)));
        let [vocabulary, merges] = pair.into_iter().find(|p| p.iter().all(|f| f.is_file()))?;
        Some(Self::from_gpt2_files(&vocabulary, &merges))
    }
}

fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_str(&read_text(path)?).map_err(|error| {
        error::not_a_tokenizer(path, &format!("it is not JSON ({error})"), EXPECTED)
    })
}

fn read_text(path: &Path) -> Result<String> {
    let bad = |reason: &str| error::not_a_tokenizer(path, reason, EXPECTED);
    let length = fs::metadata(path).map_err(error::on("read", path))?.len();
    if length > LARGEST {
        return Err(bad("it is too large for one"));
    }
    let bytes = fs::read(path).map_err(error::on("read", path))?;
    String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8 text"))
}

/// Writes a file beside `path`, then gives it that name: `path` is never half written.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    temporary::sweep(path);
    let temporary = temporary::beside(path);
    let write = || {
        let mut file = temporary::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        error::on("write", path)(error)
    })
}
