//! Windows that begin where a story begins, but for one training row in sixteen, which begins within
//! one.

use super::{Sample, longest, sample, tokenizer};
use crate::batches::{Batch, Batches, Examples, IGNORED, key};
use crate::error::{self, Result};
use crate::tokenizer::Tokenizer;
use hearken_tensor::rng::Rng;
use std::ops::Range;

const TRAINING_SITE: u64 = 0x7374_6f72_6965_7300; // "stories"
const VALIDATION_SITE: u64 = 0x6865_6c64_5f6f_7574; // "held_out"

/// One training row in so many starts within a story.
const WITHIN: usize = 16;

/// Training batches of fresh stories: no story is repeated but by chance. One row in sixteen starts at
/// a word within a story, so that a model can continue a text that starts there, too; this first
/// word is not predicted, so that a model does not learn to expect it at the beginning.
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
        Batch::build(rows.len(), self.length, 0, |row, inputs, targets| {
            let row = (rows.start + row) as u64;
            let rng = |site| Rng::new(key(key(self.seed, step, TRAINING_SITE), row, site));
            let mut draws = rng(0);
            let first = sample(&mut draws).text;
            // Stories are written in ASCII: a character is a byte.
            let (start, word) = within(&first, &mut rng(1)).unwrap_or((0, 0));
            let mut text = format!("\n{}", &first[start..]);
            while text.len() <= self.length {
                text.push_str(&sample(&mut draws).text);
            }
            let ids = encode(&self.tokenizer, &text[..=self.length]); // (T + 1)
            inputs.copy_from_slice(&ids[..self.length]);
            targets.copy_from_slice(&ids[1..]);
            targets[..word].fill(IGNORED);
            self.length
        })
    }
}

/// Where a row starts within its first story, for one row in [`WITHIN`]: at a word that is not the
/// first, and how long that word is.
fn within(story: &str, rng: &mut Rng) -> Option<(usize, usize)> {
    if rng.below(WITHIN) != 0 {
        return None;
    }
    let starts: Vec<usize> = story.match_indices(' ').map(|(space, _)| space + 1).collect();
    let start = starts[rng.below(starts.len())];
    let word = story[start..].find([' ', '\n'])?;
    Some((start, word))
}

/// Stories that are held out, whole. An example is a window of some stories; what is left of it is
/// padding.
#[derive(Clone, Debug)]
pub struct Validation {
    /// The ids of each window, with the line end before its first story.
    windows: Vec<Vec<u32>>,
    length: usize,
    /// How many characters count.
    pub characters: usize,
    /// What the process that made these stories would itself score: Σ −ln p / Σ length.
    pub oracle: f64,
}

impl Validation {
    /// `stories` stories in windows of `length` characters. They are drawn from other numbers than
    /// those of training with the same seed.
    pub fn new(stories: usize, length: usize, seed: u64) -> Result<Self> {
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
        let windows = windows.iter().map(|window| encode(&tokenizer, window)).collect();
        Ok(Self { windows, length, characters, oracle: nats / characters as f64 })
    }
}

impl Examples for Validation {
    fn count(&self) -> usize {
        self.windows.len()
    }

    fn longest(&self) -> usize {
        self.length
    }

    fn tokens_of(&self, example: usize) -> usize {
        self.windows[example].len() - 1
    }

    fn batch_of(&self, examples: &[usize]) -> Batch {
        Batch::build(examples.len(), self.length, 0, |row, inputs, targets| {
            let (window, n) = (&self.windows[examples[row]], self.tokens_of(examples[row]));
            inputs[..n].copy_from_slice(&window[..n]);
            targets[..n].copy_from_slice(&window[1..]);
            n
        })
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
