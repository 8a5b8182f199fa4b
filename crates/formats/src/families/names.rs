//! Tables of names: which tensor of a file is which part of which parameter of ours.
//!
//! A row pairs a pattern of our names with one of theirs. `{}` stands for a number and `*` for any
//! one part of a name, and both stand for the same on either side:
//!
//! ```text
//! blocks.{}.attention.qkv.*     model.layers.{}.self_attn.q_proj.*     rows of the queries
//! blocks.{}.attention.out.*     transformer.h.{}.attn.c_proj.*         transposed
//! ```
//!
//! A parameter of ours that several of their tensors make up has a row for each of them, in order.
//! Where the table depends on the model (BERT's head is called otherwise for every use), it is a
//! function of the configuration.

use super::{Family, is_bare, stack_of};
use hearken_base::{Error, Result};
use hearken_nn::config::{ModelConfig, StackConfig};
use hearken_tensor::Shape;
use std::ops::Range;

/// What the tensors of a family are called.
#[derive(Clone, Copy, Debug)]
pub enum Names {
    /// As ours.
    Same,
    /// As a table says.
    Table(&'static [Row]),
    /// As the table of this model says.
    By(fn(&ModelConfig) -> Vec<Row>),
}

impl Names {
    /// The rows of the table; `None` where names are ours.
    fn rows(&self, config: &ModelConfig) -> Option<Vec<Row>> {
        match self {
            Self::Same => None,
            Self::Table(rows) => Some(rows.to_vec()),
            Self::By(rows) => Some(rows(config)),
        }
    }
}

/// One pattern of names.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    ours: &'static str,
    theirs: &'static str,
    part: Part,
    transposed: bool,
}

/// Which rows of a parameter of ours a tensor of theirs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All.
    Whole,
    /// Those that make queries: H·D.
    Queries,
    /// Those that make keys: K·D.
    Keys,
    /// Those that make values: K·Dv.
    Values,
    /// The gate of a feed-forward layer: F.
    Gate,
    /// What the gate is multiplied with: F.
    Up,
    /// All, and their tensor has so many rows before them that mean nothing.
    Behind(usize),
    /// All, and their tensor is a matrix of this one row.
    OneRow,
    /// All, once more: a copy that is written because others expect it, and never read.
    Copy,
}

/// Their tensor is our parameter.
pub const fn row(ours: &'static str, theirs: &'static str) -> Row {
    Row { ours, theirs, part: Part::Whole, transposed: false }
}

/// Their tensor is some rows of our parameter.
pub const fn part(part: Part, ours: &'static str, theirs: &'static str) -> Row {
    Row { ours, theirs, part, transposed: false }
}

/// Their tensor is our parameter transposed; a vector is as it is.
pub const fn transposed(ours: &'static str, theirs: &'static str) -> Row {
    Row { ours, theirs, part: Part::Whole, transposed: true }
}

/// A tensor of a file as a part of one of our parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The parameter, by its place in the list.
    pub parameter: usize,
    /// The tensor's name in the file.
    pub theirs: String,
    /// Which rows of the parameter it is.
    pub rows: Range<usize>,
    /// How wide these rows are: 1 for a vector.
    pub width: usize,
    /// Does the file have its columns as rows?
    pub transposed: bool,
    /// Rows of the tensor before these, which mean nothing.
    pub skipped: usize,
    /// The tensor's shape in the file.
    pub shape: Vec<usize>,
}

/// Every tensor of a file of `family` that is read, for a model of these parameters.
pub fn pieces<'a>(
    family: &Family,
    config: &ModelConfig,
    parameters: impl IntoIterator<Item = (&'a str, Shape)>,
) -> Result<Vec<Piece>> {
    let mut pieces = all_pieces(family, config, parameters, |part| part != Part::Copy)?;
    if is_bare(config) {
        for piece in &mut pieces {
            if let Some(rest) = piece.theirs.strip_prefix(family.optional_prefix) {
                piece.theirs = rest.to_owned();
            }
        }
    }
    Ok(pieces)
}

/// The tensors of a file that repeat others.
pub fn copies<'a>(
    family: &Family,
    config: &ModelConfig,
    parameters: impl IntoIterator<Item = (&'a str, Shape)>,
) -> Result<Vec<Piece>> {
    if matches!(family.names, Names::Same) {
        return Ok(Vec::new());
    }
    all_pieces(family, config, parameters, |part| part == Part::Copy)
}

/// Those of the parts that are wanted. Unless these are copies, they must cover every parameter.
fn all_pieces<'a>(
    family: &Family,
    config: &ModelConfig,
    parameters: impl IntoIterator<Item = (&'a str, Shape)>,
    wanted: impl Fn(Part) -> bool,
) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let table = family.names.rows(config);
    for (parameter, (name, shape)) in parameters.into_iter().enumerate() {
        let before = pieces.len();
        match &table {
            None => pieces.push(piece(parameter, name.to_owned(), shape, None, false)),
            Some(rows) => {
                for row in rows.iter().filter(|row| wanted(row.part)) {
                    if let Some(theirs) = translate(row.ours, row.theirs, name) {
                        let rows = stack_of(config, name).and_then(|stack| row.part.rows(&stack));
                        let piece = piece(parameter, theirs, shape, rows, row.transposed);
                        pieces.push(piece.shaped(row.part));
                    }
                }
            }
        }
        let rows: usize = pieces.iter().skip(before).map(|piece| piece.rows.len()).sum();
        if wanted(Part::Whole) && rows != shape.dims().first().copied().unwrap_or(1) {
            return Err(Error::new(
                format!("the table of {} does not cover {name} {shape}", family.model_type),
                "this is a bug of hearken: please report it",
            ));
        }
    }
    Ok(pieces)
}

impl Piece {
    /// The same piece in the shape of their tensor, which may have other dimensions than ours.
    fn shaped(mut self, part: Part) -> Self {
        if let (Part::Behind(skipped), Some(first)) = (part, self.shape.first_mut()) {
            *first += skipped;
            self.skipped = skipped;
        }
        if part == Part::OneRow {
            self.shape.insert(0, 1);
        }
        self
    }
}

fn piece(
    parameter: usize,
    theirs: String,
    shape: Shape,
    rows: Option<Range<usize>>,
    transposed: bool,
) -> Piece {
    let mut dims = shape.dims().to_vec();
    let rows = rows.unwrap_or(0..dims.first().copied().unwrap_or(1));
    let width = dims.iter().skip(1).product();
    let transposed = transposed && dims.len() == 2;
    if let Some(first) = dims.first_mut() {
        *first = rows.len();
    }
    if transposed {
        dims.reverse();
    }
    Piece { parameter, theirs, rows, width, transposed, skipped: 0, shape: dims }
}

impl Part {
    /// Which rows; `None` for all.
    fn rows(self, stack: &StackConfig) -> Option<Range<usize>> {
        let queries = stack.heads * stack.head_width();
        let keys = queries + stack.kv_heads() * stack.head_width();
        let values = keys + stack.kv_heads() * stack.value_width();
        let wide = stack.feed_forward_width();
        Some(match self {
            Self::Whole | Self::Behind(_) | Self::OneRow | Self::Copy => return None,
            Self::Queries => 0..queries,
            Self::Keys => queries..keys,
            Self::Values => keys..values,
            Self::Gate => 0..wide,
            Self::Up => wide..2 * wide,
        })
    }
}

/// Does a name follow a pattern?
pub fn matches(pattern: &str, name: &str) -> bool {
    captures(pattern, name).is_some()
}

/// What the placeholders of a pattern stand for in a name; `None` if it does not follow it.
fn captures<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    if pattern.split('.').count() != name.split('.').count() {
        return None;
    }
    let mut found = Vec::new();
    for (pattern, part) in pattern.split('.').zip(name.split('.')) {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        match pattern {
            "*" => found.push(part),
            "{}" if is_number => found.push(part),
            _ if pattern == part => {}
            _ => return None,
        }
    }
    Some(found)
}

/// Their name for a name of ours that follows the pattern `ours`.
fn translate(ours: &str, theirs: &str, name: &str) -> Option<String> {
    let mut found = captures(ours, name)?.into_iter();
    let parts = theirs.split('.').map(|part| match part {
        "*" | "{}" => found.next(),
        fixed => Some(fixed),
    });
    parts.collect::<Option<Vec<&str>>>().map(|parts| parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_translate_names() {
        let (ours, theirs) = ("blocks.{}.norm1.*", "transformer.h.{}.ln_1.*");
        let translated = |name| translate(ours, theirs, name);
        assert_eq!(translated("blocks.12.norm1.bias").unwrap(), "transformer.h.12.ln_1.bias");
        assert_eq!(translated("blocks.x.norm1.bias"), None);
        assert_eq!(translated("blocks.1.norm2.bias"), None);
        assert_eq!(translated("blocks.1.norm1"), None);
        assert!(matches("h.{}.attn.bias", "h.3.attn.bias") && !matches("h.{}", "h.3.4"));
    }

    #[test]
    fn a_vector_is_never_transposed_and_a_matrix_is() {
        let matrix = piece(0, "a".to_owned(), [3, 2].into(), Some(1..3), true);
        assert_eq!((matrix.width, matrix.transposed, matrix.shape), (2, true, vec![2, 2]));
        let vector = piece(0, "a".to_owned(), [3].into(), None, true);
        assert_eq!((vector.width, vector.transposed, vector.shape), (1, false, vec![3]));
    }
}
