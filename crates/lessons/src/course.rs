//! The lessons, one file per theme.

mod attention;
mod blocks;
mod calculus;
mod decoding;
mod efficiency;
mod evaluation;
mod identities;
mod positions;
mod similarity;
mod softmax;
mod training;

use crate::Lesson;

/// The themes in order.
pub(crate) const GROUPS: &[(&str, &[Lesson])] = &[
    ("Going downhill", calculus::LESSONS),
    ("Scores and probabilities", softmax::LESSONS),
    ("Likeness", similarity::LESSONS),
    ("Attention", attention::LESSONS),
    ("Positions", positions::LESSONS),
    ("Blocks", blocks::LESSONS),
    ("Training", training::LESSONS),
    ("Less memory, less arithmetic", efficiency::LESSONS),
    ("Choosing the next token", decoding::LESSONS),
    ("Tokens, losses and confidence", evaluation::LESSONS),
    ("Identities", identities::LESSONS),
];
