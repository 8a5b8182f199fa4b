//! One file or folder per command: its arguments, and `run`.

pub(crate) mod doctor;
