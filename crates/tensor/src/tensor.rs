//! Contiguous row-major numbers with a shape.

use crate::pool::Pooled;
use crate::shape::Shape;
use std::fmt;
use std::sync::Arc;

/// Row-major `f32` on a shared, pooled buffer. Cloning is cheap; writing to a buffer that others
/// hold too copies it first.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    storage: Arc<Pooled<f32>>,
}

impl Tensor {
    /// A copy of `data`.
    pub fn new(shape: impl Into<Shape>, data: &[f32]) -> Self {
        let shape = shape.into();
        assert_eq!(shape.len(), data.len(), "{shape} does not hold {} numbers", data.len());
        let mut tensor = Self::unset(shape);
        tensor.data_mut().copy_from_slice(data);
        tensor
    }

    /// Memory with arbitrary content, for a kernel that writes all of it. With debug assertions
    /// it is filled with NaN, so that an element which was forgotten is seen.
    pub fn unset(shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        let mut storage = Pooled::take(shape.len());
        if cfg!(debug_assertions) && !storage.is_dry() {
            storage.fill(f32::NAN);
        }
        Self { shape, storage: Arc::new(storage) }
    }

    /// All elements `value`.
    pub fn full(shape: impl Into<Shape>, value: f32) -> Self {
        let mut tensor = Self::unset(shape);
        if !tensor.is_dry() {
            tensor.data_mut().fill(value);
        }
        tensor
    }

    /// All elements 0.
    pub fn zeros(shape: impl Into<Shape>) -> Self {
        Self::full(shape, 0.0)
    }

    /// One number without dimensions.
    pub fn scalar(value: f32) -> Self {
        Self::full([], value)
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The dimensions as an array; panics if there are not `N`.
    pub fn dims<const N: usize>(&self) -> [usize; N] {
        let dims = self.shape.dims().try_into();
        dims.unwrap_or_else(|_| panic!("expected {N} dimensions, got {}", self.shape))
    }

    /// The numbers, row by row.
    pub fn data(&self) -> &[f32] {
        &self.storage
    }

    /// The numbers, to be changed; copied first if another handle shares them.
    pub fn data_mut(&mut self) -> &mut [f32] {
        if Arc::get_mut(&mut self.storage).is_none() {
            let mut own = Pooled::take(self.shape.len());
            if !own.is_dry() {
                own.copy_from_slice(&self.storage);
            }
            self.storage = Arc::new(own);
        }
        Arc::get_mut(&mut self.storage).expect("made unique above")
    }

    /// Is it one of a [dry pass](hearken_kernels::dry)? Its numbers mean nothing then, and a loop over
    /// them would cost the memory that the pass is there to save. Small ones never are.
    pub fn is_dry(&self) -> bool {
        self.storage.is_dry()
    }

    /// Does no other handle share the numbers?
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.storage) == 1
    }

    /// The same numbers in another shape of the same length.
    pub fn reshape(mut self, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.len(), self.shape.len(), "cannot read {} as {shape}", self.shape);
        self.shape = shape;
        self
    }

    /// The only number of a tensor of one element.
    pub fn item(&self) -> f32 {
        assert_eq!(self.shape.len(), 1, "expected one number, got {}", self.shape);
        self.data()[0]
    }
}

/// The numbers, for kernels that take any memory.
impl AsRef<[f32]> for Tensor {
    fn as_ref(&self) -> &[f32] {
        self.data()
    }
}

/// Shape and the first few numbers.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let few = &self.data()[..self.shape.len().min(8)];
        let more = if self.shape.len() > few.len() { " …" } else { "" };
        write!(f, "Tensor{} {few:?}{more}", self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_to_a_shared_tensor_leaves_the_other_alone() {
        let a = Tensor::new([2], &[1.0, 2.0]);
        let mut b = a.clone();
        b.data_mut()[0] = 5.0;
        assert_eq!((a.data(), b.data()), (&[1.0, 2.0][..], &[5.0, 2.0][..]));
        assert!(a.is_unique() && b.is_unique());
    }

    #[test]
    #[should_panic(expected = "(2, 3) does not hold 5 numbers")]
    fn data_must_fit_the_shape() {
        let _ = Tensor::new([2, 3], &[0.0; 5]);
    }

    #[test]
    #[should_panic(expected = "cannot read (2, 3) as (7)")]
    fn reshape_keeps_the_length() {
        let _ = Tensor::zeros([2, 3]).reshape([7]);
    }

    #[test]
    fn empty_and_scalar_tensors_work() {
        assert_eq!(Tensor::zeros([0, 3]).data(), &[] as &[f32]);
        assert_eq!(Tensor::scalar(3.0).item(), 3.0);
    }
}
