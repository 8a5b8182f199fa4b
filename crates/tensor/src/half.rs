//! 16-bit storage with 32-bit arithmetic.
//!
//! Mixed precision on a CPU without 16-bit arithmetic still halves memory and its traffic: what
//! backward needs is saved in 16 bits, weights are read in 16 bits, and every product and sum is
//! computed in f32. bfloat16 keeps f32's range with 8 bits of precision; f16 has 11 bits but
//! overflows at 65,504 and underflows below 6·10⁻⁸, which is what loss scaling is for
//! ([`LossScaler`]).

use crate::graph::Var;
use crate::pool::Pooled;
use crate::shape::Shape;
use crate::tensor::Tensor;
use hearken_kernels::convert;
use hearken_kernels::gemm::{Data, Matrix};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// How saved activations and the weights of products are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// As they are.
    F32,
    /// bfloat16: 8 exponent bits, 8 bits of precision.
    Bf16,
    /// IEEE half: 5 exponent bits, 11 bits of precision.
    F16,
}

thread_local! {
    static STORAGE: Cell<Storage> = const { Cell::new(Storage::F32) };
}

impl Storage {
    /// What [`with_storage`] has set on this thread.
    pub fn current() -> Self {
        STORAGE.get()
    }
}

/// Runs `f` with what it saves for backward, and the weights it reads, in `storage`.
pub fn with_storage<R>(storage: Storage, f: impl FnOnce() -> R) -> R {
    struct Restore(Storage);
    impl Drop for Restore {
        fn drop(&mut self) {
            STORAGE.set(self.0);
        }
    }
    let _restore = Restore(STORAGE.replace(storage));
    f()
}

/// A tensor kept in 16 bits.
#[derive(Clone)]
pub struct HalfTensor {
    shape: Shape,
    storage: Storage,
    bits: Arc<Pooled<u16>>,
}

impl HalfTensor {
    /// `value` rounded to the nearest 16-bit number, ties to even. `storage` must not be f32.
    pub fn new(value: &Tensor, storage: Storage) -> Self {
        let mut bits = Pooled::take(value.shape().len());
        match storage {
            Storage::F32 => panic!("a HalfTensor holds 16-bit numbers, not f32"),
            Storage::Bf16 => convert::f32_to_bf16(value.data(), &mut bits),
            Storage::F16 => convert::f32_to_f16(value.data(), &mut bits),
        }
        Self { shape: value.shape(), storage, bits: Arc::new(bits) }
    }

    /// Zeros, to be [written](HalfTensor::write) piece by piece. `storage` must not be f32.
    pub fn zeros(shape: impl Into<Shape>, storage: Storage) -> Self {
        assert!(storage != Storage::F32, "a HalfTensor holds 16-bit numbers, not f32");
        let shape = shape.into();
        let mut bits = Pooled::take(shape.len());
        if !bits.is_dry() {
            bits.fill(0);
        }
        Self { shape, storage, bits: Arc::new(bits) }
    }

    /// Rounds `numbers` into the elements from `start` on, counted row by row. Panics if another
    /// handle shares them.
    pub fn write(&mut self, start: usize, numbers: &[f32]) {
        let bits = Arc::get_mut(&mut self.bits).expect("nobody else holds what is being written");
        let bits = &mut bits[start..start + numbers.len()];
        match self.storage {
            Storage::F16 => convert::f32_to_f16(numbers, bits),
            _ => convert::f32_to_bf16(numbers, bits),
        }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// bfloat16 or IEEE half.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Widened to f32, exactly.
    pub fn widen(&self) -> Tensor {
        let mut value = Tensor::unset(self.shape);
        self.widen_range(0..self.shape.len(), value.data_mut());
        value
    }

    /// The elements of `range`, counted row by row, widened into `out`.
    pub fn widen_range(&self, range: std::ops::Range<usize>, out: &mut [f32]) {
        match self.storage {
            Storage::F16 => convert::f16_to_f32(&self.bits[range], out),
            _ => convert::bf16_to_f32(&self.bits[range], out),
        }
    }

    fn data(&self) -> Data<'_> {
        match self.storage {
            Storage::F16 => Data::F16(&self.bits),
            _ => Data::Bf16(&self.bits),
        }
    }
}

/// A value kept for backward, in the storage that was current when it was saved.
#[derive(Clone)]
pub enum Saved {
    /// Shared with whoever else holds the tensor.
    Whole(Tensor),
    /// A rounded copy.
    Half(HalfTensor),
}

impl Saved {
    /// Keeps `value` in the current storage.
    pub fn new(value: &Tensor) -> Self {
        match Storage::current() {
            Storage::F32 => Self::Whole(value.clone()),
            storage => Self::Half(HalfTensor::new(value, storage)),
        }
    }

    /// The value in f32.
    pub fn get(&self) -> Tensor {
        match self {
            Self::Whole(value) => value.clone(),
            Self::Half(half) => half.widen(),
        }
    }

    /// The value in f32, to be changed: without a copy, if nobody else holds it.
    pub fn into_value(self) -> Tensor {
        match self {
            Self::Whole(value) => value,
            Self::Half(half) => half.widen(),
        }
    }

    /// The value as a matrix of all its rows, for a product, which widens as it reads.
    pub fn matrix(&self) -> Matrix<'_> {
        self.matrix_of(0..self.shape().rows())
    }

    /// Some of the rows as a matrix.
    pub fn matrix_of(&self, rows: Range<usize>) -> Matrix<'_> {
        let width = self.shape().width();
        let part = rows.start * width..rows.end * width;
        let data = match self {
            Self::Whole(value) => Data::F32(&value.data()[part]),
            Self::Half(half) => match half.data() {
                Data::F32(x) => Data::F32(&x[part]),
                Data::F16(x) => Data::F16(&x[part]),
                Data::Bf16(x) => Data::Bf16(&x[part]),
            },
        };
        Matrix::of(data, rows.len(), width, width)
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Whole(value) => value.shape(),
            Self::Half(half) => half.shape(),
        }
    }
}

/// The weight of a product: f32, or 16 bits with or without an f32 master copy that learns.
#[derive(Clone)]
pub struct Weight {
    stored: Saved,
    /// Where the gradient goes.
    master: Var,
}

impl Weight {
    /// 16-bit numbers that stand for `master`, which gets the gradient.
    pub fn rounded(stored: HalfTensor, master: Var) -> Self {
        assert_eq!(stored.shape(), master.shape(), "a rounded weight has its master's shape");
        Self { stored: Saved::Half(stored), master }
    }

    /// 16-bit numbers that do not learn, for inference.
    pub fn frozen(stored: HalfTensor) -> Self {
        // The master of a frozen weight is never read: an empty tensor stands in for it.
        Self { stored: Saved::Half(stored), master: Var::constant(Tensor::zeros([0])) }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.stored.shape()
    }

    /// The numbers that products read, in f32.
    pub fn value(&self) -> Tensor {
        self.stored.get()
    }

    /// What products read.
    pub fn stored(&self) -> &Saved {
        &self.stored
    }

    /// The variable that gets the gradient.
    pub fn master(&self) -> &Var {
        &self.master
    }
}

impl From<&Var> for Weight {
    fn from(var: &Var) -> Self {
        Self { stored: Saved::Whole(var.value().clone()), master: var.clone() }
    }
}

impl From<&Weight> for Weight {
    fn from(weight: &Weight) -> Self {
        weight.clone()
    }
}

/// Dynamic loss scaling for f16: multiply the loss by a large factor so that small gradients do
/// not vanish, divide the gradients by it before the step; halve the factor and skip the step
/// when a gradient overflows, double it after a long run without.
#[derive(Clone, Debug, PartialEq)]
pub struct LossScaler {
    scale: f32,
    good_steps: u32,
    /// Steps without overflow before the scale doubles.
    pub growth_interval: u32,
}

impl Default for LossScaler {
    /// Starts at 2¹⁶ and doubles after 2,000 good steps.
    fn default() -> Self {
        Self::new(65_536.0, 2_000)
    }
}

impl LossScaler {
    /// Starts from `scale`.
    pub fn new(scale: f32, growth_interval: u32) -> Self {
        assert!(scale.is_finite() && scale > 0.0, "a loss scale is positive, not {scale}");
        Self { scale, good_steps: 0, growth_interval }
    }

    /// The same scaler after `good_steps` good steps at its scale: to continue where another
    /// stopped.
    pub fn after(mut self, good_steps: u32) -> Self {
        self.good_steps = good_steps;
        self
    }

    /// What the loss is multiplied by now.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// How many good steps there have been since the scale last changed.
    pub fn good_steps(&self) -> u32 {
        self.good_steps
    }

    /// Tells the scaler whether all gradients of a step were finite; gives the factor to multiply
    /// them by, or `None` if the step must be skipped.
    pub fn after_backward(&mut self, all_finite: bool) -> Option<f32> {
        if !all_finite {
            // Not below the smallest normal number: beyond that no scale can help.
            self.scale = (self.scale * 0.5).max(f32::MIN_POSITIVE);
            self.good_steps = 0;
            return None;
        }
        let factor = 1.0 / self.scale;
        self.good_steps += 1;
        if self.good_steps >= self.growth_interval {
            self.scale = (self.scale * 2.0).min(2.0_f32.powi(24));
            self.good_steps = 0;
        }
        Some(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_values_are_rounded_to_the_current_storage() {
        let x = Tensor::new([3], &[1.0, 1.0 / 3.0, 70_000.0]);
        assert_eq!(Saved::new(&x).get().data(), x.data());
        let half = with_storage(Storage::F16, || Saved::new(&x)).get();
        assert_eq!(half.data()[0], 1.0);
        assert!((half.data()[1] - 1.0 / 3.0).abs() < 2.0_f32.powi(-13)); // 11 bits below ½
        assert!(half.data()[2].is_infinite());
        let brain = with_storage(Storage::Bf16, || Saved::new(&x)).get();
        assert!((brain.data()[2] / 70_000.0 - 1.0).abs() <= 2.0_f32.powi(-8)); // 8 bits
        assert_eq!(Storage::current(), Storage::F32);
    }

    #[test]
    fn pieces_make_up_the_whole() {
        let x = Tensor::new([2, 2], &[1.0, -2.5, 1.0 / 3.0, 4.0]);
        let mut pieces = HalfTensor::zeros([2, 2], Storage::F16);
        pieces.write(3, &x.data()[3..]);
        pieces.write(0, &x.data()[..3]);
        assert_eq!(pieces.widen().data(), HalfTensor::new(&x, Storage::F16).widen().data());
    }

    #[test]
    fn the_loss_scale_halves_on_overflow_and_doubles_after_good_steps() {
        let mut scaler = LossScaler::new(1024.0, 3);
        assert_eq!(scaler.after_backward(true), Some(1.0 / 1024.0));
        assert_eq!(scaler.after_backward(false), None);
        assert_eq!(scaler.scale(), 512.0);
        for _ in 0..3 {
            assert_eq!(scaler.after_backward(true), Some(1.0 / 512.0));
        }
        assert_eq!(scaler.scale(), 1024.0);
    }
}
