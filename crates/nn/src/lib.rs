//! Models as data: [`config`] says what a model is made of, [`layers`] are its parts, and
//! [`decoder`] puts them together. [`presets`] are the well-known ones, [`plan`] says what a
//! configuration costs before anything runs.
//!
//! Legend of dimensions: `B` batch, `T` target length, `S` source length, `C` model width, `H`
//! heads, `K` key/value heads, `D` head width, `F` feed-forward width, `V` vocabulary, `L` layers.

pub mod block;
pub mod cache;
pub mod config;
pub mod decoder;
pub mod init;
pub mod layers;
pub mod parse;
pub mod plan;
pub mod presets;
pub mod variants;
