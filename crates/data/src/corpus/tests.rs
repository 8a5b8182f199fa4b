use super::*;
use crate::quiet;
use crate::tokenizer::{Kind, Training};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

struct Fixture {
    folder: TempDir,
    tokenizer: Tokenizer,
}

impl Fixture {
    fn new() -> Self {
        let tokenizer = Training::new(Kind::Byte).train_on_text("a").unwrap();
        Self { folder: tempfile::tempdir().unwrap(), tokenizer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn prepare(&self, path: &Path, validation: &Validation) -> Result<Corpus> {
        let source = Source::from_path(path)?;
        let cache = self.path("cache/tokens.bin");
        Corpus::prepare(&source, validation, &self.tokenizer, &cache, &mut quiet)
    }
}

fn text_of(ids: &Ids) -> String {
    let bytes = ids.to_vec(0..ids.len()).into_iter().map(|id| id as u8).collect();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_split_is_by_characters() {
    let fixture = Fixture::new();
    // 25 characters: int(0.9·25) = 22 for training; the umlauts make bytes differ.
    let path = fixture.write("text.txt", "äöüäöüäöü0123456789abcdef");
    let corpus = fixture.prepare(&path, &Validation::Fraction(0.1)).unwrap();
    assert_eq!(text_of(&corpus.train), "äöüäöüäöü0123456789abc");
    assert_eq!(text_of(&corpus.validation), "def");
    assert_eq!((corpus.train_bytes, corpus.validation_bytes), (31, 3));
    let corpus = fixture.prepare(&path, &Validation::None).unwrap();
    assert_eq!(corpus.outcome, Outcome::Rebuilt { reason: "the split has changed".to_owned() });
    assert_eq!((corpus.train.len(), corpus.validation.len()), (34, 0));
    let own = Source::from_path(&fixture.write("own.txt", "own")).unwrap();
    let corpus = fixture.prepare(&path, &Validation::Source(own)).unwrap();
    assert_eq!((corpus.train.len(), text_of(&corpus.validation).as_str()), (34, "own"));
    assert_eq!(corpus.validation_bytes, 3);
}

#[test]
fn long_text_is_the_same_in_chunks() {
    let fixture = Fixture::new();
    // 2.8 MB: three chunks, cut inside words and characters.
    let text: String = ["wörd1 ", "wörd2 ", "wörd3 ", "wörd4 "].concat().repeat(100_000);
    let path = fixture.write("long.txt", &text);
    let bpe = Training { vocabulary: Some(270), ..Training::new(Kind::Bpe) };
    let bpe = bpe.train_on_text(&text[..1000]).unwrap();
    let source = Source::from_path(&path).unwrap();
    assert!(source.chunks(CutRule::Anywhere).count() > 2);
    for tokenizer in [&fixture.tokenizer, &bpe] {
        let whole = tokenizer.encode(&text).unwrap();
        let cache = fixture.path("long.bin");
        let mut last = None;
        let mut report = |progress| last = Some(progress);
        let corpus =
            Corpus::prepare(&source, &Validation::None, tokenizer, &cache, &mut report).unwrap();
        assert!(corpus.train.to_vec(0..corpus.train.len()) == whole);
        let bytes = text.len() as u64;
        let end = Progress { stage: Stage::Tokenising, done: bytes, total: Some(bytes) };
        assert_eq!(last, Some(end));
    }
}

#[test]
fn a_cache_is_reused_while_it_is_right() {
    let fixture = Fixture::new();
    let path = fixture.write("text.txt", "hello, hello");
    let split = Validation::Fraction(0.25);
    assert_eq!(fixture.prepare(&path, &split).unwrap().outcome, Outcome::Built);
    assert_eq!(fixture.prepare(&path, &split).unwrap().outcome, Outcome::Reused);
    // Written again with the same text: another time, the same content.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    assert_eq!(fixture.prepare(&path, &split).unwrap().outcome, Outcome::Reused);
    let path = fixture.write("text.txt", "hello, world");
    fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    fixture.write("text.txt", "hello, world");
    let corpus = fixture.prepare(&path, &split).unwrap();
    assert_eq!(corpus.outcome, Outcome::Rebuilt { reason: "the text has changed".to_owned() });
    assert_eq!(text_of(&corpus.train), "hello, wo");
    let leftovers = fs::read_dir(fixture.path("cache")).unwrap().count();
    assert_eq!(leftovers, 1, "temporary files are left behind");
}

#[test]
fn damage_is_named_and_mended() {
    let fixture = Fixture::new();
    let path = fixture.write("text.txt", "some text to keep");
    fixture.prepare(&path, &Validation::None).unwrap();
    let cache = fixture.path("cache/tokens.bin");
    let whole = fs::read(&cache).unwrap();
    let huge = |mut bytes: Vec<u8>| {
        // A count that would be 2⁶⁵ bytes, with a header checksum that is right.
        bytes[16..24].copy_from_slice(&(1_u64 << 63).to_le_bytes());
        let sum = Digest::of(&bytes[..104]);
        bytes[104..112].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    let damages: [(&str, Vec<u8>); 6] = [
        ("instead of 162", whole[..whole.len() - 1].to_vec()),
        ("fewer than its header", whole[..40].to_vec()),
        ("does not begin as a token file", b"x".repeat(200)),
        ("instead of far more", huge(whole.clone())),
        ("header does not match", [&whole[..30], &[9], &whole[31..]].concat()),
        ("ids do not match", [&whole[..140], &[9], &whole[141..]].concat()),
    ];
    for (expected, bytes) in damages {
        fs::write(&cache, bytes).unwrap();
        let corpus = fixture.prepare(&path, &Validation::None).unwrap();
        let Outcome::Rebuilt { reason } = corpus.outcome else { panic!("{expected}") };
        assert!(reason.contains(expected), "{expected}: {reason}");
        assert_eq!(text_of(&corpus.train), "some text to keep");
        assert!(fs::read(&cache).unwrap() == whole, "{expected}");
    }
}

#[test]
fn directories_and_json_lines_are_documents() {
    let fixture = Fixture::new();
    fixture.write("texts/b.txt", "second");
    fixture.write("texts/a/z.txt", "first");
    fixture.write("texts/.hidden", [0]);
    fixture.write("texts/runs/one/lock", "process 1");
    fixture.write("texts/runs/one/checkpoints/last/model.safetensors", [0]);
    fixture.write("texts/c.jsonl", "{\"text\": \"third\"}\n\n{\"id\": 1, \"text\": \"fourth\"}\n");
    let specials = vec![crate::tokenizer::SpecialText::from(Special::Eos)];
    let tokenizer = Training { specials, ..Training::new(Kind::Byte) }.train_on_text("a").unwrap();
    let source = Source::from_path(&fixture.path("texts")).unwrap();
    let cache = fixture.path("tokens.bin");
    let corpus =
        Corpus::prepare(&source, &Validation::None, &tokenizer, &cache, &mut quiet).unwrap();
    let text = tokenizer.decode(&corpus.train.to_vec(0..corpus.train.len())).unwrap();
    assert_eq!(
        text.split_terminator("<|endoftext|>").collect::<Vec<_>>(),
        ["first", "second", "third", "fourth"]
    );
}

#[test]
fn bad_input_says_what_and_where() {
    let fixture = Fixture::new();
    let error = |path: &Path| {
        let error = fixture.prepare(path, &Validation::Fraction(0.1)).unwrap_err().to_string();
        assert!(error.contains("hint: "), "{error}");
        error
    };
    assert!(error(&fixture.path("nowhere")).contains("nowhere does not exist"));
    assert!(error(&fixture.write("empty", "")).contains("is empty"));
    fs::create_dir(fixture.path("nothing")).unwrap();
    assert!(error(&fixture.path("nothing")).contains("is empty"));
    let late = [b"text ".repeat(300_000), vec![0xff, 1]].concat();
    let message = error(&fixture.write("latin", late));
    assert!(message.contains("the byte 0xFF, which is not UTF-8, at byte 1500000"), "{message}");
    assert!(error(&fixture.write("zero", b"ab\0c")).contains("a NUL byte at byte 2"));
    assert!(error(&fixture.write("half", b"abc\xe2\x82")).contains("at byte 3"));
    let message = error(&fixture.write("x.jsonl", "{\"text\": \"a\"}\n{\"body\": 1}\n"));
    assert!(message.contains("line 2: the field \"text\" is missing"), "{message}");
    assert!(message.contains("this line has: body"), "{message}");
    assert!(error(&fixture.write("y.jsonl", "no json\n")).contains("line 1: not JSON"));
    assert!(error(&fixture.write("z.jsonl", "{\"text\": 5}\n")).contains("is not a string"));
    assert!(error(&fixture.write("one", "a")).contains("cannot split"));
    let path = fixture.write("good", "good");
    for fraction in [1.0, -0.1, f64::NAN] {
        let error = fixture.prepare(&path, &Validation::Fraction(fraction)).unwrap_err();
        assert!(error.to_string().contains("is no fraction"), "{error}");
    }
}

#[test]
fn stdin_is_kept_in_a_file() {
    let fixture = Fixture::new();
    let kept = fixture.path("run/stdin.txt");
    let keeping = Keeping::new(fixture.folder.path());
    let read = |text: &'static [u8], keeping: &Keeping<'_>, report: Report<'_>| {
        Source::from_reader(text, "stdin", &kept, keeping, report)
    };
    let mut last = None;
    let source = read(b"from a pipe", &keeping, &mut |progress| last = Some(progress)).unwrap();
    assert_eq!(last, Some(Progress { stage: Stage::Keeping, done: 11, total: None }));
    let texts: Result<Vec<String>> = source.texts().collect();
    assert_eq!(texts.unwrap(), ["from a pipe"]);
    let error = read(b"", &keeping, &mut quiet).unwrap_err();
    assert!(error.to_string().contains("stdin is empty"));
    // What cannot be kept leaves what was there.
    let limited = Keeping { limit: 10, ..keeping };
    let error = read(b"from a pipe", &limited, &mut quiet).unwrap_err().to_string();
    assert!(error.contains("stdin gives more than 10 bytes"), "{error}");
    assert!(error.contains("hint: is it endless?"), "{error}");
    assert_eq!(fs::read(&kept).unwrap(), b"from a pipe");
    assert_eq!(fs::read_dir(fixture.path("run")).unwrap().count(), 1);
}

/// Input that never ends, and that never comes.
#[test]
fn reading_stops_when_asked() {
    struct Waits(std::sync::mpsc::Receiver<()>);
    impl std::io::Read for Waits {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(0)
        }
    }
    let fixture = Fixture::new();
    let kept = fixture.path("run/stdin.txt");
    let stop = Stop::default();
    let keeping = Keeping { stop: Some(&stop), ..Keeping::new(fixture.folder.path()) };
    let asks = stop.clone();
    let mut report = move |progress: Progress| {
        asks.store(progress.done > 1 << 20, std::sync::atomic::Ordering::SeqCst);
    };
    let endless = std::io::repeat(b'a');
    let error = Source::from_reader(endless, "stdin", &kept, &keeping, &mut report).unwrap_err();
    assert_eq!(error.kind(), hearken_base::Kind::Io(std::io::ErrorKind::Interrupted));
    let (sender, receiver) = std::sync::mpsc::channel();
    let error = Source::from_reader(Waits(receiver), "stdin", &kept, &keeping, &mut quiet);
    assert!(error.unwrap_err().message().contains("stopped while reading stdin"));
    drop(sender);
    assert_eq!(fs::read_dir(fixture.path("run")).unwrap().count(), 0);
    // A text that is being read heeds it, too.
    stop.store(false, std::sync::atomic::Ordering::SeqCst);
    let path = fixture.write("text.txt", "text");
    let source = Source::open_keeping(&[path], "text", &keeping, &mut quiet).unwrap();
    assert_eq!(source.texts().count(), 1);
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(source.texts().next().unwrap().is_err());
}

#[cfg(unix)]
#[test]
fn pipes_are_kept_and_devices_refused() {
    let fixture = Fixture::new();
    let pipe = fixture.path("lines.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let text = fixture.write("text.txt", "a file");
    let error = Source::from_path(&pipe).unwrap_err().to_string();
    assert!(error.contains("lines.jsonl is a pipe"), "{error}");
    for device in ["/dev/null", "/dev/zero"] {
        let error = Source::from_path(Path::new(device)).unwrap_err().to_string();
        assert!(error.contains("is a device"), "{error}");
    }
    let writer = pipe.clone();
    let writer = std::thread::spawn(move || fs::write(writer, "{\"text\": \"piped\"}\n"));
    let folder = fixture.path("run");
    let keeping = Keeping::new(&folder);
    let paths = [text, pipe.clone()];
    let source = Source::open_keeping(&paths, "text", &keeping, &mut quiet).unwrap();
    writer.join().unwrap().unwrap();
    let texts: Result<Vec<String>> = source.texts().collect();
    assert_eq!(texts.unwrap(), ["a file", "piped"]);
    // A run that goes on reads what it kept; the pipe is gone by then.
    fs::remove_file(&pipe).unwrap();
    let again = Keeping { again: true, ..keeping };
    let source = Source::open_keeping(&paths, "text", &again, &mut quiet).unwrap();
    assert_eq!(source.texts().count(), 2);
}

#[test]
fn json_lines_of_any_kind_are_read_or_named() {
    let fixture = Fixture::new();
    let read = |bytes: &[u8]| -> Result<Vec<String>> {
        Source::from_path(&fixture.write("x.jsonl", bytes))?.texts().collect()
    };
    // Nesting far beyond any stack, in a field that nobody asks for and in the one that is.
    let deep = |key: &str| {
        format!("{{\"{key}\": {}{}, \"a\": 1}}\n", "[".repeat(200_000), "]".repeat(200_000))
    };
    let good = "{\"n\": null, \"text\": \"one\", \"f\": -1.5e3}\n";
    let other = deep("other").replace("\"a\": 1", "\"text\": \"two\"");
    assert_eq!(read([good, &other].concat().as_bytes()).unwrap(), ["one", "two"]);
    assert_eq!(read(b"{\"text\": 1, \"text\": \"the last\"}").unwrap(), ["the last"]);
    let long = format!("{{\"text\": \"{}\"}}", "word ".repeat(500_000));
    assert_eq!(read(long.as_bytes()).unwrap().concat().len(), 2_500_000);
    let error = |bytes: &[u8], reason: &str| {
        let lines = [good.as_bytes(), b"\n", bytes].concat();
        let error = read(&lines).unwrap_err();
        assert!(error.message().contains("x.jsonl, line 3: "), "{error}");
        assert!(error.message().contains(reason), "{error}");
        assert!(error.hint().is_some(), "{error}");
        error
    };
    error(deep("text").as_bytes(), "the field \"text\" is not a string");
    error(b"{\"text\": null}", "the field \"text\" is not a string");
    error(b"{\"text\": {\"text\": \"x\"}}", "the field \"text\" is not a string");
    error(b"{}", "the field \"text\" is missing");
    error(b"null", "not a JSON object");
    error(b"[\"text\"]", "not a JSON object");
    error(b"{\"text\": \"x\"} {}", "not JSON");
    error(b"{\"text\": \"x", "not JSON");
    error(b"{\"text\": \"\xff\"}", "not UTF-8 text");
    error(b"{\"other\": \"\xff\", \"text\": \"x\"}", "not UTF-8 text");
    error(b"{\"text\": \"\\ud800\"}", "not JSON");
    let keys: Vec<String> = (0..1000).map(|i| format!("\"{i}{}\": 0", "k".repeat(99))).collect();
    let error = error(format!("{{{}}}", keys.join(",")).as_bytes(), "is missing");
    assert!(error.hint().is_some_and(|hint| hint.len() < 1000));
}

#[test]
fn ids_beyond_16_bits_are_kept_in_32() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids");
    for (vocabulary, ids) in [(65_536, [0, 1, 65_535]), (65_537, [0, 65_536, 7])] {
        let mut writer = Writer::create(&path, vocabulary).unwrap();
        writer.write(&ids).unwrap();
        let header = Header {
            width: 0,
            count: 0,
            train_count: 2,
            vocabulary: vocabulary as u64,
            tokenizer: 1,
            split: 2,
            stamp: 3,
            content: 4,
            source_bytes: 5,
            train_bytes: 6,
            validation_bytes: 7,
            checksum: 0,
        };
        writer.finish(header).unwrap();
        let Found::Whole(header, map) = cache::look(&path).unwrap() else { panic!() };
        assert_eq!(cache::fault_of_ids(&header, &map), None);
        // As if forged: whole, and with an id too many.
        let forged = Header { vocabulary: header.vocabulary - 1, ..header.clone() };
        let fault = "it has ids that are not in the vocabulary";
        assert_eq!(cache::fault_of_ids(&forged, &map), Some(fault));
        let (train, validation) = cache::split_ids(&header, map);
        assert_eq!([train.to_vec(0..2), validation.to_vec(0..1)].concat(), ids);
    }
}

#[test]
fn a_cache_is_replaced_by_a_new_file_and_leftovers_go() {
    let fixture = Fixture::new();
    let path = fixture.write("text.txt", "first");
    let corpus = fixture.prepare(&path, &Validation::None).unwrap();
    let cache = fixture.path("cache/tokens.bin");
    let linked = fixture.path("linked.bin");
    fs::hard_link(&cache, &linked).unwrap();
    let before = fs::read(&cache).unwrap();
    // What a killed process left; no process has such an id.
    let leftover = fixture.write("cache/tokens.bin.1073741824.tmp", "half");
    fixture.write("text.txt", "second, and longer");
    let again = fixture.prepare(&path, &Validation::None).unwrap();
    assert_eq!(text_of(&again.train), "second, and longer");
    // Had it been written in place, the first ids would have changed under the run that uses them.
    assert_eq!(text_of(&corpus.train), "first");
    assert!(fs::read(&linked).unwrap() == before);
    assert!(!leftover.exists());
    assert_eq!(fs::read_dir(fixture.path("cache")).unwrap().count(), 1);
    // A cache that is still right is a start, too.
    let leftover = fixture.write("cache/tokens.bin.1073741824.tmp", "half");
    assert_eq!(fixture.prepare(&path, &Validation::None).unwrap().outcome, Outcome::Reused);
    assert!(!leftover.exists());
}

/// The name of the temporary file can be known beforehand.
#[cfg(unix)]
#[test]
fn a_link_in_place_of_the_temporary_file_is_not_followed() {
    let fixture = Fixture::new();
    let path = fixture.write("text.txt", "some text");
    let target = fixture.write("precious", "as it was");
    fs::create_dir(fixture.path("cache")).unwrap();
    let name = format!("cache/tokens.bin.{}.tmp", std::process::id());
    std::os::unix::fs::symlink(&target, fixture.path(&name)).unwrap();
    fixture.prepare(&path, &Validation::None).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"as it was");
}
