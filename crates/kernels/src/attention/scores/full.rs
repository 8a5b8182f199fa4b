//! Everybody sees everything.

use super::{Position, Scores, Visibility};
use std::ops::Range;

/// No mask and no bias.
#[derive(Clone, Copy, Debug, Default)]
pub struct Full;

impl Scores for Full {
    #[inline(always)]
    fn tile(&self, _: usize, _: usize, _: Range<usize>, _: Range<usize>) -> Visibility {
        Visibility::Full
    }
    #[inline(always)]
    fn apply(&self, _: Position, _: Range<usize>, _: &mut [f32]) {}
}
