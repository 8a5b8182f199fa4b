//! Encoder-decoders: trained on pairs, used by `translate`, judged by `eval`.

use super::{hearken, with_model};
use crate::common::{ran, run};
use hearken::data::conversions;
use hearken::data::tokenizer::Special;
use hearken::formats::{SpecialTokens, save};
use hearken::nn::config::EncoderDecoderConfig;
use hearken::nn::models::EncoderDecoder;
use hearken::nn::variants;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A directory with an encoder-decoder that knows the words of dates and numbers.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let tokenizer = conversions::tokenizer();
    let vocabulary = tokenizer.vocabulary_size();
    let config = EncoderDecoderConfig { vocabulary, ..variants::encoder_decoder() };
    let model = EncoderDecoder::drawn(config, 3);
    let special = SpecialTokens {
        begin: tokenizer.special(Special::Pad),
        ends: tokenizer.special(Special::Eos).into_iter().collect(),
        pad: tokenizer.special(Special::Pad),
        ..SpecialTokens::default()
    };
    save(directory.path(), &model, &special).unwrap();
    tokenizer.save_directory(directory.path()).unwrap();
    directory
}

fn translate(directory: &Path, rest: &[&str]) -> Command {
    with_model(&["translate"], directory, rest)
}

fn lines(command: &mut Command) -> Vec<String> {
    run(command).succeeded().stdout.lines().map(str::to_owned).collect()
}

fn json(command: &mut Command) -> Vec<Value> {
    lines(command).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn texts_files_and_standard_input_give_the_same() {
    let dir = directory();
    let texts = ["one million and five", "", "the third of March 2021"];
    let file = dir.path().join("texts.txt");
    std::fs::write(&file, texts.join("\n")).unwrap();
    let short = ["--tokens", "6"];
    let want = lines(&mut translate(dir.path(), &[&short[..], &[file.to_str().unwrap()]].concat()));
    assert_eq!((want.len(), want[1].as_str()), (3, ""));
    assert!(!want[0].is_empty() && !want[2].is_empty(), "{want:?}");
    for rest in [&["-"][..], &[]] {
        let mut child = translate(dir.path(), &[&short[..], rest].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(texts.join("\n").as_bytes()).unwrap();
        let piped = ran(child.wait_with_output().unwrap()).succeeded();
        assert_eq!(piped.stdout.lines().collect::<Vec<_>>(), want, "{rest:?}");
    }
    let given =
        lines(&mut translate(dir.path(), &[&short[..], &["--text", texts[0], texts[2]]].concat()));
    assert_eq!(given, [want[2].clone(), want[0].clone()], "files and texts first, then --text");
    let json = json(&mut translate(
        dir.path(),
        &[&short[..], &[file.to_str().unwrap(), "--json"]].concat(),
    ));
    let found: Vec<&str> = json.iter().map(|value| value["text"].as_str().unwrap()).collect();
    assert_eq!(found, want);
    assert_eq!(json[1]["candidates"], serde_json::json!([]));
    // A text that is longer than the context is cut, and counted.
    let long = run(&mut translate(dir.path(), &["--tokens", "2", &"one ".repeat(40)])).succeeded();
    assert!(long.stderr.contains("the text is longer than 24 tokens"), "{}", long.stderr);
    std::fs::write(&file, format!("one\n\n{}\none\n", "one ".repeat(40))).unwrap();
    let long = run(&mut translate(dir.path(), &["--tokens", "2", file.to_str().unwrap()]));
    let said = "note: 1 text was longer than 24 tokens, and cut; the first is ";
    let stderr = long.succeeded().stderr;
    assert!(stderr.contains(said) && stderr.contains("texts.txt, line 3"), "{stderr}");
}

#[test]
fn empty_texts_keep_their_place_and_empty_records_have_none() {
    let dir = directory();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = file("plain.txt", "one\n\ntwo\n");
    let search = ["--tokens", "4", "--beams", "2", "--n-best", "2"];
    let found = lines(&mut translate(dir.path(), &[&search[..], &[&plain]].concat()));
    assert_eq!(found.len(), 5, "{found:?}");
    assert_eq!(found[2], "2\t0.0000\t");
    assert!(found[3].starts_with("3\t-") && found[4].starts_with("3\t-"), "{found:?}");
    let records = file("records.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"two\"}\n\n");
    let found = lines(&mut translate(dir.path(), &["--tokens", "4", &records]));
    assert_eq!(found, lines(&mut translate(dir.path(), &["--tokens", "4", "one", "two"])));
}

#[test]
fn what_would_do_nothing_is_refused() {
    let dir = directory();
    let refused = |rest: &[&str], what: &str| run(&mut translate(dir.path(), rest)).refused(what);
    let nothing = "with a temperature of 0, at which nothing is drawn";
    for flag in ["--samples", "--top-k", "--top-p", "--seed"] {
        refused(&["-t", "0", flag, "1", "one"], &format!("{flag} {nothing}"));
    }
    // Without a temperature they mean 1.
    let drawn = |rest: &[&str]| {
        json(&mut translate(dir.path(), &[&["--json", "--samples", "4", "one"], rest].concat()))
    };
    assert_eq!(drawn(&[]), drawn(&["-t", "1"]));
    let candidates = &drawn(&[])[0]["candidates"];
    let texts: std::collections::BTreeSet<_> =
        candidates.as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert!(texts.len() > 1, "{candidates}");
    refused(&["--layer", "0", "one"], "--layer chooses an alignment, and none is shown");
    refused(&["--head", "0", "one"], "--head chooses an alignment, and none is shown");
    refused(&["--svg", "a.svg", "--text", " "], "the text is empty");
    refused(&["--length-penalty", "3", "one"], "--length-penalty chooses between translations");
    refused(&["--field", "src", "one"], "--field names a key of JSON lines");
    // What is read is not replaced.
    let weights = dir.path().join("model.safetensors");
    let before = std::fs::read(&weights).unwrap();
    refused(&["--svg", weights.to_str().unwrap(), "one"], "is inside the model directory");
    assert_eq!(std::fs::read(&weights).unwrap(), before);
    let folder = dir.path().to_str().unwrap();
    refused(&[folder], "is a directory, expected a file with a text per line");
    let eval = |rest: &[&str], what: &str| {
        run(&mut with_model(&["eval"], dir.path(), rest)).refused(what);
    };
    for flag in ["--stride", "--context", "--validation", "--shots"] {
        eval(
            &[flag, "0.5"].map(|x| if flag == "--validation" || x == flag { x } else { "3" }),
            flag,
        );
    }
    eval(&["--field", "x"], "--field names a field of rows, and there are none");
    eval(&["--data", "a.en", "--target", "a.es", "--label", "x"], "--label names a field of rows");
    eval(&["--calibration"], "--calibration is for a language model or an encoder");
    eval(&["--target", "a.es"], "no texts are named");
    let decoder = super::model_directory();
    let misfits: [&[&str]; 3] =
        [&["--source", "a.en", "--target", "a.es"], &["--beams", "2"], &["--label", "x"]];
    for rest in misfits {
        let what = "and this model is a language model";
        run(&mut with_model(&["eval"], decoder.path(), rest)).refused(what);
    }
}

#[test]
fn beams_samples_and_the_best_of_them() {
    let dir = directory();
    let text = "two thousand and five";
    let of = |rest: &[&str]| json(&mut translate(dir.path(), &[&["--json", text], rest].concat()));
    let greedy = of(&[]);
    assert_eq!(of(&["--beams", "1"])[0]["text"], greedy[0]["text"]);
    let scores = |value: &Value| -> Vec<f64> {
        let all = value["candidates"].as_array().unwrap();
        all.iter().map(|candidate| candidate["score"].as_f64().unwrap()).collect()
    };
    let four = of(&["--beams", "4"]);
    assert_eq!(scores(&four[0]).len(), 4);
    assert!(scores(&four[0]).is_sorted_by(|a, b| a >= b), "{four:?}");
    assert!(four[0]["score"].as_f64() >= greedy[0]["score"].as_f64());
    assert_eq!(scores(&of(&["--beams", "4", "--n-best", "2"])[0]).len(), 2);
    let sampled = ["--temperature", "1", "--samples", "3", "--seed", "5"];
    assert_eq!(of(&sampled), of(&sampled));
    assert_eq!(scores(&of(&sampled)[0]).len(), 3);
    let plain = lines(&mut translate(dir.path(), &["--beams", "3", "--n-best", "2", text]));
    assert_eq!(plain.len(), 2);
    assert!(plain.iter().all(|line| line.starts_with("1\t-")), "{plain:?}");
}

#[test]
fn an_alignment_is_a_table_a_picture_and_json() {
    let dir = directory();
    let text = "the third of March";
    let picture = dir.path().join("alignment.svg");
    let svg = picture.to_str().unwrap();
    let shown =
        run(&mut translate(dir.path(), &["--tokens", "4", "--show-alignment", "--svg", svg, text]))
            .succeeded();
    assert!(shown.stdout.contains("layer 1, mean over heads"), "{}", shown.stdout);
    assert!(shown.stdout.contains("March") && shown.stdout.contains("</s>"), "{}", shown.stdout);
    let drawn = std::fs::read_to_string(&picture).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains(">March</text>"), "{drawn}");
    let rest = ["--tokens", "4", "--show-alignment", "--layer", "0", "--head", "2", "--json", text];
    let found = &json(&mut translate(dir.path(), &rest))[0]["alignment"];
    assert_eq!(found["source"], serde_json::json!(["the", "third", "of", "March", "</s>"]));
    let weights = found["weights"].as_array().unwrap();
    assert_eq!(weights.len(), found["target"].as_array().unwrap().len());
    for row in weights {
        let row = row.as_array().unwrap();
        let sum: f64 = row.iter().map(|weight| weight.as_f64().unwrap()).sum();
        assert!(row.len() == 5 && (sum - 1.0).abs() < 1e-5, "{row:?}");
    }
    let refused = |rest: &[&str], what: &str| run(&mut translate(dir.path(), rest)).refused(what);
    refused(&["--show-alignment", "--layer", "7", text], "no layer 7");
    refused(&["--show-alignment", "--head", "9", text], "there is no head 9");
    refused(&["--svg", svg, text, "one"], "--svg draws one alignment, and there are 2 texts");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = directory();
    let refused = |rest: &[&str], what: &str| run(&mut translate(dir.path(), rest)).refused(what);
    refused(&["--n-best", "2", "one"], "--n-best 2 of 1 translations");
    refused(&["--beams", "0", "one"], "0 beams, expected 1 to 1024");
    refused(&["--tokens", "0", "one"], "translations of 0 tokens");
    refused(&["nowhere.txt"], "there is no file nowhere.txt");
    refused(&["--temperature", "-1", "one"], "temperature");
    let decoder = super::model_directory();
    run(&mut translate(decoder.path(), &["one"])).refused("cannot translate");
}

/// Words and the same words backwards, with a line that has only one side.
fn pairs() -> String {
    let words = ["one", "two", "three", "four"];
    let line = |i: usize| {
        let [a, b, c] = [i % 4, i / 4 % 4, i / 16 % 4].map(|j| words[j]);
        format!("{a} {b} {c}\t{c} {b} {a}\n")
    };
    (0..64).map(line).collect::<String>() + "five\t\n"
}

const SMALL: [&str; 12] = [
    "--layers",
    "1",
    "--width",
    "16",
    "--heads",
    "2",
    "--context",
    "24",
    "--batch-size",
    "8",
    "--set",
    "data.vocabulary=270",
];

#[test]
fn pairs_are_learned_judged_and_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let here = |rest: &[&str]| {
        let mut command = hearken(rest);
        command.current_dir(dir.path());
        command
    };
    std::fs::write(dir.path().join("pairs.tsv"), pairs()).unwrap();
    let train = [&["train", "--config", "translation", "--data", "pairs.tsv"][..], &SMALL].concat();
    let first =
        run(&mut here(&[&train[..], &["--steps", "4", "--out", "first"]].concat())).succeeded();
    let said = "1 pair has an empty side and is left out; the first is pairs.tsv, line 65";
    assert!(first.stderr.contains(said), "{}", first.stderr);
    assert!(first.stderr.contains("hearken translate --model first"), "{}", first.stderr);
    let eval = |rest: &[&str]| -> Value {
        let ran = run(&mut here(&[&["eval", "--model", "first", "--json"], rest].concat()));
        serde_json::from_str(&ran.succeeded().stdout).unwrap()
    };
    let held = eval(&[]);
    assert_eq!(held["translated"], 6);
    for name in ["loss", "perplexity", "exact_match", "bleu", "chrf"] {
        assert!(held["metrics"][name].is_f64(), "{name}: {held}");
    }
    assert!(held["signatures"]["bleu"].as_str().unwrap().contains("tok:13a|smooth:exp"));
    assert!(held["copy_the_source"]["chrf"].as_f64().unwrap() > 0.0, "{held}");
    assert_eq!(eval(&["--data", "pairs.tsv", "--beams", "2"])["translated"], 64);
    // The same pairs in two files.
    let side = |i: usize| -> String {
        let all = pairs();
        let lines: Vec<&str> = all.lines().map(|line| line.split('\t').nth(i).unwrap()).collect();
        lines.join("\n") + "\n"
    };
    std::fs::write(dir.path().join("a.en"), side(0)).unwrap();
    std::fs::write(dir.path().join("a.es"), side(1)).unwrap();
    let both = eval(&["--data", "a.en", "--target", "a.es"]);
    assert_eq!(both["metrics"], eval(&["--data", "pairs.tsv"])["metrics"]);
    let plain = run(&mut here(&["eval", "--model", "first"])).succeeded().stdout;
    assert!(plain.contains("if the source is copied") && plain.contains("written"), "{plain}");
    // Go on from it with other pairs, and with text of which spans are taken out.
    let two =
        ["train", "--init", "first", "--source", "a.en", "--target", "a.es", "--out", "second"];
    run(&mut here(&two)).succeeded();
    let config = std::fs::read_to_string(dir.path().join("second/config.toml")).unwrap();
    assert!(config.contains("steps = 6\n") && config.contains("width = 16"), "{config}");
    run(&mut here(&["train", "--resume", "second", "--steps", "7", "--quiet"])).succeeded();
    std::fs::write(dir.path().join("book.txt"), side(0).repeat(4)).unwrap();
    let denoise = ["train", "--task", "denoise", "--data", "book.txt", "--out", "third"];
    let vocabulary = ["--set", "data.vocabulary=380", "--steps", "2", "--quiet"];
    let denoised = run(&mut here(&[&denoise[..], &SMALL[..10], &vocabulary].concat())).succeeded();
    assert!(denoised.stdout.contains("validation loss "), "{}", denoised.stdout);
    let judged = run(&mut here(&["eval", "--model", "third", "--json"])).succeeded().stdout;
    let judged: Value = serde_json::from_str(&judged).unwrap();
    assert!(judged["metrics"]["loss"].is_f64() && judged["metrics"]["bleu"].is_null(), "{judged}");
    // It may be judged by pairs, too; without them there is nothing to search.
    let with = |rest: &[&str]| run(&mut here(&[&["eval", "--model", "third"], rest].concat()));
    assert!(with(&["--data", "pairs.tsv"]).succeeded().stdout.contains("if the source is copied"));
    with(&["--beams", "2"]).refused("nothing to search");
    with(&["--data", "book.txt", "--target", "missing.es"]).refused("missing.es");
    // What --init would ignore is refused; dropout is kept.
    let mut layers = here(&[&two[..7], &["--out", "fourth", "--layers", "3"]].concat());
    run(&mut layers).refused("model.layers is set, and first is taken as it is");
    let dropout = [&two[..7], &["--out", "fourth", "--dropout", "0.25", "--steps", "1"]].concat();
    run(&mut here(&dropout)).succeeded();
    let config = std::fs::read_to_string(dir.path().join("fourth/config.toml")).unwrap();
    assert!(config.contains("attention = 0.25"), "{config}");
}

#[test]
fn bad_pairs_are_named_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |files: &[(&str, &str)], rest: &[&str], what: &str| {
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let own = rest.contains(&"--config");
        let config: &[&str] = if own { &[] } else { &["--config", "translation"] };
        let mut command = hearken(&[&["train"], config, rest].concat());
        run(command.current_dir(dir.path())).refused(what);
        assert!(
            !dir.path().join("runs").exists()
                || dir.path().join("runs").read_dir().unwrap().next().is_none()
        );
    };
    refused(
        &[("a.tsv", "one\tuno\ntwo\n")],
        &["--data", "a.tsv"],
        "a.tsv, line 2: 1 fields, expected 2",
    );
    refused(
        &[("a.en", "one\ntwo\n"), ("a.es", "uno\n")],
        &["--source", "a.en", "--target", "a.es"],
        "a.en, line 2: a.es has no line 2, and a.en has",
    );
    refused(
        &[("b.jsonl", "{\"source\": \"x\"}\n")],
        &["--data", "b.jsonl"],
        "b.jsonl, line 1: the field \"target\" is missing",
    );
    refused(
        &[("c.txt", "plain text\n")],
        &["--data", "c.txt"],
        "c.txt holds no pairs of source and target",
    );
    refused(&[], &["--source", "a.en"], "--target");
    refused(&[], &[], "for pairs of your own, and none are named");
    refused(&[], &["--task", "denoise"], "no text to take spans out of");
    // Targets that would not be read.
    let both = ["--source", "a.en", "--target", "a.es"];
    refused(&[], &[&both[..], &["--config", "nanogpt-cpu"]].concat(), "is no encoder-decoder");
    refused(&[], &[&both[..], &["--task", "denoise"]].concat(), "learns from sources alone");
    for config in ["stories", "story-labels", "gru-small"] {
        let rest = ["--config", config, "--task", "denoise"];
        refused(&[], &rest, "cannot write what was taken out of a text");
    }
    let prefix = ["--config", "stories", "--set", "data.prefix={kind=\"separator\",text=\".\"}"];
    refused(&[], &prefix, "set model.prefix=true");
    refused(&[], &["--config", "dates", "--task", "classes"], "--task classes is for encoders");
    let short = ["--config", "dates", "--set", "data.most_tokens=4"];
    refused(&[], &short, "data.most_tokens is for texts of your own");
}

#[test]
fn sources_may_be_tokens() {
    let dir = directory();
    let tokenizer = conversions::tokenizer();
    let text = "the third of March 2021";
    let mut ids = tokenizer.encode(text).unwrap();
    ids.extend(tokenizer.special(Special::Eos));
    let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let given = ["--tokens", "6", "--json", "--show-alignment"];
    let said = |rest: &[&str]| json(&mut translate(dir.path(), &[&given[..], rest].concat()));
    let (of_text, of_ids) = (said(&[text]), said(&["--ids", &ids, "--ids", &ids]));
    assert_eq!([&of_text[0], &of_text[0]], [&of_ids[0], &of_ids[1]]);
    std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    let alone = said(&["--ids", &ids]);
    assert_eq!(alone[0]["ids"], of_text[0]["ids"]);
    assert!(alone[0]["text"].is_null() && !alone[0]["ids"].as_array().unwrap().is_empty());
    let numbers: Vec<String> =
        alone[0]["ids"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(
        lines(&mut translate(dir.path(), &["--tokens", "6", "--ids", &ids])),
        [numbers.join(",")]
    );
    // Beams that the directory asks for are offered, and not taken unasked.
    let path = dir.path().join("generation_config.json");
    let mut asked: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    asked["num_beams"] = 4.into();
    std::fs::write(&path, asked.to_string()).unwrap();
    let short = ["--tokens", "6", "--ids", &ids];
    let noted = run(&mut translate(dir.path(), &short)).succeeded();
    assert!(noted.stderr.contains("asks for 4 beams; --beams 4"), "{}", noted.stderr);
    assert_eq!(noted.stdout.trim_end(), numbers.join(","));
    let taken = run(&mut translate(dir.path(), &[&short[..], &["--beams", "2"]].concat()));
    assert!(!taken.succeeded().stderr.contains("asks for"));
    std::fs::remove_file(path).unwrap();
    for (rest, what) in [
        (&[text][..], "with --ids"),
        (&["--ids", "99999"], "there is no token 99999"),
        (&["--ids", "1,2", text], "cannot be used with"),
        (&["--ids", "x"], "is no token"),
    ] {
        run(&mut translate(dir.path(), rest)).refused(what);
    }
}

#[test]
fn a_byte_order_mark_is_no_text() {
    let dir = directory();
    let text = "the third of March\n";
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (plain, marked) =
        (write("a.txt", text.to_owned()), write("b.txt", format!("\u{feff}{text}")));
    let said = |file: &str| lines(&mut translate(dir.path(), &["--tokens", "4", file]));
    assert_eq!(said(&plain), said(&marked));
}
