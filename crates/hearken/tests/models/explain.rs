//! `hearken explain`, end to end.

use crate::common::run;
use crate::{model_directory, parse, with_model, write_model};
use hearken::nn::models::{PredictsTokens, Tokens};

#[test]
fn the_numbers_are_those_of_the_model_and_the_file_stays_as_it_is() {
    let directory = model_directory();
    let model = write_model(directory.path());
    let weights = || std::fs::read(directory.path().join("model.safetensors")).unwrap();
    let before = weights();
    let rest = ["--prompt", "abc", "--target", "d", "--json"];
    let ran = run(&mut with_model(&["explain"], directory.path(), &rest)).succeeded();
    let json = parse(&ran.stdout);
    let stages = json["stages"].as_array().unwrap();
    let stage = |name: &str| stages.iter().find(|stage| stage["name"] == name).unwrap();
    let ids: Vec<u32> = json["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["id"].as_u64().unwrap() as u32)
        .collect();
    let want = model.logits(&Tokens::new(&ids, 1));
    for (got, want) in stage("logits")["values"].as_array().unwrap().iter().zip(want.data()) {
        assert!((got.as_f64().unwrap() - f64::from(*want)).abs() < 1e-5);
    }
    assert!(stage("embedding")["gradient_norm"].as_f64().unwrap() > 0.0);
    assert!(stage("blocks.0.attention.weights")["arithmetic"].as_str().unwrap().contains("e^"));
    // A step lowers the loss in memory alone.
    let update = &json["update"];
    assert!(update["loss_after"].as_f64() < update["loss_before"].as_f64(), "{update}");
    assert_eq!(weights(), before);
    let sum: f64 = json["contributions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["logit"].as_f64().unwrap())
        .sum();
    let target = model.logits(&Tokens::new(&ids, 1));
    let id = 5; // "d" is the sixth of the characters
    assert!((sum - f64::from(target.data()[2 * 29 + id])).abs() < 1e-4);
}

#[test]
fn the_flow_is_told_in_the_terminal() {
    let directory = model_directory();
    let rest = ["--prompt", "abc", "--target", "d", "--layer", "1", "--head", "2", "--column", "1"];
    let ran = run(&mut with_model(&["explain"], directory.path(), &rest)).succeeded();
    for part in [
        "tokens",
        "embedding",
        "blocks.1.attention.scores (4, 3, 3)",
        "e^",
        "∂L",
        "logit lens",
        "drawn",
        "−ln",
        "silenced",
        "AdamW",
    ] {
        assert!(ran.stdout.contains(part), "'{part}' is not in:\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("blocks.0.norm1"), "only the chosen block is shown");
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let directory = model_directory();
    for (rest, what) in [
        (&["--prompt", "abc", "--layer", "7"][..], "no block 7"),
        (&["--prompt", ""], "empty prompt"),
        (&["--ids", "1,99"], "no token 99"),
        (&["--prompt", "abc", "--target", "de"], "expected one"),
        (&["--prompt", "abc", "--temperature=-1"], "temperature"),
        (&["--prompt", "abcdefghijklmnopqrstuvw"], "expected 1 to 16"),
        (&["--prompt", "abc", "--lr", "0"], "learning rate"),
    ] {
        run(&mut with_model(&["explain"], directory.path(), rest)).refused(what);
    }
}

#[test]
fn the_page_is_written_to_one_file_and_served_on_this_machine_only() {
    use std::io::{BufRead, BufReader, Read, Write};
    let directory = model_directory();
    let file = directory.path().join("page.html");
    let out = file.display().to_string();
    let rest = ["--prompt", "abc", "--target", "d", "--out", &out];
    run(&mut with_model(&["explain"], directory.path(), &rest)).succeeded();
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("RECORDED"));

    let mut command = with_model(&["explain"], directory.path(), &["--page"]);
    let command = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let host = address.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    assert!(host.starts_with("127.0.0.1:"), "{address}");
    let mut stream = std::net::TcpStream::connect(&host).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("hearken"), "{answer:.200}");
    run(&mut with_model(&["explain"], directory.path(), &["--page", "--json"])).refused("--json");
}

#[test]
fn neurons_are_listed_and_shown_with_the_texts_that_excite_them() {
    let directory = model_directory();
    write_model(directory.path());
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "abcabd bca\ncab dab cad bad\n".repeat(20)).unwrap();
    let ask = |rest: &[&str]| {
        let rest = [&["--layer", "1", "--data", text.to_str().unwrap()], rest].concat();
        run(&mut with_model(&["inspect", "neuron"], directory.path(), &rest))
    };
    let json = parse(&ask(&["--neuron", "5", "--top", "3", "--json"]).succeeded().stdout);
    assert_eq!(json["stage"], "blocks.1.feed_forward.active");
    let places = json["neurons"][0]["places"].as_array().unwrap();
    assert_eq!((places.len(), &json["neurons"][0]["neuron"]), (3, &serde_json::json!(5)));
    let values: Vec<f64> = places.iter().map(|place| place["value"].as_f64().unwrap()).collect();
    assert!(values.windows(2).all(|pair| pair[0] >= pair[1]), "{values:?}");
    assert_eq!(places[0]["context"]["token"].as_str().unwrap().chars().count(), 1);
    let listed = parse(&ask(&["--top", "4", "--json"]).succeeded().stdout);
    let selective: Vec<f64> = listed["neurons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|neuron| neuron["selectivity"].as_f64().unwrap())
        .collect();
    assert!(selective.len() == 4 && selective.windows(2).all(|pair| pair[0] >= pair[1]));
    let told = ask(&["--neuron", "5", "--top", "3"]).succeeded().stdout;
    assert!(told.contains("neuron 5: ") && told.matches('[').count() >= 3, "{told}");
    let told = ask(&["--top", "2"]).succeeded().stdout;
    assert!(told.contains("the token that excites it most"), "{told}");
    ask(&["--neuron", "99999"]).refused("there is no neuron 99999");
    ask(&["--top", "0"]).refused("--top 0");
    let layer = ["--layer", "7", "--data", text.to_str().unwrap()];
    run(&mut with_model(&["inspect", "neuron"], directory.path(), &layer))
        .refused("there is no block 7");
    let none = ["--neuron", "5"];
    run(&mut with_model(&["inspect", "neuron"], directory.path(), &none)).refused("--data FILE");
}
