//! What a model must not write, and what it must, as `transformers` writes under the same
//! constraints; see `crates/formats/tests/fixtures/make_encoder_decoders.py`.

use hearken_base::Result;
use hearken_formats::{Loaded, load};
use hearken_infer::engine::with_translator;
use hearken_infer::sampler::Sampling;
use hearken_infer::translate::{Strategy, Translating};
use hearken_nn::cache::CacheKind;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

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

/// The fixture, in a directory whose generation_config.json can be written again and again.
struct Marian {
    directory: TempDir,
    stated: Map<String, Value>,
}

impl Marian {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let weights = fixture().join("model.safetensors");
        fs::copy(weights, directory.path().join("model.safetensors")).unwrap();
        let [mut config, mut stated] = ["config.json", "generation_config.json"]
            .map(|name| serde_json::from_slice(&fs::read(fixture().join(name)).unwrap()).unwrap());
        for map in [&mut config, &mut stated] {
            Map::remove(map, "forced_eos_token_id");
        }
        let marian = Self { directory, stated };
        marian.put("config.json", &config);
        marian
    }

    fn put(&self, name: &str, stated: &Map<String, Value>) {
        fs::write(self.directory.path().join(name), serde_json::to_string(stated).unwrap())
            .unwrap();
    }

    /// The model under a constraint.
    fn under(&self, constraint: Map<String, Value>) -> Result<Loaded> {
        let mut stated = self.stated.clone();
        stated.extend(constraint);
        self.put("generation_config.json", &stated);
        load(self.directory.path())
    }
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/fixtures/marian-shared")
}

#[test]
fn tokens_that_are_needed_must_be_those_of_the_model() {
    let marian = Marian::new();
    for (key, id) in [
        ("forced_bos_token_id", 29),
        ("forced_eos_token_id", u32::MAX),
        ("decoder_start_token_id", 29),
        ("eos_token_id", 99),
        ("pad_token_id", 29),
    ] {
        let constraint = Map::from_iter([(key.to_owned(), id.into())]);
        let error = marian.under(constraint).err().unwrap().to_string();
        let said = format!("{key} is {id}, and the model has 29 tokens");
        assert!(error.contains(&said), "{error}");
    }
    let [most, all]: [Value; 2] = [(0..28).collect(), (0..29).collect()];
    assert!(marian.under(Map::from_iter([("suppress_tokens".to_owned(), most)])).is_ok());
    let error = marian.under(Map::from_iter([("suppress_tokens".to_owned(), all)])).err().unwrap();
    assert!(error.to_string().contains("leave no token to write"), "{error}");
}

#[test]
fn constraints_are_kept_as_transformers_keeps_them() {
    let text = fs::read_to_string(fixture().join("generated.json")).unwrap();
    let generated: Generated = serde_json::from_str(&text).unwrap();
    let marian = Marian::new();
    for case in generated.cases {
        let loaded = marian.under(case.constraint).unwrap();
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
