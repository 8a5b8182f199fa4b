use super::*;
use crate::batches::testing::assert_batches;
use crate::batches::{InOrder, Masked, Masking, Shuffled};
use crate::stories::{Exercise, word_tokenizer};
use crate::tokenizer::{Kind, SpecialText, Training};

/// CLS 1, SEP 2, PAD 0.
fn frame(length: usize) -> Frame {
    Frame { begin: Some(1), between: vec![2], end: Some(2), pad: 0, length }
}

#[test]
fn one_and_two_texts_are_framed_and_cut() {
    let frame = frame(8);
    assert_eq!(frame.one(&[5, 6]).ids, [1, 5, 6, 2]);
    let long: Vec<u32> = (10..30).collect();
    let one = frame.one(&long);
    assert_eq!((one.ids.len(), one.first.clone(), one.cut), (8, 1..7, 14));
    let two = frame.two(&[5, 6], &[7]);
    assert_eq!((two.ids.clone(), two.second.clone()), (vec![1, 5, 6, 2, 7, 2], Some(4..5)));
    assert_eq!((two.first, two.cut), (1..3, 0));
    // Five tokens have room.
    for (first, second, kept) in
        [(9, 9, (2, 3)), (9, 1, (4, 1)), (1, 9, (1, 4)), (4, 2, (3, 2)), (3, 2, (3, 2))]
    {
        let two = frame.two(&long[..first], &long[..second]);
        let lengths = (two.first.len(), two.second.clone().unwrap().len());
        assert_eq!(lengths, kept, "{first} and {second}");
        assert_eq!(two.cut, first + second - lengths.0 - lengths.1);
        assert!(two.ids.len() <= 8);
    }
}

#[test]
fn frames_are_those_of_the_tokenizer() {
    let words = word_tokenizer();
    let frame = Frame::new(&words, 16).unwrap();
    let [cls, sep, pad] =
        [Special::Cls, Special::Sep, Special::Pad].map(|s| words.require(s).unwrap());
    assert_eq!(
        frame,
        Frame { begin: Some(cls), between: vec![sep], end: Some(sep), pad, length: 16 }
    );
    assert!(Frame::new(&words, 4).unwrap_err().message().contains("no room for two texts"));
    // RoBERTa's special tokens.
    let specials = [(Special::Bos, "<s>"), (Special::Eos, "</s>"), (Special::Pad, "<pad>")];
    let specials = specials.map(|(special, text)| SpecialText::new(special, text)).to_vec();
    let roberta = Training { specials, ..Training::new(Kind::Byte) }.train_on_text("a").unwrap();
    let two = Frame::new(&roberta, 16).unwrap().two(&[7], &[8]);
    assert_eq!(two.ids, [256, 7, 257, 257, 8, 257]);
    // None at all.
    let bytes = Training::new(Kind::Byte).train_on_text("a").unwrap();
    assert_eq!(Frame::new(&bytes, 16).unwrap().two(&[7], &[8]).ids, [7, 8]);
}

#[test]
fn batches_have_types_and_answers() {
    let frame = frame(16);
    let class = |ids: &[u32], class| Feature::new(frame.one(ids)).with(Target::Class(class));
    let two = Feature::new(frame.two(&[5], &[6, 7])).with(Target::Class(3));
    let list = vec![class(&[8], 2), two];
    let features = Features { list, pad: 0 };
    let batch = features.batch_of(&[0, 1]);
    assert_eq!(batch.inputs, [1, 8, 2, 0, 0, 0, 1, 5, 2, 6, 7, 2]);
    assert_eq!(batch.types.as_deref(), Some(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1][..]));
    assert_eq!(
        (batch.lengths.clone(), batch.labels.clone()),
        (Some(vec![3, 6]), Some(Labels::Classes(vec![2, 3])))
    );
    assert_eq!(features.batch_of(&[0]).types, None);
    assert_eq!((features.longest(), features.tokens_of(1)), (6, 6));
    let of = |target: Target| {
        let list = vec![Feature::new(frame.one(&[5])).with(target); 2];
        Features { list, pad: 0 }.batch_of(&[0, 1]).labels
    };
    assert_eq!(of(Target::None), None);
    assert_eq!(
        of(Target::Several(vec![true, false])),
        Some(Labels::Several(vec![true, false, true, false]))
    );
    assert_eq!(of(Target::Span([1, 2])), Some(Labels::Spans(vec![[1, 2]; 2])));
    assert_eq!(of(Target::Numbers(vec![0.5])), Some(Labels::Numbers(vec![0.5; 2])));
    let pair = Feature { other: Some(vec![1, 9, 9, 2]), ..Feature::new(frame.one(&[5])) };
    let short = Feature { other: Some(vec![1, 2]), ..pair.clone() };
    let source = Features { list: vec![pair, short], pad: 0 }.batch_of(&[0, 1]).source.unwrap();
    assert_eq!((source.ids, source.lengths), (vec![1, 9, 9, 2, 1, 2, 0, 0], vec![4, 2]));
}

#[test]
fn rows_that_are_made_depend_on_seed_step_and_row_alone() {
    let made = |seed| {
        let tokenizer = word_tokenizer();
        let frame = Frame::new(&tokenizer, 80).unwrap();
        let pad = frame.pad;
        Made::new(6, 80, pad, move |step, row| {
            let row = Exercise::Questions.row(seed, step, row);
            let encode = |text: &str| tokenizer.encode(text).unwrap();
            let second = encode(row.second.as_deref().unwrap());
            Feature::new(frame.two(&second, &encode(&row.text)))
        })
    };
    assert_batches(made);
}

#[test]
fn windows_of_running_text_are_surrounded_and_then_masked() {
    let text: Vec<u32> = (10..200).collect();
    let frame = frame(12);
    assert_eq!(frame.room(), 10);
    let windows = crate::batches::Windows::full(text.into(), 10).unwrap();
    let rows = Surrounded::new(windows.clone(), frame.clone());
    assert_eq!((rows.count(), rows.longest(), rows.tokens_of(0)), (18, 12, 12));
    let batch = rows.batch_of(&[1]);
    assert_eq!((batch.inputs[0], batch.inputs[1], batch.inputs[11]), (1, 20, 2));
    assert_eq!(batch.counted(), 0);
    let masking = |seed| Masking::new(3, 200, vec![0, 1, 2, 3], seed);
    assert_batches(|seed| {
        Masked::new(
            Surrounded::new(Shuffled::new(windows.clone(), 4, seed), frame.clone()),
            masking(seed),
        )
    });
    let masked = Masked::new(rows, Masking { share: 1.0, ..masking(1) });
    let batch = InOrder::new(&masked, 3).next().unwrap();
    assert_eq!((batch.inputs[0], batch.targets[0], batch.targets[1]), (1, IGNORED, 10));
}

#[test]
fn tags_go_to_the_first_token_of_each_word() {
    // "Mia ran": tokens Mi|a| ran, a space counted as a part of its token.
    let words = [(0..3, 7), (4..7, 9)];
    let row = frame(16).one(&[20, 21, 22]);
    let (tags, tokens) = align_tags(&words, &[0..2, 2..3, 3..7], &row);
    assert_eq!((tags, tokens), (vec![IGNORED, 7, IGNORED, 9, IGNORED], vec![Some(1), Some(3)]));
    // A word that was cut off, and one without a token.
    let row = Frame { length: 5, ..frame(5) }.one(&[20, 21, 22, 23]);
    assert_eq!(row.cut, 1);
    let words = [(0..1, 1), (2..3, 2), (4..5, 3), (6..7, 4)];
    let (tags, tokens) = align_tags(&words, &[0..1, 4..5, 6..7], &row);
    assert_eq!(tokens, [Some(1), None, Some(2), Some(3)]);
    assert_eq!(tags, [IGNORED, 1, 3, 4, IGNORED]);
}

#[test]
fn long_contexts_are_read_in_windows_and_answers_put_back() {
    let frame = frame(12); // room for 9
    let question = [50, 51, 52];
    let context: Vec<u32> = (100..120).collect();
    let windows = frame.windows(&question, &context, None);
    let held: Vec<Range<usize>> = windows.rows.iter().map(|(_, held)| held.clone()).collect();
    assert_eq!(held, [0..6, 3..9, 6..12, 9..15, 12..18, 15..20]);
    assert!(windows.rows.iter().all(|(row, _)| row.ids.len() <= 12 && row.cut == 0));
    // Every answer of up to 3 tokens lies whole in some window, and comes back.
    let places: Vec<Range<usize>> = (0..20).map(|i| 3 * i..3 * i + 2).collect();
    for first in 0..20 {
        for last in first..20.min(first + 3) {
            let answer = places[first].start..places[last].end;
            let found = windows.rows.iter().filter_map(|(row, held)| {
                let at = row.second.clone().unwrap().start;
                let [a, b] = locate_answer(&answer, &places, held, at)?.map(|t| t as usize);
                assert_eq!(row.ids[a..=b], context[first..=last]);
                Some(places[held.start + a - at].start..places[held.start + b - at].end)
            });
            let found: Vec<Range<usize>> = found.collect();
            assert!(!found.is_empty() && found.iter().all(|place| *place == answer));
        }
    }
    assert_eq!(locate_answer(&(2..3), &places, &held[0], 5), None); // between two tokens
    // One window if all fits; a question of any length leaves room.
    assert_eq!(frame.windows(&question, &context[..6], None).rows.len(), 1);
    assert_eq!(frame.windows(&question, &[], None).rows.len(), 1);
    let long = frame.windows(&[50; 40], &context, Some(100));
    assert_eq!((long.cut, long.rows.len()), (36, 4));
}

#[test]
fn the_best_answer_is_in_order_short_enough_and_in_the_context() {
    let start = [9.0, 0.0, 3.0, 1.0, 8.0];
    let end = [9.0, 5.0, 1.0, 2.0, 7.0];
    let best = best_answer(&start, &end, 1..4, 30).unwrap();
    assert_eq!(best, Guess { tokens: [1, 1], score: 0.0 + 5.0 - 18.0 });
    let best = best_answer(&start, &end, 2..5, 2).unwrap();
    assert_eq!(best.tokens, [4, 4]);
    assert_eq!(best_answer(&start, &end, 2..2, 5), None);
    let flat = [0.0; 4];
    assert_eq!(best_answer(&flat, &flat, 1..4, 5).unwrap().tokens, [1, 1]);
}
