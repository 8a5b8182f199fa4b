//! Every study runs, as a sketch: it says what its numbers say, and gives the same numbers again.

use hearken_studies::page::{self, Made};
use hearken_studies::{Outcome, Request, Study, all};
use hearken_train::progress::Mode;

fn sketch(study: &'static Study, effort: f64) -> (Request, Outcome) {
    let request =
        Request { quick: true, effort, seeds: 1, progress: Mode::Quiet, ..Request::new(study) };
    let outcome = (study.run)(&request).unwrap_or_else(|error| panic!("{}: {error}", study.name));
    (request, outcome)
}

/// Those in which nothing is timed alone.
fn trained() -> impl Iterator<Item = &'static Study> {
    all().iter().copied().filter(|study| study.name != "attention")
}

#[test]
fn every_study_has_findings_tables_and_a_page() {
    for study in all() {
        let (request, outcome) = sketch(study, 0.003);
        assert!(!outcome.findings.is_empty() && !outcome.method.is_empty(), "{}", study.name);
        assert!(!outcome.drawings.is_empty() && !outcome.listings.is_empty(), "{}", study.name);
        assert!(outcome.numbers.is_object(), "{}", study.name);
        for contender in study.contenders {
            let named = |listing: &hearken_studies::Listing| {
                listing.table.rows.iter().any(|row| row[0].contains(contender.name))
            };
            assert!(outcome.listings.iter().any(named), "{}: {}", study.name, contender.name);
        }
        for finding in &outcome.findings {
            assert!(!finding.ends_with('.') && !finding.contains("NaN"), "{finding}");
        }
        let made = Made { machine: "<m>".to_owned(), date: "2026-01-31".to_owned(), seconds: 1.0 };
        let html = page::html(study, &request, &outcome, &made).unwrap();
        assert!(html.contains("&lt;m&gt;") && html.contains("<svg"), "{}", study.name);
        for outside in ["src=", "href=", "@import", "url(", "<script"] {
            assert!(!html.contains(outside), "{}: {outside}", study.name);
        }
        let json = page::json(study, &request, &outcome, &made);
        assert_eq!(json["study"], study.name);
    }
}

#[test]
fn without_time_nothing_is_trained() {
    for study in trained() {
        let request =
            Request { most_seconds: Some(1e-6), progress: Mode::Quiet, ..Request::new(study) };
        let error = (study.run)(&request).unwrap_err().to_string();
        assert!(error.contains("there is time for") && error.contains("hint: "), "{error}");
    }
}

#[test]
fn unknown_contenders_are_named_and_known_ones_keep_their_order() {
    let study = all()[0];
    let error = study.choose(&["nobody".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("'nobody'") && error.contains(study.contenders[0].name), "{error}");
    let [first, second, ..] = study.contenders else { panic!("two contenders") };
    let chosen = study.choose(&[second.name.to_owned(), first.name.to_owned()]).unwrap();
    assert_eq!(chosen, [first.name, second.name]);
}
