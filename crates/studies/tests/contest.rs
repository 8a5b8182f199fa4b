//! The studies that train small decoders on a text, with one step per training.

use hearken_studies::contest::by_character;
use hearken_studies::{Outcome, Request, Study, find};
use hearken_train::progress::Mode;
use std::fs;
use tempfile::TempDir;

/// A request for these contenders with one step per training.
fn tiny(study: &'static Study, contenders: &[&str]) -> Request {
    let contenders: Vec<String> = contenders.iter().map(|name| (*name).to_owned()).collect();
    Request {
        quick: true,
        contenders: study.choose(&contenders).unwrap(),
        effort: 0.0,
        progress: Mode::Quiet,
        ..Request::new(study)
    }
}

fn run(name: &str, contenders: &[&str]) -> Outcome {
    let study = find(name).unwrap();
    let outcome = (study.run)(&tiny(study, contenders)).unwrap();
    assert!(!outcome.method.is_empty() && !outcome.findings.is_empty(), "{name}");
    for sentence in &outcome.findings {
        assert!(!sentence.contains("NaN") && !sentence.ends_with('.'), "{name}: {sentence}");
    }
    for listing in &outcome.listings {
        assert!(!listing.table.rows.is_empty(), "{name}: {}", listing.table.title);
        for row in &listing.table.rows {
            assert_eq!(row.len(), listing.table.columns.len(), "{name}: {row:?}");
        }
    }
    for drawing in &outcome.drawings {
        assert!(!drawing.chart.svg().contains("nothing measured"), "{name}: {}", drawing.about);
    }
    outcome
}

#[test]
fn scaling_factor() {
    let outcome = run("scaling-factor", &["unscaled"]);
    let fresh = &outcome.numbers["entropy"]["fresh"]["unscaled"];
    let share = |i: usize| fresh[i]["y"][0].as_f64().unwrap();
    // Without the factor, wide heads look at little, before anything is learned.
    assert!(share(0) > 0.8 && share(3) < 0.4, "{fresh}");
}

#[test]
fn norms() {
    let outcome = run("norms", &["post-cold"]);
    let first = &outcome.numbers["first_gradient"]["post-cold"];
    assert_eq!(first.as_array().unwrap().len(), 3);
}

#[test]
fn positions() {
    let outcome = run("positions", &["learned", "rope-yarn"]);
    let loss = &outcome.numbers["loss"];
    assert_eq!(loss["learned"].as_array().unwrap().len(), 1, "nothing beyond its table: {loss}");
    assert_eq!(loss["rope-yarn"].as_array().unwrap().len(), 4, "{loss}");
    let cells = &outcome.listings[0].table.rows[0];
    assert_eq!(cells[2..], ["–", "–", "–"]);
}

#[test]
fn optimizers() {
    let outcome = run("optimizers", &["sgd"]);
    let sgd = &outcome.numbers["contenders"]["sgd"];
    assert_eq!(sgd["sweep"].as_array().unwrap().len(), 5);
    assert!(sgd["best_rate"].is_f64(), "{sgd}");
}

#[test]
fn heads() {
    let outcome = run("heads", &["all"]);
    assert_eq!(outcome.numbers["loss"]["all"].as_array().unwrap().len(), 5);
}

#[test]
fn tokenizers() {
    let outcome = run("tokenizers", &["character", "bpe-512"]);
    let contenders = &outcome.numbers["contenders"];
    let of = |name: &str, key: &str| {
        let value = &contenders[name][key];
        value.as_f64().or_else(|| value[0].as_f64()).unwrap()
    };
    for name in ["character", "bpe-512"] {
        let bits = of(name, "perplexity").log2() / of(name, "bytes_per_token");
        assert!((bits - of(name, "bits_per_byte")).abs() < 1e-9, "{contenders}");
    }
    assert_eq!(of("character", "bytes_per_token"), 1.0);
}

#[test]
fn a_text_of_ones_own_may_have_other_characters_at_its_end_and_must_be_long_enough() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("text");
    let study = find("heads").unwrap();
    let mut request = tiny(study, &["separate"]);
    request.data = vec![path.clone()];
    fs::write(&path, "ab".repeat(600) + "é").unwrap();
    let (text, encoded) = by_character(&request, 64).unwrap();
    assert!(text.held_out.ends_with('é'));
    assert_eq!(encoded.tokenizer.decode(&encoded.held_out).unwrap(), text.held_out);
    fs::write(&path, "too short").unwrap();
    for name in ["heads", "tokenizers"] {
        let error = (find(name).unwrap().run)(&request).unwrap_err();
        assert!(error.message().starts_with("a tenth of the text is"), "{error}");
        assert!(error.hint().is_some());
    }
}
