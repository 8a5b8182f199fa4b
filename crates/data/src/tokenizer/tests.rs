use super::*;
use hearken_tensor::rng::Rng;

const SAMPLE: &str = "It was a bright cold day in April. Über den Wolken muss die Freiheit wohl \
    grenzenlos sein. Всё счастливые семьи похожи друг на друга. 吾輩は猫である。名前はまだ無い。\r\n\
    \t  if (a[i] != b[j]) { return 42; } ## heading #tag 👩‍👩‍👧 e\u{301} \u{0}\u{7f}\n\n";

fn trained(kind: Kind, fallback: bool) -> Tokenizer {
    let vocabulary = Training::new(kind).vocabulary.map(|_| 700);
    Training { vocabulary, byte_fallback: fallback, ..Training::new(kind) }
        .train_on_text(SAMPLE)
        .unwrap()
}

/// Text of `length` characters, all kinds of them.
fn any_text(rng: &mut Rng, length: usize) -> String {
    let mut text = String::new();
    while text.chars().count() < length {
        match rng.below(8) {
            0 => text.push_str(["\r\n", "\n", "  ", "\t", " ", "\u{a0}", "\u{0}"][rng.below(7)]),
            1 => text.extend(char::from_u32(rng.below(0x11_0000) as u32)), // any character at all
            2 => text.push_str(["👩‍👩‍👧", "e\u{301}", "\u{200d}", "ﬁ", "İ", "\u{feff}"][rng.below(6)]),
            3 => text.push_str(["##", "#", "<0x41>", "<|endoftext|>", "[UNK]", "Ġ"][rng.below(6)]),
            4 => text.extend(char::from_u32(0x4e00 + rng.below(200) as u32)),
            _ => text.push((b' ' + rng.below(95) as u8) as char),
        }
    }
    text
}

#[test]
fn any_unicode_text_comes_back() {
    let tokenizers = [
        (Kind::Character, true),
        (Kind::Byte, false),
        (Kind::Bpe, false),
        (Kind::WordPiece, false),
        (Kind::Unigram, false),
    ];
    for (kind, fallback) in tokenizers {
        let tokenizer = trained(kind, fallback);
        let mut rng = Rng::new(11);
        for round in 0..300 {
            let text = any_text(&mut rng, round % 40);
            let ids = tokenizer.encode(&text).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{kind:?}: {text:?}");
            assert!(!ids.iter().any(|&id| tokenizer.is_special(id)), "{kind:?}: {text:?}");
            let mut stream = tokenizer.stream();
            let mut streamed = String::new();
            for &id in &ids {
                streamed.push_str(&stream.push(id).unwrap());
            }
            streamed.push_str(&stream.finish().unwrap());
            assert_eq!(streamed, text, "{kind:?}: {text:?}");
        }
    }
}

#[test]
fn the_direct_path_gives_the_ids_of_the_library() {
    let mut rng = Rng::new(12);
    for (kind, fallback) in [(Kind::Character, true), (Kind::Byte, false)] {
        let tokenizer = trained(kind, fallback);
        assert!(tokenizer.direct.is_some());
        for _ in 0..200 {
            let text = any_text(&mut rng, 30);
            let library = tokenizer.run_library(&text).unwrap();
            assert_eq!(tokenizer.encode(&text).unwrap(), library, "{kind:?}: {text:?}");
        }
    }
    let unknown = vec![Special::Unk.into(), Special::Eos.into()];
    let tokenizer = Training { specials: unknown, ..Training::new(Kind::Character) }
        .train_on_text("abc")
        .unwrap();
    assert!(tokenizer.direct.is_some());
    let library = tokenizer.run_library("axbyéc[UNK]").unwrap();
    assert_eq!(tokenizer.encode("axbyéc[UNK]").unwrap(), library);
    assert_eq!(tokenizer.encode("aéc").unwrap(), [0, tokenizer.require(Special::Unk).unwrap(), 2]);
}

#[test]
fn pieces_have_the_ids_of_the_whole() {
    for kind in [Kind::Bpe, Kind::WordPiece, Kind::Unigram] {
        let tokenizer = trained(kind, false);
        assert_eq!(tokenizer.cut_rule(), CutRule::BeforeSpace);
        let mut rng = Rng::new(13);
        let text = any_text(&mut rng, 3000) + &SAMPLE.repeat(20);
        let whole = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
        // Twice, so that every word is looked up once.
        assert!(tokenizer.encode(&text).unwrap() == whole.get_ids(), "{kind:?}");
        assert!(tokenizer.encode(&text).unwrap() == whole.get_ids(), "{kind:?}");
        for size in [1, 7, 100] {
            let pieces = tokenizer.cut.pieces(&text, size);
            let ids: Vec<u32> =
                pieces.iter().flat_map(|piece| tokenizer.encode(piece).unwrap()).collect();
            assert!(ids == whole.get_ids(), "{kind:?}, pieces of {size}");
        }
    }
}

#[test]
fn special_tokens_come_only_when_asked_for() {
    // Words that are not known become a special token: see below.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Word) {
        let specials = Special::ALL.map(SpecialText::from).to_vec();
        let vocabulary = Training::new(kind).vocabulary.map(|_| 700);
        let text = Special::ALL.map(|special| format!("a {} b", special.default_text())).concat();
        let tokenizer =
            Training { vocabulary, specials, ..Training::new(kind) }.train_on_text(&text).unwrap();
        for special in Special::ALL {
            let id = tokenizer.require(special).unwrap();
            let text = format!("a {} b", special.default_text());
            let plain = tokenizer.encode(&text).unwrap();
            assert!(!plain.iter().any(|&id| tokenizer.is_special(id)), "{kind:?} {text}");
            assert_eq!(tokenizer.decode(&plain).unwrap(), text);
            let meant = tokenizer.encode_allowing_special(&text).unwrap();
            assert_eq!(meant.iter().filter(|&&other| other == id).count(), 1, "{kind:?} {text}");
            assert_eq!(tokenizer.decode(&meant).unwrap(), text, "{kind:?}");
            assert_eq!(tokenizer.decode_without_special(&meant).unwrap(), "a  b", "{kind:?}");
        }
    }
}

#[test]
fn a_model_that_finds_special_tokens_in_text_is_kept_from_it() {
    // As T5's is built: the special tokens are pieces of the model.
    let pieces =
        [("<unk>", 0.0), ("</s>", 0.0), ("<", -2.0), ("/", -2.0), ("s", -2.0), (">", -2.0)];
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [
            {"id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false,
             "normalized": false, "special": true},
            {"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
             "normalized": false, "special": true}],
        "normalizer": {"type": "NFKC"}, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Fuse"},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": false}});
    let tokenizer = Tokenizer::from_value(&json, None).unwrap();
    assert_eq!(tokenizer.special(Special::Eos), Some(1));
    assert_eq!(tokenizer.encode("s</s>").unwrap(), [4, 2, 3, 4, 5]);
    assert_eq!(tokenizer.encode_allowing_special("s</s>").unwrap(), [4, 1]);
    // Full-width signs become ASCII in the normaliser: the last resort is the unknown token.
    assert!(!tokenizer.encode("s\u{ff1c}/s\u{ff1e}").unwrap().contains(&1));
}

#[test]
fn training_twice_gives_the_same_tokenizer() {
    for kind in Kind::ALL {
        let [first, second] = [trained(kind, false), trained(kind, false)];
        assert_eq!(first.to_json().unwrap(), second.to_json().unwrap(), "{kind:?}");
        assert_eq!(first.fingerprint(), second.fingerprint());
    }
}

#[test]
fn what_cannot_be_trained_says_why() {
    let message = |training: Training, text: &str| training.train_on_text(text).unwrap_err();
    for kind in Kind::ALL {
        let error = message(Training::new(kind), "").to_string();
        assert!(error.contains("is empty") && error.contains("hint: "), "{kind:?}: {error}");
    }
    let small = |kind| Training { vocabulary: Some(100), ..Training::new(kind) };
    for kind in [Kind::Bpe, Kind::WordPiece, Kind::Unigram] {
        let error = message(small(kind), "some text").to_string();
        assert!(error.contains("a vocabulary of 100 is too small"), "{error}");
    }
    let huge = Training { vocabulary: Some(1_000_000_000_000), ..Training::new(Kind::Bpe) };
    let error = message(huge, "some text").to_string();
    assert!(error.contains("is too large") && error.contains("hint: "), "{error}");
    let few = Training { vocabulary: Some(3), ..Training::new(Kind::Character) };
    let error = message(few.clone(), "abcd").to_string();
    assert!(error.contains("4 ids are needed for 4 characters"), "{error}");
    // With an unknown token the most frequent characters stay.
    let unknown = Training { specials: vec![Special::Unk.into()], ..few };
    let tokenizer = unknown.train_on_text("abbccc").unwrap();
    assert_eq!(tokenizer.encode("abc").unwrap(), [2, 0, 1]);
    let twice = vec![Special::Pad.into(), SpecialText::new(Special::Eos, "[PAD]")];
    let error = message(Training { specials: twice, ..Training::new(Kind::Byte) }, "a");
    assert!(error.to_string().contains("given twice"), "{error}");
    let tokenizer = Training::new(Kind::Character).train_on_text("abc").unwrap();
    let error = tokenizer.encode("abz").unwrap_err().to_string();
    assert!(error.contains("'z' (U+007A) at byte 2"), "{error}");
    assert!(tokenizer.decode(&[0, 7]).unwrap_err().to_string().contains("token id 7"));
}

#[test]
fn words_that_are_looked_up_have_the_ids_of_the_library() {
    let mut rng = Rng::new(14);
    for kind in [Kind::Bpe, Kind::WordPiece, Kind::Unigram] {
        let tokenizer = trained(kind, false);
        assert!(tokenizer.words.is_some());
        for _ in 0..300 {
            let text = any_text(&mut rng, 25);
            let library = tokenizer.run_library(&text).unwrap();
            assert_eq!(tokenizer.encode(&text).unwrap(), library, "{kind:?}: {text:?}");
        }
    }
}

#[test]
fn a_word_without_end_is_seen_in_pieces() {
    let mut notes = Vec::new();
    let texts = [Ok("a".repeat(100_000)), Ok(" and some words".to_owned())];
    let training = Training { vocabulary: Some(300), ..Training::new(Kind::Bpe) };
    let tokenizer = training
        .train_noting(texts.into_iter(), None, &mut crate::quiet, &mut |note| notes.push(note))
        .unwrap();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("1 word of the text has more than 256 bytes, 100000 in all"));
    let ids = 0..tokenizer.vocabulary_size() as u32;
    let longest = ids.filter_map(|id| tokenizer.token(id)).map(|token| token.len()).max();
    assert_eq!(longest, Some(256));
    let text = "a".repeat(1000);
    assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()).unwrap(), text);
}

#[test]
fn text_without_words_to_learn_is_an_error() {
    let text = "<|endoftext|>".repeat(2);
    let error = Training::new(Kind::Unigram).train_on_text(&text).unwrap_err();
    assert!(error.message().contains("too short or too uniform"), "{error}");
    assert!(error.hint().is_some());
    assert!(Training::new(Kind::Bpe).train_on_text(&text).is_ok());
}

#[test]
fn an_unknown_character_is_explained_with_what_is_known() {
    let tokenizer = Tokenizer::of_characters(&"\n .,abcxyABD".chars().collect::<Vec<_>>());
    let text = tokenizer.encode("ab!").unwrap_err().to_string();
    assert!(text.contains("the character '!' (U+0021) at byte 2"), "{text}");
    assert!(text.contains("it knows line end space , . A B D a–c x y;"), "{text}");
}

#[test]
fn whole_words_are_tokens_and_others_unknown() {
    let training = Training { vocabulary: Some(10), ..Training::new(Kind::Word) };
    let text = "the cat, the dog. the cat! a dog, a dog [MASK] [MASK] once";
    let tokenizer = training.train_on_text(text).unwrap();
    // By frequency, then by character; five special tokens, and five of six words fit.
    let tokens: Vec<String> = (0..10).filter_map(|id| tokenizer.token(id)).collect();
    let words = ["dog", "the", ",", "MASK", "[", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"];
    assert_eq!(tokens, words);
    let id = |token: &str| tokenizer.id(token).unwrap();
    let unknown = tokenizer.require(Special::Unk).unwrap();
    assert_eq!(
        tokenizer.encode("the  dog,once").unwrap(),
        [id("the"), id("dog"), id(","), unknown]
    );
    // Special tokens are never made from plain text, but by what is unknown.
    assert_eq!(tokenizer.encode("[PAD]").unwrap(), [id("["), unknown, unknown]);
    assert_eq!(tokenizer.encode("[MASK").unwrap(), [id("["), id("MASK")]);
    let hidden = tokenizer.encode_allowing_special("the [MASK], dog").unwrap();
    assert_eq!(hidden, [id("the"), tokenizer.require(Special::Mask).unwrap(), id(","), id("dog")]);
    assert_eq!(
        tokenizer.decode(&[id("the"), id("dog"), id(","), id("the")]).unwrap(),
        "the dog, the"
    );
    let saved = tempfile::tempdir().unwrap();
    tokenizer.save_directory(saved.path()).unwrap();
    let loaded = Tokenizer::load(saved.path()).unwrap();
    assert_eq!(loaded.encode(text).unwrap(), tokenizer.encode(text).unwrap());
    assert_eq!(loaded.special(Special::Mask), tokenizer.special(Special::Mask));
    // Cut anywhere before a space, a text has the same ids.
    let pieces = tokenizer.cut_rule().pieces(text, 7);
    assert!(pieces.len() > 4);
    let ids: Vec<u32> = pieces.iter().flat_map(|piece| tokenizer.encode(piece).unwrap()).collect();
    assert_eq!(ids, tokenizer.encode(text).unwrap());
    let once = Training { minimum_frequency: 9, ..training };
    assert!(once.train_on_text(text).unwrap_err().message().contains("too short or too uniform"));
}

#[test]
fn places_are_those_of_the_tokens_in_the_text() {
    let mut rng = Rng::new(15);
    for kind in Kind::ALL {
        let tokenizer = trained(kind, kind == Kind::Character);
        for round in 0..100 {
            let text = any_text(&mut rng, round % 30);
            let found = tokenizer.encode_with_places(&text).unwrap();
            let ids: Vec<u32> = found.iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, tokenizer.encode(&text).unwrap(), "{kind:?}: {text:?}");
            for (_, place) in &found {
                assert!(text.get(place.clone()).is_some(), "{kind:?}: {place:?} of {text:?}");
            }
            assert!(found.is_sorted_by_key(|(_, place)| place.start), "{kind:?}: {text:?}");
        }
    }
    let words = trained(Kind::Word, false);
    let text = "é, the  cat";
    let found = words.encode_with_places(text).unwrap();
    let seen: Vec<&str> = found.iter().map(|(_, place)| &text[place.clone()]).collect();
    assert_eq!(seen, ["é", ",", "the", "cat"]);
}

#[test]
fn sentence_piece_is_refused_with_a_hint() {
    for name in ["source.spm", "spiece.model"] {
        let error = Tokenizer::load(std::path::Path::new(name)).unwrap_err();
        assert!(error.message().contains("a SentencePiece model"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("tokenizer.json")), "{error}");
    }
}
