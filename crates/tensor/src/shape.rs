//! The shape of a tensor: up to five dimensions, copied freely.

use std::fmt;

/// At most five dimensions, outermost first. A scalar has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; Shape::MOST],
    rank: usize,
}

impl Shape {
    /// The most dimensions that a shape can have.
    pub const MOST: usize = 5;

    /// Panics if there are more than [`Shape::MOST`] dimensions or their product overflows.
    pub fn new(dims: &[usize]) -> Self {
        assert!(dims.len() <= Self::MOST, "{dims:?} has more than {} dimensions", Self::MOST);
        let product = dims.iter().try_fold(1_usize, |n, &d| n.checked_mul(d));
        assert!(product.is_some(), "the number of elements of {dims:?} overflows");
        let mut all = [1; Self::MOST];
        all[..dims.len()].copy_from_slice(dims);
        Self { dims: all, rank: dims.len() }
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// How many dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of elements: the product of the dimensions, 1 for a scalar.
    pub fn len(&self) -> usize {
        self.dims().iter().product()
    }

    /// Is some dimension zero?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The innermost dimension, 1 for a scalar: how wide a row is.
    pub fn width(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// The product of all dimensions but the innermost: how many rows there are.
    pub fn rows(&self) -> usize {
        self.dims()[..self.rank.saturating_sub(1)].iter().product()
    }

    /// The same shape with another innermost dimension.
    pub fn with_width(mut self, width: usize) -> Self {
        assert!(self.rank > 0, "a scalar has no innermost dimension");
        self.dims[self.rank - 1] = width;
        self
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self::new(&dims)
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Self {
        Self::new(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self::new(dims)
    }
}

/// `(2, 3)`
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (i, d) in self.dims().iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_width_multiply_to_the_length() {
        for dims in [&[][..], &[7], &[2, 3], &[0, 4], &[2, 3, 4, 5, 6]] {
            let shape = Shape::new(dims);
            assert_eq!(shape.rows() * shape.width(), shape.len());
            assert_eq!(shape.dims(), dims);
        }
        assert_eq!(Shape::from([2, 3]).to_string(), "(2, 3)");
        assert_eq!(Shape::from(&[2, 3]), Shape::from(&[2, 3][..]));
    }

    #[test]
    #[should_panic(expected = "more than 5 dimensions")]
    fn six_dimensions_are_too_many() {
        let _ = Shape::new(&[1; 6]);
    }

    #[test]
    #[should_panic(expected = "overflows")]
    fn an_impossible_size_is_refused() {
        let _ = Shape::new(&[usize::MAX, 2]);
    }
}
