//! Plain f64 arrays, in which every operation has its naive reference.

use crate::shape::Shape;
use crate::tensor::Tensor;

/// Row-major `f64` with a shape: what references compute with. Slow and obvious on purpose.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The shape.
    pub shape: Shape,
    /// The numbers, row by row.
    pub data: Vec<f64>,
}

impl Array {
    /// Panics if the data does not fit the shape.
    pub fn new(shape: impl Into<Shape>, data: Vec<f64>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.len(), data.len(), "{shape} does not hold {} numbers", data.len());
        Self { shape, data }
    }

    /// All zeros.
    pub fn zeros(shape: impl Into<Shape>) -> Self {
        Self::build(shape, |_| 0.0)
    }

    /// Element `i` (counted row by row) is `f(i)`.
    pub fn build(shape: impl Into<Shape>, f: impl FnMut(usize) -> f64) -> Self {
        let shape = shape.into();
        Self::new(shape, (0..shape.len()).map(f).collect())
    }

    /// One number.
    pub fn scalar(value: f64) -> Self {
        Self::new([], vec![value])
    }

    /// `f` of every number.
    pub fn map(&self, f: impl FnMut(f64) -> f64) -> Self {
        Self::new(self.shape, self.data.iter().copied().map(f).collect())
    }

    /// `f` of every pair of numbers.
    pub fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        assert_eq!(self.shape, other.shape, "shapes differ: {} and {}", self.shape, other.shape);
        Self::build(self.shape, |i| f(self.data[i], other.data[i]))
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f64] {
        let width = self.shape.width();
        &self.data[i * width..(i + 1) * width]
    }

    /// The number at these indices.
    pub fn at(&self, index: &[usize]) -> f64 {
        let dims = self.shape.dims();
        assert_eq!(dims.len(), index.len(), "{index:?} does not index {}", self.shape);
        self.data[index.iter().zip(dims).fold(0, |n, (i, d)| n * d + i)]
    }
}

/// The error function, `erf(x) = 2/√π·e^(−x²)·Σₙ 2ⁿ·x^(2n+1) / (2n+1)!!`: all terms have one sign,
/// so that nothing cancels (Abramowitz and Stegun 7.1.6).
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 || x.is_nan() {
        return x.signum(); // 1 − erf(6) is 2·10⁻¹⁷, below the last bit; NaN has NaN as sign
    }
    let (mut term, mut sum, mut n) = (x, 0.0, 0.0);
    while sum + term != sum {
        sum += term;
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

impl From<&Tensor> for Array {
    fn from(tensor: &Tensor) -> Self {
        Self::new(tensor.shape(), tensor.data().iter().map(|&x| f64::from(x)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_has_its_known_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, want) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9)] {
            assert!((erf(x) - want).abs() < 1e-10 && (erf(-x) + want).abs() < 1e-10, "{x}");
        }
        assert!((erf(2.0) - 0.995_322_265_0).abs() < 1e-10);
        assert_eq!((erf(7.0), erf(f64::NEG_INFINITY)), (1.0, -1.0));
        assert!(erf(f64::NAN).is_nan());
    }
}
