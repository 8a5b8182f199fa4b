//! Tensors, the graph that differentiates them, and every operation of a Transformer.
//!
//! - [`Tensor`]: contiguous row-major `f32` on a pooled buffer.
//! - [`Var`]: a tensor and, when a gradient is wanted, its node in the graph ([`graph`]).
//! - [`Param`]: a named tensor that an optimiser changes between steps.
//! - [`ops`]: one file per operation, with derivation, forward, backward, reference and cases.
//! - [`gradcheck`]: checks an operation on this machine; `hearken doctor` runs it over all.
//!
//! ```
//! use hearken_tensor::{Tensor, Var};
//! let x = Var::leaf(Tensor::new([2], &[1.0, 2.0]));
//! let y = (&x * &x).sum(); // x₁² + x₂²
//! y.backward();
//! assert_eq!(x.gradient().unwrap().data(), &[2.0, 4.0]); // 2x
//! ```
//!
//! Legend of dimensions, used in all code and comments: `B` batch, `T` target length, `S` source
//! length, `C` model width, `H` heads, `K` key/value heads, `D` head width, `F` feed-forward
//! width, `V` vocabulary, `L` layers. `dx` is the gradient of `x`, `dout` the incoming one.
//! Gradients are accumulated, never overwritten. Shapes that do not fit are a programming error
//! and panic with both shapes in the message.

pub mod checkpoint;
mod columns;
pub mod gradcheck;
pub mod graph;
pub mod growing;
pub mod half;
pub mod ops;
pub mod outputs;
mod parallel_parts;
pub mod param;
pub mod pool;
pub mod positions;
pub mod profile;
pub mod recurrent;
pub mod reference;
pub mod reversible;
pub mod rng;
pub mod rope_table;
pub mod routes;
mod shape;
mod tensor;

pub use checkpoint::checkpoint;
pub use graph::{Backward, Gradients, Var, no_grad};
pub use half::{HalfTensor, Saved, Storage, Weight, with_storage};
pub use hearken_kernels::Write;
pub use hearken_kernels::activation::Activation;
pub use parallel_parts::parallel_parts;
pub use param::{Param, Role};
pub use reversible::{Coupling, reversible};
pub use rope_table::RopeTable;
pub use routes::Routes;
pub use shape::Shape;
pub use tensor::Tensor;
