//! Models as data: [`config`] says what a model is made of, [`layers`] are its parts, [`block`] and
//! [`stack`] put them together, and [`models`] has a file for every kind. A layer asks its [`scope`]
//! for parameters; [`taps`] look inside while a [`pass`] runs.
//! [`presets`] are the well-known models; [`constraints`] on what they write are stated beside them.
//!
//! Legend of dimensions: `B` batch, `T` target length, `S` source length, `C` model width, `H`
//! heads, `K` key/value heads, `D` head width, `F` feed-forward width, `V` vocabulary, `L` layers.

pub mod block;
pub mod cache;
pub mod config;
pub mod constraints;
pub mod gradcheck;
pub mod layers;
pub mod models;
pub mod pass;
pub mod presets;
pub mod scope;
pub mod slot;
pub mod stack;
pub mod taps;
pub mod trace;
pub mod variants;
