//! Who sees whom: the direction that the kind of model fixes, the pattern that its configuration
//! chooses, and the layout of the batch at hand.

use super::Rule;
use crate::config::AttentionConfig;
use crate::layers::ScoreBias;
use crate::pass::Layout;
use hearken_kernels::attention::scores::{
    And, Causal, Full, Global, Or, Padding, Prefix, Segments, Strided, Window,
};

/// Which way a token may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// At itself and what comes before: decoders.
    Causal,
    /// Both ways: encoders.
    Bidirectional,
}

/// What does not change from batch to batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visibility {
    direction: Direction,
    pattern: AttentionConfig,
}

impl Visibility {
    pub(super) fn new(direction: Direction, pattern: AttentionConfig) -> Self {
        Self { direction, pattern }
    }

    /// All sees all.
    pub(super) fn everything() -> Self {
        Self::new(Direction::Bidirectional, AttentionConfig::Full {})
    }

    /// What `queries`, the last of `keys`, see of a batch that is laid out like this.
    pub(super) fn rule(&self, layout: &Layout, queries: usize, keys: usize) -> Rule {
        let seen = match self.direction {
            Direction::Causal => self.causal(layout, queries, keys),
            Direction::Bidirectional => {
                assert!(layout.prefixes.is_none(), "all sees all: there is no prefix");
                self.bidirectional(queries, keys)
            }
        };
        let seen = match &layout.lengths {
            Some(lengths) => Box::new(And(seen, Padding::new(lengths.to_vec()))),
            None => seen,
        };
        let counts_from_the_row =
            matches!(self.pattern, AttentionConfig::Sparse { global: 1.., .. })
                || layout.prefixes.is_some();
        assert!(
            layout.packing.is_none() || !counts_from_the_row,
            "global tokens and prefixes are those of a row, and packed rows hold several documents"
        );
        match &layout.packing {
            Some(packing) => Box::new(And(seen, Segments::new(&packing.segments, queries, keys))),
            None => seen,
        }
    }

    fn causal(&self, layout: &Layout, queries: usize, keys: usize) -> Rule {
        let causal = Causal::new(queries, keys);
        match (self.pattern, &layout.prefixes) {
            (AttentionConfig::Full {}, None) => Box::new(causal),
            (AttentionConfig::Window { size }, None) => {
                Box::new(Window::causal(size, queries, keys))
            }
            (AttentionConfig::Sparse { window, stride, global }, None) => {
                let near = Window::causal(window, queries, keys);
                Box::new(And(causal, sparse(near, stride, global, queries, keys)))
            }
            (AttentionConfig::Full {}, Some(prefixes)) => {
                Box::new(Prefix::new(prefixes.to_vec(), queries, keys))
            }
            // The prefix is seen by all, whatever the pattern says of the rest.
            (_, Some(prefixes)) => {
                let rest = self.causal(&Layout::default(), queries, keys);
                Box::new(Or::new(rest, Padding::new(prefixes.to_vec())))
            }
        }
    }

    fn bidirectional(&self, queries: usize, keys: usize) -> Rule {
        match self.pattern {
            AttentionConfig::Full {} => Box::new(Full),
            AttentionConfig::Window { size } => Box::new(Window::symmetric(size, queries, keys)),
            AttentionConfig::Sparse { window, stride, global } => {
                sparse(Window::symmetric(window, queries, keys), stride, global, queries, keys)
            }
        }
    }
}

/// The near ones, every `stride`-th, and the first `global`.
fn sparse(near: Window, stride: usize, global: usize, queries: usize, keys: usize) -> Rule {
    let global = Global::new(global, queries, keys);
    if stride == 0 {
        return Box::new(Or::new(near, global));
    }
    Box::new(Or::new(near, Or::new(Strided::new(stride, queries, keys), global)))
}

/// What is seen, with what positions add to its scores.
pub(super) fn with_bias(
    seen: Rule,
    bias: Option<&ScoreBias>,
    heads: usize,
    queries: usize,
    keys: usize,
) -> Rule {
    match bias {
        Some(bias) => Box::new(And(seen, bias.rule(heads, queries, keys))),
        None => seen,
    }
}
