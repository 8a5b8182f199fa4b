//! Windows that begin where a story begins.

use super::{Sample, longest, sample, tokenizer};
use crate::batches::{Batch, Batches, IGNORED, key};
use crate::error::{self, Result};
use crate::tokenizer::Tokenizer;
use hearken_tensor::rng::Rng;
use std::ops::Range;

const TRAINING_SITE: u64 = 0x7374_6f72_6965_7300; // "stories"
const VALIDATION_SITE: u64 = 0x6865_6c64_5f6f_7574; // "held_out"

/// Training batches of fresh stories: no story is repeated but by chance.
#[derive(Debug)]
pub struct StoryWindows {
    tokenizer: Tokenizer,
    rows: usize,
    length: usize,
    seed: u64,
}

impl StoryWindows {
    /// Batches of `rows` windows of `length` characters.
    pub fn new(rows: usize, length: usize, seed: u64) -> Result<Self> {
        check(length)?;
        Ok(Self { tokenizer: tokenizer(), rows, length, seed })
    }
}

impl Batches for StoryWindows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn length(&self) -> usize {
        self.length
    }

    fn rows_of(&self, step: u64, rows: Range<usize>) -> Batch {
        let length = self.length;
        let mut inputs = Vec::with_capacity(rows.len() * length); // (B, T)
        let mut targets = Vec::with_capacity(rows.len() * length); // (B, T)
        for row in rows.clone() {
            let mut rng = Rng::new(key(key(self.seed, step, TRAINING_SITE), row as u64, 0));
            // Stories are written in ASCII: a character is a byte.
            let mut text = String::from("\n");
            while text.len() <= length {
                text.push_str(&sample(&mut rng).text);
            }
            let ids = encode(&self.tokenizer, &text[..=length]); // (T + 1)
            inputs.extend_from_slice(&ids[..length]);
            targets.extend_from_slice(&ids[1..]);
        }
        Batch { rows: rows.len(), length, inputs, targets }
    }
}

/// Stories that are held out, whole, in batches.
#[derive(Clone, Debug)]
pub struct Validation {
    /// Windows of whole stories; what is left of a row is ignored.
    pub batches: Vec<Batch>,
    /// How many characters count.
    pub characters: usize,
    /// What the process that made these stories would itself score: Σ −ln p / Σ length.
    pub oracle: f64,
}

impl Validation {
    /// `stories` stories in rows of `length`, `rows` at a time. They are drawn from other numbers
    /// than those of training with the same seed.
    pub fn new(stories: usize, rows: usize, length: usize, seed: u64) -> Result<Self> {
        check(length)?;
        let mut rng = Rng::new(key(seed, 0, VALIDATION_SITE));
        let tokenizer = tokenizer();
        let mut windows = vec![String::from("\n")];
        let (mut nats, mut characters) = (0.0, 0);
        for _ in 0..stories {
            let Sample { text, nats: own } = sample(&mut rng);
            nats += own;
            characters += text.len();
            match windows.last_mut().filter(|window| window.len() + text.len() <= length + 1) {
                Some(window) => window.push_str(&text),
                None => windows.push(format!("\n{text}")),
            }
        }
        let batch = |windows: &[String]| {
            let count = windows.len();
            let mut batch = Batch {
                rows: count,
                length,
                inputs: vec![0; count * length],
                targets: vec![IGNORED; count * length],
            };
            for (row, window) in windows.iter().enumerate() {
                let ids = encode(&tokenizer, window);
                let n = ids.len() - 1;
                batch.inputs[row * length..][..n].copy_from_slice(&ids[..n]);
                batch.targets[row * length..][..n].copy_from_slice(&ids[1..]);
            }
            batch
        };
        let batches = windows.chunks(rows.max(1)).map(batch).collect();
        Ok(Self { batches, characters, oracle: nats / characters as f64 })
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    match tokenizer.encode(text) {
        Ok(ids) => ids,
        Err(error) => unreachable!("the alphabet has every character of the stories: {error}"),
    }
}

fn check(length: usize) -> Result<()> {
    if length < longest() {
        return Err(error::context_too_short(length, longest()));
    }
    Ok(())
}
