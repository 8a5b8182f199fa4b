//! What a lesson is, and the sheet that it fills.

use hearken_show::{Bars, Chart, Table};
use hearken_tensor::Tensor;

/// A lesson of the course.
#[derive(Clone, Copy, Debug)]
pub struct Lesson {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What it shows, in one line.
    pub line: &'static str,
    /// A complete program that does the same in about ten lines, as a test runs it.
    pub code: &'static str,
    /// What to read next in the guide: what it is about, and the file in `docs/guide`.
    pub next: (&'static str, &'static str),
    pub(crate) fill: fn(&mut Sheet),
}

/// A lesson; its code is the file of its function's name.
macro_rules! lesson {
    ($fill:ident, $name:literal, $title:literal, $line:literal, $about:literal => $guide:literal) => {
        $crate::Lesson {
            name: $name,
            title: $title,
            line: $line,
            code: include_str!(concat!("../../code/", stringify!($fill), ".rs")),
            next: ($about, $guide),
            fill: $fill,
        }
    };
}
pub(crate) use lesson;

impl Lesson {
    /// Computes it.
    pub fn run(&self) -> Sheet {
        let mut sheet = Sheet::default();
        (self.fill)(&mut sheet);
        // So that the right answer is not the first by habit of who wrote it.
        let turn: usize = self.name.bytes().map(usize::from).sum();
        let count = sheet.question.answers.len().max(1);
        sheet.question.answers.rotate_left(turn % count);
        sheet
    }
}

/// A lesson that was computed.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// What is shown, step by step.
    pub steps: Vec<Step>,
    /// Asked at the end.
    pub question: Question,
    /// Where a document is wrong.
    pub errata: Vec<Erratum>,
    /// Every number by name, for tests.
    values: Vec<(String, Vec<f64>)>,
}

/// A part of a lesson that is read at once.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its heading.
    pub title: String,
    /// From the top.
    pub blocks: Vec<Block>,
}

/// Something on a sheet.
#[derive(Clone, Debug)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A formula, in lines.
    Formula(String),
    /// A number, a vector or a matrix under its name; rows from the top.
    Numbers {
        /// What it is.
        name: String,
        /// Its numbers.
        rows: Vec<Vec<f64>>,
    },
    /// Text in columns.
    Table(Table),
    /// Curves.
    Chart(Chart),
    /// Bars.
    Bars(Bars),
}

/// A question with answers to choose from.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// What is asked.
    pub text: String,
    /// Of which exactly one is right.
    pub answers: Vec<Answer>,
}

/// An answer to choose.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What it says.
    pub text: String,
    /// Computed, not claimed.
    pub is_right: bool,
    /// Why it is right, or what its mistake is.
    pub because: String,
}

/// A slip in a seed document.
#[derive(Clone, Debug)]
pub struct Erratum {
    /// Its id in `docs/ERRATA.md`.
    pub id: &'static str,
    /// What the document says.
    pub says: String,
    /// What is so.
    pub truth: String,
}

impl Erratum {
    /// The number of the document: 000 and 001 are one text.
    pub fn document(&self) -> &'static str {
        match self.id.split('.').next() {
            Some("0") => "000/001",
            Some("2") => "002",
            Some("3") => "003",
            _ => "004",
        }
    }
}

impl Sheet {
    /// Begins a step.
    pub fn step(&mut self, title: impl Into<String>) {
        self.steps.push(Step { title: title.into(), blocks: Vec::new() });
    }

    fn push(&mut self, block: Block) {
        let step = self.steps.last_mut().expect("a lesson begins with a step");
        step.blocks.push(block);
    }

    /// A paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.push(Block::Text(text.into()));
    }

    /// A formula.
    pub fn formula(&mut self, text: impl Into<String>) {
        self.push(Block::Formula(text.into()));
    }

    /// Remembers numbers for tests, without showing them here.
    pub fn keep(&mut self, name: impl Into<String>, values: impl Numbers) -> Vec<f64> {
        let values = values.numbers();
        self.values.push((name.into(), values.clone()));
        values
    }

    /// Shows a number or a row of numbers.
    pub fn show(&mut self, name: impl Into<String>, values: impl Numbers) -> Vec<f64> {
        let name = name.into();
        let values = self.keep(name.clone(), values);
        self.push(Block::Numbers { name, rows: vec![values.clone()] });
        values
    }

    /// Shows a matrix: the last dimension lies in rows.
    pub fn matrix(&mut self, name: impl Into<String>, tensor: &Tensor) {
        let name = name.into();
        let values = self.keep(name.clone(), tensor);
        let width = tensor.shape().width().max(1);
        let rows = values.chunks(width).map(<[f64]>::to_vec).collect();
        self.push(Block::Numbers { name, rows });
    }

    /// Text in columns.
    pub fn table<C: Into<String>>(
        &mut self,
        columns: &[&str],
        rows: impl IntoIterator<Item = impl IntoIterator<Item = C>>,
    ) {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        let rows = rows.into_iter().map(|row| row.into_iter().map(Into::into).collect()).collect();
        self.push(Block::Table(Table { title: String::new(), columns, rows }));
    }

    /// Curves.
    pub fn chart(&mut self, chart: Chart) {
        self.push(Block::Chart(chart));
    }

    /// Bars.
    pub fn bars(&mut self, bars: Bars) {
        self.push(Block::Bars(bars));
    }

    /// The question.
    pub fn ask(&mut self, text: impl Into<String>) {
        self.question.text = text.into();
    }

    /// An answer to it: is it right, and why or why not?
    pub fn answer(&mut self, text: impl Into<String>, is_right: bool, because: impl Into<String>) {
        let (text, because) = (text.into(), because.into());
        self.question.answers.push(Answer { text, is_right, because });
    }

    /// Where a document is wrong.
    pub fn wrong(&mut self, id: &'static str, says: impl Into<String>, truth: impl Into<String>) {
        self.errata.push(Erratum { id, says: says.into(), truth: truth.into() });
    }

    /// All numbers by name.
    pub fn values(&self) -> &[(String, Vec<f64>)] {
        &self.values
    }

    /// The numbers of this name. Panics if there are none.
    pub fn numbers(&self, name: &str) -> &[f64] {
        let found = self.values.iter().find(|(known, _)| known == name);
        let known = || self.values.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        &found.unwrap_or_else(|| panic!("no numbers are called {name:?}, only {:?}", known())).1
    }

    /// The only number of this name. Panics if there are none or several.
    pub fn number(&self, name: &str) -> f64 {
        match self.numbers(name) {
            [one] => *one,
            several => panic!("{name:?} is {several:?}, not one number"),
        }
    }
}

/// One number or several, of any type.
pub trait Numbers {
    /// As f64.
    fn numbers(self) -> Vec<f64>;
}

impl Numbers for f64 {
    fn numbers(self) -> Vec<f64> {
        vec![self]
    }
}

impl Numbers for f32 {
    fn numbers(self) -> Vec<f64> {
        vec![f64::from(self)]
    }
}

impl Numbers for usize {
    fn numbers(self) -> Vec<f64> {
        vec![self as f64]
    }
}

impl Numbers for u64 {
    fn numbers(self) -> Vec<f64> {
        vec![self as f64]
    }
}

impl Numbers for &[f32] {
    fn numbers(self) -> Vec<f64> {
        self.iter().map(|x| f64::from(*x)).collect()
    }
}

impl Numbers for &[f64] {
    fn numbers(self) -> Vec<f64> {
        self.to_vec()
    }
}

impl<const N: usize> Numbers for [f64; N] {
    fn numbers(self) -> Vec<f64> {
        self.to_vec()
    }
}

impl Numbers for &Vec<f64> {
    fn numbers(self) -> Vec<f64> {
        self.clone()
    }
}

impl Numbers for Vec<f64> {
    fn numbers(self) -> Vec<f64> {
        self
    }
}

impl Numbers for &Tensor {
    fn numbers(self) -> Vec<f64> {
        self.data().numbers()
    }
}
