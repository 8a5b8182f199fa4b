//! The parts of models. A layer asks its [`Scope`](crate::scope::Scope) for its parameters and has
//! one `forward`; only [`Linear`] and [`Embedding`] know how a weight is kept.

mod additive;
mod attention;
mod convolution;
mod dropout;
mod embedding;
mod experts;
mod feed_forward;
mod head;
mod linear;
mod norm;
mod pooling;
mod positions;
mod recurrent;
mod residual;
mod token_head;

pub use additive::AdditiveAttention;
pub use attention::{Attention, Direction, Heads};
pub use convolution::CausalConvolution;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use experts::{AnyFeedForward, Experts};
pub use feed_forward::FeedForward;
pub use head::{Head, Loss};
pub use linear::Linear;
pub use norm::Norm;
pub use pooling::{Pooler, first_tokens, normalised, pool, select_rows};
pub use positions::{Positions, ScoreBias};
pub use recurrent::{RecurrentLayer, RecurrentStack};
pub use residual::Residual;
pub use token_head::TokenHead;
