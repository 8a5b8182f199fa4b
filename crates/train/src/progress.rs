//! How training goes; see [`hearken_show::progress`].

pub use hearken_show::number::{duration, short};
pub use hearken_show::progress::{Mode, Now, Progress, line};
