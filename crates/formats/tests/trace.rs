//! What happens inside models that `transformers` has written, against what PyTorch computes inside of
//! them: see `fixtures/make_trace.py`.

use hearken_formats::load;
use hearken_nn::models::Tokens;
use hearken_nn::taps::Pattern;
use hearken_nn::trace::{TraceOptions, trace};
use hearken_store::TensorFile;
use hearken_tensor::Tensor;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Expected {
    ids: Vec<Vec<u32>>,
    targets: Vec<Vec<u32>>,
}

fn fixture(name: &str) -> (PathBuf, Expected) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let text = std::fs::read_to_string(path.join("expected.json")).unwrap();
    (path, serde_json::from_str(&text).unwrap())
}

/// The largest difference as a share of the largest number; what is hidden must be so on both sides.
fn compare(got: &Tensor, want: &Tensor) -> f32 {
    assert_eq!(got.shape(), want.shape());
    let finite = want.data().iter().filter(|x| x.is_finite());
    let largest = finite.fold(0.0_f32, |most, x| most.max(x.abs()));
    let pairs = got.data().iter().zip(want.data());
    let difference = |(a, b): (&f32, &f32)| if a == b { 0.0 } else { (a - b).abs() };
    let worse = |most, d: f32| if d > most || d.is_nan() { d } else { most };
    pairs.map(difference).fold(0.0, worse) / largest
}

#[test]
fn values_and_gradients_inside_are_those_of_pytorch() {
    for name in ["gpt2-tied", "llama-grouped", "mistral-window", "qwen2-tied"] {
        let (path, expected) = fixture(name);
        let loaded = load(&path).unwrap();
        let model = loaded.model.predicts_tokens().unwrap();
        let (ids, targets) = (&expected.ids[0], &expected.targets[0]);
        let options = TraceOptions::default();
        let traced = trace(model, &Tokens::new(ids, 1), Some(targets), &options).unwrap();
        let wanted = TensorFile::open(&path.join("trace.safetensors")).unwrap();
        let loss = wanted.tensor("loss").unwrap().item();
        assert!((traced.loss.unwrap() - loss).abs() <= 1e-6 * loss, "{name}: {:?}", traced.loss);
        let mut worst = [0.0_f32; 2];
        for (value, got) in &traced.tensors {
            let is_gradient = value.starts_with("d.");
            let error = compare(got, &wanted.tensor(value).unwrap());
            // f32 in another order of summation.
            let bound = if is_gradient { 1e-4 } else { 1e-5 };
            assert!(error <= bound, "{name}, {value}: off by {error} of the largest");
            let worst = &mut worst[usize::from(is_gradient)];
            *worst = worst.max(error);
        }
        println!("{name}: values off by {:.1e}, gradients by {:.1e}", worst[0], worst[1]);
        assert_eq!(traced.tensors.len() + 1, wanted.entries().len(), "{name}: names");
        let left = loaded.model.parameters().iter().find(|p| p.gradient().is_some());
        assert!(left.is_none(), "{name}: a trace leaves gradients behind");
    }
}

#[test]
fn some_names_have_the_numbers_that_all_have() {
    let (path, expected) = fixture("llama-grouped");
    let loaded = load(&path).unwrap();
    let model = loaded.model.predicts_tokens().unwrap();
    let (ids, targets) = (expected.ids.concat(), expected.targets.concat());
    let tokens = Tokens::new(&ids, 2);
    let run = |only: &[&str], targets: Option<&[u32]>| {
        let only = only.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        let options = TraceOptions { only, most_bytes: None };
        let traced = trace(model, &tokens, targets, &options).unwrap();
        traced.tensors.into_iter().collect::<BTreeMap<String, Tensor>>()
    };
    let all = run(&[], Some(&targets));
    let values = run(&[], None);
    assert_eq!(2 * values.len(), all.len());
    let names = |some: &BTreeMap<String, Tensor>| some.keys().cloned().collect::<Vec<_>>();
    for (only, targets, want) in [
        (&["norm", "logits"][..], None, &["logits", "norm"][..]),
        (&["blocks.1.norm*"], None, &["blocks.1.norm1", "blocks.1.norm2"]),
        (&["norm"], Some(&targets[..]), &["d.norm", "norm"]),
        (
            &["d.*.attention.out"],
            Some(&targets),
            &["d.blocks.0.attention.out", "d.blocks.1.attention.out"],
        ),
    ] {
        let some = run(only, targets);
        assert_eq!(names(&some), want, "{only:?}");
        for (name, value) in &some {
            // Other steps are computed the usual way, which adds in another order.
            let error = compare(value, &all[name]);
            assert!(error <= 1e-5, "{only:?}, {name}: off by {error}");
        }
    }
    let head = &run(&["blocks.1.attention.weights[4]"], None)["blocks.1.attention.weights[4]"];
    assert_eq!(head.shape().dims(), [2, 9, 9]);
    let whole = &all["blocks.1.attention.weights"]; // (2, 6, 9, 9)
    let want = Tensor::new([9, 9], &whole.data()[4 * 81..5 * 81]);
    assert!(compare(&Tensor::new([9, 9], &head.data()[..81]), &want) <= 1e-5);
}

#[test]
fn what_cannot_be_traced_is_said() {
    let (path, expected) = fixture("gpt2-tied");
    let loaded = load(&path).unwrap();
    let model = loaded.model.predicts_tokens().unwrap();
    let tokens = Tokens::new(&expected.ids[0], 1);
    let run = |only: &str, most_bytes| {
        let options = TraceOptions { only: vec![Pattern::parse(only).unwrap()], most_bytes };
        trace(model, &tokens, None, &options).unwrap_err().message().to_owned()
    };
    assert_eq!(run("blocks.2.*", None), "no value of this model is called 'blocks.2.*'");
    assert_eq!(run("d.norm", None), "'d.norm' are gradients, and there are no targets");
    let error = run("*", Some(3000));
    assert!(error.contains("no room for blocks.0.attention."), "{error}");
}
