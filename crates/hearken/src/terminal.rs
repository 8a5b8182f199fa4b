//! What commands show in the terminal; see [`hearken::show`].

pub(crate) use hearken::show::StatusLine as Progress;
pub(crate) use hearken::show::say;
pub(crate) use hearken::show::terminal::{Terminal, seen, visible, visible_json, visible_path};
