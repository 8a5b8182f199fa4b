//! What must hold for every lesson, and the errata that no lesson computes.

mod errata;

use hearken_lessons::{Block, course, find, groups, page, text};
use hearken_show::Terminal;
use std::collections::HashSet;
use std::time::Instant;

#[test]
fn lessons_are_complete_and_quick() {
    let errata = include_str!("../../../docs/ERRATA.md");
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/");
    let tested = include_str!("numbers.rs");
    let mut names = HashSet::new();
    for lesson in course() {
        let name = lesson.name;
        let start = Instant::now();
        let sheet = lesson.run();
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds < 20.0, "{name} took {seconds} s");
        assert!(names.insert(name), "two lessons are called {name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
        assert!(lesson.line.len() <= 110 && !lesson.line.ends_with('.'), "{name}: {}", lesson.line);
        assert!(sheet.steps.len() >= 2, "{name} has {} steps", sheet.steps.len());
        assert!(sheet.steps.iter().all(|step| !step.blocks.is_empty()), "{name}: an empty step");
        assert!(sheet.values().len() >= 2, "{name} computes hardly anything");
        let answers = &sheet.question.answers;
        assert!(!sheet.question.text.is_empty() && answers.len() >= 3, "{name} asks nothing");
        let right: Vec<&str> =
            answers.iter().filter(|a| a.is_right).map(|a| a.text.as_str()).collect();
        assert_eq!(right.len(), 1, "{name}: right are {right:?}");
        assert!(answers.iter().all(|a| a.because.len() > 10), "{name}: an answer is not explained");
        for erratum in &sheet.errata {
            let row = format!("\n| {} |", erratum.id);
            assert!(errata.contains(&row), "{name}: docs/ERRATA.md has no {}", erratum.id);
        }
        assert!(std::path::Path::new(&format!("{guide}{}", lesson.next.1)).exists(), "{name}");
        assert!(tested.contains(&format!("run(\"{name}\")")), "no number of {name} is asserted");
    }
    assert!(names.len() >= 40, "{} lessons", names.len());
    assert_eq!(groups().iter().map(|(_, lessons)| lessons.len()).sum::<usize>(), names.len());
}

/// A lesson computed twice says the same, to the bit.
#[test]
fn lessons_are_reproducible() {
    for lesson in course() {
        let (a, b) = (lesson.run(), lesson.run());
        for ((name, a), (_, b)) in a.values().iter().zip(b.values()) {
            let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(a), bits(b), "{}: {name}", lesson.name);
        }
    }
}

#[test]
fn lines_fit_the_terminal() {
    let terminal = Terminal { width: 80, colour: false };
    let mut long = Vec::new();
    for lesson in course() {
        let sheet = lesson.run();
        for part in text::parts(lesson, &sheet, terminal) {
            for line in part {
                if line.chars().count() > 80 {
                    long.push(format!("{}: {line}", lesson.name));
                }
                assert!(!line.contains('\x1b'), "{line}");
            }
        }
        assert!(!text::answers(&sheet, terminal).is_empty());
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Long lines of code go on in the next line: with blanks put together again, it is what was written.
#[test]
fn wrapped_code_is_the_program() {
    let terminal = Terminal { width: 80, colour: false };
    let plain = |text: &str| -> String {
        let text = text.replace("//", " "); // a comment that goes on is marked again
        text.split_whitespace().collect()
    };
    for lesson in course() {
        let parts = text::parts(lesson, &lesson.run(), terminal);
        let shown: String = parts.last().unwrap().join("\n");
        let (shown, code) = (plain(&shown), plain(lesson.code));
        assert!(shown.contains(&code), "{}: {code} is not in {shown}", lesson.name);
    }
}

#[test]
fn pages_stand_alone() {
    let lesson = find("descent").unwrap();
    let html = page::html(lesson.title, &[lesson]).unwrap();
    assert!(html.contains("<svg") && html.contains("prefers-color-scheme: dark"));
    assert!(html.contains("width=device-width") && !html.contains("<script"));
    assert!(!html.contains("src=") && !html.contains("http://www.w3.org/1999"));
    let all = page::html("all", &course()).unwrap();
    for lesson in course() {
        assert!(all.contains(&format!("<article id=\"{}\">", lesson.name)));
    }
    assert!(all.len() < 4_000_000, "{}", all.len());
}

#[test]
fn some_lessons_have_plots() {
    let plots = course().into_iter().filter(|lesson| {
        let blocks = lesson.run().steps.into_iter().flat_map(|step| step.blocks);
        blocks.into_iter().any(|block| matches!(block, Block::Chart(_) | Block::Bars(_)))
    });
    assert!(plots.count() >= 25);
}
