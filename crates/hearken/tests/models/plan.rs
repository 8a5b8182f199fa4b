//! `hearken plan`, end to end.

use crate::common::{hearken, run};
use crate::parse;
use hearken::nn::presets;

#[test]
fn gpt2_small_has_its_124_439_808_parameters() {
    let ran = run(&mut hearken(&["plan"])).succeeded();
    assert!(ran.stdout.contains("124,439,808"), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'));
}

#[test]
fn json_has_the_documented_keys_for_every_preset() {
    for (name, text) in presets::ALL {
        let json = run(&mut hearken(&["plan", "--config", name, "--vocabulary", "1000", "--json"]));
        let json = parse(&json.succeeded().stdout);
        let total = json["parameters"].as_u64().unwrap();
        let parts = json["parts"].as_array().unwrap();
        let sum: u64 = parts.iter().map(|part| part["parameters"].as_u64().unwrap()).sum();
        assert_eq!((json["config"].as_str(), sum), (Some(*name), total));
        let memory = |key: &str| json["memory"][key].as_u64().unwrap();
        assert_eq!(memory("parameters"), 4 * total);
        let kinds = ["parameters", "gradients", "optimizer", "averages", "activations", "kernels"];
        assert_eq!(kinds.map(memory).iter().sum::<u64>(), memory("total"));
        assert!(memory("in_use") <= memory("total"));
        let flops = |key: &str| json["flops_per_token"][key].as_f64().unwrap();
        let ratio = flops("training") / flops("forward");
        // Each product has two behind it, but for the few with an operand that is not learned (the
        // means of story-pairs' sentences): one.
        assert!(ratio < 3.0 + 1e-9 && ratio > 2.999, "{name}: {ratio}");
        let time = |key: &str| json["time"][key].as_f64().unwrap();
        assert!(time("step_seconds") > 0.0 && time("run_seconds") >= time("step_seconds"));
        if json["cache"].is_null() {
            continue; // It does not write.
        }
        let cache = |key: &str| json["cache"][key].as_u64().unwrap();
        if text.contains("kind = \"recurrent") || text.contains("kind = \"convolution\"") {
            assert_eq!(cache("f32"), cache("f16"), "{name}: a state that is carried is in f32");
            continue;
        }
        assert_eq!(cache("f32"), 2 * cache("f16"), "{name}");
        assert!(cache("int8") > cache("f16") / 2 && cache("int8") < cache("f16"));
    }
}

#[test]
fn choices_change_what_they_should() {
    let memory = |rest: &[&str], key: &str| {
        let all = [&["plan", "--tokens", "64", "--json"], rest].concat();
        parse(&run(&mut hearken(&all)).succeeded().stdout)["memory"][key].as_u64().unwrap()
    };
    let plain = memory(&[], "activations");
    assert!(memory(&["--checkpointing"], "activations") < plain);
    assert!(memory(&["--batch-size", "24"], "activations") > plain); // 12 otherwise
    assert_eq!(memory(&["--optimizer", "sgd"], "optimizer"), 0);
    let states = memory(&["--optimizer", "adamw"], "optimizer");
    assert_eq!(states, 2 * memory(&["--optimizer", "lion"], "optimizer"));
    assert!(memory(&["--precision", "bf16"], "total") != memory(&[], "total"));
}

/// The process in the place of the pool: within 5 %, and the bytes that a process needs besides.
#[test]
fn the_plan_comes_true() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/bench/mid.toml");
    let json = run(&mut hearken(&[
        "plan",
        "--config",
        config,
        "--batch-size",
        "4",
        "--measure",
        "--json",
    ]));
    let json = parse(&json.succeeded().stdout);
    let off = |planned: &str, measured: &str| {
        let measured = json["measured"][measured].as_f64()?;
        Some((json["memory"][planned].as_f64().unwrap() / measured - 1.0).abs())
    };
    assert!(off("in_use", "in_use").unwrap() < 0.05, "{json}");
    let planned = |key: &str| json["memory"][key].as_f64().unwrap();
    let reserved = json["measured"]["reserved"].as_f64().unwrap();
    assert!(((planned("total") - planned("kernels")) / reserved - 1.0).abs() < 0.05, "{json}");
    if let Some(off) = off("total", "resident") {
        assert!(off < 0.05, "{json}");
    }
    assert!(json["measured"]["seconds"].as_f64().unwrap() > 0.0, "{json}");
}

/// What `train` says before its first step is what `plan` says.
#[test]
fn train_says_what_the_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.toml");
    let model = "[model]\nkind = \"decoder\"\ncontext = 240\nlayers = 2\nwidth = 64\nheads = 2\n";
    let rest = "[data]\nstories = 5\n[train]\nsteps = 1\nbatch_size = 4\n";
    std::fs::write(&path, format!("{model}{rest}")).unwrap();
    let path = path.to_str().unwrap();
    let mut seen = std::collections::HashSet::new();
    for (i, sets) in [
        &[][..],
        &["train.optimizer=sgd"],
        &["train.optimizer=lion"],
        &["train.optimizer=muon"],
        &["train.optimizer=adam"],
        &["train.ema.decay=0.9"],
        &["train.precision=bf16"],
        &["train.precision=f16", "train.gradient_checkpointing=true"],
        &["train.gradient_checkpointing=true"],
        &["train.parallel_parts=2"],
        &["train.accumulate=2", "train.optimizer=muon", "train.ema.decay=0.9"],
    ]
    .iter()
    .enumerate()
    {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        let out = folder.path().join(format!("run-{i}"));
        let train = ["train", "--config", path, "--out", out.to_str().unwrap()];
        let said = run(&mut hearken(&[&train[..], &sets].concat())).succeeded().stderr;
        let plan = ["plan", "--config", path, "--json"];
        let json = parse(&run(&mut hearken(&[&plan[..], &sets].concat())).succeeded().stdout);
        let total = hearken::show::number::bytes(json["memory"]["total"].as_u64().unwrap());
        let flops = json["flops_per_token"]["training"].as_f64().unwrap();
        let flops = hearken::show::number::operations(flops);
        let line = format!("{flops} per token, about {total}");
        assert!(said.contains(&line), "{sets:?}: '{line}' is not in\n{said}");
        seen.insert(json["memory"]["total"].as_u64().unwrap());
    }
    assert!(seen.len() > 6, "what should change the memory does: {seen:?}");
}

#[test]
fn published_encoders_have_their_published_sizes() {
    for (name, parameters) in [("bert-base", 109_482_240), ("bert-large", 335_141_888)] {
        let json = run(&mut hearken(&["plan", "--config", name, "--json"])).succeeded();
        assert_eq!(parse(&json.stdout)["parameters"].as_u64(), Some(parameters), "{name}");
    }
}

#[test]
fn published_encoder_decoders_have_their_published_sizes() {
    // Of Vaswani et al. with a joint vocabulary of 37,000: "65" and "213" million in the paper, which
    // rounds; counted by hand, 6·(3,152,384 + 4,204,032) + 37,000·512 and the same for big.
    for (name, parameters) in [
        ("transformer-base", 63_082_496),
        ("transformer-big", 214_245_376),
        ("t5-small", 60_506_624),
        ("t5-base", 222_903_552),
    ] {
        let json = run(&mut hearken(&["plan", "--config", name, "--json"])).succeeded();
        let json = parse(&json.stdout);
        assert_eq!(json["parameters"].as_u64(), Some(parameters), "{name}");
        // Keys and values of 512 tokens of the target, and of as many of the source.
        if name == "t5-small" {
            let bytes = 2 * 6 * 512 * 2 * 512 * 4;
            assert_eq!(json["cache"]["f32"].as_u64(), Some(bytes), "{json}");
        }
    }
}

#[test]
fn gpt3_is_planned_and_not_trained() {
    let json = run(&mut hearken(&["plan", "--config", "gpt3-175b", "--json"])).succeeded();
    let json = parse(&json.stdout);
    assert_eq!(json["parameters"].as_u64(), Some(174_604_259_328));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut train = hearken(&["train", "--config", "gpt3-175b", "--out", out.to_str().unwrap()]);
    run(&mut train).refused("this would need ");
}

/// `train` without a text learns the stories, and `plan` counts their tokens.
#[test]
fn the_stories_need_no_vocabulary() {
    let ran = run(&mut hearken(&["plan", "--config", "stories"])).succeeded();
    assert!(ran.stdout.contains("46 tokens, those of the generated stories"), "{}", ran.stdout);
}

/// The default warm-up is longer than this run, which `train` takes.
#[test]
fn a_short_run_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.toml");
    let model = "[model]\nkind = \"decoder\"\ncontext = 16\nlayers = 1\nwidth = 16\nheads = 2\n";
    std::fs::write(&path, format!("{model}[train]\nsteps = 40\n")).unwrap();
    let path = path.to_str().unwrap();
    run(&mut hearken(&["plan", "--config", path, "--vocabulary", "65"])).succeeded();
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let refused = |rest: &[&str], what: &str| {
        run(&mut hearken(&[&["plan"], rest].concat())).refused(what);
    };
    refused(&["--config", "gpt2-smal"], "did you mean gpt2-small?");
    refused(&["--config", "no-such-file"], "no-such-file");
    refused(&["--batch-size", "x"], "x");
    refused(&["--tokens", "2000"], "expected 1 to 1024");
    refused(&["--tokens", "0"], "expected 1 to 1024");
    refused(&["--batch-size", "0"], "hint: change --batch-size");
    refused(&["--optimizer", "adamx"], "adamw");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let base = "[model]\nkind = \"decoder\"\ncontext = 8\nlayers = 1\nwidth = 8\nheads = 2\n";
    let open = format!("{base}[data]\npaths = [\"book.txt\"]\n");
    refused(&["--config", &file("open.toml", &open)], "--vocabulary");
    refused(&["--batch-size", "1000000"], "at most 16777216 at the same time");
    let uneven = base.replace("heads = 2", "heads = 3");
    refused(&["--config", &file("heads.toml", &uneven)], "does not divide model.width 8");
    let misspelt = base.replace("heads", "haeds");
    refused(&["--config", &file("key.toml", &misspelt)], "did you mean heads?");
    let train = format!("{base}[train]\nbatch_siez = 3\n");
    refused(&["--config", &file("train.toml", &train)], "did you mean batch_size?");
}
