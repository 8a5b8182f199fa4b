//! One file or folder per command: its arguments, and `run`.

pub(crate) mod bench;
pub(crate) mod classify;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod fill;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod lesson;
pub(crate) mod man;
pub(crate) mod outputs;
pub(crate) mod plan;
pub(crate) mod presets;
pub(crate) mod reading;
pub(crate) mod report;
pub(crate) mod texts;
pub(crate) mod tokenizer;
pub(crate) mod train;
pub(crate) mod translate;
