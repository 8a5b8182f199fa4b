//! Model directories: `config.json`, `generation_config.json`, weights, index.

use super::{Kind, Subject};
use crate::mutate::Form;
use hearken_base::settings::Settings;
use hearken_base::{Error, Result};
use hearken_formats::SpecialTokens;
use hearken_nn::config::ModelConfig;
use hearken_nn::models;
use hearken_nn::pass::Pass;
use hearken_nn::scope::Weights;
use hearken_store::TensorFile;
use hearken_tensor::no_grad;
use serde_json::json;
use std::fs;
use std::path::Path;

pub(super) fn subjects() -> Vec<Subject> {
    let model = |name, target, form, prepare| Subject {
        name,
        kind: Kind::Model,
        target,
        form,
        prepare,
        read: use_model,
    };
    vec![
        Subject { read: read_tensors, ..model("safetensors", WEIGHTS, Form::Safetensors, gpt2) },
        model("weights", WEIGHTS, Form::Safetensors, llama),
        model("shard", "a.safetensors", Form::Safetensors, sharded),
        model("index", "model.safetensors.index.json", Form::Json, sharded),
        model("config-gpt2", CONFIG, Form::Json, gpt2),
        model("config-llama", CONFIG, Form::Json, llama),
        model("config-mistral", CONFIG, Form::Json, mistral),
        model("config-qwen2", CONFIG, Form::Json, qwen2),
        model("config-hearken", CONFIG, Form::Json, own),
        model("config-bert", CONFIG, Form::Json, bert),
        model("config-roberta", CONFIG, Form::Json, roberta),
        model("config-distilbert", CONFIG, Form::Json, distilbert),
        model("config-encoder", CONFIG, Form::Json, own_encoder),
        model("weights-bert", WEIGHTS, Form::Safetensors, bert),
        model("modules", "modules.json", Form::Json, sentences),
        model("pooling", "1_Pooling/config.json", Form::Json, sentences),
        model("sentence-length", "sentence_bert_config.json", Form::Json, sentences),
        model("generation-config", "generation_config.json", Form::Json, gpt2),
    ]
}

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

/// A model as small as can be, of the family that expresses `settings`.
fn write(directory: &Path, settings: &str) -> Result<()> {
    write_kind(directory, "decoder", settings)
}

fn write_kind(directory: &Path, kind: &str, settings: &str) -> Result<()> {
    let text = format!("kind = \"{kind}\"\nvocabulary = 12\ncontext = 16\nlayers = 1\n{settings}");
    let config: ModelConfig = Settings::parse(&text, "model")?.read()?;
    let model = models::build(&config, Weights::Drawn { seed: 1 });
    let special =
        SpecialTokens { begin: Some(1), ends: vec![2], pad: None, ..SpecialTokens::default() };
    hearken_formats::save(directory, model.as_ref(), &special).map(|_| ())
}

pub(super) fn gpt2(directory: &Path) -> Result<()> {
    write(
        directory,
        "width = 8\nheads = 2\ntied = true\nbias = true\nfeed_forward = { kind = \"gelu-tanh\" }",
    )
}

const LLAMA: &str = "width = 8\nheads = 4\nkv_heads = 2\ntied = false\nbias = false\n\
    norm = { kind = \"rms\" }\nposition = { kind = \"rope\" }\n\
    feed_forward = { kind = \"swiglu\", width = 16 }\n";

fn llama(directory: &Path) -> Result<()> {
    write(directory, LLAMA)
}

fn mistral(directory: &Path) -> Result<()> {
    write(directory, &format!("{LLAMA}attention = {{ kind = \"window\", size = 4 }}"))
}

/// As a Llama, under another name, with the biases that Qwen has.
fn qwen2(directory: &Path) -> Result<()> {
    let biased = LLAMA.replace("bias = false", "bias = { attention_in = true }");
    write(directory, &biased)
}

/// What only our own format expresses.
fn own(directory: &Path) -> Result<()> {
    write(
        directory,
        "width = 8\nheads = 2\nposition = { kind = \"t5\", buckets = 4, max_distance = 9 }\n\
         norm = { kind = \"layer\", placement = \"post\" }\n\
         dropout = { residual = 0.1 }",
    )
}

const BERT: &str = "width = 8\nheads = 2\nbias = true\nembedding_norm = true\n\
    norm = { kind = \"layer\", placement = \"post\", eps = 1e-12 }\n";

fn bert(directory: &Path) -> Result<()> {
    let head = "types = 2\npooler = true\nhead = { kind = \"classes\", labels = [\"a\", \"b\"] }";
    write_kind(directory, "encoder", &format!("{BERT}{head}"))
}

fn roberta(directory: &Path) -> Result<()> {
    write_kind(directory, "encoder", &format!("{BERT}types = 1\nhead = \"tokens\""))
}

fn distilbert(directory: &Path) -> Result<()> {
    let head = "head = { kind = \"tags\", labels = [\"O\", \"B\"] }";
    write_kind(directory, "encoder", &format!("{BERT}{head}"))
}

/// What only our own format expresses.
fn own_encoder(directory: &Path) -> Result<()> {
    let head = "head = { kind = \"numbers\", outputs = 3 }";
    let settings = "width = 8\nheads = 2\nposition = { kind = \"alibi\" }\npooler = \"relu\"\n";
    write_kind(directory, "encoder", &format!("{settings}{head}"))
}

/// A sentence encoder.
fn sentences(directory: &Path) -> Result<()> {
    let head = "types = 2\nhead = { kind = \"embedding\", most_tokens = 9 }";
    write_kind(directory, "encoder", &format!("{BERT}{head}"))
}

/// Two shards and an index.
fn sharded(directory: &Path) -> Result<()> {
    llama(directory)?;
    let whole = directory.join(WEIGHTS);
    let file = TensorFile::open(&whole)?;
    let mut map = serde_json::Map::new();
    let names: Vec<&str> = file.entries().iter().map(|entry| entry.name.as_str()).collect();
    for (shard, names) in ["a.safetensors", "b.safetensors"].iter().zip(names.chunks(7)) {
        let tensors = names.iter().map(|name| Ok((*name, file.tensor(name)?)));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        hearken_store::write(&directory.join(shard), tensors.iter().map(|(n, t)| (*n, t)))?;
        map.extend(names.iter().map(|name| ((*name).to_owned(), json!(shard))));
    }
    drop(file);
    fs::remove_file(&whole).map_err(Error::io("remove", &whole))?;
    let index = directory.join("model.safetensors.index.json");
    let text = json!({ "metadata": { "total_size": 1 }, "weight_map": map }).to_string();
    fs::write(&index, text).map_err(Error::io("write", &index))
}

/// Reads every tensor.
fn read_tensors(directory: &Path) -> Result<()> {
    let file = TensorFile::open(&directory.join(WEIGHTS))?;
    for entry in file.entries() {
        file.tensor(&entry.name)?;
    }
    Ok(())
}

/// Loads the model and reads two tokens, or continues them, as commands would.
fn use_model(directory: &Path) -> Result<()> {
    let loaded = hearken_formats::load(directory)?;
    if let Some(model) = loaded.model.generates()
        && model.vocabulary() > 1
        && model.context() > 1
    {
        let _ = model.next_logits(&[0, 1], 1);
    }
    let config = loaded.model.config();
    if loaded.model.encodes().is_some() && config.vocabulary() > 1 && config.context() > 1 {
        let tokens = models::Tokens::new(&[0, 1], 1);
        let _ = no_grad(|| models::outputs(loaded.model.as_ref(), &tokens, &Pass::evaluate()));
    }
    Ok(())
}
