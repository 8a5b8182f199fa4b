//! The studies, one file each.

mod attention;
mod gradients;
mod heads;
mod norms;
mod optimizers;
mod positions;
mod recall;
mod scaling_factor;
mod tokenizers;
mod translation;

use crate::study::Study;

/// All of them, in the order in which they tell the story.
pub(crate) const ALL: &[&Study] = &[
    &recall::STUDY,
    &gradients::STUDY,
    &translation::STUDY,
    &attention::STUDY,
    &scaling_factor::STUDY,
    &norms::STUDY,
    &positions::STUDY,
    &optimizers::STUDY,
    &heads::STUDY,
    &tokenizers::STUDY,
];
