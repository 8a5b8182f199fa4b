//! Writing with a model: [`sampler`] chooses the next token, [`beam`] searches for likely texts,
//! [`stream`] turns tokens into text as they come, [`mod@generate`] puts them together.

pub mod beam;
pub mod generate;
pub mod sampler;
pub mod stream;
