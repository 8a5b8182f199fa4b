//! What can be wrong with data, said so that it can be put right.

use crate::tokenizer::Special;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The result of reading, tokenising or batching.
pub type Result<T> = std::result::Result<T, Error>;

/// Bad input: what it is, what was expected, and a hint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file or directory is not there.
    #[error("{path} does not exist\nhint: {hint}", path = .path.display())]
    Missing {
        /// What was asked for.
        path: PathBuf,
        /// What to look at.
        hint: &'static str,
    },
    /// The operating system said no.
    #[error("cannot {action} {path}: {error}{}", hint_for(.error), path = .path.display())]
    Io {
        /// "read", "write", …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        error: std::io::Error,
    },
    /// What a run learns from is not what it was.
    #[error(
        "{what} since this run began\n\
         hint: put it back as it was to go on, or start a new run with --out"
    )]
    Changed {
        /// "the text has changed", …
        what: &'static str,
    },
    /// Nothing to learn from.
    #[error("{what} is empty\nhint: give a file with some text in it")]
    Empty {
        /// The file, directory or text.
        what: String,
    },
    /// Bytes that are not UTF-8 text.
    #[error(
        "{path} is not a text file: {reason} at byte {offset}\n\
         hint: text must be UTF-8 without NUL bytes; convert it (iconv -f latin1 -t utf-8) or \
         leave the file out",
        path = .path.display()
    )]
    NotText {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What is there.
        reason: String,
    },
    /// A line of a JSON-lines file that cannot be used.
    #[error("{path}, line {line}: {reason}\nhint: {hint}", path = .path.display())]
    JsonLine {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
        /// What would be right.
        hint: String,
    },
    /// A split that leaves one side with nothing, or a fraction that is none.
    #[error("cannot split the text: {reason}\nhint: {hint}")]
    Split {
        /// Why not.
        reason: String,
        /// What would do.
        hint: &'static str,
    },
    /// The file is no tokenizer.
    #[error("{path} is not a tokenizer: {reason}\nhint: {hint}", path = .path.display())]
    NotATokenizer {
        /// The file or directory.
        path: PathBuf,
        /// What was found.
        reason: String,
        /// What was expected.
        hint: &'static str,
    },
    /// The vocabulary cannot hold even the alphabet.
    #[error(
        "a vocabulary of {asked} is too small: {needed} ids are needed for {alphabet}\n\
         hint: {hint}"
    )]
    VocabularyTooSmall {
        /// What was asked for.
        asked: usize,
        /// The least that works.
        needed: usize,
        /// What fills it.
        alphabet: String,
        /// What to do.
        hint: &'static str,
    },
    /// A vocabulary that no model could use.
    #[error(
        "a vocabulary of {asked} is too large, expected at most {most}\n\
         hint: usual are 4096 to 131072; check for a slip in the number"
    )]
    VocabularyTooLarge {
        /// What was asked for.
        asked: usize,
        /// The most that there can be.
        most: usize,
    },
    /// A character that a character tokenizer has no id for.
    #[error(
        "the character {character:?} (U+{code:04X}) at byte {offset} is not in the vocabulary\n\
         hint: train the tokenizer with byte fallback or an unknown token, or on text that has it",
        code = u32::from(*.character)
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Where in the text.
        offset: usize,
    },
    /// An id outside the vocabulary.
    #[error(
        "token id {id} is not in the vocabulary of {vocabulary} ids\n\
         hint: use the tokenizer that the ids were made with"
    )]
    UnknownId {
        /// The id.
        id: u32,
        /// How many ids there are.
        vocabulary: usize,
    },
    /// Something needs a special token that the tokenizer does not have.
    #[error(
        "the tokenizer has no {name} token\n\
         hint: train it with one (--special {name}={default})",
        name = .special.name(), default = .special.default_text()
    )]
    NoSpecial {
        /// Which one.
        special: Special,
    },
    /// The same text twice, or none, for a special token.
    #[error("special token {text:?} {reason}\nhint: every special token needs a text of its own")]
    BadSpecial {
        /// Its text.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Fewer ids than one window needs.
    #[error(
        "{what} has {have} tokens, and one window takes {need}\n\
         hint: give more text, or a shorter context"
    )]
    TooShort {
        /// Which text.
        what: &'static str,
        /// Its ids.
        have: usize,
        /// The context and one more.
        need: usize,
    },
    /// A document or a source without tokens.
    #[error(
        "{what} {number} of {count} has no tokens\n\
         hint: leave out empty lines and files"
    )]
    EmptyExample {
        /// "document", "source".
        what: &'static str,
        /// Counted from 1.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// Lists of sources and targets of different length.
    #[error(
        "{sources} sources do not pair up with {targets} targets\n\
         hint: line n of one must belong to line n of the other; look for a missing line"
    )]
    Unpaired {
        /// How many sources.
        sources: usize,
        /// How many targets.
        targets: usize,
    },
    /// A context that does not hold a whole story of the embedded language.
    #[error(
        "a context of {length} characters is shorter than the longest story, {longest}\n\
         hint: set the context to {longest} or more, or train on text of your own"
    )]
    ContextTooShort {
        /// T.
        length: usize,
        /// What it has to hold.
        longest: usize,
    },
    /// A failure inside the tokenizers library that bad input should not cause.
    #[error("the tokenizer failed: {0}")]
    Tokenizer(String),
}

impl Error {
    /// An operating-system error, with a kinder word when the file is just not there.
    pub(crate) fn io(action: &'static str, path: &Path, error: std::io::Error) -> Self {
        if error.kind() == ErrorKind::NotFound && action == "read" {
            let hint = "check the path; relative paths start at the current directory";
            return Self::Missing { path: path.to_owned(), hint };
        }
        Self::Io { action, path: path.to_owned(), error }
    }

    /// For `map_err`: an operating-system error about `path`.
    pub(crate) fn on(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::io(action, path, error)
    }
}

/// A hint for the errors of the file system that people meet, with its line break.
fn hint_for(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull => "\nhint: free some space, and give the same command again",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "\nhint: check the permissions, or choose another place"
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            "\nhint: check the path; the directory must be there"
        }
        _ => "",
    }
}
