//! The studies of mechanisms on a tiny request: a few steps, so that what is found means nothing, but
//! everything that a report needs is there.

use hearken_studies::page::{self, Made};
use hearken_studies::{Outcome, Request, Study, find};
use hearken_train::progress::Mode;

/// Runs a study with these contenders and a small share of its steps.
fn run(study: &'static Study, only: &[&str], share: f64) -> (Request, Outcome) {
    let names: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
    let request = Request {
        quick: true,
        contenders: study.choose(&names).unwrap(),
        seeds: 1,
        effort: share,
        progress: Mode::Quiet,
        ..Request::new(study)
    };
    let outcome = (study.run)(&request).unwrap();
    (request, outcome)
}

fn check(name: &str, only: &[&str], share: f64) {
    let study = find(name).unwrap();
    let (request, outcome) = run(study, only, share);
    assert!(!outcome.findings.is_empty() && !outcome.method.is_empty(), "{outcome:?}");
    let made =
        Made { machine: "a machine".to_owned(), date: "2026-01-31".to_owned(), seconds: 1.0 };
    let html = page::html(study, &request, &outcome, &made).unwrap();
    assert_eq!(html.matches("<figure>").count(), outcome.drawings.len());
    let numbers = page::json(study, &request, &outcome, &made).to_string();
    for name in only {
        assert!(html.contains(name) && numbers.contains(name), "{name} is missing");
    }
    for listing in &outcome.listings {
        let width = listing.table.columns.len();
        assert!(listing.table.rows.iter().all(|row| row.len() == width), "{listing:?}");
        assert!(!listing.table.rows.is_empty(), "{}", listing.table.title);
    }
}

#[test]
fn translation_reports_what_was_found() {
    check("translation", &["fixed-vector", "transformer"], 0.005);
}

#[test]
fn gradients_report_what_was_found() {
    check("gradients", &["rnn", "transformer", "pre-norm", "no-residual"], 0.01);
}

#[test]
fn attention_reports_what_was_found() {
    check("attention", &["softmax", "linear", "linformer"], 0.01);
}

#[test]
fn no_time_is_an_error_before_anything_is_trained() {
    for name in ["translation", "gradients", "attention"] {
        let study = find(name).unwrap();
        let request = Request {
            most_seconds: Some(1e-6),
            contenders: vec![study.contenders[0].name],
            progress: Mode::Quiet,
            ..Request::new(study)
        };
        let error = (study.run)(&request).unwrap_err().to_string();
        assert!(error.contains("there is time for") && error.contains("hint:"), "{error}");
    }
}
