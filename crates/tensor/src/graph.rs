//! The graph that remembers how a value was made, and walks back along it.
//!
//! A [`Var`] is a tensor with or without a node. An operation computes its value and calls
//! [`Var::from_op`] with its inputs and a closure that packs what its backward needs; the
//! closure runs only if some input wants a gradient, so the same model code that trains also
//! generates, without a graph and with memory freed as values drop.
//!
//! The graph knows only "call this node's backward": there is no central list of operations and
//! no way into the graph without a [`Backward`]. Nodes are numbered as they are made, so an input
//! always has a smaller number than what was made of it, and walking back in falling order of
//! numbers visits a node only when its whole gradient is there. What a node saved is freed as
//! soon as its backward has run.

use crate::profile;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::{Write, elementwise};
use std::cell::Cell;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an operation needs to pass a gradient on: its saved values.
pub trait Backward: Send + 'static {
    /// Given `dout`, the gradient of the operation's value, adds to the gradients of its inputs.
    fn backward(self: Box<Self>, dout: Tensor, gradients: &mut Gradients<'_>);

    /// The name of the operation, for profiles.
    #[doc(hidden)]
    fn name(&self) -> &'static str {
        profile::name::<Self>()
    }
}

/// A place in the graph.
pub(crate) struct Node {
    number: u64,
    shape: Shape,
    inputs: Vec<Option<Arc<Node>>>,
    is_leaf: bool,
    state: Mutex<State>,
}

struct State {
    gradient: Option<Tensor>,
    backward: Option<Box<dyn Backward>>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Node {
    fn new(
        shape: Shape,
        inputs: Vec<Option<Arc<Node>>>,
        backward: Option<Box<dyn Backward>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            shape,
            inputs,
            is_leaf: backward.is_none(),
            state: Mutex::new(State { gradient: None, backward }),
        })
    }

    pub(crate) fn leaf(shape: Shape) -> Arc<Self> {
        Self::new(shape, Vec::new(), None)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn gradient(&self) -> Option<Tensor> {
        self.state().gradient.clone()
    }

    pub(crate) fn set_gradient(&self, gradient: Option<Tensor>) {
        if let Some(gradient) = &gradient {
            assert_eq!(gradient.shape(), self.shape, "a gradient has the shape of its value");
        }
        self.state().gradient = gradient;
    }

    pub(crate) fn take_gradient(&self) -> Option<Tensor> {
        self.state().gradient.take()
    }

    pub(crate) fn add_gradient(&self, new: Tensor) {
        assert_eq!(new.shape(), self.shape, "a gradient has the shape of its value");
        let mut state = self.state();
        match &mut state.gradient {
            Some(sum) => elementwise::add_assign(sum.data_mut(), new.data()),
            empty => *empty = Some(new),
        }
    }
}

/// Long chains (a recurrent network over thousands of steps) are freed in a loop: the recursion
/// of nested drops would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut orphans: Vec<Arc<Node>> = self.inputs.drain(..).flatten().collect();
        while let Some(node) = orphans.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                orphans.extend(node.inputs.drain(..).flatten());
            }
        }
    }
}

struct ByNumber(Arc<Node>);
impl PartialEq for ByNumber {
    fn eq(&self, other: &Self) -> bool {
        self.0.number == other.0.number
    }
}
impl Eq for ByNumber {}
impl PartialOrd for ByNumber {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ByNumber {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.number.cmp(&other.0.number)
    }
}

/// The gradients of an operation's inputs, by their position in the list given to
/// [`Var::from_op`].
pub struct Gradients<'a> {
    inputs: &'a [Option<Arc<Node>>],
}

/// A gradient to write to: the buffer and whether it already holds a part of the sum.
pub type Slot<'a> = (&'a mut [f32], Write);

impl Gradients<'_> {
    /// The node of input `i`, if there is such an input and it wants a gradient: an optional
    /// input comes last and is simply not there.
    fn node(&self, i: usize) -> Option<&Node> {
        self.inputs.get(i)?.as_deref()
    }

    /// Does input `i` want a gradient? Work for one that does not may be skipped.
    pub fn wanted(&self, i: usize) -> bool {
        self.node(i).is_some()
    }

    /// Adds `gradient` to that of input `i`; without copying if it is the first.
    pub fn add(&mut self, i: usize, gradient: Tensor) {
        if let Some(node) = self.node(i) {
            node.add_gradient(gradient);
        }
    }

    /// Takes what the gradient of input `i` holds so far, to be given back with more by
    /// [`Gradients::add`].
    pub(crate) fn take(&mut self, i: usize) -> Option<Tensor> {
        self.node(i).and_then(Node::take_gradient)
    }

    /// Lets `f` write the gradient of input `i` in place: the first time with [`Write::Set`] into
    /// memory of arbitrary content, then with [`Write::Add`]. Not called if it is not wanted.
    pub fn write(&mut self, i: usize, f: impl FnOnce(&mut [f32], Write)) {
        self.write_many([i], |[slot]| {
            if let Some((buffer, write)) = slot {
                f(buffer, write);
            }
        });
    }

    /// As [`Gradients::write`], for several inputs at once; those not wanted are `None`.
    pub fn write_many<const N: usize>(
        &mut self,
        inputs: [usize; N],
        f: impl FnOnce([Option<Slot<'_>>; N]),
    ) {
        let mut taken = inputs.map(|i| {
            self.node(i).map(|node| match node.take_gradient() {
                Some(gradient) => (gradient, Write::Add),
                None => (Tensor::unset(node.shape), Write::Set),
            })
        });
        f(taken.each_mut().map(|t| t.as_mut().map(|(tensor, write)| (tensor.data_mut(), *write))));
        for (i, slot) in inputs.into_iter().zip(taken) {
            // One variable may stand at two positions: then the second buffer is added here.
            if let Some((gradient, _)) = slot {
                self.add(i, gradient);
            }
        }
    }
}

thread_local! {
    static RECORDING: Cell<bool> = const { Cell::new(true) };
}

pub(crate) fn with_recording<R>(on: bool, f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECORDING.set(self.0);
        }
    }
    let _restore = Restore(RECORDING.replace(on));
    f()
}

/// Runs `f` without building a graph: for evaluation and generation.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with_recording(false, f)
}

/// Runs `f` with the graph recorded, whatever the surroundings say.
pub(crate) fn with_grad<R>(f: impl FnOnce() -> R) -> R {
    with_recording(true, f)
}

/// Is the graph being recorded on this thread?
pub fn is_recording() -> bool {
    RECORDING.get()
}

/// A value and, when a gradient is wanted, its place in the graph.
#[derive(Clone)]
pub struct Var {
    value: Tensor,
    node: Option<Arc<Node>>,
}

impl Var {
    /// A value that gradients do not flow into.
    pub fn constant(value: Tensor) -> Self {
        Self { value, node: None }
    }

    /// A value whose gradient is wanted; see [`Var::gradient`].
    pub fn leaf(value: Tensor) -> Self {
        let node = Node::leaf(value.shape());
        Self { value, node: Some(node) }
    }

    pub(crate) fn with_node(value: Tensor, node: Arc<Node>) -> Self {
        Self { value, node: is_recording().then_some(node) }
    }

    /// The result of an operation on `inputs`. `saved` packs what the backward needs and runs
    /// only if some input wants a gradient.
    pub fn from_op<B: Backward>(value: Tensor, inputs: &[&Var], saved: impl FnOnce() -> B) -> Self {
        profile::forward::<B>();
        if !is_recording() || inputs.iter().all(|input| input.node.is_none()) {
            return Self::constant(value);
        }
        Self::from_op_always(value, inputs, saved())
    }

    /// As [`Var::from_op`], but with a node even if no input wants a gradient: for operations
    /// that reach parameters by other ways.
    pub(crate) fn from_op_always(value: Tensor, inputs: &[&Var], saved: impl Backward) -> Self {
        let inputs = inputs.iter().map(|input| input.node.clone()).collect();
        let node = Node::new(value.shape(), inputs, Some(Box::new(saved)));
        Self { value, node: Some(node) }
    }

    /// The numbers.
    pub fn value(&self) -> &Tensor {
        &self.value
    }

    /// The number, without the graph. If this was the only handle, its memory may be reused.
    pub fn into_value(self) -> Tensor {
        self.value
    }

    /// The value by itself, and a stand-in with the same place in the graph but no value, to be
    /// given to [`Var::from_op`]: how an operation that takes a `Var` reuses its memory.
    pub fn into_parts(self) -> (Tensor, Var) {
        (self.value, Var { value: Tensor::zeros([0]), node: self.node })
    }

    /// The shape of the value.
    pub fn shape(&self) -> Shape {
        self.value.shape()
    }

    /// Does a gradient flow into this value?
    pub fn wants_gradient(&self) -> bool {
        self.node.is_some()
    }

    /// The same value, cut off from the graph.
    pub fn detach(&self) -> Self {
        Self::constant(self.value.clone())
    }

    /// The gradient of a leaf after [`Var::backward`].
    pub fn gradient(&self) -> Option<Tensor> {
        self.node.as_ref().and_then(|node| node.gradient())
    }

    /// Takes the gradient of a leaf, leaving none.
    pub fn take_gradient(&self) -> Option<Tensor> {
        self.node.as_ref().and_then(|node| node.take_gradient())
    }

    /// Sets what the gradient of a leaf starts from.
    pub fn set_gradient(&self, gradient: Option<Tensor>) {
        let node = self.node.as_ref().expect("a constant has no gradient");
        node.set_gradient(gradient);
    }

    /// Adds the derivatives of this scalar to the gradients of all leaves it was made of.
    pub fn backward(&self) {
        assert_eq!(self.shape().len(), 1, "backward starts from one number, not {}", self.shape());
        self.backward_with(Tensor::full(self.shape(), 1.0));
    }

    /// As [`Var::backward`], for a value of any shape whose gradient is `dout`.
    pub fn backward_with(&self, dout: Tensor) {
        let Some(root) = &self.node else { return };
        root.add_gradient(dout);
        let mut queue = BinaryHeap::from([ByNumber(root.clone())]);
        let mut last = None;
        while let Some(ByNumber(node)) = queue.pop() {
            // A node reached on several ways is queued several times; the copies come out
            // one after the other.
            if last == Some(node.number) || node.is_leaf {
                continue;
            }
            last = Some(node.number);
            let (dout, backward) = {
                let mut state = node.state();
                (state.gradient.take(), state.backward.take())
            };
            let backward = backward.expect(
                "backward has run through this part of the graph already; build the graph again",
            );
            if let Some(dout) = dout {
                let name = backward.name();
                profile::begin_backward();
                backward.backward(dout, &mut Gradients { inputs: &node.inputs });
                profile::backward(name);
                queue.extend(node.inputs.iter().flatten().cloned().map(ByNumber));
            }
        }
    }
}

impl std::fmt::Debug for Var {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match &self.node {
            None => "constant",
            Some(node) if node.is_leaf => "leaf",
            Some(_) => "computed",
        };
        write!(f, "{kind} {:?}", self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Var {
        Var::leaf(Tensor::new([2], &[3.0, 4.0]))
    }

    #[test]
    fn a_value_used_twice_gets_both_gradients() {
        let x = two();
        let y = x.clone() * &x; // both positions are the same variable
        let z = (&y + &x).sum();
        z.backward();
        assert_eq!(x.gradient().unwrap().data(), &[7.0, 9.0]); // 2x + 1
    }

    #[test]
    fn gradients_of_two_backwards_add_up() {
        let x = two();
        (&x * &x).sum().backward();
        (&x * &x).sum().backward();
        assert_eq!(x.gradient().unwrap().data(), &[12.0, 16.0]);
    }

    #[test]
    fn without_recording_there_is_no_graph() {
        let x = two();
        let y = no_grad(|| &x * &x);
        assert!(!y.wants_gradient());
        assert!((&x * &x).wants_gradient());
    }

    #[test]
    fn constants_cost_nothing() {
        let x = Var::constant(Tensor::scalar(2.0));
        assert!(!(&x * &x).wants_gradient());
    }

    #[test]
    #[should_panic(expected = "build the graph again")]
    fn a_second_backward_through_the_same_graph_is_refused() {
        let y = (&two() * &two()).sum();
        y.backward();
        y.backward();
    }

    #[test]
    fn a_graph_of_a_hundred_thousand_nodes_is_walked_and_freed() {
        let x = two();
        let mut y = x.clone();
        for _ in 0..100_000 {
            y = &y + &x;
        }
        y.sum().backward();
        assert_eq!(x.gradient().unwrap().data(), &[100_001.0; 2]);
        drop(y);
    }
}
