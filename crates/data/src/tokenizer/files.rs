//! Tokenizers on disk: `tokenizer.json`, directories that hold one, and GPT-2's own pair of
//! files.

use super::training::SpecialText;
use super::{Special, Tokenizer, assemble, guarded};
use crate::error::{self, Error, Result};
use crate::temporary;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

/// The names that GPT-2's vocabulary and merges go by: Hugging Face's, then OpenAI's.
const GPT2_FILES: [[&str; 2]; 2] = [["vocab.json", "merges.txt"], ["encoder.json", "vocab.bpe"]];
/// Bytes of a tokenizer.json, a vocabulary or a list of merges. The largest published ones, of a
/// million tokens, have about 60 MB.
const LARGEST: u64 = 128 << 20;
/// Bytes of a file that says which special token is which; published ones have a few hundred kB.
const LARGEST_CONFIG: u64 = 16 << 20;
const EXPECTED: &str = "expected a tokenizer.json, a directory that holds one, or a directory \
    with vocab.json and merges.txt";
/// Models of SentencePiece: T5's, Llama's and Marian's.
const SENTENCE_PIECES: [&str; 3] = ["spiece.model", "tokenizer.model", "source.spm"];

impl Tokenizer {
    /// Loads a `tokenizer.json`, a directory that holds one, or GPT-2's vocabulary: a directory
    /// with `vocab.json` and `merges.txt` (or `encoder.json` and `vocab.bpe`), or either file.
    pub fn load(path: &Path) -> Result<Self> {
        if path.is_dir() {
            let file = path.join("tokenizer.json");
            // Also one that is no file, to say so.
            if file.exists() {
                return Self::from_file(&file);
            }
            return Self::gpt2_in(path).unwrap_or_else(|| {
                let reason = "the directory holds no tokenizer.json";
                let missing = || error::not_a_tokenizer(path, reason, EXPECTED);
                Err(Self::sentence_piece_in(path).unwrap_or_else(missing))
            });
        }
        if path.extension().is_some_and(|end| end == "spm" || end == "model") {
            let reason = "it is a SentencePiece model";
            return Err(error::not_a_tokenizer(path, reason, without_sentence_piece(path)));
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

    /// What to say of a directory with a model of SentencePiece, which is not read.
    pub fn sentence_piece_in(directory: &Path) -> Option<Error> {
        let name = SENTENCE_PIECES.iter().find(|name| directory.join(name).is_file())?;
        let shown = directory.display();
        let message = format!("{shown} has {name}, and hearken does not read SentencePiece");
        Some(Error::new(message, without_sentence_piece(Path::new(name))))
    }

    /// Loads a `tokenizer.json`. A `tokenizer_config.json` or `special_tokens_map.json` beside
    /// it says which special token is which.
    pub fn from_file(path: &Path) -> Result<Self> {
        let json: Value = read_json(path, LARGEST)?;
        let bad = |reason: &str| error::not_a_tokenizer(path, reason, EXPECTED);
        if json.get("model").is_none() {
            return Err(bad("it has no \"model\""));
        }
        let beside = ["tokenizer_config.json", "special_tokens_map.json"];
        let beside = beside.map(|name| path.with_file_name(name));
        let roles = beside.iter().find(|path| path.exists());
        let roles = roles.map(|path| read_json(path, LARGEST_CONFIG)).transpose()?;
        let tokenizer = Self::from_value(&json, roles.as_ref()).map_err(|reason| bad(&reason))?;
        Ok(tokenizer.from(path))
    }

    /// Loads GPT-2's vocabulary (A3) or one of the same form: a JSON object from tokens to ids,
    /// and a list of merges, one pair per line.
    pub fn from_gpt2_files(vocabulary: &Path, merges: &Path) -> Result<Self> {
        let vocab = read_json(vocabulary, LARGEST)?;
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
        let text = read_text(merges, LARGEST)?;
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
        let tokenizer = Self::from_value(&assemble::bpe(&model, &specials), None);
        Ok(tokenizer.map_err(|reason| bad(merges, &reason))?.from(merges))
    }

    /// The `tokenizer.json` of this tokenizer.
    pub fn to_json(&self) -> Result<String> {
        guarded(|| self.inner.to_string(true)).map_err(|reason| self.failed(&reason))
    }

    /// Writes `tokenizer.json` to `path`, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_atomically(path, self.to_json()?.as_bytes())
    }

    /// Writes `tokenizer.json`, and `tokenizer_config.json` that says which special token is
    /// which, so that `transformers` loads the directory.
    pub fn save_directory(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).map_err(error::on("create", directory))?;
        let mut config = serde_json::Map::new();
        config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
        config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
        for (special, &id) in &self.roles {
            if let Some(text) = self.token(id) {
                config.insert(format!("{}_token", special.name()), json!(text));
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

/// What to do without a model of SentencePiece.
fn without_sentence_piece(path: &Path) -> &'static str {
    if path.extension().is_some_and(|end| end == "spm") {
        // Marian's two models share a vocabulary in a third file; transformers keeps them as they are.
        "transformers has no tokenizer.json for Marian's: give tokens, as 'hearken inspect logits \
         --ids' takes, or name a tokenizer.json with the same tokens"
    } else {
        "let transformers write a tokenizer.json: AutoTokenizer.from_pretrained(DIR)\
         .save_pretrained(DIR); or give tokens, as 'hearken inspect logits --ids' takes"
    }
}

fn read_json(path: &Path, most: u64) -> Result<Value> {
    serde_json::from_str(&read_text(path, most)?).map_err(|error| {
        error::not_a_tokenizer(path, &format!("it is not JSON ({error})"), EXPECTED)
    })
}

/// The text of a regular file; a pipe is refused, since reading it could wait for ever.
fn read_text(path: &Path, most: u64) -> Result<String> {
    let bad = |reason: &str| error::not_a_tokenizer(path, reason, EXPECTED);
    fs::metadata(path).map_err(error::on("read", path))?;
    let mut bytes = Vec::new();
    let file = hearken_store::files::open(path)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(error::on("read", path))?;
    if bytes.len() as u64 > most {
        return Err(bad(&format!("it is larger than {most} bytes")));
    }
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
