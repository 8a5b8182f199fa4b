//! Tokens that are not text (A2): where a sequence begins and ends, what is padding, what is
//! hidden. They have ids of their own, are never split, and plain text never becomes one.

use std::collections::BTreeMap;

/// What a special token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Special {
    /// A sequence begins.
    Bos,
    /// A sequence ends.
    Eos,
    /// Fills a batch where a row is shorter; never looked at.
    Pad,
    /// Stands for what the vocabulary cannot say.
    Unk,
    /// Hides a token that a masked language model has to guess.
    Mask,
    /// Stands between two texts.
    Sep,
    /// Collects what a classifier needs to know.
    Cls,
}

impl Special {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Bos, Self::Eos, Self::Pad, Self::Unk, Self::Mask, Self::Sep, Self::Cls];

    /// Its name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bos => "bos",
            Self::Eos => "eos",
            Self::Pad => "pad",
            Self::Unk => "unk",
            Self::Mask => "mask",
            Self::Sep => "sep",
            Self::Cls => "cls",
        }
    }

    /// The special token of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|special| special.name() == name)
    }

    /// The text it has unless told otherwise.
    pub fn default_text(self) -> &'static str {
        self.known_texts().first().copied().unwrap_or_default()
    }

    /// Texts that published tokenizers use for it, the most common first.
    fn known_texts(self) -> &'static [&'static str] {
        match self {
            Self::Bos => &["<s>", "<|begin_of_text|>", "<bos>", "[BOS]", "<|startoftext|>"],
            Self::Eos => {
                &["<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[EOS]", "<|im_end|>"]
            }
            Self::Pad => &["[PAD]", "<pad>", "<|pad|>"],
            Self::Unk => &["[UNK]", "<unk>", "<|unk|>"],
            Self::Mask => &["[MASK]", "<mask>", "<|mask|>"],
            Self::Sep => &["[SEP]", "<sep>", "<|sep|>"],
            Self::Cls => &["[CLS]", "<cls>", "<|cls|>"],
        }
    }
}

/// Who plays which role, by the texts of the special tokens, where no `tokenizer_config.json`
/// says so.
pub(super) fn guess_roles(texts: &BTreeMap<String, u32>) -> BTreeMap<Special, u32> {
    let find = |special: Special| {
        special.known_texts().iter().find_map(|&text| texts.get(text)).map(|&id| (special, id))
    };
    Special::ALL.into_iter().filter_map(find).collect()
}

/// The roles that a `tokenizer_config.json` or `special_tokens_map.json` names: `"eos_token"` is
/// a text, or an object whose `content` is one.
pub(super) fn read_roles(
    config: &serde_json::Value,
    texts: &BTreeMap<String, u32>,
) -> BTreeMap<Special, u32> {
    let find = |special: Special| {
        let entry = config.get(format!("{}_token", special.name()))?;
        let text = entry.as_str().or_else(|| entry.get("content")?.as_str())?;
        texts.get(text).map(|&id| (special, id))
    };
    Special::ALL.into_iter().filter_map(find).collect()
}
