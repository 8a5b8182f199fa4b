//! Presentation in one place, for reports, commands and pages.
//!
//! - [`number`]: numbers as people read them.
//! - [`terminal`]: width, colours, words in lines; [`table`]: columns; [`status`]: a line that
//!   renews itself; [`progress`]: how training goes.
//! - [`chart`], [`heat_map`], [`grid`], [`bars`]: pictures as SVG, on [`svg`].
//! - [`page`]: HTML from templates, in which nothing that is inserted becomes markup.

pub mod bars;
pub mod chart;
pub mod grid;
pub mod heat_map;
pub mod number;
pub mod page;
pub mod progress;
pub mod status;
pub mod svg;
pub mod table;
pub mod terminal;

pub use bars::{Bar, Bars};
pub use chart::{Chart, Level, Mark, Series};
pub use grid::Grid;
pub use heat_map::HeatMap;
pub use status::StatusLine;
pub use table::{Columns, Table};
pub use terminal::Terminal;
