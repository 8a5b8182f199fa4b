//! Encoder-decoders and neurons, as the answers of a session.

use hearken_data::conversions;
use hearken_explain::{Flow, WithSource, neurons};
use hearken_nn::config::{EncoderDecoderConfig, Placement};
use hearken_nn::models::{Decoder, EncoderDecoder};
use hearken_nn::variants;
use hearken_page::{Session, Sources, Subject, Texts, export};
use serde_json::{Value, json};

const SOURCE: [u32; 4] = [3, 1, 4, 1];
const IDS: [u32; 3] = [0, 5, 2];

fn told(config: EncoderDecoderConfig, texts: Texts) -> Subject {
    let tokenizer = conversions::tokenizer();
    let fits = config.vocabulary == tokenizer.vocabulary_size();
    let model = WithSource::new(Box::new(EncoderDecoder::drawn(config, 5)), &SOURCE).unwrap();
    let sources = Sources { source: model.source(), begin: 0, end: Some(1) };
    Subject {
        model: Box::new(model),
        tokenizer: fits.then_some(tokenizer),
        name: "a test".to_owned(),
        ids: IDS.to_vec(),
        begin: None,
        target: None,
        most_bytes: None,
        sources: Some(sources),
        texts,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "calls write the question where they ask it")]
fn ask(session: &mut Session<'_>, name: &str, body: Value) -> Value {
    session.answer(name, &body).unwrap_or_else(|error| panic!("{name} {body}: {error}"))
}

#[test]
fn every_question_about_an_encoder_decoder_is_answered() {
    for (name, config) in variants::encoder_decoders() {
        let post = config.stack.norm.placement == Placement::Post;
        let subject = told(config, Texts::default());
        let mut session = subject.session().unwrap();
        let model = ask(&mut session, "model", json!({}));
        assert_eq!(
            (&model["kind"], &model["source"]["ids"]),
            (&json!("encoder-decoder"), &json!(SOURCE))
        );
        let blocks = model["blocks"].as_array().unwrap();
        assert!(blocks.contains(&json!("encoder 0")) && blocks.contains(&json!("decoder 1")));
        let body = json!({ "ids": IDS, "target": [2, 3], "source": SOURCE });
        let run = ask(&mut session, "run", body);
        for stage in run["stages"].as_array().unwrap() {
            for gradient in [false, true] {
                let mut body = json!({ "ids": IDS, "target": [2, 3], "name": stage["name"] });
                body["gradient"] = json!(gradient);
                let found = ask(&mut session, "tensor", body);
                assert_eq!(found["shape"], stage["shape"], "{name}: {}", stage["name"]);
            }
            let number = json!({ "ids": IDS, "target": [2, 3], "name": stage["name"], "row": 1 });
            ask(&mut session, "number", number);
            let stage = stage["name"].as_str().unwrap();
            if let Some(site) = stage.strip_suffix(".weights") {
                let heads = ask(&mut session, "heads", json!({ "ids": IDS, "site": site }));
                let crossed = site.ends_with("cross_attention");
                assert_eq!(heads["heads"][0]["scores"].as_array().unwrap().is_empty(), crossed);
                assert!(heads["heads"][0]["entropy"].is_f64(), "{name}: {site}");
            }
            if stage.ends_with("feed_forward.active") {
                let found = ask(&mut session, "neurons", json!({ "ids": IDS, "stage": stage }));
                let tokens = if stage.starts_with("encoder") { SOURCE.len() } else { IDS.len() };
                assert_eq!((&found["tokens"], &found["of_texts"]), (&json!(tokens), &json!(null)));
            }
        }
        let plain = json!({ "ids": IDS });
        for question in ["logits", "sample", "cache", "plane"] {
            ask(&mut session, question, plain.clone());
        }
        let cache = ask(&mut session, "cache", plain.clone());
        assert_eq!(cache["source"]["tokens"], 4, "{name}");
        assert!(cache["difference"].as_f64().unwrap() < 1e-4, "{name}: {cache}");
        for question in ["stream", "lens"] {
            assert_eq!(session.answer(question, &plain).is_err(), post, "{name}: {question}");
        }
        let body = json!({ "ids": IDS, "target": [2, 3], "layer": 1, "changes":
            [{ "ablate": "decoder.blocks.0.cross_attention.mixed[1]" }] });
        assert!(ask(&mut session, "intervene", body.clone())["divergence"].as_f64().unwrap() > 0.0);
        ask(&mut session, "effects", body);
        let step = json!({ "ids": IDS, "target": [2, 3], "action": "step" });
        let step = ask(&mut session, "update", step);
        assert!(step["step"]["after"].as_f64() < step["step"]["before"].as_f64(), "{name}");
        drop(session);
        let page = export(&subject).unwrap();
        assert!(page.len() < 5_000_000, "{name}: {} bytes", page.len());
    }
}

#[test]
fn another_source_gives_other_numbers_and_the_first_gives_the_same_again() {
    let subject = told(variants::t5(), Texts::default());
    let mut session = subject.session().unwrap();
    let mut logits = |source: Value| {
        let body = json!({ "ids": IDS, "source": source });
        ask(&mut session, "logits", body)["logits"].as_str().unwrap().to_owned()
    };
    let first = logits(json!(SOURCE));
    let other = logits(json!([2, 2]));
    assert_ne!(first, other);
    assert_eq!(logits(json!(SOURCE)), first);
    // Nothing is lost by a source that is none.
    for source in [json!([99_999]), json!("x"), json!(vec![1; 10_000])] {
        let body = json!({ "ids": IDS, "source": source });
        assert!(session.answer("run", &body).is_err(), "{source}");
    }
    let flow = Flow::of(subject.model.as_ref(), &IDS, None, None).unwrap();
    assert!(flow.value("logits").is_some());
    assert_eq!(subject.sources.as_ref().unwrap().source.ids(), SOURCE);
}

#[test]
fn texts_become_prompts_and_sources_with_their_ends() {
    let size = conversions::tokenizer().vocabulary_size();
    let config = EncoderDecoderConfig { vocabulary: size, ..variants::encoder_decoder() };
    let subject = told(config, Texts::default());
    let mut session = subject.session().unwrap();
    let mut ids = |body: Value| ask(&mut session, "tokens", body)["ids"].clone();
    let plain = ids(json!({ "text": "2021" }));
    let plain = plain.as_array().unwrap();
    let with = |before: &[u32], after: &[u32]| {
        let all = before.iter().map(|id| json!(id)).chain(plain.iter().cloned());
        json!(all.chain(after.iter().map(|id| json!(id))).collect::<Vec<_>>())
    };
    assert_eq!(ids(json!({ "text": "2021", "as": "prompt" })), with(&[0], &[]));
    assert_eq!(ids(json!({ "text": "2021", "as": "source" })), with(&[], &[1]));
    assert_eq!(ids(json!({ "text": "", "as": "prompt" })), json!([0]));
    assert!(session.answer("tokens", &json!({ "text": "2021", "as": "else" })).is_err());
}

#[test]
fn neurons_are_shown_with_the_texts_that_excite_them() {
    let rows: Vec<Vec<u32>> =
        (0..20).map(|i| (0..9).map(|t| (i * 5 + t * t) % 11).collect()).collect();
    let texts = Texts { name: "20 texts".to_owned(), rows: rows.clone() };
    let model = Decoder::drawn(variants::base(), 3);
    let subject = Subject {
        model: Box::new(model.clone()),
        tokenizer: None,
        name: "a test".to_owned(),
        ids: vec![1, 2, 3],
        begin: None,
        target: None,
        most_bytes: None,
        sources: None,
        texts,
    };
    let mut session = subject.session().unwrap();
    let stage = "blocks.1.feed_forward.active";
    let body = json!({ "ids": [1, 2, 3], "stage": stage, "neuron": 7, "count": 5 });
    let found = ask(&mut session, "neurons", body.clone());
    assert_eq!(
        (&found["tokens"], &found["of_texts"], &found["texts"]),
        (&json!(180), &json!(20), &json!(20))
    );
    let places = found["chosen"]["places"].as_array().unwrap();
    assert_eq!(places.len(), 5);
    for place in places {
        let (text, at) =
            (place["text"].as_u64().unwrap() as usize, place["place"].as_u64().unwrap());
        let values = neurons::values(&model, &rows[text], stage).unwrap();
        let width = values.shape().width();
        assert_eq!(place["value"].as_f64().unwrap() as f32, values.data()[at as usize * width + 7]);
        let tokens = place["tokens"].as_array().unwrap();
        assert_eq!(tokens.len(), 9);
        for (t, token) in tokens.iter().enumerate() {
            assert_eq!(token[0], rows[text][t].to_string());
            assert_eq!(token[1].as_f64().unwrap() as f32, values.data()[t * width + 7]);
        }
    }
    // Twice the same: what was found is kept until the weights change.
    assert_eq!(ask(&mut session, "neurons", body.clone()), found);
    let step = json!({ "ids": [1, 2, 3], "target": [2, 3], "action": "step", "lr": 0.1 });
    ask(&mut session, "update", step);
    assert_ne!(ask(&mut session, "neurons", body), found);
    for (stage, neuron) in [("blocks.1.norm1", 0), ("nothing", 0), (stage, 100_000)] {
        let body = json!({ "ids": [1, 2, 3], "stage": stage, "neuron": neuron });
        assert!(session.answer("neurons", &body).is_err(), "{body}");
    }
}
