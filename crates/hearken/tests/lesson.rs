//! `hearken lesson`, end to end.

mod common;

use common::{hearken, run};
use hearken::lessons::course;

#[test]
fn all_are_listed_and_every_line_fits() {
    let ran = run(&mut hearken(&["lesson"])).succeeded();
    for lesson in course() {
        assert!(ran.stdout.contains(lesson.name), "{} is not listed", lesson.name);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
}

#[test]
fn in_a_pipe_a_lesson_is_plain_text_without_stops() {
    for name in ["descent", "1"] {
        let ran = run(&mut hearken(&["lesson", name])).succeeded();
        assert!(ran.stdout.contains("x₁₀ = 0.3221"), "{}", ran.stdout);
        assert!(ran.stdout.contains("Question") && ran.stdout.contains("right: "));
        assert!(ran.stdout.contains("fn main()") && ran.stdout.contains("Next lesson"));
        assert!(!ran.stdout.contains('\x1b') && !ran.stdout.contains("[Enter"));
    }
}

#[test]
fn a_page_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.html");
    run(&mut hearken(&["lesson", "chat", "--html", file.to_str().unwrap()])).succeeded();
    let html = std::fs::read_to_string(&file).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("0.2277"));
    let all = folder.path().join("course.html");
    run(&mut hearken(&["lesson", "--html", all.to_str().unwrap()])).succeeded();
    assert!(std::fs::read_to_string(all).unwrap().matches("<article").count() == course().len());
}

#[test]
fn mistakes_are_explained() {
    run(&mut hearken(&["lesson", "desent"])).refused("no lesson 'desent'");
    run(&mut hearken(&["lesson", "desent"])).refused("did you mean descent?");
    let ran = run(&mut hearken(&["lesson", "chat", "--html", "/nowhere/at/all.html"]));
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("cannot write") && ran.stderr.contains("hint:"), "{}", ran.stderr);
}
