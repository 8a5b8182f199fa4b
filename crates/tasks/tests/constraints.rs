//! What a model must not write, and what it must, as `transformers` writes under the same
//! constraints; see `crates/formats/tests/fixtures/make_encoder_decoders.py`.

use hearken_formats::load;
use hearken_infer::engine::with_translator;
use hearken_infer::sampler::Sampling;
use hearken_infer::translate::{Strategy, Translating};
use hearken_nn::cache::CacheKind;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

#[derive(Deserialize)]
struct Generated {
    sources: Vec<Vec<u32>>,
    most_tokens: usize,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    /// A part of generation_config.json.
    constraint: Map<String, Value>,
    greedy: Vec<Vec<u32>>,
    beams: Vec<Vec<u32>>,
}

#[test]
fn constraints_are_kept_as_transformers_keeps_them() {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/fixtures/marian-shared");
    let text = fs::read_to_string(fixture.join("generated.json")).unwrap();
    let generated: Generated = serde_json::from_str(&text).unwrap();
    let read = |name: &str| -> Map<String, Value> {
        serde_json::from_str(&fs::read_to_string(fixture.join(name)).unwrap()).unwrap()
    };
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, stated: &Map<String, Value>| {
        fs::write(directory.path().join(name), serde_json::to_string(stated).unwrap()).unwrap();
    };
    fs::copy(fixture.join("model.safetensors"), directory.path().join("model.safetensors"))
        .unwrap();
    let mut config = read("config.json");
    config.remove("forced_eos_token_id");
    put("config.json", &config);
    for case in generated.cases {
        let mut stated = read("generation_config.json");
        stated.remove("forced_eos_token_id");
        stated.extend(case.constraint);
        put("generation_config.json", &stated);
        let loaded = load(directory.path()).unwrap();
        let special = loaded.special;
        let how = |strategy| Translating {
            begin: special.begin.unwrap(),
            ends: special.ends.clone(),
            constraints: special.constraints.clone(),
            most_tokens: generated.most_tokens,
            length_penalty: 0.0,
            cache: CacheKind::F32,
            strategy,
        };
        let written = |strategy| -> Vec<Vec<u32>> {
            with_translator(loaded.model.translates().unwrap(), 8, |client| {
                let one = |source: &Vec<u32>| client.translate(source, &how(strategy)).unwrap();
                let pending: Vec<_> = generated.sources.iter().map(one).collect();
                pending.into_iter().map(|p| p.wait().unwrap()[0].tokens.clone()).collect()
            })
        };
        let name = case.name;
        assert_eq!(written(Strategy::Sampled(Sampling::greedy(), 1)), case.greedy, "{name}");
        assert_eq!(written(Strategy::Beams(1)), case.greedy, "{name}: one beam");
        assert_eq!(written(Strategy::Beams(4)), case.beams, "{name}: four beams");
    }
}
