//! Directories that are damaged, or that describe something else than they hold: an error names the
//! file and the thing, says what to do, and comes before any memory is taken.

use hearken_formats::{SpecialTokens, load, save};
use hearken_nn::models::Decoder;
use hearken_nn::variants;
use hearken_store::{TensorFile, write};
use hearken_tensor::{Tensor, pool};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

/// A directory with a saved variant.
fn saved(variant: &str) -> TempDir {
    let directory = tempdir().unwrap();
    let (_, config) = variants::all().into_iter().find(|(name, _)| name == variant).unwrap();
    save(directory.path(), &Decoder::drawn(config, 3), &SpecialTokens::default()).unwrap();
    directory
}

fn failure(directory: &Path) -> String {
    let error = load(directory).map(|loaded| loaded.family).unwrap_err();
    assert!(error.hint().is_some(), "no hint: {error}");
    assert!(error.message().contains(directory.to_str().unwrap()), "no file is named: {error}");
    error.to_string()
}

/// Changes a JSON file of a directory.
fn edit(directory: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let path = directory.join(file);
    let mut json = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
}

type Tensors = Vec<(String, Tensor)>;

fn tensors(path: &Path) -> Tensors {
    let file = TensorFile::open(path).unwrap();
    let names = file.entries().iter().map(|entry| entry.name.clone());
    names.map(|name| (name.clone(), file.tensor(&name).unwrap())).collect()
}

/// Changes the tensors of a directory.
fn rewrite(directory: &Path, change: impl FnOnce(&mut Tensors)) {
    let path = directory.join("model.safetensors");
    let mut all = tensors(&path);
    change(&mut all);
    write(&path, all.iter().map(|(name, tensor)| (name.as_str(), tensor))).unwrap();
}

#[test]
fn config_and_weights_that_do_not_fit_are_named() {
    let empty = tempdir().unwrap();
    assert!(failure(empty.path()).contains("config.json"));
    for (variant, key, value, names) in [
        ("GeluTanh", "n_embd", json!(20), "wte.weight [13, 16] (expected [13, 20])"),
        ("GeluTanh", "n_embd", json!("x"), "n_embd is \"x\", expected a whole number"),
        ("GeluTanh", "n_embd", json!(null), "n_embd is null"),
        ("GeluTanh", "n_head", json!(5), "heads"),
        ("GeluTanh", "n_layer", json!(3), "missing tensors: transformer.h.2.ln_1.weight"),
        ("GeluTanh", "n_layer", json!(1), "unexpected tensors: transformer.h.1.ln_1.weight"),
        ("GeluTanh", "n_layer", json!(1), "and 2 more"),
        ("GeluTanh", "vocab_size", json!(0), "the vocabulary is empty"),
        ("GeluTanh", "scale_attn_weights", json!(false), "scale_attn_weights is false"),
        ("GeluTanh", "activation_function", json!("quick_gelu"), "one of gelu_new"),
        ("GeluTanh", "tie_word_embeddings", json!(false), "missing tensors: lm_head.weight"),
        ("GeluTanh", "quantization_config", json!({}), "quantization_config"),
        ("GeluTanh", "model_type", json!("bloom"), "one of gpt2, llama, mistral, mixtral, qwen2, "),
        ("GeluTanh", "model_type", json!("bloom"), "hearken inspect weights"),
        ("GeluTanh", "model_type", json!(7), "model_type is 7"),
        ("GeluTanh", "eos_token_id", json!("end"), "eos_token_id is \"end\", expected a token id"),
        ("llama", "attention_bias", json!(true), "model.layers.0.self_attn.q_proj.bias"),
        ("llama", "hidden_act", json!("gelu"), "hidden_act is \"gelu\", expected \"silu\""),
        ("llama", "rope_parameters", json!({"rope_type": "dynamic"}), "rope_type is \"dynamic\""),
        ("llama", "partial_rotary_factor", json!(0.5), "partial_rotary_factor is 0.5"),
        ("mistral", "sliding_window", json!(0), "window of 0"),
        ("mistral", "sliding_window", json!(-1), "sliding_window is -1"),
        ("mistral", "layer_types", json!(["full_attention", "sliding_attention"]), "layer_types"),
        ("qwen2", "layer_types", json!(["full_attention", "sliding_attention"]), "layer_types"),
        ("qwen2", "layer_types", json!(["sliding_attention"]), "use_sliding_window is false"),
        ("no bias", "model", json!({"kind": "decodr"}), "model.kind is \"decodr\""),
        ("no bias", "model", json!(null), "model is missing"),
        ("no bias", "model", json!(3), "model is 3"),
    ] {
        let directory = saved(variant);
        edit(directory.path(), "config.json", |config| config[key] = value.clone());
        if key == "eos_token_id" {
            fs::remove_file(directory.path().join("generation_config.json")).unwrap();
        }
        let error = failure(directory.path());
        assert!(error.contains(names), "{key} = {value}: {error}");
    }
}

#[test]
fn some_layers_with_a_window_are_refused_and_all_or_none_are_not() {
    for (layers, works) in [(0, true), (1, false), (2, true)] {
        let directory = saved("qwen2");
        edit(directory.path(), "config.json", |config| {
            config["use_sliding_window"] = json!(true);
            config["max_window_layers"] = json!(layers);
        });
        if works {
            load(directory.path()).unwrap();
        } else {
            assert!(failure(directory.path()).contains("max_window_layers is 1"));
        }
    }
}

#[test]
fn tensors_that_are_misspelt_or_not_expected_are_listed() {
    let directory = saved("llama");
    rewrite(directory.path(), |all| {
        let (_, down) =
            all.iter().find(|(name, _)| name.ends_with("1.mlp.down_proj.weight")).unwrap();
        all.push(("model.layers.0.mlp.extra.weight".to_owned(), down.clone()));
        let name =
            &mut all.iter_mut().find(|(n, _)| n.ends_with("1.mlp.down_proj.weight")).unwrap().0;
        *name = "model.layers.1.mlp.dwon_proj.weight".to_owned();
    });
    let error = failure(directory.path());
    for part in [
        "missing tensors: model.layers.1.mlp.down_proj.weight (nearest: \
         model.layers.1.mlp.dwon_proj.weight)",
        "unexpected tensors: ",
        "model.layers.0.mlp.extra.weight",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn harmless_extras_and_missing_prefixes_are_taken() {
    let directory = saved("GeluTanh");
    let want = tensors(&directory.path().join("model.safetensors"));
    let with_extras = |all: &mut Tensors| {
        for name in ["transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"] {
            all.push((name.to_owned(), Tensor::zeros([1, 1, 24, 24])));
        }
        all.push(("lm_head.weight".to_owned(), all[0].1.clone()));
    };
    rewrite(directory.path(), with_extras);
    load(directory.path()).unwrap();
    rewrite(directory.path(), |all| {
        for (name, _) in all {
            *name = name.strip_prefix("transformer.").unwrap_or(name).to_owned();
        }
    });
    let loaded = load(directory.path()).unwrap();
    let embedding = &loaded.model.parameters()[0];
    assert_eq!(embedding.value().data(), want[0].1.data());

    let directory = saved("llama");
    rewrite(directory.path(), |all| {
        let name = "model.layers.0.self_attn.rotary_emb.inv_freq";
        all.push((name.to_owned(), Tensor::zeros([2])));
    });
    load(directory.path()).unwrap();
}

#[test]
fn absurd_sizes_fail_before_memory_is_taken() {
    for (variant, key, value) in [
        ("GeluTanh", "n_embd", 65_536),
        ("GeluTanh", "n_positions", 200_000_000),
        ("llama", "hidden_size", 65_536),
        ("llama", "vocab_size", 200_000_000),
        // The angles of rotary positions for a head as wide as this would take 137 GB.
        ("llama", "head_dim", 16_777_216),
    ] {
        let directory = saved(variant);
        edit(directory.path(), "config.json", |config| config[key] = json!(value));
        let before = pool::usage().in_use;
        let error = failure(directory.path());
        assert!(error.contains("(expected ["), "{error}");
        // Other tests run beside this one, with models of a few kilobytes.
        let peak = pool::usage().peak;
        assert!(peak < before + (8 << 20), "{key}: {peak} bytes at most, {before} before");
    }
}

#[test]
fn damaged_files_are_named() {
    let directory = saved("GeluTanh");
    let path = |name: &str| directory.path().join(name);
    fs::write(path("generation_config.json"), "{").unwrap();
    assert!(failure(directory.path()).contains("generation_config.json: not JSON"));
    fs::write(path("generation_config.json"), "[]").unwrap();
    assert!(failure(directory.path()).contains("generation_config.json is not a JSON object"));
    fs::write(path("generation_config.json"), r#"{"eos_token_id": [1, 1.5]}"#).unwrap();
    assert!(failure(directory.path()).contains("generation_config.json: eos_token_id is [1,1.5]"));
    fs::remove_file(path("generation_config.json")).unwrap();
    load(directory.path()).unwrap();

    let good = fs::read(path("model.safetensors")).unwrap();
    fs::write(path("model.safetensors"), [&good[..], b"more"].concat()).unwrap();
    assert!(failure(directory.path()).contains("4 bytes at the end belong to no tensor"));
    fs::write(path("model.safetensors"), &good[..good.len() - 4]).unwrap();
    assert!(failure(directory.path()).contains("does not lie at"));
    fs::write(path("model.safetensors"), b"junk").unwrap();
    assert!(failure(directory.path()).contains("model.safetensors"));
    fs::remove_file(path("model.safetensors")).unwrap();
    assert!(failure(directory.path()).contains("pytorch_model.bin"));

    fs::write(path("config.json"), "{").unwrap();
    assert!(failure(directory.path()).contains("config.json: not JSON"));
    fs::remove_file(path("config.json")).unwrap();
    fs::create_dir(path("config.json")).unwrap();
    assert!(failure(directory.path()).contains("config.json is not a regular file"));
}

/// Cuts the weights of a directory in two shards with an index; gives the path of the index.
fn shard(directory: &Path) -> PathBuf {
    let single = directory.join("model.safetensors");
    let all = tensors(&single);
    fs::remove_file(single).unwrap();
    let (first, second) = all.split_at(all.len() / 2);
    let mut map = serde_json::Map::new();
    for (file, part) in [("a.safetensors", first), ("b.safetensors", second)] {
        let listed = part.iter().map(|(name, tensor)| (name.as_str(), tensor));
        write(&directory.join(file), listed).unwrap();
        map.extend(part.iter().map(|(name, _)| (name.clone(), json!(file))));
    }
    let index = directory.join("model.safetensors.index.json");
    fs::write(&index, json!({ "weight_map": map }).to_string()).unwrap();
    index
}

#[test]
fn shards_are_read_and_must_agree_with_their_index() {
    let directory = saved("llama");
    let whole = load(directory.path()).unwrap();
    shard(directory.path());
    let loaded = load(directory.path()).unwrap();
    for (a, b) in whole.model.parameters().iter().zip(loaded.model.parameters()) {
        assert_eq!(a.value().data(), b.value().data(), "{}", a.name());
    }
    let index = "model.safetensors.index.json";
    let first = "model.embed_tokens.weight";
    for (value, message) in [
        (json!("c.safetensors"), "c.safetensors"),
        (json!("b.safetensors"), "a.safetensors also has model.embed_tokens.weight"),
        (json!("../a.safetensors"), "expected a file beside it"),
        (json!(3), "expected a string"),
    ] {
        let directory = saved("llama");
        shard(directory.path());
        edit(directory.path(), index, |json| json["weight_map"][first] = value.clone());
        let error = failure(directory.path());
        assert!(error.contains(message), "{value}: {error}");
    }
    edit(directory.path(), index, |json| {
        json["weight_map"]["no.such"] = json!("b.safetensors");
    });
    assert!(failure(directory.path()).contains("b.safetensors lacks no.such"));
    fs::remove_file(directory.path().join("b.safetensors")).unwrap();
    assert!(failure(directory.path()).contains("cannot read"));
    edit(directory.path(), index, |json| *json = json!({}));
    assert!(failure(directory.path()).contains("missing field `weight_map`"));
}

#[test]
fn a_context_of_a_hundred_million_takes_memory_when_it_is_used() {
    let directory = saved("rope, full");
    edit(directory.path(), "config.json", |json| json["model"]["context"] = json!(100_000_000));
    let before = pool::usage().in_use;
    let loaded = load(directory.path()).unwrap();
    assert_eq!(loaded.model.config().context(), 100_000_000);
    let logits = loaded.model.generates().unwrap().next_logits(&[0, 1, 2], 1);
    assert!(logits.data().iter().all(|x| x.is_finite()));
    // A table of all positions alone would take more than 1.5 GB; other tests run beside this one.
    assert!(pool::usage().in_use < before + (200 << 20));
}
