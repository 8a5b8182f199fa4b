//! Tokenizers against Hugging Face's `tokenizers`, through the files in `fixtures/tokenizers`
//! (made by `make.py` there), and against GPT-2's own vocabulary where that is at hand.

use hearken_data::tokenizer::{Kind, Special, SpecialText, Tokenizer, Training};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers")
}

struct Answers {
    texts: Vec<String>,
    all: serde_json::Value,
}

impl Answers {
    fn read() -> Self {
        let json = fs::read_to_string(fixtures().join("ids.json")).unwrap();
        let all: serde_json::Value = serde_json::from_str(&json).unwrap();
        Self { texts: serde_json::from_value(all["texts"].clone()).unwrap(), all }
    }

    fn ids(&self, name: &str, how: &str) -> Vec<Vec<u32>> {
        serde_json::from_value(self.all[name][how].clone()).unwrap()
    }

    fn decoded(&self, name: &str) -> Vec<String> {
        serde_json::from_value(self.all[name]["decoded"].clone()).unwrap()
    }

    /// Compares everything that the library said about the tokenizer `name`.
    fn hold(&self, name: &str, tokenizer: &Tokenizer) {
        let (plain, allowed) = (self.ids(name, "plain"), self.ids(name, "allowed"));
        assert_eq!(tokenizer.vocabulary_size(), self.all[name]["vocabulary"], "{name}");
        for (i, text) in self.texts.iter().enumerate() {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(ids, plain[i], "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&ids).unwrap(), self.decoded(name)[i], "{name}: {text:?}");
            let ids = tokenizer.encode_allowing_special(text).unwrap();
            assert_eq!(ids, allowed[i], "{name}: {text:?}");
        }
    }
}

fn trainings() -> Vec<(&'static str, Training)> {
    let with = |kind, vocabulary| Training { vocabulary: Some(vocabulary), ..Training::new(kind) };
    let unknown = vec![SpecialText::from(Special::Unk), SpecialText::from(Special::Eos)];
    vec![
        ("ours-character", Training { specials: unknown, ..Training::new(Kind::Character) }),
        ("ours-character-fallback", Training { byte_fallback: true, ..with(Kind::Character, 400) }),
        ("ours-byte", Training::new(Kind::Byte)),
        ("ours-bpe", with(Kind::Bpe, 500)),
        ("ours-wordpiece", with(Kind::WordPiece, 700)),
        ("ours-unigram", with(Kind::Unigram, 500)),
    ]
}

#[test]
fn ours_are_trained_as_ever_and_encode_as_hugging_face_says() {
    let text = fs::read_to_string(fixtures().join("text.txt")).unwrap();
    let write = std::env::var_os("HEARKEN_WRITE_FIXTURES").is_some();
    for (name, training) in trainings() {
        let tokenizer = training.train_on_text(&text).unwrap();
        let path = fixtures().join(format!("{name}.json"));
        if write {
            tokenizer.save(&path).unwrap();
            continue;
        }
        let answers = Answers::read();
        let loaded = Tokenizer::load(&path).unwrap();
        answers.hold(name, &loaded);
        // The same file in every build: training does not depend on threads, on hash seeds, or on
        // the features that other crates ask of serde_json.
        assert!(tokenizer.to_json().unwrap() == fs::read_to_string(&path).unwrap(), "{name}");
        answers.hold(name, &tokenizer);
        assert_eq!(loaded.fingerprint(), tokenizer.fingerprint());
        assert_eq!(loaded.special(Special::Eos), tokenizer.special(Special::Eos));
    }
}

#[test]
fn theirs_load_and_encode_as_hugging_face_says() {
    let answers = Answers::read();
    for name in ["bert", "llama"] {
        let name = format!("theirs-{name}");
        let tokenizer = Tokenizer::load(&fixtures().join(format!("{name}.json"))).unwrap();
        answers.hold(&name, &tokenizer);
    }
    let gpt2 = Tokenizer::load(&fixtures().join("gpt2")).unwrap();
    answers.hold("gpt2", &gpt2);
    let either = Tokenizer::load(&fixtures().join("gpt2/merges.txt")).unwrap();
    assert_eq!(either.fingerprint(), gpt2.fingerprint());
    assert_eq!(gpt2.special(Special::Eos), Some(400));
}

/// A SentencePiece model has its special tokens among its pieces, and the library finds them in
/// plain text. There Hearken differs on purpose.
#[test]
fn sentence_piece_agrees_but_makes_no_special_token_from_text() {
    let name = "theirs-sentence-piece";
    let answers = Answers::read();
    let tokenizer = Tokenizer::load(&fixtures().join(format!("{name}.json"))).unwrap();
    let end = tokenizer.require(Special::Eos).unwrap();
    let mut differing = 0;
    for (text, expected) in answers.texts.iter().zip(answers.ids(name, "plain")) {
        let ids = tokenizer.encode(text).unwrap();
        if text.contains("</s>") {
            assert!(expected.contains(&end) && !ids.contains(&end));
            differing += 1;
        } else {
            assert_eq!(ids, expected, "{text:?}");
        }
    }
    assert_eq!(differing, 1);
}

/// A3. `HEARKEN_GPT2_VOCAB` names a directory with GPT-2's `vocab.json` and `merges.txt` (or
/// `encoder.json` and `vocab.bpe`), or its `tokenizer.json`.
#[test]
fn gpt2_encodes_as_gpt2() {
    let Some(path) = std::env::var_os("HEARKEN_GPT2_VOCAB") else {
        eprintln!("SKIPPED: HEARKEN_GPT2_VOCAB does not say where GPT-2's vocabulary is");
        return;
    };
    let tokenizer = Tokenizer::load(path.as_ref()).unwrap();
    assert_eq!(tokenizer.vocabulary_size(), 50_257);
    assert_eq!(tokenizer.encode("The cat sat on").unwrap(), [464, 3797, 3332, 319]);
    assert_eq!(tokenizer.decode(&[464, 3797, 3332, 319, 2415]).unwrap(), "The cat sat on woman");
    assert_eq!(tokenizer.special(Special::Eos), Some(50_256));
    assert!(!tokenizer.encode("a<|endoftext|>b").unwrap().contains(&50_256));
    let allowed = tokenizer.encode_allowing_special("a<|endoftext|>b").unwrap();
    assert_eq!(allowed, [64, 50_256, 65]);
}

#[test]
fn what_is_saved_loads_again() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fixtures().join("text.txt")).unwrap();
    for (name, training) in trainings() {
        let mut training = training;
        // A text that nobody would guess: the role comes from tokenizer_config.json.
        training.specials.retain(|special| special.special != Some(Special::Eos));
        training.specials.push(SpecialText::new(Special::Eos, "<<fin>>"));
        let tokenizer = training.train_on_text(&text).unwrap();
        let directory = folder.path().join(name);
        tokenizer.save_directory(&directory).unwrap();
        let loaded = Tokenizer::load(&directory).unwrap();
        assert_eq!(loaded.special(Special::Eos), tokenizer.special(Special::Eos), "{name}");
        assert!(loaded.special(Special::Eos).is_some());
        assert_eq!(loaded.fingerprint(), tokenizer.fingerprint());
        assert_eq!(loaded.encode(&text).unwrap(), tokenizer.encode(&text).unwrap());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "temporary files stay behind");
    }
}

#[test]
fn files_that_are_no_tokenizer_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let missing = Tokenizer::load(&path).unwrap_err();
    assert_eq!(missing.kind(), hearken_base::Kind::Io(ErrorKind::NotFound));
    assert!(missing.message().ends_with("tokenizer.json does not exist"), "{missing}");
    let contents: [&[u8]; 6] =
        [b"", b"{}", b"[1, 2", b"\xff\xfe", b"{\"model\": {\"type\": \"BPE\"}}", b"{\"a\": 1}"];
    for content in contents {
        fs::write(&path, content).unwrap();
        let error = Tokenizer::load(&path).unwrap_err();
        assert!(error.message().contains(" is not a tokenizer: "), "{content:?}: {error}");
        assert!(
            error.hint().is_some_and(|h| h.starts_with("expected a tokenizer.json")),
            "{error}"
        );
    }
    fs::remove_file(&path).unwrap();
    let error = Tokenizer::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("the directory holds no tokenizer.json"), "{error}");
    fs::write(folder.path().join("vocab.json"), "{\"a\": 0}").unwrap();
    fs::write(folder.path().join("merges.txt"), "#version: 0.2\na b c\n").unwrap();
    let error = Tokenizer::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("line 2 is not a pair of tokens"), "{error}");
    fs::write(folder.path().join("merges.txt"), "a b\n").unwrap();
    let error = Tokenizer::load(folder.path()).unwrap_err();
    assert!(error.message().contains(" is not a tokenizer: "), "{error}");
}
