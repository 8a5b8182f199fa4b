//! Taps: what happens inside a model, by name. A value can be recorded, measured and replaced, and
//! its gradient recorded; everything else stays as it is.
//!
//! ```
//! use hearken_nn::models::{Decoder, PredictsTokens, Tokens};
//! use hearken_nn::pass::Pass;
//! use hearken_nn::taps::{self, Taps};
//! use hearken_nn::variants;
//! use std::sync::Arc;
//!
//! let model = Decoder::drawn(variants::base(), 1);
//! let tokens = Tokens::new(&[1, 2, 3], 1);
//! let taps = Taps::new()
//!     .replace("blocks.0.attention.mixed[2]", taps::zero) // ablates head 2
//!     .record("blocks.1.attention.weights[0]"); // of this head alone
//! let taps = Arc::new(taps);
//! model.logits_with(&tokens, &Pass::evaluate().watched(&taps));
//! let weights = taps.get("blocks.1.attention.weights[0]").unwrap();
//! assert_eq!(weights.shape().dims(), [1, 3, 3]); // (B, T, S)
//! assert!(taps.unmet().is_empty()); // a slip in a name is not an error, it just does nothing
//! ```
//!
//! **Names.** In the order in which they are computed, with a leading B:
//!
//! | name | shape | |
//! |---|---|---|
//! | `embedding` | (T, C) | of the tokens |
//! | `types` | (T, C) | of the tokens' types, in encoders that know types |
//! | `positions` | (T, C) | where positions are vectors |
//! | `embedding_norm` | (T, C) | of their sum, in encoders that norm it |
//! | `blocks.N.residual_before` | (T, C) | |
//! | `blocks.N.norm1` | (T, C) | |
//! | `blocks.N.attention.queries` | (H, T, D) | |
//! | `….keys`, `….values` | (K, T, D) | |
//! | `….rotated_queries`, `….rotated_keys` | as before | with rotary positions |
//! | `….mixed_keys`, `….mixed_values` | (K, rank, D) | of Linformer, whose queries score these: S is the rank |
//! | `….scores` | (H, T, S) | scaled, with bias, −∞ where hidden |
//! | `….weights` | (H, T, S) | before dropout |
//! | `….mixed` | (H, T, D) | the weighted values |
//! | `….out` | (T, C) | before dropout, scaling and the residual |
//! | `blocks.N.residual_middle` | (T, C) | the sum |
//! | `blocks.N.norm_cross`, `.cross_attention.…`, `.residual_cross` | | where a block has a source |
//! | `blocks.N.norm2` | (T, C) | |
//! | `blocks.N.feed_forward.up`, `.gate` | (T, F) | `gate` where there is one |
//! | `….active` | (T, F) | f(up), or f(gate)·up |
//! | `blocks.N.feed_forward.router` | (T, E) | where there are experts: their probabilities |
//! | `….experts.E.up`, `.gate`, `.active`, `.out` | (rows, F), (rows, C) | of the tokens of expert E, with a leading 1 |
//! | `blocks.N.feed_forward.out` | (T, C) | as of attention |
//! | `blocks.N.residual_after` | (T, C) | the sum |
//! | `layers.N.out` | (T, C) | states of recurrent layers; of two directions `layers.N.forwards.out`, `….backwards.out` |
//! | `blocks.N.convolution`, `.active`, `.out`, `.residual_after` | (T, N), (T, C) | in convolutional models |
//! | `norm` | (T, C) | with pre-norm |
//! | `pooled` | (C) | in encoders with a pooler |
//! | `head.norm` | (T, C) | where the head of a masked language model has one |
//! | `logits` | (T, V) | of encoders also (N) or (T, N) for N labels or numbers |
//!
//! Only softmax and Linformer have `scores` and `weights`: other mechanisms never compute them. Where
//! queries are keys (LSH), there are no `keys`. Of reversible layers, `residual_before` and
//! `residual_after` are of the stream that attention reads, `residual_middle` of the other one.
//!
//! With post-norm, `residual_middle` and `residual_after` are the sums before the norms; the next
//! `residual_before` is what the norm gave. In a model with two stacks, names begin with `encoder.`
//! or `decoder.`. The gradient of a value is called `d.` and its name. `NAME[h]` is head h alone of a
//! value that has heads.
//!
//! **What it costs.** Nothing without taps. With them, a layer computes step by step where a tap
//! wants something inside of it, and as usual everywhere else; tests hold the two ways equal. Heads
//! of scores and weights that are only read are computed one at a time, beside the usual way.
//!
//! **Rules.** Replacing comes first, so that what is recorded is what the layers behind it see. A
//! replaced value that is computed from the old one passes gradients on; a constant passes none.
//! Values of a name are replaced when it is met again, gradients add up, as those of parameters do;
//! [`Taps::take`] ends that. With gradient checkpointing, functions are called twice and everything
//! is recorded once. A pass that continues a cache has no taps inside of attention, and one in
//! several parts ([`loss_and_gradients`](crate::models::loss_and_gradients)) has none at all.

mod pattern;
mod seen;

pub use pattern::Pattern;

use hearken_tensor::graph::is_recording;
use hearken_tensor::ops::{concat::concat, reshape::reshape, slice::slice};
use hearken_tensor::{Backward, Gradients, Tensor, Var};
use pattern::Part;
use seen::Seen;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a layer stands in its model: the beginning of the names of its values. Made by
/// [`Scope::place`](crate::scope::Scope::place).
#[derive(Clone, Debug)]
pub struct Place {
    path: String,
}

impl Place {
    /// The model itself.
    pub const ROOT: Self = Self { path: String::new() };

    pub(crate) fn new(path: String) -> Self {
        Self { path }
    }

    /// The full name of a value here; of the layer's own result, if `value` is empty.
    pub(crate) fn name(&self, value: &str) -> String {
        match (self.path.as_str(), value) {
            ("", value) => value.to_owned(),
            (path, "") => path.to_owned(),
            (path, value) => format!("{path}.{value}"),
        }
    }
}

/// What is wanted of a model's values, and what has been seen of them.
#[derive(Default)]
pub struct Taps {
    hooks: Vec<Hook>,
    seen: Arc<Mutex<Seen>>,
}

struct Hook {
    pattern: Pattern,
    action: Action,
    /// Has a value had this name?
    met: AtomicBool,
}

enum Action {
    Record,
    Measure(Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>),
    RecordGradient,
    Replace(Box<dyn Fn(&Var) -> Var + Send + Sync>),
}

impl Taps {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds at most so many bytes of recorded numbers; see [`Taps::overflow`].
    pub fn holding(self, most_bytes: usize) -> Self {
        self.seen().most_bytes = most_bytes;
        self
    }

    /// Records the values of these names.
    pub fn record(self, names: impl Into<Pattern>) -> Self {
        self.with(names, Action::Record)
    }

    /// Records what `f` makes of the values of these names: for numbers about values that are too
    /// large to be kept.
    pub fn measure(
        self,
        names: impl Into<Pattern>,
        f: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        self.with(names, Action::Measure(Box::new(f)))
    }

    /// Records the gradients of the values of these names, as `d.NAME`, when a backward pass reaches
    /// them.
    pub fn record_gradient(self, names: impl Into<Pattern>) -> Self {
        self.with(names, Action::RecordGradient)
    }

    /// Replaces the values of these names by `f` of them, which has their shape. `f` must depend on
    /// its argument alone.
    pub fn replace(
        self,
        names: impl Into<Pattern>,
        f: impl Fn(&Var) -> Var + Send + Sync + 'static,
    ) -> Self {
        self.with(names, Action::Replace(Box::new(f)))
    }

    fn with(mut self, names: impl Into<Pattern>, action: Action) -> Self {
        self.hooks.push(Hook { pattern: names.into(), action, met: AtomicBool::new(false) });
        self
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// What has been recorded under this name.
    pub fn get(&self, name: &str) -> Option<Tensor> {
        self.seen().get(name)
    }

    /// All that has been recorded, in order; nothing is left.
    pub fn take(&self) -> Vec<(String, Tensor)> {
        self.seen().take()
    }

    /// The value at which there was more to record than is held. From there on, nothing is.
    pub fn overflow(&self) -> Option<String> {
        self.seen().overflow.clone()
    }

    /// The patterns that no value has been called by.
    pub fn unmet(&self) -> Vec<&Pattern> {
        let unmet = self.hooks.iter().filter(|hook| !hook.met.load(Ordering::Relaxed));
        unmet.map(|hook| &hook.pattern).collect()
    }

    /// The hooks of a value that still do something.
    fn hooks(&self, name: &str) -> impl Iterator<Item = &Hook> {
        let full = self.seen().overflow.is_some();
        let active = move |hook: &&Hook| !full || matches!(hook.action, Action::Replace(_));
        self.hooks.iter().filter(active).filter(move |hook| hook.pattern.matches(name))
    }

    /// How much of a value is wanted.
    pub(crate) fn interest(&self, name: &str) -> Interest {
        let mut interest = Interest::None;
        for hook in self.hooks(name) {
            let reads = matches!(hook.action, Action::Record | Action::Measure(_));
            if !(reads && hook.pattern.is_of_heads()) {
                return Interest::Whole;
            }
            interest = Interest::Heads;
        }
        interest
    }

    /// Is head `head` of a value read by itself?
    pub(crate) fn reads_head(&self, name: &str, head: usize) -> bool {
        self.hooks(name).any(|hook| hook.pattern.has_head(head))
    }

    /// Lets a head that was computed by itself be read.
    pub(crate) fn show_head(&self, name: &str, head: usize, value: &Tensor) {
        for hook in self.hooks(name).filter(|hook| hook.pattern.has_head(head)) {
            hook.read(Part::Head(head).name(name), value, &mut self.seen());
        }
    }

    /// Does what is wanted with a value, whose second dimension is that of heads if `has_heads`.
    pub(crate) fn apply(&self, name: &str, x: Var, has_heads: bool) -> Var {
        let hooks: Vec<&Hook> = self.hooks(name).collect();
        let heads = if has_heads { x.shape().dims()[1] } else { 0 };
        let parts =
            || hooks.iter().flat_map(|hook| hook.pattern.parts(heads).map(move |p| (*hook, p)));
        let mut x = x;
        for (hook, part) in parts() {
            if let Action::Replace(f) = &hook.action {
                x = hook.replace(f, part, &x, name);
            }
        }
        for (hook, part) in parts() {
            match &hook.action {
                Action::Replace(_) => {}
                Action::RecordGradient => x = self.with_gradient(hook, part, x, name),
                Action::Record | Action::Measure(_) => {
                    hook.read(part.name(name), &part.of(x.value()), &mut self.seen());
                }
            }
        }
        x
    }

    fn with_gradient(&self, hook: &Hook, part: Part, x: Var, name: &str) -> Var {
        hook.met.store(true, Ordering::Relaxed);
        if !is_recording() {
            return x;
        }
        let name = format!("d.{}", part.name(name));
        let size = part.of(x.value()).shape().len();
        if !self.seen().reserve(&name, size) {
            return x;
        }
        // A constant has a gradient, too, if it is asked for.
        let x = if x.wants_gradient() { x } else { Var::leaf(x.into_value()) };
        let value = x.value().clone();
        Var::from_op(value, &[&x], || TapBackward { seen: self.seen.clone(), name, part })
    }
}

impl Hook {
    /// Records or measures a value.
    fn read(&self, name: String, value: &Tensor, seen: &mut Seen) {
        self.met.store(true, Ordering::Relaxed);
        match &self.action {
            Action::Record => seen.set(name, value.clone()),
            Action::Measure(f) => seen.set(name, f(value)),
            Action::RecordGradient | Action::Replace(_) => {}
        }
    }

    fn replace(&self, f: &dyn Fn(&Var) -> Var, part: Part, x: &Var, name: &str) -> Var {
        self.met.store(true, Ordering::Relaxed);
        let same_shape = |new: Var, old: &Var| {
            let (new_shape, old_shape) = (new.shape(), old.shape());
            assert_eq!(new_shape, old_shape, "{} is replaced by another shape", part.name(name));
            new
        };
        let Part::Head(head) = part else { return same_shape(f(x), x) };
        let dims = x.shape().dims().to_vec(); // [B, heads, …]
        let one = slice(x, 1, head..head + 1);
        let (one_shape, rest) = (one.shape(), [&dims[..1], &dims[2..]].concat());
        let one = reshape(one, rest.as_slice());
        let new = reshape(same_shape(f(&one), &one), one_shape);
        let (before, after) = (slice(x, 1, 0..head), slice(x, 1, head + 1..dims[1]));
        concat(&[&before, &new, &after], 1)
    }
}

/// How much of a value is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Interest {
    None,
    /// Some heads, each by itself, and only to be read.
    Heads,
    Whole,
}

/// The identity, which records the gradient that passes.
struct TapBackward {
    seen: Arc<Mutex<Seen>>,
    name: String,
    part: Part,
}

impl Backward for TapBackward {
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>) {
        lock(&self.seen).add(self.name, self.part.of(&dout));
        gradients.add(0, dout);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All zeros, for [`Taps::replace`]: ablation.
pub fn zero(x: &Var) -> Var {
    Var::constant(Tensor::zeros(x.shape()))
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.hooks).finish()
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Record => "record",
            Action::Measure(_) => "measure",
            Action::RecordGradient => "record the gradient of",
            Action::Replace(_) => "replace",
        };
        write!(f, "{action} {}", self.pattern)
    }
}
