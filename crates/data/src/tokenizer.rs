//! Text to ids and back (A1–A3).
//!
//! Every tokenizer is a `tokenizer.json` that Hugging Face's `tokenizers` loads: those trained
//! here ([`Training`]) and those published by others ([`Tokenizer::load`]).
//!
//! **Round trip.** `decode(encode(text))` is `text`, whatever the text, for bytes, byte-level
//! BPE, WordPiece and Unigram as trained here, and for characters with byte fallback. A character
//! tokenizer without it knows the characters it was trained on; others become its unknown token,
//! or an error if it has none. A tokenizer of whole words knows the words it was trained on, and
//! does not keep spaces. Published tokenizers may change text on purpose (BERT's drops
//! capitals and line ends).
//!
//! **Special tokens** are never made from plain text: `<|endoftext|>` in a document is twelve
//! characters, not the end of a text, unless the caller asks for
//! [`Tokenizer::encode_allowing_special`].
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod assemble;
mod cut;
mod direct;
mod files;
mod guard;
mod long_words;
mod patterns;
mod pieces;
mod report;
mod special;
mod stream;
#[cfg(test)]
mod tests;
mod training;
mod vet;
mod words;

pub use cut::CutRule;
pub use pieces::{Merge, Pieces};
pub use report::TextReport;
pub use special::Special;
pub use stream::StreamDecoder;
pub use training::{Kind, SpecialText, Training};

use crate::digest::Digest;
use crate::error::{self, Error, Result};
use direct::Direct;
use guard::guarded;
use rayon::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use words::Words;

/// Text up to this many bytes is encoded as one piece of work for one thread.
const PIECE: usize = 32 << 10;

/// Turns text into ids and ids into text.
pub struct Tokenizer {
    /// Sees special tokens in text as plain text.
    inner: tokenizers::Tokenizer,
    /// Sees special tokens in text as special; made when first asked for.
    permissive: OnceLock<tokenizers::Tokenizer>,
    direct: Option<Direct>,
    words: Option<Words>,
    roles: BTreeMap<Special, u32>,
    /// Special tokens by their text.
    specials: BTreeMap<String, u32>,
    /// Special tokens that the model itself might make out of plain text.
    leaky: Vec<(String, u32)>,
    cut: CutRule,
    vocabulary: usize,
    fingerprint: u64,
    /// The file that it was loaded from.
    file: Option<PathBuf>,
}

impl Tokenizer {
    /// The ids of a plain text: special tokens in it are read as the characters they are
    /// written with.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        if let Some(direct) = &self.direct {
            return direct.encode(text);
        }
        let ids = self.run(text)?;
        if self.leaky.iter().any(|(_, id)| ids.contains(id)) {
            return self.encode_broken_up(text);
        }
        Ok(ids)
    }

    /// The ids of a plain text as [`Self::encode`] gives them, and the bytes of the text that each
    /// was made from. Slower: for finding tokens in a text.
    pub fn encode_with_places(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>> {
        let mut found = Vec::new();
        let mut start = 0;
        for piece in self.broken_up(text) {
            let encoding = guarded(|| self.inner.encode(piece, false));
            let encoding = encoding.map_err(|reason| self.failed(&reason))?;
            for (&id, &(from, to)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
                // A normaliser may give places that are not between two characters.
                let from = text.floor_char_boundary(start + from.min(piece.len()));
                let to = text.ceil_char_boundary(start + to.min(piece.len())).max(from);
                if let Some(id) = self.without_leak(id) {
                    found.push((id, from..to));
                }
            }
            start += piece.len();
        }
        Ok(found)
    }

    /// The ids of a text in which special tokens are meant as such.
    pub fn encode_allowing_special(&self, text: &str) -> Result<Vec<u32>> {
        if !self.specials.keys().any(|special| text.contains(special)) {
            return self.encode(text);
        }
        // Pieces could cut a special token, so the text is encoded as a whole.
        let ids = guarded(|| {
            let permissive = self.permissive.get_or_init(|| {
                let mut copy = self.inner.clone();
                copy.set_encode_special_tokens(false);
                copy
            });
            Ok(permissive.encode_fast(text, false)?.get_ids().to_vec())
        });
        ids.map_err(|reason| self.failed(&reason))
    }

    /// The text of `ids`, special tokens written out.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.check(ids)?;
        guarded(|| self.inner.decode(ids, false)).map_err(|reason| self.failed(&reason))
    }

    /// The text of `ids` without special tokens.
    pub fn decode_without_special(&self, ids: &[u32]) -> Result<String> {
        self.check(ids)?;
        let special = |id: &u32| self.specials.values().any(|special| special == id);
        let ids: Vec<u32> = ids.iter().copied().filter(|id| !special(id)).collect();
        guarded(|| self.inner.decode(&ids, false)).map_err(|reason| self.failed(&reason))
    }

    /// The text of those of `ids` that it knows, without special tokens: a model may have room for
    /// more tokens than its tokenizer has.
    pub fn decode_known(&self, ids: &[u32]) -> String {
        let known = |id: &u32| self.inner.id_to_token(*id).is_some();
        let ids: Vec<u32> = ids.iter().copied().filter(known).collect();
        self.decode_without_special(&ids).unwrap_or_default()
    }

    /// Decodes ids one by one, as they are generated.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }

    /// V: one more than the largest id.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary
    }

    /// How `id` is written in the vocabulary: not text for the eye, but a name for the token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of the token written `token` in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The id of a special token, if the tokenizer has it.
    pub fn special(&self, special: Special) -> Option<u32> {
        self.roles.get(&special).copied()
    }

    /// The id of a special token that cannot be done without.
    pub fn require(&self, special: Special) -> Result<u32> {
        self.special(special).ok_or_else(|| error::no_special(special))
    }

    /// Every special token's id, in order.
    pub fn special_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.specials.values().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The sentinels that stand for spans of a text ([`SpecialText::sentinels`]), in order.
    pub fn sentinels(&self) -> Vec<u32> {
        (0..).map_while(|i| self.specials.get(&training::sentinel(i)).copied()).collect()
    }

    /// Is `id` a special token?
    pub fn is_special(&self, id: u32) -> bool {
        self.specials.values().any(|&special| special == id)
    }

    /// Where long texts may be cut without changing their ids. (A published tokenizer that puts
    /// a space before every text, as SentencePiece does, puts one after every cut.)
    pub fn cut_rule(&self) -> CutRule {
        self.cut
    }

    /// A checksum of everything that decides the ids.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Encodes in parallel, piece by piece; the pieces' ids are those of the whole.
    fn run(&self, text: &str) -> Result<Vec<u32>> {
        let pieces = match self.cut {
            CutRule::BeforeSpace => self.cut.pieces(text, PIECE),
            _ => vec![text],
        };
        // Each piece by itself, guarded in the thread that works on it.
        let of_piece = |piece: &&str| match &self.words {
            Some(words) => words.encode(self.inner.get_model(), piece),
            None => self.run_library(piece),
        };
        let parts: Result<Vec<_>, String> = pieces.par_iter().map(of_piece).collect();
        Ok(parts.map_err(|reason| self.failed(&reason))?.concat())
    }

    fn run_library(&self, text: &str) -> Result<Vec<u32>, String> {
        guarded(|| Ok(self.inner.encode_fast(text, false)?.get_ids().to_vec()))
    }

    /// For models that hold special tokens among their pieces and find them in plain text
    /// (published Unigram models do): the text is cut inside each such place. A special token
    /// that still appears (made by a normaliser) gives way to the unknown token.
    fn encode_broken_up(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for piece in self.broken_up(text) {
            ids.extend(self.run(piece)?);
        }
        Ok(ids.into_iter().filter_map(|id| self.without_leak(id)).collect())
    }

    /// The pieces of a text between cuts inside each special token that the model might make.
    fn broken_up<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut cuts = Vec::new();
        for (special, _) in &self.leaky {
            let first = special.chars().next().map_or(1, char::len_utf8);
            let mut from = 0;
            while let Some(at) = text[from..].find(special.as_str()) {
                from += at + first;
                cuts.push(from);
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts.push(text.len());
        let mut start = 0;
        cuts.into_iter().map(|cut| &text[std::mem::replace(&mut start, cut)..cut]).collect()
    }

    /// The id, or the unknown token if it is a special one that plain text must not make.
    fn without_leak(&self, id: u32) -> Option<u32> {
        let unknown = self.special(Special::Unk);
        let leaked = Some(id) != unknown && self.leaky.iter().any(|&(_, leaky)| leaky == id);
        if leaked { unknown } else { Some(id) }
    }

    fn check(&self, ids: &[u32]) -> Result<()> {
        match ids.iter().find(|&&id| self.inner.id_to_token(id).is_none()) {
            Some(&id) => Err(error::unknown_id(id, self.vocabulary)),
            None => Ok(()),
        }
    }

    /// One id per character, in the given order; no special tokens, and other characters are an
    /// error. Panics if a character is given twice.
    pub fn of_characters(characters: &[char]) -> Self {
        let json = assemble::characters(characters, false, None, &[]);
        match Self::from_value(&json, None) {
            Ok(tokenizer) if tokenizer.vocabulary == characters.len() => tokenizer,
            other => panic!("no tokenizer of {characters:?}: {other:?}"),
        }
    }

    /// One id per piece, in the given order, and the special tokens of
    /// [encoder-decoders](Self::pair_specials): a text is cut into words with the space before them,
    /// single digits and single signs, and what is not a piece is unknown. Panics if a piece is given
    /// twice.
    pub fn of_pieces(pieces: &[String]) -> Self {
        let specials = Self::pair_specials();
        let json = assemble::pieces(pieces, &specials);
        match Self::from_value(&json, None) {
            Ok(tokenizer) if tokenizer.vocabulary == pieces.len() + specials.len() => tokenizer,
            other => panic!("no tokenizer of {pieces:?}: {other:?}"),
        }
    }

    /// The special tokens of models that read one text and write another: padding, which is also
    /// what a decoder sees first, the end of a text, and the unknown token.
    pub fn pair_specials() -> Vec<SpecialText> {
        let specials = [(Special::Pad, "<pad>"), (Special::Eos, "</s>"), (Special::Unk, "<unk>")];
        specials.map(|(special, text)| SpecialText::new(special, text)).to_vec()
    }

    /// One id per word, in the given order, then the special tokens of encoders; other words are
    /// unknown. Panics if a word is given twice or is one of these special tokens.
    pub fn of_words(words: &[String]) -> Self {
        let specials = Training::new(Kind::Word).specials;
        let json = assemble::whole_words(words, Special::Unk.default_text(), &specials);
        match Self::from_value(&json, None) {
            Ok(tokenizer) if tokenizer.vocabulary == words.len() + specials.len() => tokenizer,
            other => panic!("no tokenizer of {words:?}: {other:?}"),
        }
    }

    /// What the library says of a text or of ids, with the file that is to blame.
    fn failed(&self, reason: &str) -> Error {
        match &self.file {
            Some(file) => error::bad_tokenizer(file, reason),
            None => error::tokenizer(reason),
        }
    }

    /// From the parts of a `tokenizer.json`, which are checked first; `roles` are guessed where not
    /// given. The error is a reason.
    fn from_value(json: &Value, roles: Option<&Value>) -> Result<Self, String> {
        vet::vet(json)?;
        guarded(|| Self::from_vetted(json, roles))
    }

    fn from_vetted(json: &Value, roles: Option<&Value>) -> tokenizers::Result<Self> {
        let mut inner = tokenizers::Tokenizer::from_bytes(serde_json::to_vec(json)?)?;
        // Some published files cut every text at 128 tokens and pad it to that.
        inner.with_truncation(None)?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(true);
        let specials: BTreeMap<String, u32> = inner
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, token)| (token.content, id))
            .collect();
        let mut found = special::guess_roles(&specials);
        found.extend(roles.map(|roles| special::read_roles(roles, &specials)).unwrap_or_default());
        let model_has = |text: &str| {
            let vocab = json.pointer("/model/vocab").unwrap_or(&Value::Null);
            let is_piece = |piece: &Value| piece.get(0).is_some_and(|piece| piece == text);
            vocab.get(text).is_some()
                || vocab.as_array().is_some_and(|pieces| pieces.iter().any(is_piece))
        };
        // A BPE model makes what its merges make, and no merge makes a special token, unless it
        // takes whole words first.
        let model = &json["model"];
        let cannot_leak = model["type"] == "BPE" && model["ignore_merges"] != true;
        let leaky = specials.iter().filter(|(text, _)| !cannot_leak && model_has(text));
        let leaky = leaky.map(|(text, &id)| (text.clone(), id)).collect();
        let direct = Direct::recognise(json);
        let own_pattern = json["normalizer"].is_null()
            && (json["pre_tokenizer"] == assemble::words() || is_gpt2(&json["pre_tokenizer"]));
        let by_spaces =
            json["normalizer"].is_null() && json["pre_tokenizer"] == assemble::white_space();
        let cut = match (&direct, own_pattern || by_spaces) {
            (Some(_), _) => CutRule::Anywhere,
            (None, true) => CutRule::BeforeSpace,
            (None, false) => CutRule::BehindLine,
        };
        let vocabulary = inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
        let fingerprint = Digest::of(inner.to_string(false)?.as_bytes());
        Ok(Self {
            inner,
            permissive: OnceLock::new(),
            direct,
            words: Words::recognise(json),
            roles: found,
            specials,
            leaky,
            cut,
            vocabulary,
            fingerprint,
            file: None,
        })
    }

    /// Remembers where it comes from, for messages.
    fn from(self, file: &Path) -> Self {
        Self { file: Some(file.to_owned()), ..self }
    }
}

/// Is this GPT-2's way of finding words?
fn is_gpt2(pre_tokenizer: &Value) -> bool {
    pre_tokenizer["type"] == "ByteLevel"
        && pre_tokenizer["add_prefix_space"] == false
        && pre_tokenizer["use_regex"] != false
}

/// An error of the library that does not come from a file.
fn failed(error: &tokenizers::Error) -> Error {
    error::tokenizer(error)
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocabulary", &self.vocabulary)
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}
