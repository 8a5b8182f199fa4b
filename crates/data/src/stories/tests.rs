use super::*;
use crate::batches::testing::{assert_batches, assert_in_order};
use crate::batches::{Batches, IGNORED};
use crate::corpus::Ids;

/// What the floor is: a change of the stories changes these, and with them every figure that was
/// measured on them.
#[test]
fn the_floor_is_what_it_was() {
    let floor = floor();
    assert!((floor.nats_per_story - 18.95477).abs() < 5e-6, "{floor:?}");
    assert!((floor.characters_per_story - 144.27758).abs() < 5e-6, "{floor:?}");
    assert!((floor.nats_per_character() - 0.131_38).abs() < 5e-6, "{floor:?}");
    assert_eq!((longest(), alphabet().len()), (235, 46));
}

#[test]
fn every_story_has_one_parse_with_the_probability_that_made_it() {
    let mut rng = Rng::new(1);
    for _ in 0..5000 {
        let story = sample(&mut rng);
        let ways = grammar::parse(&words::story(), words::SLOTS, &story.text);
        assert_eq!(ways.len(), 1, "{}", story.text);
        assert_eq!(ways[0].1, story.text.len(), "{}", story.text);
        // About 15 logarithms of size 2 are added: a few roundings of 4e-16.
        assert!((ways[0].0 - story.nats).abs() < 1e-12, "{}", story.text);
        assert!((nats(&story.text).unwrap() - story.nats).abs() < 1e-12);
        assert!(story.text.is_ascii() && story.text.len() <= longest());
        assert_eq!(story.text.matches('\n').count(), 1);
    }
    assert_eq!(nats("Once upon a time.\n"), None);
}

#[test]
fn samples_approach_the_floor() {
    const N: usize = 100_000;
    let floor = floor();
    let mut rng = Rng::new(2);
    let (mut nats, mut length, mut squares) = (0.0, 0.0, [0.0; 2]);
    for _ in 0..N {
        let story = sample(&mut rng);
        let characters = story.text.len() as f64;
        nats += story.nats;
        length += characters;
        squares[0] += (story.nats - floor.nats_per_story).powi(2);
        squares[1] += (characters - floor.characters_per_story).powi(2);
    }
    // Four standard errors of a mean.
    let bound = |squares: f64| 4.0 * (squares / N as f64 / N as f64).sqrt();
    let (nats, length) = (nats / N as f64, length / N as f64);
    assert!((nats - floor.nats_per_story).abs() < bound(squares[0]), "{nats} {floor:?}");
    assert!((length - floor.characters_per_story).abs() < bound(squares[1]), "{length} {floor:?}");
}

/// Rows that are cut have more beginnings than ends, and beginnings hold the choices: even the true
/// process pays more per character there. That is why a training loss ends above the floor.
#[test]
fn rows_that_are_cut_cost_more_per_character() {
    const ROWS: usize = 20_000;
    const LENGTH: usize = 256;
    let mut rng = Rng::new(3);
    let mut nats = 0.0;
    for _ in 0..ROWS {
        let mut row = Sample { text: String::new(), nats: 0.0 };
        let before = 'row: loop {
            let mut slots = vec![0; words::SLOTS];
            for part in words::story() {
                let before = row.nats;
                grammar::sample_parts(&[part], &mut slots, &mut rng, &mut row, &mut Vec::new());
                if row.text.len() > LENGTH {
                    break 'row before;
                }
            }
        };
        nats += before; // without the part that is cut through: a lower bound
    }
    let cut = nats / (ROWS * LENGTH) as f64;
    // 0.1476, beside a floor of 0.1314.
    assert!(cut > 1.1 * floor().nats_per_character(), "{cut}");
}

#[test]
fn windows_begin_with_a_story_and_are_the_same_again() {
    let windows = StoryWindows::new(6, 256, 7).unwrap();
    let tokenizer = tokenizer();
    let batch = windows.batch(3);
    assert_batches(|seed| StoryWindows::new(6, 256, seed).unwrap());
    for (row, targets) in batch.inputs.chunks(256).zip(batch.targets.chunks(256)) {
        let text = tokenizer.decode(row).unwrap();
        let first = text.strip_prefix(BEGIN).unwrap().split_inclusive('\n').next().unwrap();
        assert_eq!(nats(first).is_some(), targets[0] != IGNORED, "{first}");
    }
    assert!(StoryWindows::new(1, longest() - 1, 0).unwrap_err().to_string().contains("hint"));
}

#[test]
fn a_row_in_sixteen_begins_within_a_story_and_is_not_asked_for_its_first_word() {
    let windows = StoryWindows::new(2000, 256, 7).unwrap();
    let tokenizer = tokenizer();
    let batch = windows.batch(0);
    let mut within = 0;
    for (row, targets) in batch.inputs.chunks(256).zip(batch.targets.chunks(256)) {
        let ignored = targets.iter().filter(|target| **target == IGNORED).count();
        let text = tokenizer.decode(row).unwrap();
        let word = text[1..].find([' ', '\n']).unwrap();
        assert!(targets[..ignored].iter().all(|target| *target == IGNORED));
        assert!(ignored == 0 || ignored == word, "{ignored} of {text}");
        within += usize::from(ignored > 0);
        // All behind the first line end is whole.
        let rest: Vec<&str> = text[1..].split_inclusive('\n').skip(1).collect();
        let whole = rest.iter().filter(|story| story.ends_with('\n'));
        assert!(whole.into_iter().all(|story| nats(story).is_some()), "{text}");
    }
    // 125 expected; four standard deviations are 43.
    assert!((82..=168).contains(&within), "{within}");
}

#[test]
fn validation_counts_whole_stories() {
    let validation = Validation::new(300, 256, 5).unwrap();
    let tokenizer = tokenizer();
    let (mut stories, mut total, mut characters) = (0, 0.0, 0);
    let windows = assert_in_order(&validation);
    for window in &windows {
        let text = tokenizer.decode(&window.targets).unwrap();
        for story in text.split_inclusive('\n') {
            total += nats(story).unwrap();
            stories += 1;
        }
        characters += window.targets.len();
    }
    assert_eq!((stories, characters), (300, validation.characters));
    assert!((total / characters as f64 - validation.oracle).abs() < 1e-12);
    let training = StoryWindows::new(8, 256, 5).unwrap().batch(0);
    assert_ne!(training.inputs[..100], windows[0].inputs[..100]);
}

#[test]
fn text_is_endless_and_the_same_again() {
    let long = text(3, 10_000);
    assert!(long.len() >= 10_000 && long.starts_with(&text(3, 1000)));
    assert_ne!(text(4, 1000), text(3, 1000));
    let ids: Ids = tokenizer().encode(&long).unwrap().into();
    assert_eq!(ids.len(), long.len());
}
