//! The server as strangers meet it, and the answers of a session.

use hearken_data::{repeats, stories};
use hearken_explain::Flow;
use hearken_nn::config::{DecoderConfig, EncoderConfig, StackConfig};
use hearken_nn::models::{Decoder, Encoder, Model};
use hearken_nn::variants;
use hearken_page::{MOST_BODY, Session, Subject, Texts, export, serve};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

const IDS: [u32; 7] = [1, 5, 2, 6, 1, 5, 2];

fn decoder() -> Decoder {
    let config =
        DecoderConfig { vocabulary: 27, ..DecoderConfig::new(64, StackConfig::new(2, 64, 4)) };
    Decoder::drawn(config, 3)
}

fn subject(model: impl Model + 'static) -> Subject {
    let tokenizer = (model.config().vocabulary() == 27).then(repeats::tokenizer);
    let name = "a test".to_owned();
    let model = Box::new(model);
    let (ids, texts) = (IDS.to_vec(), Texts::default());
    Subject {
        model,
        tokenizer,
        name,
        ids,
        begin: None,
        target: None,
        most_bytes: None,
        sources: None,
        texts,
    }
}

#[test]
fn words_are_a_text_again_with_blanks_between_them() {
    let tokenizer = stories::word_tokenizer();
    let vocabulary = tokenizer.vocabulary_size();
    let config = EncoderConfig { vocabulary, ..variants::encoder() };
    let mut subject = subject(Encoder::drawn(config, 3));
    subject.tokenizer = Some(tokenizer);
    let mut session = Session::new(&subject).unwrap();
    let tokens = ask(&mut session, "tokens", json!({ "text": "Mia the fox saw" }));
    assert_eq!(
        (&tokens["text"], tokens["ids"].as_array().unwrap().len()),
        (&json!("Mia the fox saw"), 4)
    );
    let unknown = ask(&mut session, "tokens", json!({ "text": "Mia the unicorn" }));
    assert_eq!(unknown["text"], "Mia the [UNK]");
}

/// Numbers of an answer, from their bits.
fn floats(text: &Value) -> Vec<f32> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sixes = text.as_str().unwrap().bytes().filter(|b| *b != b'=');
    let sixes = sixes.map(|b| LETTERS.iter().position(|l| *l == b).unwrap() as u32);
    let bits: Vec<u32> = sixes.collect();
    let mut bytes = Vec::new();
    for four in bits.chunks(4) {
        let all = four.iter().enumerate().fold(0, |sum, (i, six)| sum | six << (18 - 6 * i));
        bytes.extend((0..four.len() - 1).map(|i| (all >> (16 - 8 * i)) as u8));
    }
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "calls write the question where they ask it")]
fn ask(session: &mut Session<'_>, name: &str, body: Value) -> Value {
    session.answer(name, &body).unwrap_or_else(|error| panic!("{name} {body}: {error}"))
}

#[test]
fn tensors_and_gradients_are_those_of_the_flow_to_the_bit() {
    let subject = subject(decoder());
    let mut session = subject.session().unwrap();
    let target = Some((6, 3));
    let flow = Flow::of(subject.model.as_ref(), &IDS, target, None).unwrap();
    let run = ask(&mut session, "run", json!({ "ids": IDS, "target": [6, 3] }));
    assert_eq!(run["stages"].as_array().unwrap().len(), flow.stages.len());
    assert_eq!(run["loss"].as_f64().unwrap() as f32, flow.loss.unwrap());
    for stage in &flow.stages {
        let heads = if stage.shape.len() == 3 { stage.shape[0] } else { 1 };
        let mut seen = [Vec::new(), Vec::new()];
        for head in 0..heads {
            for (seen, gradient) in seen.iter_mut().zip([false, true]) {
                let body = json!({ "ids": IDS, "target": [6, 3], "name": stage.name, "head": head,
                    "gradient": gradient });
                seen.extend(floats(&ask(&mut session, "tensor", body)["cells"]));
            }
        }
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&seen[0]), bits(stage.value.data()), "{}", stage.name);
        let gradient = stage.gradient.as_ref().unwrap();
        assert_eq!(bits(&seen[1]), bits(gradient.data()), "{}", stage.name);
    }
}

#[test]
fn every_question_is_answered_and_bad_ones_are_errors() {
    let subject = subject(decoder());
    let mut session = subject.session().unwrap();
    let ids = json!(IDS);
    let model = ask(&mut session, "model", json!({}));
    assert_eq!(model["stack"]["heads"], 4);
    let tokens = ask(&mut session, "tokens", json!({ "text": "abc" }));
    assert_eq!((&tokens["ids"], &tokens["tokens"][2]["bytes"]), (&json!([1, 2, 3]), &json!([99])));
    assert_eq!(tokens["text"], "abc");
    let name = "blocks.1.attention.weights";
    let number = json!({ "ids": ids, "name": name, "head": 2, "row": 5, "column": 3 });
    let number = ask(&mut session, "number", number);
    assert!(number["arithmetic"]["text"].as_str().unwrap().contains("e^"), "{number}");
    assert_eq!(number["arithmetic"]["terms"]["kind"], "softmax");
    let heads = ask(&mut session, "heads", json!({ "ids": ids, "site": "blocks.1.attention" }));
    assert_eq!(heads["heads"].as_array().unwrap().len(), 4);
    let stream = ask(&mut session, "stream", json!({ "ids": ids, "place": 3, "token": 4 }));
    let parts = stream["contributions"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| part["logit"].as_f64().unwrap()).sum();
    assert!((sum - stream["logit"].as_f64().unwrap()).abs() < 1e-4);
    assert_eq!(
        ask(&mut session, "lens", json!({ "ids": ids }))["rows"].as_array().unwrap().len(),
        5
    );
    let sample = json!({ "ids": ids, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1 });
    let sample = ask(&mut session, "sample", sample);
    assert!(sample["left"]["top_k"] == 5 && sample["chosen"]["id"].is_u64());
    assert_eq!(floats(&ask(&mut session, "logits", json!({ "ids": ids }))["logits"]).len(), 27);
    let cache = ask(&mut session, "cache", json!({ "ids": ids }));
    assert!(cache["difference"].as_f64().unwrap() < 1e-5, "{cache}");
    assert_eq!(cache["bytes_per_token"], 2 * 4 * (16 + 16) * 4);
    let changes = json!([{ "ablate": "blocks.0.attention.mixed[1]" },
        { "ablate": "blocks.0.feed_forward.active", "column": 3 },
        { "patch": "blocks.0.residual_after", "other": [1, 2, 3, 4, 5, 6, 7], "places": [2] },
        { "edit": "blocks.0.norm1.weight", "index": 1, "value": 0.5 }]);
    let body = json!({ "ids": ids, "target": [6, 3], "changes": changes });
    let changed = ask(&mut session, "intervene", body);
    assert!(changed["divergence"].as_f64().unwrap() > 0.0);
    let again = json!({ "ids": ids, "target": [6, 3], "changes": [] });
    assert_eq!(ask(&mut session, "intervene", again)["divergence"], 0.0, "nothing is left of it");
    let effects = json!({ "ids": ids, "target": [6, 3], "layer": 1 });
    assert_eq!(ask(&mut session, "effects", effects)["heads"].as_array().unwrap().len(), 4);
    let near = ask(&mut session, "nearest", json!({ "sum": [[1, 3], [-1, 4]], "count": 5 }));
    assert_eq!(near["nearest"].as_array().unwrap().len(), 5);
    let plane = ask(&mut session, "plane", json!({ "ids": ids }));
    assert_eq!(plane["points"].as_array().unwrap().len(), 27);

    for (name, body) in [
        ("run", json!({})),
        ("run", json!({ "ids": [] })),
        ("run", json!({ "ids": "x" })),
        ("run", json!({ "ids": [-1] })),
        ("run", json!({ "ids": [99999] })),
        ("run", json!({ "ids": vec![1; 65] })),
        ("run", json!({ "ids": ids, "target": [9, 1] })),
        ("run", json!({ "ids": ids, "target": [1] })),
        ("tensor", json!({ "ids": ids, "name": "nothing" })),
        ("tensor", json!({ "ids": ids, "name": "norm", "gradient": true })),
        ("tensor", json!({ "ids": ids, "name": "norm", "rows": [1] })),
        ("number", json!({ "name": "nothing", "parameter": true })),
        ("heads", json!({ "ids": ids, "site": "blocks.9.attention" })),
        ("stream", json!({ "ids": ids, "place": 70 })),
        ("stream", json!({ "ids": ids, "token": 7000 })),
        ("sample", json!({ "ids": ids, "temperature": -1 })),
        ("sample", json!({ "ids": ids, "top_p": 7 })),
        ("check", json!({ "ids": ids, "name": "norm", "index": 1 })),
        ("check", json!({ "ids": ids, "target": [6, 3], "name": "norm", "index": 100_000_000 })),
        ("update", json!({ "action": "dance" })),
        ("update", json!({ "action": "step", "ids": ids })),
        ("update", json!({ "lr": 0 })),
        ("update", json!({ "name": "nothing" })),
        ("intervene", json!({ "ids": ids, "changes": [{}] })),
        ("intervene", json!({ "ids": ids, "changes": [{ "ablate": "a[" }] })),
        ("intervene", json!({ "ids": ids, "changes": [{ "ablate": "nothing" }] })),
        (
            "intervene",
            json!({ "ids": ids, "changes": [{ "patch": "norm", "other": [1], "places": [0] }] }),
        ),
        (
            "intervene",
            json!({ "ids": ids, "changes": [{ "edit": "norm.weight", "index": 9999, "value": 1 }] }),
        ),
        ("effects", json!({ "ids": ids, "target": [6, 3], "layer": 7 })),
        ("nearest", json!({ "sum": [] })),
        ("nearest", json!({ "sum": [[1, 99999]] })),
        ("plane", json!({ "ids": [99999] })),
        ("tokens", json!({ "text": "A" })),
        ("tokens", json!({ "text": "a".repeat(100_000) })),
        ("tokens", json!({ "text": "" })),
        ("no such question", json!({})),
    ] {
        assert!(session.answer(name, &body).is_err(), "{name} {body}");
    }
}

#[test]
fn steps_are_explained_and_taken_back_to_the_bit() {
    let subject = subject(decoder());
    let bits = || -> Vec<u32> {
        let all = subject.model.parameters().iter();
        all.flat_map(|p| p.value().data().iter().map(|x| x.to_bits()).collect::<Vec<_>>()).collect()
    };
    let start = bits();
    let mut session = subject.session().unwrap();
    let name = "blocks.0.attention.qkv.weight";
    let step = json!({ "action": "step", "ids": IDS, "target": [6, 3], "lr": 0.003, "name": name,
        "index": 77 });
    let mut losses = Vec::new();
    for _ in 0..10 {
        let answer = ask(&mut session, "update", step.clone());
        losses.push(answer["step"]["after"].as_f64().unwrap());
        let change = &answer["weight"]["change"];
        let (after, computed) = (change["after"].as_f64(), change["computed"].as_f64());
        assert!((after.unwrap() - computed.unwrap()).abs() < 1e-6, "{change}");
    }
    assert!(losses[9] < losses[0] - 0.1, "{losses:?}");
    // What is shown meanwhile is of the new weights.
    let run = ask(&mut session, "run", json!({ "ids": IDS, "target": [6, 3] }));
    assert!((run["loss"].as_f64().unwrap() - losses[9]).abs() < 1e-5);
    assert_ne!(bits(), start);
    for left in (0..10).rev() {
        let answer = ask(&mut session, "update", json!({ "action": "undo" }));
        assert_eq!(answer["steps"], left);
    }
    assert_eq!(bits(), start);
    drop(session);
    let small = Subject { most_bytes: Some(1000), ..subject };
    let mut session = small.session().unwrap();
    assert_eq!(ask(&mut session, "update", json!({}))["most_steps"], 0);
    assert!(session.answer("update", &step).is_err());
}

#[test]
fn differences_agree_with_gradients_of_inner_values() {
    let subject = subject(decoder());
    let mut session = subject.session().unwrap();
    let mut checked = 0;
    for name in [
        "blocks.0.residual_before",
        "blocks.1.feed_forward.active",
        "blocks.1.attention.weights",
        "norm",
    ] {
        let body =
            json!({ "ids": IDS, "target": [6, 3], "name": name, "gradient": true, "head": 1 });
        let answer = ask(&mut session, "tensor", body);
        let gradients = floats(&answer["cells"]);
        let size = gradients.len();
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by(|a, b| gradients[*b].abs().total_cmp(&gradients[*a].abs()));
        let head = if answer["heads"] == 1 { 0 } else { size };
        // Spread over the larger half.
        for k in 0..5 {
            let index = head + order[k * size / 12];
            let check = json!({ "ids": IDS, "target": [6, 3], "name": name, "index": index });
            let found = ask(&mut session, "check", check);
            let error = found["error"].as_f64().unwrap();
            let hidden = found["hidden"].as_bool().unwrap();
            assert!(hidden || error < 1e-3, "{name}[{index}]: {found}");
            checked += usize::from(!hidden);
        }
    }
    assert!(checked >= 6, "only {checked} of 20 are above rounding");
    println!("{checked} of 20 are above rounding");
}

#[test]
fn a_long_prompt_has_single_values_on_demand() {
    let stack = StackConfig::new(2, 64, 8);
    let config = DecoderConfig { vocabulary: 27, ..DecoderConfig::new(2000, stack) };
    let subject = subject(Decoder::drawn(config, 3));
    let mut session = subject.session().unwrap();
    let ids: Vec<u32> = (0..2000).map(|i| 1 + i * 7 % 26).collect();
    let run = ask(&mut session, "run", json!({ "ids": ids }));
    assert_eq!(run["long"], true);
    let body = json!({ "ids": ids, "name": "blocks.1.attention.weights", "head": 5 });
    let map = ask(&mut session, "tensor", body.clone());
    assert_eq!(map["shape"], json!([8, 2000, 2000]));
    assert!(map["row_step"].as_u64().unwrap() > 1);
    let mut sum = 0.0;
    for first in (0..2000).step_by(500) {
        let mut window = body.clone();
        window["rows"] = json!([1400, 1402]);
        window["columns"] = json!([first, first + 500]);
        let window = ask(&mut session, "tensor", window);
        assert_eq!(window["column_step"], 1);
        sum += floats(&window["cells"]).iter().sum::<f32>();
    }
    assert!((sum - 2.0).abs() < 1e-3, "two rows of weights add up to {sum}");
    ask(&mut session, "tensor", json!({ "ids": ids, "name": "blocks.0.feed_forward.up" }));
    ask(&mut session, "heads", json!({ "ids": ids, "site": "blocks.0.attention" }));
    ask(&mut session, "stream", json!({ "ids": ids }));
    ask(&mut session, "number", json!({ "ids": ids, "name": "norm", "row": 3, "column": 2 }));
}

#[test]
fn encoders_are_looked_at_too() {
    for (name, config) in variants::encoders() {
        let subject = subject(Encoder::drawn(config, 3));
        let mut session = subject.session().unwrap();
        let run = ask(&mut session, "run", json!({ "ids": IDS }));
        assert!(!run["stages"].as_array().unwrap().is_empty(), "{name}");
        for stage in run["stages"].as_array().unwrap() {
            ask(&mut session, "tensor", json!({ "ids": IDS, "name": stage["name"] }));
            ask(&mut session, "number", json!({ "ids": IDS, "name": stage["name"] }));
        }
        assert!(session.answer("cache", &json!({ "ids": IDS })).is_err(), "{name}");
    }
}

#[test]
fn the_file_holds_the_page_and_its_answers() {
    let page = export(&subject(decoder())).unwrap();
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    assert!(page.starts_with("<!doctype html>") && page.contains("RECORDED = {"));
    assert!(!page.contains("src=") && !page.contains("href=\"style.css\""));
    assert_eq!(page.matches("</script>").count(), 1);
    export(&subject(Encoder::drawn(variants::encoders().swap_remove(0).1, 3))).unwrap();
}

fn server() -> SocketAddr {
    let (send, address) = mpsc::channel();
    std::thread::spawn(move || {
        serve(subject(decoder()), None, |address| send.send(address).unwrap()).unwrap();
    });
    address.recv_timeout(Duration::from_mins(1)).unwrap()
}

/// Status and body of a request.
fn request(address: SocketAddr, head: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let head = format!("{head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    let _ = stream.write_all(body); // a refusal may come before all is written
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

#[test]
fn strangers_are_refused_and_two_hundred_clients_are_served_or_told_to_wait() {
    let address = server();
    assert!(address.ip().is_loopback());
    let host = format!("Host: {address}");
    let post = |name: &str| format!("POST /api/{name} HTTP/1.1\r\n{host}");
    let run = json!({ "ids": IDS }).to_string();
    assert_eq!(request(address, &format!("GET / HTTP/1.1\r\n{host}"), b"").0, 200);
    assert_eq!(request(address, &format!("GET /main.js HTTP/1.1\r\n{host}"), b"").0, 200);
    assert_eq!(request(address, &format!("GET /../Cargo.toml HTTP/1.1\r\n{host}"), b"").0, 404);
    assert_eq!(request(address, "GET / HTTP/1.1\r\nHost: evil.example", b"").0, 403);
    assert_eq!(request(address, "GET / HTTP/1.1\r\nHost: 127.0.0.1", b"").0, 403);
    let foreign = format!("{}\r\nOrigin: http://evil.example", post("run"));
    assert_eq!(request(address, &foreign, run.as_bytes()).0, 403);
    let own = format!("{}\r\nOrigin: http://{address}", post("run"));
    assert_eq!(request(address, &own, run.as_bytes()).0, 200);
    assert_eq!(request(address, &post("nothing"), b"{}").0, 404);
    assert_eq!(request(address, &format!("GET /api/run HTTP/1.1\r\n{host}"), b"").0, 405);
    let deep = "[".repeat(100_000);
    for bad in ["", "[]", "{", "null", "{\"ids\": [1e99]}", "\u{0}", deep.as_str()] {
        assert_eq!(request(address, &post("run"), bad.as_bytes()).0, 400, "{bad:.20}");
    }
    assert_eq!(request(address, &post("run"), &vec![b' '; MOST_BODY + 1]).0, 413);
    let (status, told) = request(address, &post("run"), b"{\"ids\": [99999]}");
    assert!(status == 400 && told.contains("hint"), "{status} {told}");
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let client = |i: usize| {
            let body = json!({ "ids": [1, 2, 3, 1 + i % 20] }).to_string();
            let head = post("run");
            scope.spawn(move || request(address, &head, body.as_bytes()).0)
        };
        let all: Vec<_> = (0..200).map(client).collect();
        all.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let count = |code: u16| codes.iter().filter(|c| **c == code).count();
    assert_eq!(count(200) + count(503), 200, "{codes:?}");
    assert!(count(200) >= 64, "{codes:?}");
    println!("{} answered, {} told to wait", count(200), count(503));
    assert_eq!(request(address, &post("run"), run.as_bytes()).0, 200, "it lives on");
}

/// So many slow questions that the queue is full: each is answered or told to come back, none hangs.
#[test]
fn overload_is_told_to_wait() {
    let address = server();
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let client = |i: usize| {
            // 144 passes each.
            let body = json!({ "ids": IDS, "target": [6, 3], "parameter": true, "index": i,
                "name": "blocks.0.attention.qkv.weight" });
            let head = format!("POST /api/check HTTP/1.1\r\nHost: {address}");
            scope.spawn(move || request(address, &head, body.to_string().as_bytes()).0)
        };
        let all: Vec<_> = (0..120).map(client).collect();
        all.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let count = |code: u16| codes.iter().filter(|c| **c == code).count();
    println!("{} answered, {} refused", count(200), count(503));
    assert_eq!(count(200) + count(503), 120, "{codes:?}");
    assert!(count(503) > 0 && count(200) >= 64, "{codes:?}");
    let head = format!("POST /api/run HTTP/1.1\r\nHost: {address}");
    let run = json!({ "ids": IDS }).to_string();
    assert_eq!(request(address, &head, run.as_bytes()).0, 200, "it lives on");
}
