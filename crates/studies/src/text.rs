//! A text in memory for studies of language models: the user's own, or generated stories.

use crate::request::Request;
use crate::rows::Rows;
use hearken_base::{Error, Result};
use hearken_data::stories;
use hearken_data::tokenizer::{Tokenizer, Training};
use hearken_store::files;
use hearken_tensor::ops::cross_entropy::IGNORED;
use hearken_train::Moment;

/// The largest text that a study reads.
const MOST_BYTES: u64 = 64 << 20;
/// The last part of a text, which is held out: a tenth.
const HELD_OUT: usize = 10;

/// A text, and what of it is held out.
#[derive(Clone, Debug)]
pub struct Text {
    /// What it is, in a few words.
    pub name: String,
    /// For training.
    pub train: String,
    /// The last tenth.
    pub held_out: String,
}

/// A text as tokens.
#[derive(Debug)]
pub struct Encoded {
    /// Learned on what is trained on.
    pub tokenizer: Tokenizer,
    /// Of the text for training.
    pub train: Vec<u32>,
    /// Of what is held out.
    pub held_out: Vec<u32>,
    /// UTF-8 bytes of what is held out.
    pub held_out_bytes: usize,
}

impl Text {
    /// The user's own text, or else stories of so many characters.
    pub fn of(request: &Request, characters: usize) -> Result<Self> {
        let mut texts = Vec::new();
        for path in &request.data {
            texts.push(files::read_text(path, MOST_BYTES)?);
        }
        let (name, text) = if texts.is_empty() {
            ("generated stories".to_owned(), stories::text(request.seed, characters))
        } else {
            let names: Vec<String> =
                request.data.iter().map(|path| path.display().to_string()).collect();
            (names.join(", "), texts.join("\n"))
        };
        let cut = text.len() - text.len() / HELD_OUT;
        let cut = (cut..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        let (train, held_out) = text.split_at(cut);
        Ok(Self { name, train: train.to_owned(), held_out: held_out.to_owned() })
    }

    /// As tokens of a tokenizer that is learned on the part for training.
    pub fn encoded(&self, training: &Training) -> Result<Encoded> {
        let tokenizer = training.train_on_text(&self.train)?;
        Ok(Encoded {
            train: tokenizer.encode(&self.train)?,
            held_out: tokenizer.encode(&self.held_out)?,
            held_out_bytes: self.held_out.len(),
            tokenizer,
        })
    }
}

impl Encoded {
    /// Is there a window of so many tokens in both parts? To be checked before anything is trained.
    pub fn check(&self, length: usize) -> Result<()> {
        let shortest = self.train.len().min(self.held_out.len());
        if shortest > length {
            return Ok(());
        }
        Err(Error::new(
            format!("a tenth of the text is {shortest} tokens, expected more than {length}"),
            "give a longer text with --data, or none for generated stories",
        ))
    }

    /// Windows that begin anywhere in the part for training: the same for the same moment.
    pub fn windows(&self, at: Moment, rows: usize, length: usize) -> Rows {
        let mut rng = at.rng();
        let mut found = Rows::default();
        for _ in 0..rows {
            let first = rng.below(self.train.len() - length);
            let window = &self.train[first..=first + length];
            found.push(&window[..length], &window[1..]);
        }
        found
    }

    /// The mean −ln p of what is held out, if p is how often each token was seen in training, plus 1:
    /// what a model has that knows nothing of what came before.
    pub fn loss_of_frequencies(&self) -> f64 {
        let mut counts = vec![1_u64; self.tokenizer.vocabulary_size()];
        self.train.iter().for_each(|id| counts[*id as usize] += 1);
        let total: u64 = counts.iter().sum();
        let loss = |id: &u32| (total as f64 / counts[*id as usize] as f64).ln();
        self.held_out.iter().map(loss).sum::<f64>() / self.held_out.len().max(1) as f64
    }

    /// Windows of what is held out that end at the same places for every length up to `longest`; the
    /// last `judged` targets of each count. So the same tokens are judged, and only how much of the
    /// text before them can be seen differs.
    pub fn endings(&self, rows: usize, length: usize, longest: usize, judged: usize) -> Rows {
        let mut found = Rows::default();
        for row in 0..rows {
            let end = longest + row * (self.held_out.len() - 1 - longest) / rows;
            let window = &self.held_out[end - length..=end];
            let mut targets = window[1..].to_vec();
            targets[..length - judged.min(length)].fill(IGNORED);
            found.push(&window[..length], &targets);
        }
        found
    }

    /// At most `rows` windows of what is held out, evenly spread, of whose targets the last `judged`
    /// count; each has all the tokens before it in its window to go by.
    pub fn held_out(&self, rows: usize, length: usize, judged: usize) -> Rows {
        let windows = ((self.held_out.len() - 1) / length).max(1);
        let rows = rows.min(windows);
        let mut found = Rows::default();
        for row in 0..rows {
            let first = row * windows / rows * length;
            let window = &self.held_out[first..=first + length];
            let mut targets = window[1..].to_vec();
            targets[..length - judged.min(length)].fill(IGNORED);
            found.push(&window[..length], &targets);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_data::tokenizer::Kind;

    fn encoded(train: &str, held_out: &str) -> Encoded {
        let text =
            Text { name: String::new(), train: train.to_owned(), held_out: held_out.to_owned() };
        text.encoded(&Training::new(Kind::Character)).unwrap()
    }

    #[test]
    fn frequencies_are_those_of_training_plus_one() {
        let text = encoded("aab", "ab"); // a: 3 of 5, b: 2 of 5
        let want = -(0.6_f64.ln() + 0.4_f64.ln()) / 2.0;
        assert!((text.loss_of_frequencies() - want).abs() < 1e-12);
    }

    #[test]
    fn endings_judge_the_same_tokens_at_every_length() {
        let text = encoded("abcdefghij", "abcdefghijabcdefghij");
        let asked = |length| {
            let rows = text.endings(4, length, 8, 2);
            let targets = rows.targets.iter().filter(|target| **target != IGNORED);
            (rows.rows, targets.copied().collect::<Vec<u32>>())
        };
        let (rows, short) = asked(2);
        assert_eq!((rows, short.len()), (4, 8));
        assert_eq!(asked(8), (4, short.clone()));
        assert_eq!(asked(5), (4, short));
        let rows = text.endings(1, 3, 8, 1);
        assert_eq!((rows.inputs, rows.targets), (vec![5, 6, 7], vec![IGNORED, IGNORED, 8]));
    }
}
