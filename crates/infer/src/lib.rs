//! Writing with a model: [`sampler`] chooses the next token, [`beam`] searches for likely texts,
//! [`stream`] turns tokens into text as they come.

pub mod beam;
pub mod sampler;
pub mod stream;
