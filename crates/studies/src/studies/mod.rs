//! The studies, one file each.

mod recall;

use crate::study::Study;

/// All of them, in the order in which they tell the story.
pub(crate) const ALL: &[&Study] = &[&recall::STUDY];
