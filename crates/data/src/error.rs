//! What can be wrong with data, said so that it can be put right.

use crate::tokenizer::Special;
use hearken_base::Kind;
use hearken_show::number::thousands;
use std::io::{self, ErrorKind};
use std::path::Path;

pub use hearken_base::{Error, Result};

/// For `map_err`: an operating-system error about `path`, with a kinder word when the file is just
/// not there.
pub(crate) fn on(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| match error.kind() {
        kind @ ErrorKind::NotFound if action == "read" => {
            let hint = "check the path; relative paths start at the current directory";
            Error::of(Kind::Io(kind), format!("{} does not exist", path.display()), hint)
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Error::io(action, path)(error).with_hint("check the path; the directory must be there")
        }
        _ => Error::io(action, path)(error),
    }
}

/// What a run learns from is not what it was: `what` is "the text has changed" or the like.
pub(crate) fn changed(what: &str) -> Error {
    let hint = "put it back as it was to go on, or start a new run with --out";
    Error::new(format!("{what} since this run began"), hint)
}

/// Nothing to learn from in the file, directory or text `what`.
pub(crate) fn empty(what: &str) -> Error {
    Error::new(format!("{what} is empty"), "give a file with some text in it")
}

/// The user asked to stop while something was being done.
pub(crate) fn interrupted(doing: &str) -> Error {
    let kind = Kind::Io(ErrorKind::Interrupted);
    Error::of(kind, format!("stopped while {doing}"), "the same command starts again")
}

/// What comes from stdin or a pipe cannot be read.
pub(crate) fn input(name: &str, error: &io::Error) -> Error {
    let hint = "write it to a file first, and name that";
    Error::of(Kind::Io(error.kind()), format!("cannot read {name}: {error}"), hint)
}

/// More comes from stdin or a pipe than may be kept.
pub(crate) fn too_much_input(name: &str, limit: u64) -> Error {
    Error::new(
        format!("{name} gives more than {limit} bytes, the most that is kept on disk"),
        "is it endless? cut it (head -c), or write it to a file first and name that",
    )
}

/// A pipe where text is read more than once, or one too many.
pub(crate) fn pipe(path: &Path) -> Error {
    Error::new(
        format!("{} is a pipe, which cannot be read here", path.display()),
        "send it to stdin, join pipes into one (cat), or write it to a file first",
    )
}

/// A terminal, a disk, a socket.
pub(crate) fn device(path: &Path) -> Error {
    Error::new(
        format!("{} is a device or a socket, not text", path.display()),
        "name files, directories or pipes; - stands for stdin",
    )
}

/// The byte order of what looks like UTF-16, from the first bytes of a text: a mark, or letters of
/// which every second byte is NUL. As `iconv` calls it.
pub(crate) fn utf16_of(start: &[u8]) -> Option<&'static str> {
    /// Characters that are looked at.
    const LOOK: usize = 32;
    match start {
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => return Some("utf-16"),
        _ => {}
    }
    let (pairs, _) = start.as_chunks::<2>();
    let pairs = pairs.get(..LOOK).unwrap_or(pairs);
    let zeros = |high: usize| pairs.iter().filter(|p| p[high] == 0 && p[1 - high] != 0).count();
    // Most letters of most texts are below 256; so many NULs at one side only are no accident.
    let mostly = |high: usize| pairs.len() >= 4 && zeros(high) * 4 >= pairs.len() * 3;
    match () {
        () if mostly(1) => Some("utf-16le"),
        () if mostly(0) => Some("utf-16be"),
        () => None,
    }
}

/// What a file is that begins like this, if it is of a format that people take for text, and how to
/// get the text out of it.
pub(crate) fn format_of(start: &[u8]) -> Option<(&'static str, &'static str)> {
    match start {
        [0x1F, 0x8B, ..] => Some(("gzip", "unpack it: gunzip -k FILE")),
        [b'P', b'K', 3, 4, ..] => Some((
            "zip (as .docx, .odt and .epub are, too)",
            "unpack it, or save the document as plain text",
        )),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some(("PDF", "take its text: pdftotext FILE")),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Some(("zstd", "unpack it: zstd -d FILE")),
        [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Some(("xz", "unpack it: unxz -k FILE")),
        _ => None,
    }
}

/// A file of such a format.
pub(crate) fn formatted(path: &Path, (format, hint): (&str, &str)) -> Error {
    let path = path.display();
    let hint = hint.replace("FILE", &path.to_string());
    Error::new(format!("{path} is not a text file but {format}"), hint)
}

/// A text in UTF-16, in this byte order.
pub(crate) fn utf16(path: &Path, order: &str) -> Error {
    let path = path.display();
    Error::new(
        format!("{path} is UTF-16 text, expected UTF-8"),
        format!("convert it: iconv -f {order} -t utf-8 {path} > utf8.txt"),
    )
}

/// Bytes that are not UTF-8 text: `found` is there.
pub(crate) fn not_text(path: &Path, offset: u64, found: &str) -> Error {
    Error::new(
        format!("{} is not a text file: {found} at byte {offset}", path.display()),
        "text must be UTF-8 without NUL bytes; convert it (iconv -f latin1 -t utf-8) or leave the \
         file out",
    )
}

/// A line, counted from 1, of a JSON-lines file that cannot be used.
pub(crate) fn json_line(path: &Path, line: u64, reason: &str, hint: &str) -> Error {
    Error::new(format!("{}, line {line}: {reason}", path.display()), hint)
}

/// A split that leaves one side with nothing, or an invalid fraction.
pub(crate) fn split(reason: &str, hint: &str) -> Error {
    Error::new(format!("cannot split the text: {reason}"), hint)
}

/// The file is no tokenizer.
pub(crate) fn not_a_tokenizer(path: &Path, reason: &str, hint: &str) -> Error {
    Error::new(format!("{} is not a tokenizer: {reason}", path.display()), hint)
}

/// A text without enough different words for a trainer.
pub(crate) fn nothing_to_learn(kind: &str) -> Error {
    let message = format!("the text is too short or too uniform for a {kind} vocabulary");
    Error::new(message, "give more text, without special tokens in it, or use the kind bpe")
}

/// A text with more different words than are counted.
pub(crate) fn too_many_words(most: usize) -> Error {
    Error::new(
        format!("the text has more than {most} different words"),
        "use the kind bpe, which has no such limit, or train on a part of the text",
    )
}

/// The tokenizer in this file fails at work.
pub(crate) fn bad_tokenizer(path: &Path, reason: &str) -> Error {
    let hint = "get the file again from where it was published, or use another tokenizer";
    Error::new(format!("the tokenizer {} failed: {reason}", path.display()), hint)
}

/// The vocabulary cannot hold even the alphabet.
pub(crate) fn vocabulary_too_small(
    asked: usize,
    needed: usize,
    alphabet: &str,
    hint: &str,
) -> Error {
    let message =
        format!("a vocabulary of {asked} is too small: {needed} ids are needed for {alphabet}");
    Error::new(message, hint)
}

/// A vocabulary that no model could use.
pub(crate) fn vocabulary_too_large(asked: usize, most: usize) -> Error {
    Error::new(
        format!("a vocabulary of {asked} is too large, expected at most {most}"),
        "usual are 4096 to 131072; check for a slip in the number",
    )
}

/// A character that a character tokenizer has no id for, at this byte of the text; `known` are those
/// that it has.
pub(crate) fn unknown_character(character: char, offset: usize, known: &str) -> Error {
    let code = u32::from(character);
    Error::new(
        format!(
            "the character {character:?} (U+{code:04X}) at byte {offset} is not in the vocabulary"
        ),
        format!(
            "it knows {known}; for others, train the tokenizer with byte fallback or an unknown \
             token, or on text that has them"
        ),
    )
}

/// An id outside the vocabulary.
pub(crate) fn unknown_id(id: u32, vocabulary: usize) -> Error {
    Error::new(
        format!("token id {id} is not in the vocabulary of {vocabulary} ids"),
        "use the tokenizer that the ids were made with",
    )
}

/// Something needs a special token that the tokenizer does not have.
pub(crate) fn no_special(special: Special) -> Error {
    let (name, default) = (special.name(), special.default_text());
    Error::new(
        format!("the tokenizer has no {name} token"),
        format!("train it with one (--special {name}={default})"),
    )
}

/// The same text twice, or none, for a special token.
pub(crate) fn bad_special(text: &str, reason: &str) -> Error {
    let hint = "every special token needs a text of its own";
    Error::new(format!("special token {text:?} {reason}"), hint)
}

/// Fewer ids than one window needs: the context and one more.
pub(crate) fn too_short(what: &str, have: usize, need: usize) -> Error {
    let [have, need] = [have, need].map(|n| thousands(n as f64));
    Error::new(
        format!("{what} has {have} tokens, and one window takes {need}"),
        "give more text, or a shorter context",
    )
}

/// Fewer ids than a window for each of the rows that read the text in parallel.
pub(crate) fn too_short_for_rows(have: usize, need: usize, rows: usize) -> Error {
    let [have, need] = [have, need].map(|n| thousands(n as f64));
    Error::new(
        format!(
            "the training text has {have} tokens, and consecutive windows of {rows} rows take {need}"
        ),
        "give more text, a smaller batch, a shorter context, or set data.windows = \"random\"",
    )
}

/// A document or a source without tokens: the `number`-th, counted from 1.
pub(crate) fn empty_example(what: &str, number: usize, count: usize) -> Error {
    let message = format!("{what} {number} of {count} has no tokens");
    Error::new(message, "leave out empty lines and files")
}

/// Lists of sources and targets of different length.
pub(crate) fn unpaired(sources: usize, targets: usize) -> Error {
    Error::new(
        format!("{sources} sources do not pair up with {targets} targets"),
        "line n of one must belong to line n of the other; look for a missing line",
    )
}

/// A context that does not hold a whole story of the embedded language.
pub(crate) fn context_too_short(length: usize, longest: usize) -> Error {
    Error::new(
        format!("a context of {length} characters is shorter than the longest story, {longest}"),
        format!("set the context to {longest} or more, or train on text of your own"),
    )
}

/// A failure inside the tokenizers library, of a tokenizer that was made here.
pub(crate) fn tokenizer(reason: impl std::fmt::Display) -> Error {
    let hint = "try another kind of tokenizer, or other text; the byte tokenizer takes any";
    Error::new(format!("the tokenizer failed: {reason}"), hint)
}
