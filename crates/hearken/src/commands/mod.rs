//! One file or folder per command: its arguments, and `run`.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod tokenizer;
pub(crate) mod train;
