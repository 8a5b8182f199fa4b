//! Named numbers that are learned.

use crate::graph::{Node, Var};
use crate::half::{HalfTensor, Storage, Weight};
use crate::parallel_parts::current_part;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::{dry, threads};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What a parameter is for. It decides how it starts, whether it decays and what Muon is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A table that is looked up: tokens, positions, distances; also when an output head is tied to
    /// it.
    Table,
    /// The matrix that makes logits, if it is not a table.
    Head,
    /// A matrix inside the model.
    Hidden,
    /// A matrix inside the model whose product is added to the residual stream.
    Residual,
    /// A bias or the gain of a norm: added or multiplied element by element.
    Vector,
}

impl Role {
    /// Is it a matrix inside the model?
    pub fn is_hidden(self) -> bool {
        matches!(self, Self::Hidden | Self::Residual)
    }
}

/// A tensor with a name, a role and a gradient, shared by the model that uses it and the optimiser
/// that changes it. Cloning gives another handle to the same parameter.
#[derive(Clone)]
pub struct Param(Arc<Inner>);

struct Inner {
    name: String,
    role: Role,
    shape: Shape,
    frozen: AtomicBool,
    value: RwLock<Value>,
    node: Arc<Node>,
    /// Where parts 1, 2, … that run in parallel put their gradients; see
    /// [`parallel_parts`](crate::parallel_parts).
    parts: Mutex<Vec<Arc<Node>>>,
}

enum Value {
    /// Not read from a file yet.
    Unset,
    Whole {
        tensor: Tensor,
        /// The copy that products read under mixed precision; made anew after each update.
        half: Option<HalfTensor>,
    },
    /// 16 bits alone, which cannot learn.
    Half(HalfTensor),
}

impl Param {
    /// A parameter that starts from `value`.
    pub fn new(name: impl Into<String>, role: Role, value: Tensor) -> Self {
        let shape = value.shape();
        Self::with(name.into(), role, shape, Value::Whole { tensor: value, half: None })
    }

    /// A parameter whose numbers come from elsewhere: it takes no memory, and must not be used,
    /// before [`Param::set_value`] or [`Param::set_half`].
    pub fn unset(name: impl Into<String>, role: Role, shape: impl Into<Shape>) -> Self {
        Self::with(name.into(), role, shape.into(), Value::Unset)
    }

    fn with(name: String, role: Role, shape: Shape, value: Value) -> Self {
        Self(Arc::new(Inner {
            name,
            role,
            shape,
            frozen: AtomicBool::new(false),
            value: RwLock::new(value),
            node: Node::leaf(shape),
            parts: Mutex::default(),
        }))
    }

    /// The name, by which it is saved.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What it is for.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// Does it learn?
    pub fn is_trainable(&self) -> bool {
        let is_half = matches!(*self.read(), Value::Half(_));
        !is_half && !self.0.frozen.load(Ordering::Relaxed)
    }

    /// Lets it learn or not. A frozen parameter gets no gradient, and none is computed for it.
    pub fn set_trainable(&self, trainable: bool) {
        self.0.frozen.store(!trainable, Ordering::Relaxed);
    }

    fn read(&self) -> RwLockReadGuard<'_, Value> {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Value> {
        self.0.value.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers as they are now; 16-bit ones are widened into a tensor of their own.
    pub fn value(&self) -> Tensor {
        match &*self.read() {
            Value::Whole { tensor, .. } => tensor.clone(),
            Value::Half(half) => half.widen(),
            Value::Unset => panic!("{} has no numbers yet", self.0.name),
        }
    }

    /// The parameter as an input of operations.
    pub fn var(&self) -> Var {
        let value = self.value();
        if self.is_trainable() { Var::with_node(value, self.node()) } else { Var::constant(value) }
    }

    /// The place in the graph, of the part that this thread is in.
    fn node(&self) -> Arc<Node> {
        let Some(others) = current_part().checked_sub(1) else { return self.0.node.clone() };
        let mut parts = self.parts();
        while parts.len() <= others {
            parts.push(Node::leaf(self.0.shape));
        }
        parts[others].clone()
    }

    /// Adds what parts 1, 2, … have added up to the gradient, in order.
    pub(crate) fn add_up_parts(&self) {
        for gradient in self.parts().iter().filter_map(|part| part.take_gradient()) {
            self.0.node.add_gradient(gradient);
        }
    }

    /// The parameter as the weight of a product, in the storage of the surroundings (see
    /// [`with_storage`](crate::with_storage)): under 16 bits, rounded from the f32 master copy. What
    /// is kept in 16 bits alone is read as it is.
    pub fn weight(&self) -> Weight {
        if let Value::Half(half) = &*self.read() {
            return Weight::frozen(half.clone());
        }
        let storage = Storage::current();
        if storage == Storage::F32 {
            return Weight::from(&self.var());
        }
        let master = self.var();
        let mut value = self.write();
        let Value::Whole { tensor, half } = &mut *value else { return Weight::from(&master) };
        let fresh = half.take().filter(|half| half.storage() == storage);
        let round = || dry::shared(|| HalfTensor::new(tensor, storage));
        let rounded = fresh.unwrap_or_else(round);
        *half = Some(rounded.clone());
        Weight::rounded(rounded, master)
    }

    /// What backward has added up so far.
    pub fn gradient(&self) -> Option<Tensor> {
        self.0.node.gradient()
    }

    /// Replaces the gradient; `None` is zero, and gives its memory back to the pool.
    pub fn set_gradient(&self, gradient: Option<Tensor>) {
        for part in &*self.parts() {
            part.set_gradient(None); // left behind by a panic in another part
        }
        self.0.node.set_gradient(gradient);
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the numbers; the shape stays.
    pub fn set_value(&self, new: Tensor) {
        assert_eq!(new.shape(), self.0.shape, "the shape of {} stays", self.0.name);
        *self.write() = Value::Whole { tensor: new, half: None };
    }

    /// Replaces the numbers by 16-bit ones, which do not learn; the shape stays.
    pub fn set_half(&self, new: HalfTensor) {
        assert_eq!(new.shape(), self.0.shape, "the shape of {} stays", self.0.name);
        *self.write() = Value::Half(new);
    }

    /// `f` of all of them, in order. Threads share the many small ones as they are, and each of the
    /// large ones inside of `f`.
    pub fn map<T: Default + Send>(parameters: &[Param], f: impl Fn(&Param) -> T + Sync) -> Vec<T> {
        /// Numbers from which on several threads are worth it for one: 0.2 ms for one thread.
        const LARGE: usize = 1 << 20;
        let is_large = |i: usize| parameters[i].shape().len() >= LARGE;
        if dry::is_on() {
            return parameters.iter().map(f).collect(); // regions are not run there
        }
        let mut results: Vec<T> = parameters.iter().map(|_| T::default()).collect();
        threads::for_row_chunks(parameters.len(), 1, [(&mut results, 1)], |i, [out]| {
            if !is_large(i.start) {
                out[0] = f(&parameters[i.start]);
            }
        });
        for i in (0..parameters.len()).filter(|&i| is_large(i)) {
            results[i] = f(&parameters[i]);
        }
        results
    }

    /// Lets an optimiser change the numbers in place, given the gradient (none: nothing happens).
    /// No copy is made once the graph that used the parameter is gone.
    pub fn update(&self, f: impl FnOnce(&mut [f32], &[f32])) {
        let Some(gradient) = self.gradient() else { return };
        if let Value::Whole { tensor, half } = &mut *self.write() {
            *half = None;
            f(tensor.data_mut(), gradient.data());
        }
    }
}

impl std::fmt::Debug for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Param {} {}", self.0.name, self.0.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_share_value_and_gradient() {
        let p = Param::new("p", Role::Hidden, Tensor::new([2], &[1.0, 2.0]));
        (&p.var() * &p.clone().var()).sum().backward();
        assert_eq!(p.gradient().unwrap().data(), &[2.0, 4.0]);
        p.clone().update(|value, gradient| {
            value.iter_mut().zip(gradient).for_each(|(v, g)| *v -= 0.5 * g);
        });
        assert_eq!(p.value().data(), &[0.0, 0.0]);
    }

    #[test]
    fn a_rounded_weight_follows_updates() {
        let p = Param::new("p", Role::Hidden, Tensor::new([1], &[1.0 + 1.0 / 512.0]));
        crate::with_storage(Storage::Bf16, || {
            assert_eq!(p.weight().value().data(), &[1.0]); // bfloat16 keeps 8 bits
            p.set_value(Tensor::new([1], &[3.0]));
            assert_eq!(p.weight().value().data(), &[3.0]);
        });
    }

    #[test]
    fn a_frozen_parameter_gets_no_gradient() {
        let p = Param::new("p", Role::Hidden, Tensor::new([2], &[1.0, 2.0]));
        let q = Param::new("q", Role::Hidden, Tensor::new([2], &[3.0, 4.0]));
        p.set_trainable(false);
        (&p.var() * &q.var()).sum().backward();
        assert!(p.gradient().is_none() && !p.is_trainable());
        assert_eq!(q.gradient().unwrap().data(), &[1.0, 2.0]);
        p.set_trainable(true);
        (&p.var() * &q.var()).sum().backward();
        assert_eq!(p.gradient().unwrap().data(), &[3.0, 4.0]);
    }

    #[test]
    fn sixteen_bits_alone_are_read_and_do_not_learn() {
        let p = Param::unset("p", Role::Hidden, [2]);
        p.set_half(HalfTensor::new(&Tensor::new([2], &[1.0, 1.0 / 3.0]), Storage::Bf16));
        assert!(!p.is_trainable() && !p.var().wants_gradient());
        assert_eq!(p.value().data(), p.weight().value().data());
        assert!((p.value().data()[1] - 1.0 / 3.0).abs() < 2.0_f32.powi(-10)); // 8 bits below ½
    }

    #[test]
    #[should_panic(expected = "p has no numbers yet")]
    fn numbers_that_were_never_set_are_not_read() {
        let _ = Param::unset("p", Role::Hidden, [2]).value();
    }
}
