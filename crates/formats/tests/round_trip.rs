//! Every variant through files: saved, loaded, the same bits.

use hearken_formats::families::ALL;
use hearken_formats::{Family, SpecialTokens, load, load_as, save};
use hearken_nn::config::{
    AttentionConfig, BiasConfig, DecoderConfig, DropoutConfig, FeedForwardKind, ModelConfig,
};
use hearken_nn::constraints::Constraints;
use hearken_nn::models::{self, Decoder, Model, PredictsTokens, Tokens};
use hearken_nn::pass::{Noise, Pass};
use hearken_nn::scope::Weights;
use hearken_nn::variants;
use hearken_tensor::{HalfTensor, Role, Storage, no_grad};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::tempdir;

/// See encoders.rs and encoder_decoders.rs.
const OTHERS: [&str; 5] = ["bert", "roberta", "distilbert", "t5", "marian"];

fn special() -> SpecialTokens {
    let constraints = Constraints {
        bad_words: vec![vec![3], vec![4, 6]],
        suppressed: vec![7],
        suppressed_first: vec![8, 9],
        first: Some(10),
        last: vec![2],
    };
    SpecialTokens { begin: Some(1), ends: vec![2, 5], pad: None, constraints, beams: Some(4) }
}

fn bits(model: &dyn Model) -> Vec<(String, Vec<u32>)> {
    let numbers =
        |p: &hearken_tensor::Param| p.value().data().iter().map(|x| x.to_bits()).collect();
    model.parameters().iter().map(|p| (p.name().to_owned(), numbers(p))).collect()
}

fn json_of(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_variant_comes_back_to_the_bit() {
    let mut families = Vec::new();
    for (name, config) in variants::all() {
        let directory = tempdir().unwrap();
        let model = Decoder::drawn(config.clone(), 3);
        let family = save(directory.path(), &model, &special()).unwrap();
        let loaded = load(directory.path()).unwrap();
        assert_eq!((loaded.family, &loaded.special), (family, &special()), "{name}");
        // Defaults become explicit, and what only matters for training may be lost.
        let ModelConfig::Decoder(mut same) = loaded.model.config() else { panic!("{name}") };
        let (stack, want) = (&mut same.stack, &config.stack);
        assert_eq!(stack.kv_heads(), want.kv_heads(), "{name}");
        assert_eq!(stack.head_width(), want.head_width(), "{name}");
        assert_eq!(stack.feed_forward_width(), want.feed_forward_width(), "{name}");
        stack.kv_heads = want.kv_heads;
        stack.head_width = want.head_width;
        stack.feed_forward.width = want.feed_forward.width;
        stack.init = want.init;
        stack.dropout = DropoutConfig::default();
        assert_eq!(same, config, "{name}");
        assert_eq!(bits(loaded.model.as_ref()), bits(&model), "{name}");
        let ids: Vec<u32> = (0..10).map(|i| i * 7 % 13).collect();
        let tokens = Tokens::new(&ids, 2);
        let again = loaded.model.predicts_tokens().unwrap().logits(&tokens);
        assert_eq!(model.logits(&tokens).data(), again.data(), "{name}");
        // A run that resumes draws what it would have drawn.
        let pass = Pass::train(Noise { seed: 4, step: 5 });
        let of = |model: &dyn PredictsTokens| no_grad(|| model.logits_with(&tokens, &pass));
        let again = of(loaded.model.predicts_tokens().unwrap());
        assert_eq!(of(&model).value().data(), again.value().data(), "{name}");
        families.push(family);
    }
    for family in ALL.iter().filter(|family| !OTHERS.contains(&family.model_type)) {
        assert!(families.contains(family), "no variant is written as {family:?}");
    }
}

#[test]
fn models_without_attention_come_back_to_the_bit() {
    for (name, config) in variants::without_attention() {
        let directory = tempdir().unwrap();
        let model = models::build(&config, Weights::Drawn { seed: 3 });
        let family = save(directory.path(), model.as_ref(), &special()).unwrap();
        assert_eq!(family.model_type, "hearken", "{name}");
        let loaded = load(directory.path()).unwrap();
        assert_eq!(loaded.model.config(), config, "{name}");
        assert_eq!(bits(loaded.model.as_ref()), bits(model.as_ref()), "{name}");
        let ids: Vec<u32> = (0..10).map(|i| i * 7 % 13).collect();
        let tokens = Tokens::new(&ids, 2);
        let [one, two] =
            [&model, &loaded.model].map(|m| m.predicts_tokens().unwrap().logits(&tokens));
        assert_eq!(one.data(), two.data(), "{name}");
    }
}

/// The family that a changed variant is saved as.
fn family_of(name: &str, change: impl FnOnce(&mut DecoderConfig)) -> &'static str {
    let (_, mut config) = variants::all().into_iter().find(|(known, _)| known == name).unwrap();
    change(&mut config);
    let (family, _) = Family::expressing(&ModelConfig::Decoder(config));
    family.model_type
}

#[test]
fn the_first_family_that_can_express_a_model_is_chosen() {
    let window = AttentionConfig::Window { size: 3 };
    assert_eq!(family_of("GeluTanh", |_| ()), "gpt2");
    assert_eq!(family_of("GeluTanh", |c| c.stack.bias = BiasConfig::NONE), "hearken");
    assert_eq!(family_of("GeluTanh", |c| c.stack.attention = window), "hearken");
    assert_eq!(family_of("llama", |_| ()), "llama");
    assert_eq!(family_of("llama", |c| c.stack.bias.feed_forward = true), "llama");
    assert_eq!(family_of("llama", |c| c.stack.bias = BiasConfig::ALL), "llama");
    assert_eq!(family_of("llama", |c| c.stack.bias.attention_out = true), "hearken");
    assert_eq!(
        family_of("llama", |c| c.stack.feed_forward.kind = FeedForwardKind::Geglu),
        "hearken"
    );
    assert_eq!(family_of("llama", |c| c.stack.value_width = Some(6)), "hearken");
    // transformers' Llama wants a width that the heads divide; Mistral without a window does not.
    assert_eq!(
        family_of("llama", |c| (c.stack.width, c.stack.head_width) = (18, Some(4))),
        "mistral"
    );
    assert_eq!(family_of("mistral", |_| ()), "mistral");
    assert_eq!(family_of("mistral", |c| c.stack.bias.norm = true), "mistral");
    assert_eq!(family_of("mistral", |c| c.stack.bias.feed_forward = true), "hearken");
    assert_eq!(family_of("qwen2", |_| ()), "qwen2");
    assert_eq!(family_of("qwen2", |c| c.stack.attention = window), "qwen2");
    assert_eq!(family_of("qwen2", |c| c.stack.head_width = Some(6)), "qwen2");
}

#[test]
fn sixteen_bits_are_the_rounded_numbers_and_vectors_stay_whole() {
    for name in ["GeluTanh", "llama", "t5, full"] {
        let (_, config) = variants::all().into_iter().find(|(known, _)| known == name).unwrap();
        let directory = tempdir().unwrap();
        let model = Decoder::drawn(config, 3);
        save(directory.path(), &model, &special()).unwrap();
        for storage in [Storage::Bf16, Storage::F16] {
            let loaded = load_as(directory.path(), storage).unwrap();
            for (own, new) in model.parameters().iter().zip(loaded.model.parameters()) {
                let is_vector = own.role() == Role::Vector;
                let rounded = || HalfTensor::new(&own.value(), storage).widen();
                let want = if is_vector { own.value() } else { rounded() };
                assert_eq!(new.value().data(), want.data(), "{name}, {}", own.name());
                assert_eq!(new.is_trainable(), is_vector, "{name}, {}", own.name());
            }
            // What is kept in 16 bits is saved, too.
            let second = tempdir().unwrap();
            save(second.path(), loaded.model.as_ref(), &special()).unwrap();
            let again = load(second.path()).unwrap();
            assert_eq!(bits(again.model.as_ref()), bits(loaded.model.as_ref()), "{name}");
        }
    }
}

#[test]
fn own_directories_of_the_first_version_are_read() {
    let directory = tempdir().unwrap();
    let (_, config) = variants::all().into_iter().find(|(known, _)| known == "no bias").unwrap();
    let model = Decoder::drawn(config, 3);
    assert_eq!(save(directory.path(), &model, &special()).unwrap().model_type, "hearken");
    let path = directory.path().join("config.json");
    let mut json = json_of(&path);
    assert_eq!(
        (&json["model"]["kind"], &json["model"]["bias"]),
        (&json!("decoder"), &json!(false))
    );
    json["model"].as_object_mut().unwrap().remove("kind");
    std::fs::write(&path, json.to_string()).unwrap();
    assert_eq!(load(directory.path()).unwrap().model.config(), model.config());
}

#[test]
fn ends_of_a_text_are_written_as_transformers_does() {
    for (ends, want) in [(vec![], json!(null)), (vec![7], json!(7)), (vec![7, 8], json!([7, 8]))] {
        let directory = tempdir().unwrap();
        let special = SpecialTokens { begin: None, ends, pad: Some(3), ..SpecialTokens::default() };
        let model = Decoder::drawn(variants::base(), 3);
        save(directory.path(), &model, &special).unwrap();
        for file in ["config.json", "generation_config.json"] {
            assert_eq!(json_of(&directory.path().join(file))["eos_token_id"], want, "{file}");
        }
        assert_eq!(load(directory.path()).unwrap().special, special);
        std::fs::remove_file(directory.path().join("generation_config.json")).unwrap();
        assert_eq!(load(directory.path()).unwrap().special, special);
    }
}
