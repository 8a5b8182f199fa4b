//! Writing with a model: [`sampler`] chooses the next token, [`beam`] searches for likely texts,
//! [`stream`] turns tokens into text as they come. The [`engine`] owns the sequences that are being
//! decoded and takes all of them through the model together; [`client`]s hand them in.
//! [`mod@generate`] has the simple ones, [`translate`] those that read a source first. [`speculative`]
//! decoding lets a small model draft for a large one; [`contrastive`] search avoids what is like the
//! text before. [`calibration`] says whether a model is right as often as it
//! is sure.

pub mod beam;
pub mod calibration;
pub mod client;
pub mod contrastive;
pub mod engine;
pub mod generate;
pub mod sampler;
pub mod speculative;
pub mod stream;
pub mod translate;
