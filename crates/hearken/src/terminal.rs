//! What commands show in the terminal; see [`hearken::show`].

pub(crate) use hearken::show::StatusLine as Progress;
pub(crate) use hearken::show::say;
pub(crate) use hearken::show::terminal::{Terminal, seen, visible};
