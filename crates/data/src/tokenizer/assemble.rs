//! The `tokenizer.json` of each kind, in the terms of Hugging Face's `tokenizers`.
//!
//! | kind | model | before the model | decoder |
//! |---|---|---|---|
//! | character | BPE without merges | – | join |
//! | … with byte fallback | the same, and `<0x00>`…`<0xFF>` | – | bytes, join |
//! | byte | BPE without merges over 256 letters | bytes to letters | letters to bytes |
//! | BPE | BPE | GPT-2's pattern, bytes to letters | letters to bytes |
//! | WordPiece | WordPiece, `##` | [`WORDS`], bytes to letters | drop `##`, letters to bytes |
//! | Unigram | Unigram | [`WORDS`], bytes to letters | letters to bytes |
//! | word | WordLevel | runs of letters and digits, runs of other characters | spaces between |
//! | pieces | WordLevel | words with the space before them, digits, signs | join |
//!
//! "Letters" is GPT-2's alphabet: a printable character for each of the 256 bytes. Where it is
//! used, no text is unknown and every text comes back as it was.
//!
//! Special tokens get the ids after the model's own. They are not in the model's vocabulary, so
//! the model cannot make one out of text; the one exception is the unknown token of characters
//! and words, which such a model makes out of what it does not know alone.

use super::Special;
use super::training::SpecialText;
use serde_json::{Map, Value, json};

/// How WordPiece and Unigram see words: at most 16 characters (64 bytes) at a time, with the
/// space before them, and every `#` alone, so that a piece that begins with `##` can only be
/// a continuation. The limit keeps WordPiece, which is quadratic in the length of a word, linear
/// in the length of the text, also where a script has no spaces.
pub(super) const WORDS: &str =
    r"#| ?\p{L}{1,16}| ?\p{N}{1,16}| ?[^\s\p{L}\p{N}#]{1,16}|\s{1,16}(?!\S)|\s{1,16}";

/// What WordPiece puts before a piece that continues a word.
pub(super) const CONTINUATION: &str = "##";

/// The letter of each byte: itself if it is printable and no space, else one from U+0100 on.
pub(super) fn letters() -> [char; 256] {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100..;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        let code = if printable(byte) { u32::from(byte) } else { next.next().unwrap_or_default() };
        char::from_u32(code).unwrap_or_default()
    })
}

/// The token that stands for a byte under byte fallback.
pub(super) fn byte_token(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// A tokenizer of the given characters, in that order; then the bytes if `byte_fallback`; then
/// the unknown token.
pub(super) fn characters(
    characters: &[char],
    byte_fallback: bool,
    unknown: Option<&str>,
    specials: &[SpecialText],
) -> Value {
    let mut tokens: Vec<String> = characters.iter().map(ToString::to_string).collect();
    if byte_fallback {
        tokens.extend((0..=255).map(byte_token));
    }
    tokens.extend(unknown.map(str::to_owned));
    let model = bpe_without_merges(&tokens, byte_fallback, unknown);
    let decoder = if byte_fallback {
        json!({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]})
    } else {
        json!({"type": "Fuse"})
    };
    tokenizer(&model, tokens.len(), &Value::Null, &decoder, specials)
}

/// A tokenizer in which the id of a byte is the byte.
pub(super) fn bytes(specials: &[SpecialText]) -> Value {
    let model = bpe_without_merges(&letters().map(String::from), false, None);
    tokenizer(&model, 256, &byte_level(false), &byte_level(true), specials)
}

/// Byte-level BPE as GPT-2 has it, around a trained model.
pub(super) fn bpe(model: &Value, specials: &[SpecialText]) -> Value {
    let size = vocabulary_size(model);
    tokenizer(model, size, &byte_level(true), &byte_level(true), specials)
}

/// WordPiece over the letters of bytes. `tokens` in the order of their ids.
pub(super) fn word_piece(tokens: &[String], unknown: &str, specials: &[SpecialText]) -> Value {
    let model = json!({
        "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": CONTINUATION,
        "max_input_chars_per_word": 100, "vocab": vocabulary(tokens),
    });
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"Regex": format!("^{CONTINUATION}")}, "content": ""},
        byte_level(true),
    ]});
    tokenizer(&model, tokens.len(), &words(), &decoder, specials)
}

/// Unigram over the letters of bytes: pieces with their log probabilities.
pub(super) fn unigram(pieces: &[(String, f64)], specials: &[SpecialText]) -> Value {
    let model = json!({"type": "Unigram", "unk_id": null, "vocab": pieces, "byte_fallback": false});
    tokenizer(&model, pieces.len(), &words(), &byte_level(true), specials)
}

/// Whole words, in the order of their ids; then the unknown token. Spaces are not kept: a text
/// comes back with one between words and none before a full stop or a comma.
pub(super) fn whole_words(words: &[String], unknown: &str, specials: &[SpecialText]) -> Value {
    let mut tokens = words.to_vec();
    tokens.push(unknown.to_owned());
    let model = json!({"type": "WordLevel", "vocab": vocabulary(&tokens), "unk_token": unknown});
    let decoder = json!({"type": "WordPiece", "prefix": CONTINUATION, "cleanup": true});
    tokenizer(&model, tokens.len(), &white_space(), &decoder, specials)
}

/// Words with the space before them, single digits and single signs, in the order of their ids;
/// then the unknown token. Texts of known pieces come back as they were.
pub(super) fn pieces(pieces: &[String], specials: &[SpecialText]) -> Value {
    let unknown = specials.iter().find(|s| s.special == Some(Special::Unk));
    let unknown = unknown.map_or(Special::Unk.default_text(), |s| s.text.as_str());
    let mut tokens = pieces.to_vec();
    tokens.push(unknown.to_owned());
    let model = json!({"type": "WordLevel", "vocab": vocabulary(&tokens), "unk_token": unknown});
    let pattern = json!({"type": "Split", "pattern": {"Regex": " ?[A-Za-z]+|[0-9]|[^A-Za-z0-9]"},
        "behavior": "Isolated", "invert": false});
    tokenizer(&model, tokens.len(), &pattern, &json!({"type": "Fuse"}), specials)
}

/// Runs of letters, digits and underscores, and runs of anything else but white space.
pub(super) fn white_space() -> Value {
    json!({"type": "Whitespace"})
}

/// What WordPiece and Unigram see of a text.
pub(super) fn words() -> Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": false},
        byte_level(false),
    ]})
}

/// Bytes to letters and back; with GPT-2's pattern for words or without.
pub(super) fn byte_level(pattern: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": pattern})
}

fn bpe_without_merges(tokens: &[String], byte_fallback: bool, unknown: Option<&str>) -> Value {
    json!({
        "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": byte_fallback,
        "ignore_merges": false, "vocab": vocabulary(tokens), "merges": [],
    })
}

fn vocabulary(tokens: &[String]) -> Map<String, Value> {
    tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect()
}

fn vocabulary_size(model: &Value) -> usize {
    model["vocab"].as_object().map_or(0, Map::len)
}

/// A whole `tokenizer.json`. Special tokens that the model does not have get the ids from `size`
/// on.
pub(super) fn tokenizer(
    model: &Value,
    size: usize,
    pre_tokenizer: &Value,
    decoder: &Value,
    specials: &[SpecialText],
) -> Value {
    let mut next = size..;
    let added: Vec<Value> = specials
        .iter()
        .map(|special| {
            let own = model["vocab"].as_object().and_then(|vocab| vocab.get(&special.text));
            let id = own.cloned().unwrap_or_else(|| json!(next.next()));
            json!({"id": id, "content": special.text, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": decoder, "model": model,
    })
}
