//! Decoders that `transformers` has written, against what PyTorch makes of them: see
//! `fixtures/make.py`.

use hearken_formats::{Family, load, to_theirs};
use hearken_nn::models::Tokens;
use hearken_nn::pass::Pass;
use hearken_store::TensorFile;
use hearken_tensor::Tensor;
use hearken_tensor::ops::cross_entropy::Options;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Of the largest logit, or of a parameter's largest gradient, for each of the numbers: f32 in
/// another order of summation.
const BOUND: f32 = 1e-4;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<Vec<u32>>,
    targets: Vec<Vec<u32>>,
    loss: f32,
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    paths.sort();
    paths
}

/// The largest difference as a share of the largest number.
fn compare(got: &Tensor, want: &Tensor) -> f32 {
    assert_eq!(got.shape(), want.shape());
    let pairs = got.data().iter().zip(want.data());
    let largest = want.data().iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    // A NaN on either side must not pass as 0.
    let difference = |(a, b): (&f32, &f32)| if a == b { 0.0 } else { (a - b).abs() };
    let worse = |most, d: f32| if d > most || d.is_nan() { d } else { most };
    pairs.map(difference).fold(0.0, worse) / largest
}

#[test]
fn logits_loss_and_every_gradient_are_those_of_pytorch() {
    let mut families: Vec<&Family> = Vec::new();
    for path in fixtures() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let loaded = load(&path).unwrap();
        if loaded.model.encodes().is_some() || loaded.model.translates().is_some() {
            continue; // see encoders.rs and encoder_decoders.rs
        }
        let text = std::fs::read_to_string(path.join("expected.json")).unwrap();
        let expected: Expected = serde_json::from_str(&text).unwrap();
        let wanted = TensorFile::open(&path.join("expected.safetensors")).unwrap();
        let model = loaded.model.predicts_tokens().unwrap();
        let (ids, targets) = (expected.ids.concat(), expected.targets.concat());
        let tokens = Tokens::new(&ids, expected.ids.len());

        let error = compare(&model.logits(&tokens), &wanted.tensor("logits").unwrap());
        println!("{name}: logits off by {error:.1e} of the largest");
        assert!(error <= BOUND, "{name}: logits off by {error} of the largest");

        let loss = model.loss(&tokens, &targets, &Pass::evaluate(), Options::default()).mean();
        let error = (loss.value().item() - expected.loss).abs();
        assert!(error <= 1e-6 * expected.loss, "{name}: the loss is off by {error}");

        loss.backward();
        let parameters = loaded.model.parameters().iter();
        let gradients: Vec<(String, Tensor)> = parameters
            .map(|p| (p.name().to_owned(), p.gradient().expect("every parameter takes part")))
            .collect();
        let gradients = to_theirs(&loaded.model.config(), loaded.family, &gradients).unwrap();
        let mut worst = 0.0_f32;
        for (theirs, gradient) in &gradients {
            let error = compare(gradient, &wanted.tensor(&format!("gradient.{theirs}")).unwrap());
            assert!(error <= BOUND, "{name}, {theirs}: off by {error} of the largest");
            worst = worst.max(error);
        }
        println!("{name}: gradients off by {worst:.1e} of the largest");
        assert_eq!(gradients.len() + 1, wanted.entries().len(), "{name}: gradients and logits");
        families.push(loaded.family);
    }
    for family in ["gpt2", "llama", "mistral", "mixtral", "qwen2"] {
        assert!(families.iter().any(|known| known.model_type == family), "{family}");
    }
    assert!(families.len() >= 16, "{} fixtures", families.len());
}

#[test]
fn all_ends_of_a_text_are_read() {
    let ends = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        load(&folder.join(name)).unwrap().special.ends
    };
    assert_eq!((ends("qwen2-tied"), ends("llama-grouped")), (vec![1, 5], vec![1]));
}

#[test]
fn a_window_that_is_off_by_one_would_show() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mistral-window");
    let wanted = TensorFile::open(&fixture.join("expected.safetensors")).unwrap();
    let text = std::fs::read_to_string(fixture.join("expected.json")).unwrap();
    let Expected { ids, .. } = serde_json::from_str(&text).unwrap();
    let config = std::fs::read_to_string(fixture.join("config.json")).unwrap();
    for window in ["3", "5", "null"] {
        let directory = tempfile::tempdir().unwrap();
        let changed =
            config.replace("\"sliding_window\": 4", &format!("\"sliding_window\": {window}"));
        assert_ne!(changed, config);
        std::fs::write(directory.path().join("config.json"), changed).unwrap();
        let weights = directory.path().join("model.safetensors");
        std::fs::copy(fixture.join("model.safetensors"), weights).unwrap();
        let loaded = load(directory.path()).unwrap();
        let model = loaded.model.predicts_tokens().unwrap();
        let logits = model.logits(&Tokens::new(&ids.concat(), ids.len()));
        let error = compare(&logits, &wanted.tensor("logits").unwrap());
        assert!(error > 100.0 * BOUND, "a window of {window} is off by {error} only");
    }
}
