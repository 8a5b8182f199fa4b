//! The lessons, one file per theme.

mod attention;
mod blocks;
mod calculus;
mod confidence;
mod decoding;
mod efficiency;
mod evaluation;
mod identities;
mod positions;
mod sequences;
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
    ("Sequences", sequences::LESSONS),
    ("Training", training::LESSONS),
    ("Less memory, less arithmetic", efficiency::LESSONS),
    ("Choosing the next token", decoding::LESSONS),
    ("Tokens and losses", evaluation::LESSONS),
    ("Confidence", confidence::LESSONS),
    ("Identities", identities::LESSONS),
];
