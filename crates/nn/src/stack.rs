//! A stack of blocks: what encoders and decoders are made of.
//!
//! ```text
//! x = dropout(x + P[positions])        (B, T, C); BERT: dropout(norm(x + P[positions]))
//! x = block(x), L times
//! x = norm(x)                          (pre-norm)
//! ```
//! Reversible blocks work on two streams, which begin as x and end as their mean.

use crate::block::{Block, Memory};
use crate::cache::{CacheKind, KeyValues};
use crate::config::{Placement, StackConfig};
use crate::layers::{Direction, Dropout, Norm, Positions};
use crate::pass::Pass;
use crate::scope::Scope;
use crate::slot::{LayerState, Sequences, Slot};
use crate::taps::Place;
use hearken_tensor::ops::{concat::concat, reshape::reshape, scale::scale, slice::slice};
use hearken_tensor::{Coupling, Shape, Var, checkpoint, reversible};
use std::sync::Arc;

/// Blocks, one after the other, and the positions that they share.
#[derive(Clone, Debug)]
pub struct Stack {
    positions: Arc<Positions>,
    /// Of the sum of all embeddings.
    embedding_norm: Option<Norm>,
    dropout: Dropout,
    blocks: Vec<Arc<Block>>,
    norm: Option<Norm>,
    checkpointing: bool,
    /// Are blocks coupled so that they can be computed back from their results?
    reversible: bool,
    /// Does a new token change what came of those before it?
    recomputes: bool,
    place: Place,
}

impl Stack {
    /// Blocks that look in one `direction`, for sequences of up to `context` tokens; and at a source
    /// of vectors of `source_width`, if there is one. Parameters `position.*`, `blocks.N.*` and,
    /// with pre-norm, `norm.*`. Panics if the configuration is not valid.
    pub fn new(
        scope: &Scope,
        config: &StackConfig,
        context: usize,
        direction: Direction,
        source_width: Option<usize>,
    ) -> Self {
        if let Err(error) = config.validate("stack") {
            panic!("{error}");
        }
        let per_block = if source_width.is_some() { 3 } else { 2 };
        let scope = scope.starting(config.init, per_block * config.layers);
        let positions = Positions::new(&(&scope / "position"), config, context, direction);
        assert!(
            !config.reversible || source_width.is_none(),
            "reversible blocks attend to their own sequence alone"
        );
        let block =
            |i| Block::new(&(&(&scope / "blocks") / i), config, direction, context, source_width);
        let pre = config.norm.placement == Placement::Pre;
        Self {
            positions: Arc::new(positions),
            embedding_norm: None,
            dropout: scope.dropout("embedding.dropout", config.dropout.embedding),
            blocks: (0..config.layers).map(|i| Arc::new(block(i))).collect(),
            norm: pre.then(|| {
                Norm::new(&(&scope / "norm"), config.norm, config.width, config.bias.norm)
            }),
            checkpointing: false,
            reversible: config.reversible,
            recomputes: config.mechanism.recomputes(),
            place: scope.place(),
        }
    }

    /// The same, with a norm behind the embeddings: parameters `embedding_norm.*`.
    pub fn with_embedding_norm(mut self, scope: &Scope, config: &StackConfig) -> Self {
        let scope = scope / "embedding_norm";
        self.embedding_norm = Some(Norm::new(&scope, config.norm, config.width, config.bias.norm));
        self
    }

    /// Computes blocks again in backward instead of keeping what is inside them.
    pub fn set_checkpointing(&mut self, on: bool) {
        self.checkpointing = on;
    }

    /// The state of a sequence that has not begun.
    pub fn slot(&self, kind: CacheKind) -> Slot {
        if self.recomputes {
            return Slot::new(vec![LayerState::Tokens(Vec::new())]);
        }
        Slot::new(self.blocks.iter().map(|block| block.state(kind)).collect())
    }

    /// Does a new token change what came of those before it, so that everything is read again?
    pub fn recomputes(&self) -> bool {
        self.recomputes
    }

    /// Keys and values of each row of a source in every block, of the memory that [`Stack::forward`]
    /// takes: (B, L).
    pub fn kept_of(
        &self,
        memory: &[Memory],
        lengths: &[usize],
        kind: CacheKind,
    ) -> Vec<Vec<KeyValues>> {
        let mut rows = vec![Vec::new(); lengths.len()];
        for (i, block) in self.blocks.iter().enumerate() {
            let Some(memory) = seen_by(memory, i) else { panic!("there is no source") };
            let kept = block.kept_of(&memory.hidden, lengths, kind);
            rows.iter_mut().zip(kept).for_each(|(row, kept)| row.push(kept));
        }
        rows
    }

    /// The last hidden state (B, T, C) of token vectors `x` (B, T, …). Blocks that attend to a source
    /// are given one for all, or one each. With sequences, `x` is their new tokens next to each other
    /// (1, rows, …), which continue what is in their slots; sources are there, too.
    pub fn forward(
        &self,
        x: Var,
        memory: &[Memory],
        pass: &Pass,
        sequences: Option<Sequences<'_, '_>>,
    ) -> Var {
        let x = pass.tap(&self.place, "embedding", x);
        self.forward_embedded(x, memory, pass, sequences)
    }

    /// As [`Stack::forward`], of vectors that taps have seen: the sum of several embeddings.
    pub fn forward_embedded(
        &self,
        x: Var,
        memory: &[Memory],
        pass: &Pass,
        sequences: Option<Sequences<'_, '_>>,
    ) -> Var {
        let x = self.run(x, memory, pass, sequences, |_| ());
        self.normed(x, pass)
    }

    /// As [`Stack::forward`] without a source, of every block: its hidden state, behind the norm at the
    /// end where there is one.
    pub fn forward_layers(&self, x: Var, pass: &Pass) -> Vec<Var> {
        let x = pass.tap(&self.place, "embedding", x);
        let mut states = Vec::new();
        self.run(x, &[], pass, None, |x| states.push(x.clone()));
        let unwatched = Pass::evaluate();
        let last = states.len().saturating_sub(1);
        let states = states.into_iter().enumerate();
        states.map(|(i, x)| self.normed(x, if i == last { pass } else { &unwatched })).collect()
    }

    fn normed(&self, x: Var, pass: &Pass) -> Var {
        match &self.norm {
            Some(norm) => norm.forward(&x, pass),
            None => x,
        }
    }

    /// What the last block gives; `after` is shown what each gives.
    fn run(
        &self,
        x: Var,
        memory: &[Memory],
        pass: &Pass,
        mut sequences: Option<Sequences<'_, '_>>,
        mut after: impl FnMut(&Var),
    ) -> Var {
        let places = match &sequences {
            Some(sequences) => Some(sequences.places()),
            None => pass.layout().packing.as_ref().map(|packing| &*packing.positions),
        };
        let tap = |positions| pass.tap(&self.place, "positions", positions);
        let x = self.positions.join(x, places, tap);
        let x = match &self.embedding_norm {
            Some(norm) => norm.forward(&x, pass),
            None => x,
        };
        let mut x = self.dropout.forward(x, pass);
        if self.reversible {
            x = self.reversibly(x, pass, sequences.as_mut());
        }
        let blocks = if self.reversible { &[] } else { &*self.blocks };
        for (i, block) in blocks.iter().enumerate() {
            let slots = sequences.as_mut().map(|sequences| sequences.layer(i));
            let memory = seen_by(memory, i);
            x = if self.checkpointing && slots.is_none() {
                self.checkpointed(block, &x, memory, pass)
            } else {
                block.forward(&x, &self.positions, memory, pass, slots)
            };
            after(&x);
        }
        if let Some(sequences) = sequences {
            sequences.advance();
        }
        x
    }

    /// Two streams through all blocks. What training needs of them is computed back from their
    /// ends, unless somebody watches.
    fn reversibly(&self, x: Var, pass: &Pass, sequences: Option<&mut Sequences<'_, '_>>) -> Var {
        if sequences.is_none() && !pass.is_watched() {
            let coupling = |block: &Arc<Block>| {
                let (f, g) = (block.clone(), block.clone());
                let (positions, own, other) = (self.positions.clone(), pass.clone(), pass.clone());
                Coupling::new(
                    move |x: &Var| f.attention_branch(x, &positions, &own, None),
                    move |x: &Var| g.feed_forward_branch(x, &other),
                )
            };
            return reversible(&x, self.blocks.iter().map(coupling).collect());
        }
        let mut sequences = sequences;
        let mut streams = [x.clone(), x];
        for (i, block) in self.blocks.iter().enumerate() {
            let slots = sequences.as_mut().map(|sequences| sequences.layer(i));
            streams = block.coupled(streams, &self.positions, pass, slots);
        }
        let [a, b] = streams;
        scale(a + b, 0.5)
    }

    /// What the block gets from outside of itself goes in as inputs, so that gradients reach it.
    fn checkpointed(
        &self,
        block: &Arc<Block>,
        x: &Var,
        memory: Option<&Memory>,
        pass: &Pass,
    ) -> Var {
        let (block, positions, pass) = (block.clone(), self.positions.clone(), pass.clone());
        let layout = memory.map(|memory| memory.layout.clone());
        let inputs: Vec<&Var> =
            [Some(x), memory.map(|m| &m.hidden)].into_iter().flatten().collect();
        let outer = pass.clone();
        let out = checkpoint(&inputs, move |inputs| {
            let memory = inputs.get(1).zip(layout.clone());
            let memory = memory.map(|(hidden, layout)| Memory { hidden: hidden.clone(), layout });
            let (own, auxiliary) = pass.collecting();
            let pass = if pass.wants_auxiliary() { &own } else { &pass };
            let x = block.forward(&inputs[0], &positions, memory.as_ref(), pass, None);
            match auxiliary.take() {
                Some(loss) => beside(x, loss),
                None => x,
            }
        });
        if out.shape() == x.shape() {
            return out;
        }
        let (out, loss) = apart(&out, x.shape());
        outer.add_auxiliary(loss);
        out
    }
}

/// What block `i` attends to: the only memory there is, or its own.
fn seen_by(memory: &[Memory], i: usize) -> Option<&Memory> {
    if memory.len() == 1 { memory.first() } else { memory.get(i) }
}

/// The result of a block and a loss of its own, a scalar, as one value: what is computed again has
/// one.
fn beside(x: Var, loss: Var) -> Var {
    let len = x.shape().len();
    concat(&[&reshape(x, [len]), &reshape(loss, [1])], 0)
}

/// The two again.
fn apart(both: &Var, shape: Shape) -> (Var, Var) {
    let len = shape.len();
    let x = reshape(slice(both, 0, 0..len), shape);
    (x, reshape(slice(both, 0, len..len + 1), []))
}
