//! The numerical floor of Hearken: vector loops, matrix products, attention tiles and the
//! threads that run them, behind functions over plain slices.
//!
//! This is the only crate of the workspace that contains `unsafe`. Three rules keep it small:
//!
//! 1. An algorithm is written once, generic over [`simd::Simd`], and instantiated for each
//!    instruction set by [`simd::dispatch!`](crate::dispatch). The set is chosen at run time
//!    ([`isa`]), so a plain `cargo build --release` is fast everywhere.
//! 2. Work is cut into pieces by shape alone, never by the number of threads ([`threads`]), and
//!    partial sums are combined in a fixed order: the same input gives the same bits on any
//!    number of threads.
//! 3. A function that a gradient accumulates through takes a [`Write`]: `Set` or `Add`.
//!
//! Legend of dimensions, used in all code and comments: `B` batch, `T` target length, `S` source
//! length, `C` model width, `H` heads, `K` key/value heads, `D` head width, `F` feed-forward
//! width, `V` vocabulary, `L` layers. `rows` is any product of leading dimensions.

#![allow(unsafe_code)]

pub mod activation;
pub mod additive;
pub mod attention;
pub mod convert;
pub mod convolution;
pub mod counting;
pub mod cross_entropy;
pub mod dry;
pub mod elementwise;
pub mod embedding;
pub mod gemm;
pub mod isa;
pub mod mapped;
pub mod math;
pub mod memory;
pub mod norm;
pub mod optimizer;
pub mod peak;
pub mod random;
pub mod recurrent;
pub mod rope;
pub mod routing;
pub mod scratch;
pub mod simd;
pub mod softmax;
#[cfg(test)]
mod testing;
pub mod threads;

/// What a kernel does with its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `out = value`: what was there before does not matter and may be garbage.
    Set,
    /// `out += value`: how gradients accumulate.
    Add,
}
