//! The studies, one file each.

mod attention;
mod gradients;
mod recall;
mod translation;

use crate::study::Study;

/// All of them, in the order in which they tell the story.
pub(crate) const ALL: &[&Study] =
    &[&recall::STUDY, &gradients::STUDY, &translation::STUDY, &attention::STUDY];
