//! Named numbers that are learned.

use crate::graph::{Node, Var};
use crate::half::{HalfTensor, Storage, Weight};
use crate::shape::Shape;
use crate::side_by_side::current_part;
use crate::tensor::Tensor;
use hearken_kernels::threads;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A tensor with a name and a gradient, shared by the model that uses it and the optimiser that
/// changes it. Cloning gives another handle to the same parameter.
#[derive(Clone)]
pub struct Param(Arc<Inner>);

struct Inner {
    name: String,
    shape: Shape,
    value: RwLock<Value>,
    node: Arc<Node>,
    /// Where parts 1, 2, … that run side by side put their gradients; see
    /// [`side_by_side`](crate::side_by_side).
    parts: Mutex<Vec<Arc<Node>>>,
}

struct Value {
    tensor: Tensor,
    /// The 16-bit copy that products read under mixed precision; made anew after each update.
    half: Option<HalfTensor>,
}

impl Param {
    /// A parameter that starts from `value`.
    pub fn new(name: impl Into<String>, value: Tensor) -> Self {
        let shape = value.shape();
        let value = RwLock::new(Value { tensor: value, half: None });
        let (node, parts) = (Node::leaf(shape), Mutex::default());
        Self(Arc::new(Inner { name: name.into(), shape, value, node, parts }))
    }

    /// The name, by which it is saved.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// The numbers as they are now.
    pub fn value(&self) -> Tensor {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner).tensor.clone()
    }

    /// The parameter as an input of operations.
    pub fn var(&self) -> Var {
        Var::with_node(self.value(), self.node())
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
    /// [`with_storage`](crate::with_storage)): under 16 bits, rounded from the f32 master copy.
    pub fn weight(&self) -> Weight {
        let storage = Storage::current();
        if storage == Storage::F32 {
            return Weight::from(&self.var());
        }
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let stale = value.half.as_ref().is_none_or(|half| half.storage() != storage);
        if stale {
            value.half = Some(HalfTensor::new(&value.tensor, storage));
        }
        let half = value.half.clone().expect("made above");
        let master = Var::with_node(value.tensor.clone(), self.node());
        Weight::rounded(half, master)
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
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        *value = Value { tensor: new, half: None };
    }

    /// `f` of all of them, in order. Threads share the many small ones as they are, and each of the
    /// large ones inside of `f`.
    pub fn map<T: Default + Send>(parameters: &[Param], f: impl Fn(&Param) -> T + Sync) -> Vec<T> {
        /// Numbers from which on several threads are worth it for one: 0.2 ms for one thread.
        const LARGE: usize = 1 << 20;
        let is_large = |i: usize| parameters[i].shape().len() >= LARGE;
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
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        value.half = None;
        f(value.tensor.data_mut(), gradient.data());
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
        let p = Param::new("p", Tensor::new([2], &[1.0, 2.0]));
        (&p.var() * &p.clone().var()).sum().backward();
        assert_eq!(p.gradient().unwrap().data(), &[2.0, 4.0]);
        p.clone().update(|value, gradient| {
            value.iter_mut().zip(gradient).for_each(|(v, g)| *v -= 0.5 * g);
        });
        assert_eq!(p.value().data(), &[0.0, 0.0]);
    }

    #[test]
    fn a_rounded_weight_follows_updates() {
        let p = Param::new("p", Tensor::new([1], &[1.0 + 1.0 / 512.0]));
        crate::with_storage(Storage::Bf16, || {
            assert_eq!(p.weight().value().data(), &[1.0]); // bfloat16 keeps 8 bits
            p.set_value(Tensor::new([1], &[3.0]));
            assert_eq!(p.weight().value().data(), &[3.0]);
        });
    }
}
