//! Checkpoints that `transformers` has written, against what PyTorch makes of them: see
//! `fixtures/make.py`.

use hearken_formats::{Family, directory, load, safetensors};
use hearken_nn::layers::Pass;
use hearken_tensor::Tensor;
use hearken_tensor::ops::cross_entropy::Options;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// In f32, for logits of up to about 10.
const LOGITS: f32 = 1e-4;
/// Of a parameter's largest gradient, for each of its numbers.
const GRADIENTS: f32 = 1e-4;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<Vec<u32>>,
    targets: Vec<Vec<u32>>,
    loss: f32,
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// The largest difference, and the largest number.
fn compare(got: &Tensor, want: &Tensor) -> (f32, f32) {
    assert_eq!(got.shape(), want.shape());
    let pairs = got.data().iter().zip(want.data());
    let largest = want.data().iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    // A NaN on either side must not pass as 0.
    let difference = |(a, b): (&f32, &f32)| if a == b { 0.0 } else { (a - b).abs() };
    (
        pairs.map(difference).fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most }),
        largest,
    )
}

#[test]
fn logits_loss_and_every_gradient_are_those_of_pytorch() {
    let mut families = Vec::new();
    for path in fixtures() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path.join("expected.json")).unwrap();
        let expected: Expected = serde_json::from_str(&text).unwrap();
        let tensors = safetensors::read(&path.join("expected.safetensors")).unwrap();
        let loaded = load(&path).unwrap();
        let (model, batch) = (&loaded.model, expected.ids.len());
        let (ids, targets) = (expected.ids.concat(), expected.targets.concat());

        let (error, largest) = compare(&model.logits(&ids, batch), &tensors["logits"]);
        println!("{name}: logits off by {error:.1e} of {largest:.1}");
        assert!(error <= LOGITS, "{name}: logits off by {error} of {largest}");

        let loss = model.loss(&ids, &targets, batch, &Pass::evaluate(), Options::default());
        let error = (loss.value().item() - expected.loss).abs();
        assert!(error <= 1e-6 * expected.loss, "{name}: the loss is off by {error}");

        loss.backward();
        let gradients: Vec<(String, Tensor)> = model
            .parameters()
            .iter()
            .map(|p| (p.name().to_owned(), p.gradient().expect("every parameter takes part")))
            .collect();
        let gradients = directory::to_theirs(model.config(), loaded.family, &gradients);
        let mut worst = 0.0_f32;
        for (theirs, gradient) in &gradients {
            let (error, largest) = compare(gradient, &tensors[&format!("gradient.{theirs}")]);
            assert!(error <= GRADIENTS * largest, "{name}, {theirs}: off by {error} of {largest}");
            worst = worst.max(error / largest);
        }
        println!("{name}: gradients off by {worst:.1e} of the largest");
        assert_eq!(gradients.len() + 1, tensors.len(), "{name}: every gradient and the logits");
        families.push(loaded.family);
    }
    assert!(families.contains(&Family::Gpt2) && families.contains(&Family::Llama));
    assert!(families.len() >= 9, "{} fixtures", families.len());
}
