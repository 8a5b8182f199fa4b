//! A course on Transformers whose every number is computed by the library itself: the tensor
//! operations that train models, the optimisers, the sampler, the planner.
//!
//! A [`Lesson`] is data and one function that fills a [`Sheet`]: steps with text, formulas, computed
//! numbers, tables and plots, one question with a checked answer, and the places where one of the
//! seed documents is wrong. [`text`] shows a sheet in the terminal, [`page`] as HTML. The ten lines of
//! Rust of a lesson are a file in `code/`, which a test of the binary's crate compiles and runs.
//!
//! ```
//! let lesson = hearken_lessons::find("descent").unwrap();
//! let sheet = lesson.run();
//! assert!((sheet.number("x₁₀") - 0.3221).abs() < 1e-4); // 3·0.8¹⁰
//! ```
//!
//! Legend of dimensions: `B` batch, `T` target length, `S` source length, `C` model width, `H`
//! heads, `K` key/value heads, `D` head width, `F` feed-forward width, `V` vocabulary, `L` layers.

mod course;
mod lesson;
mod maths;
pub mod page;
pub mod text;

pub use lesson::{Answer, Block, Erratum, Lesson, Question, Sheet, Step};

/// All lessons, in the order in which they are best read.
pub fn course() -> Vec<&'static Lesson> {
    course::GROUPS.iter().flat_map(|(_, lessons)| lessons.iter()).collect()
}

/// The lessons by theme, in order.
pub fn groups() -> &'static [(&'static str, &'static [Lesson])] {
    course::GROUPS
}

/// The lesson of this name.
pub fn find(name: &str) -> Option<&'static Lesson> {
    course().into_iter().find(|lesson| lesson.name == name)
}
