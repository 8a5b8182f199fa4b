//! The states of a recurrent model that go from one step of training to the next: truncated
//! backpropagation through time.

use hearken_base::{Error, Result};
use hearken_tensor::Tensor;
use hearken_train::Moment;

/// The states at the end of a step, each of all rows of the batch (B, C); none before the first.
#[derive(Default)]
pub(crate) struct Carried(Vec<Tensor>);

impl Carried {
    /// Those of the `rows` rows of a micro-batch; `None` before the first step.
    pub(crate) fn rows(&self, at: Moment, rows: usize) -> Option<Vec<Tensor>> {
        let part = |all: &Tensor| {
            let size = rows * all.shape().width();
            let part = &all.data()[at.micro_batch * size..(at.micro_batch + 1) * size];
            Tensor::new([rows, all.shape().width()], part)
        };
        (!self.0.is_empty()).then(|| self.0.iter().map(part).collect())
    }

    /// Takes those of a micro-batch.
    pub(crate) fn store(&mut self, at: Moment, part: &[Tensor]) {
        if self.0.is_empty() {
            let whole = |part: &Tensor| {
                Tensor::zeros([at.micro_batches * part.shape().rows(), part.shape().width()])
            };
            self.0 = part.iter().map(whole).collect();
        }
        for (all, part) in self.0.iter_mut().zip(part).filter(|(all, _)| !all.is_dry()) {
            let size = part.data().len();
            let at = at.micro_batch * size..(at.micro_batch + 1) * size;
            all.data_mut()[at].copy_from_slice(part.data());
        }
    }

    /// By name, for a checkpoint.
    pub(crate) fn named(&self) -> Vec<(String, Tensor)> {
        let named = |(i, state): (usize, &Tensor)| (format!("carried.{i:04}"), state.clone());
        self.0.iter().enumerate().map(named).collect()
    }

    /// Takes them back from a checkpoint; they must have the shapes of `first`. One without any is of
    /// a run that carries none.
    pub(crate) fn restore(&mut self, state: Vec<(String, Tensor)>, first: &[Tensor]) -> Result<()> {
        let states: Vec<Tensor> = state.into_iter().map(|(_, state)| state).collect();
        let fits = |(a, b): (&Tensor, &Tensor)| a.shape() == b.shape();
        let same = states.len() == first.len() && states.iter().zip(first).all(fits);
        if !states.is_empty() && !same {
            return Err(Error::new(
                "the checkpoint has recurrent states of another shape",
                "resume with the configuration that the run was started with",
            ));
        }
        self.0 = states;
        Ok(())
    }
}
