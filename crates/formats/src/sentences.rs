//! What `sentence-transformers` writes beside a bare encoder: how hidden states become the vector of
//! a text.
//!
//! ```text
//! modules.json                the steps: Transformer, Pooling, perhaps Normalize
//! 1_Pooling/config.json       which tokens
//! sentence_bert_config.json   max_seq_length
//! ```

use crate::json::{self, Fields};
use hearken_base::{Error, Kind, Result};
use hearken_nn::config::{HeadConfig, Pooling};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::Path;

const MODULES: &str = "modules.json";
const LENGTH: &str = "sentence_bert_config.json";
const POOLING: &str = "1_Pooling";
const NORMALISE: &str = "2_Normalize";
/// Steps that are known; files of strangers may list any number.
const MOST_MODULES: usize = 10;

/// The ways of pooling that are known, by the name of their key in older files and of their value in
/// newer ones.
const WAYS: [(&str, &str, Pooling); 3] = [
    ("pooling_mode_cls_token", "cls", Pooling::Cls),
    ("pooling_mode_mean_tokens", "mean", Pooling::Mean),
    ("pooling_mode_lasttoken", "lasttoken", Pooling::Last),
];
const OTHER_WAYS: [&str; 3] = [
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
];

/// A file that need not be there.
fn read_optional(path: &Path) -> Result<Option<Value>> {
    match json::read(path) {
        Err(error) if error.kind() == Kind::Io(ErrorKind::NotFound) => Ok(None),
        read => read.map(Some),
    }
}

/// How the directory of a bare encoder embeds texts; nothing, if it does not say.
pub(crate) fn read(directory: &Path, context: usize) -> Result<Option<HeadConfig>> {
    let path = directory.join(MODULES);
    let Some(modules) = read_optional(&path)? else { return Ok(None) };
    let bad = |what: &str| {
        Error::new(format!("{}: {what}", path.display()), "remove the file, or get it again")
    };
    let modules = modules.as_array().filter(|modules| modules.len() <= MOST_MODULES);
    let modules = modules.ok_or_else(|| bad("expected a short list of steps"))?;
    let (mut pooling, mut normalised) = (None, false);
    for module in modules {
        let text = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type").rsplit('.').next() {
            Some("Transformer") => {}
            Some("Pooling") if pooling.is_none() => {
                pooling = Some(read_pooling(directory, text("path"), bad)?);
            }
            Some("Normalize") => normalised = true,
            _ => {
                let step: String = text("type").chars().take(60).collect();
                return Err(Error::new(
                    format!("{}: the step {step:?} is not known", path.display()),
                    "hearken runs Transformer, Pooling and Normalize; without modules.json it \
                     loads the encoder alone",
                ));
            }
        }
    }
    let pooling = pooling.ok_or_else(|| bad("there is no step Pooling"))?;
    let most_tokens = read_length(directory)?.map(|tokens| tokens.min(context));
    Ok(Some(HeadConfig::Embedding { pooling, normalised, most_tokens }))
}

fn read_pooling(directory: &Path, folder: &str, bad: impl Fn(&str) -> Error) -> Result<Pooling> {
    // It lies beside the file and nowhere else.
    if Path::new(folder).file_name().is_none_or(|own| own != folder) {
        return Err(bad("the path of Pooling is not that of a folder beside it"));
    }
    let path = directory.join(folder).join("config.json");
    let value = json::read(&path)?;
    let fields = Fields::new(&path, &value);
    let key = "pooling_mode";
    if fields.present(key).is_some() {
        let name = fields.text_or(key, "")?;
        let found = WAYS.iter().find(|(_, known, _)| *known == name);
        return found
            .map(|(_, _, way)| *way)
            .ok_or_else(|| fields.unsupported(key, "cls, mean or lasttoken"));
    }
    for key in OTHER_WAYS {
        fields.only(key, false)?;
    }
    let mut chosen = Vec::new();
    for (key, _, way) in WAYS {
        if fields.truth_or(key, false)? {
            chosen.push(way);
        }
    }
    match chosen.as_slice() {
        [one] => Ok(*one),
        [] => Err(fields.malformed("pooling_mode_mean_tokens", "true, or another way of pooling")),
        _ => Err(fields.unsupported("pooling_mode_cls_token", "one way of pooling alone")),
    }
}

fn read_length(directory: &Path) -> Result<Option<usize>> {
    let path = directory.join(LENGTH);
    let Some(value) = read_optional(&path)? else { return Ok(None) };
    let fields = Fields::new(&path, &value);
    let key = "max_seq_length";
    if fields.present(key).is_none() {
        return Ok(None);
    }
    let tokens = fields.size(key)?;
    if tokens == 0 { Err(fields.malformed(key, "at least 1")) } else { Ok(Some(tokens)) }
}

/// Writes how texts are embedded, beside an encoder of this width.
pub(crate) fn write(directory: &Path, head: &HeadConfig, width: usize) -> Result<()> {
    let HeadConfig::Embedding { pooling, normalised, most_tokens } = head else { return Ok(()) };
    let steps = [("Transformer", ""), ("Pooling", POOLING), ("Normalize", NORMALISE)];
    let steps = steps.iter().take(if *normalised { 3 } else { 2 }).enumerate();
    let modules: Vec<Value> = steps
        .map(|(i, (step, path))| {
            json!({
                "idx": i,
                "name": i.to_string(),
                "path": path,
                "type": format!("sentence_transformers.models.{step}"),
            })
        })
        .collect();
    json::write(&directory.join(MODULES), &json!(modules))?;
    let mut config = json!({ "word_embedding_dimension": width });
    for (key, _, way) in WAYS {
        config = json::merged(config, json!({ key: way == *pooling }));
    }
    for key in OTHER_WAYS {
        config = json::merged(config, json!({ key: false }));
    }
    let folder = directory.join(POOLING);
    std::fs::create_dir_all(&folder).map_err(Error::io("write", &folder))?;
    json::write(&folder.join("config.json"), &config)?;
    if let Some(tokens) = most_tokens {
        let length = json!({ "max_seq_length": tokens, "do_lower_case": false });
        json::write(&directory.join(LENGTH), &length)?;
    }
    Ok(())
}
