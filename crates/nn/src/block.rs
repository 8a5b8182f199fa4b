//! One layer of a Transformer: attention to itself, perhaps to another sequence, and feed-forward,
//! each with a norm and a residual connection.

use crate::cache::{CacheKind, KeyValues};
use crate::config::StackConfig;
use crate::layers::{AnyFeedForward, Attention, Direction, Positions, Residual};
use crate::pass::{Layout, Pass};
use crate::scope::Scope;
use crate::slot::{LayerSlots, LayerState};
use crate::taps::Place;
use hearken_tensor::Var;

/// Another sequence that a block attends to: hidden states of an encoder. With slots it is in these.
#[derive(Clone)]
pub struct Memory {
    /// (B, S, C')
    pub hidden: Var,
    /// How its rows are laid out.
    pub layout: Layout,
}

/// Attention, then feed-forward.
#[derive(Clone, Debug)]
pub struct Block {
    residual1: Residual,
    attention: Attention,
    cross: Option<(Residual, Attention)>,
    residual2: Residual,
    feed_forward: AnyFeedForward,
    place: Place,
}

impl Block {
    /// For sequences of up to `context` tokens, with parameters `norm1.*`, `attention.*`, `norm2.*` and `feed_forward.*`; and, if it attends
    /// to a source of vectors that wide, `norm_cross.*` and `cross_attention.*`.
    pub fn new(
        scope: &Scope,
        config: &StackConfig,
        direction: Direction,
        context: usize,
        source_width: Option<usize>,
    ) -> Self {
        let residual = |norm, sum| Residual::new(scope, norm, sum, config);
        Self {
            residual1: residual("norm1", "residual_middle"),
            attention: Attention::to_itself(&(scope / "attention"), config, direction, context),
            cross: source_width.map(|width| {
                let norm = residual("norm_cross", "residual_cross");
                (norm, Attention::across(&(scope / "cross_attention"), config, width))
            }),
            residual2: residual("norm2", "residual_after"),
            feed_forward: AnyFeedForward::new(&(scope / "feed_forward"), config),
            place: scope.place(),
        }
    }

    /// What it remembers of a sequence that has not begun.
    pub fn state(&self, kind: CacheKind) -> LayerState {
        self.attention.state(kind)
    }

    /// Keys and values of each row of a source, whose rows have these lengths. Panics if it attends to
    /// none.
    pub fn kept_of(&self, source: &Var, lengths: &[usize], kind: CacheKind) -> Vec<KeyValues> {
        let Some((_, attention)) = &self.cross else { panic!("this block attends to no source") };
        attention.kept_of(source, lengths, kind)
    }

    /// (B, T, C) → (B, T, C)
    ///
    /// ```text
    /// x ← x + attention(norm1(x))
    /// x ← x + cross_attention(norm_cross(x), memory)
    /// x ← x + feed_forward(norm2(x))
    /// ```
    pub fn forward(
        &self,
        x: &Var,
        positions: &Positions,
        memory: Option<&Memory>,
        pass: &Pass,
        mut slots: Option<LayerSlots<'_, '_>>,
    ) -> Var {
        let x = pass.tap(&self.place, "residual_before", x.clone());
        let mut x = self.residual1.around(&x, pass, |x, onto| {
            self.attention.forward(x, onto, positions, pass, slots.as_mut())
        });
        if let Some((residual, attention)) = &self.cross {
            x = residual.around(&x, pass, |x, onto| match (&mut slots, memory) {
                (Some(slots), _) => attention.forward_to_sources(x, onto, pass, slots),
                (None, Some(Memory { hidden, layout })) => {
                    attention.forward_across(x, onto, hidden, layout, pass)
                }
                (None, None) => panic!("a block that attends to a source needs one"),
            });
        }
        self.residual2.around(&x, pass, |x, onto| self.feed_forward.forward(x, onto, pass))
    }

    /// F of a reversible layer: what attention adds to a stream, (B, T, C) → (B, T, C).
    pub fn attention_branch(
        &self,
        x: &Var,
        positions: &Positions,
        pass: &Pass,
        mut slots: Option<LayerSlots<'_, '_>>,
    ) -> Var {
        let layer = |x: &Var| self.attention.forward(x, None, positions, pass, slots.as_mut());
        self.residual1.branch(x, pass, layer)
    }

    /// G of a reversible layer: what the feed-forward layer adds to a stream.
    pub fn feed_forward_branch(&self, x: &Var, pass: &Pass) -> Var {
        self.residual2.branch(x, pass, |x| self.feed_forward.forward(x, None, pass))
    }

    /// Two streams (x₁, x₂) through a reversible layer:
    ///
    /// ```text
    /// y₁ = x₁ + F(x₂), y₂ = x₂ + G(y₁)
    /// ```
    pub fn coupled(
        &self,
        [x1, x2]: [Var; 2],
        positions: &Positions,
        pass: &Pass,
        slots: Option<LayerSlots<'_, '_>>,
    ) -> [Var; 2] {
        let x2 = pass.tap(&self.place, "residual_before", x2);
        let y1 = x1 + self.attention_branch(&x2, positions, pass, slots);
        let y1 = self.residual1.tap_sum(y1, pass);
        let y2 = x2 + self.feed_forward_branch(&y1, pass);
        [y1, self.residual2.tap_sum(y2, pass)]
    }
}
