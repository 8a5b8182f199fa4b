//! A finite list of examples: what training shuffles ([`Shuffled`](super::Shuffled)) and
//! evaluation goes through in order ([`InOrder`](super::InOrder)).

use super::Batch;
use std::sync::Arc;

/// Examples that can be put together into a batch in any selection. One example is one row.
pub trait Examples: Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// The longest that a row of a batch can be: T.
    fn longest(&self) -> usize;

    /// How many tokens an example has, those of its source included. Rows of similar size need
    /// little padding.
    fn tokens_of(&self, example: usize) -> usize;

    /// The given examples as the rows of a batch, as long as the longest of them needs.
    fn batch_of(&self, examples: &[usize]) -> Batch;
}

macro_rules! behind_a_pointer {
    ($($pointer:ty),*) => {$(
        impl<E: Examples + ?Sized> Examples for $pointer {
            fn count(&self) -> usize {
                (**self).count()
            }

            fn longest(&self) -> usize {
                (**self).longest()
            }

            fn tokens_of(&self, example: usize) -> usize {
                (**self).tokens_of(example)
            }

            fn batch_of(&self, examples: &[usize]) -> Batch {
                (**self).batch_of(examples)
            }
        }
    )*};
}
behind_a_pointer!(&E, Box<E>, Arc<E>);
