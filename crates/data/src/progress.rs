//! How long work tells how far it is.

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Keeping what can be read only once, such as stdin; counted in bytes, of which nobody knows
    /// how many will come.
    Keeping,
    /// Reading text to learn a vocabulary from; counted in bytes.
    Reading,
    /// Choosing the vocabulary; takes its time and cannot say how far it is.
    Training,
    /// Checking and measuring text before it is tokenised; counted in bytes.
    Surveying,
    /// Text becomes ids; counted in bytes.
    Tokenising,
}

/// How far the work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// How much of it is done.
    pub done: u64,
    /// How much there is, where that is known.
    pub total: Option<u64>,
}

/// Is called now and then, about once per megabyte.
pub type Report<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// For those who do not want to know: `tokenizer.train(texts, &mut quiet)`.
pub fn quiet(_: Progress) {}
