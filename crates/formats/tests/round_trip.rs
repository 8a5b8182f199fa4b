//! Every variant through files: saved, loaded, the same bits; and bad directories.

use hearken_formats::directory::SpecialTokens;
use hearken_formats::{Family, load, save};
use hearken_nn::config::{DropoutConfig, FeedForwardKind};
use hearken_nn::decoder::Decoder;
use hearken_nn::variants;
use std::path::PathBuf;

/// A directory that is gone when dropped.
struct Temporary(PathBuf);
impl Temporary {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("hearken-formats-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}
impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_variant_comes_back_to_the_bit() {
    let mut families = Vec::new();
    for (i, (name, config)) in variants::all().into_iter().enumerate() {
        let directory = Temporary::new(&format!("variant-{i}"));
        let model = Decoder::new(config.clone(), 3);
        let special = SpecialTokens { begin: Some(1), end: Some(2), pad: None };
        let family = save(&directory.0, &model, special).unwrap();
        let loaded = load(&directory.0).unwrap();
        assert_eq!((loaded.family, loaded.special), (family, special), "{name}");
        // Defaults become explicit, and what only matters for training may be lost.
        let mut same = loaded.model.config().clone();
        assert_eq!(same.kv_heads(), config.kv_heads(), "{name}");
        assert_eq!(same.head_width(), config.head_width(), "{name}");
        assert_eq!(same.feed_forward_width(), config.feed_forward_width(), "{name}");
        same.kv_heads = config.kv_heads;
        same.head_width = config.head_width;
        same.feed_forward.width = config.feed_forward.width;
        same.init = config.init;
        same.dropout = DropoutConfig::default();
        assert_eq!(same, config, "{name}");
        let ids: Vec<u32> = (0..10).map(|i| i * 7 % 13).collect();
        let (a, b) = (model.logits(&ids, 2), loaded.model.logits(&ids, 2));
        assert_eq!(a.data(), b.data(), "{name}");
        families.push(family);
    }
    for family in [Family::Gpt2, Family::Llama, Family::Hearken] {
        assert!(families.contains(&family), "no variant is written as {family:?}");
    }
}

#[test]
fn families_are_chosen_by_what_they_can_express() {
    let mut config = variants::base();
    config.feed_forward.kind = FeedForwardKind::GeluTanh;
    assert_eq!(Family::of(&config), Family::Gpt2);
    config.bias = false;
    assert_eq!(Family::of(&config), Family::Hearken);
}

#[test]
fn bad_directories_are_named() {
    let directory = Temporary::new("bad");
    let missing = load(&directory.0).unwrap_err().to_string();
    assert!(missing.contains("config.json") && missing.contains("hint: "), "{missing}");
    let model = Decoder::new(variants::base(), 3);
    save(&directory.0, &model, SpecialTokens::default()).unwrap();
    let config = directory.0.join("config.json");
    let good = std::fs::read_to_string(&config).unwrap();
    for (from, to, names) in [
        ("\"n_embd\": 16", "\"n_embd\": 20", "wte.weight"),
        ("\"n_embd\": 16", "\"n_embd\": \"x\"", "n_embd"),
        ("\"n_head\": 4", "\"n_head\": 5", "heads"),
        ("\"n_layer\": 2", "\"n_layer\": 3", "h.2."),
        ("\"gpt2\"", "\"bert\"", "model_type"),
        ("{", "", "not JSON"),
    ] {
        assert!(good.contains(from), "{from} in {good}");
        std::fs::write(&config, good.replacen(from, to, 1)).unwrap();
        let error = load(&directory.0).unwrap_err().to_string();
        assert!(error.contains(names) && error.contains("hint: "), "{to}: {error}");
    }
    std::fs::write(&config, &good).unwrap();
    assert!(load(&directory.0).is_ok());
    std::fs::write(directory.0.join("model.safetensors"), b"junk").unwrap();
    assert!(load(&directory.0).unwrap_err().to_string().contains("model.safetensors"));
}
