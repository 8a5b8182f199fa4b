//! Is a classifier right as often as it is sure?

use super::data::EncoderData;
use crate::batch::{evaluation_rows, tokens};
use crate::calibration::{Calibration, calibrate};
use hearken_base::{Error, Result};
use hearken_data::batches::Labels;
use hearken_nn::models::Model;
use hearken_nn::pass::Pass;
use hearken_tensor::no_grad;

/// Calibrates a classifier by what is held out of `data`. Where a text may have several labels, each
/// of them is an answer, yes or no.
pub fn calibrated(
    model: &dyn Model,
    data: &EncoderData,
    bins: usize,
    saved: Option<f64>,
    progress: &mut dyn FnMut(f64),
) -> Result<Calibration> {
    let classifier = model.classifies().ok_or_else(|| {
        let message = "calibration is for models that label texts or predict the next token";
        Error::new(message, "leave --calibration out")
    })?;
    let Some(held) = &data.held else {
        return Err(Error::new("nothing is held out", "name labelled data with --data"));
    };
    let examples = &held.examples;
    let knows_types = model.config().types() > 1;
    let rows = evaluation_rows(examples.longest());
    let (mut done, all) = (0, examples.count());
    calibrate(all, rows, bins, saved, |chunk, answers| {
        let batch = examples.batch_of(chunk);
        let logits = no_grad(|| {
            let tokens = tokens(&batch, knows_types);
            classifier.class_logits(&tokens, &Pass::evaluate()).into_value() // (B, N)
        });
        let width = logits.shape().width().max(1);
        match &batch.labels {
            Some(Labels::Classes(classes)) => {
                for (row, class) in logits.data().chunks_exact(width).zip(classes) {
                    answers(row, *class as usize);
                }
            }
            Some(Labels::Several(flags)) => {
                // σ(z) = softmax([0, z])₁
                for (z, flag) in logits.data().iter().zip(flags) {
                    answers(&[0.0, *z], usize::from(*flag));
                }
            }
            _ => return Err(Error::new("the rows have no labels", "name labelled data")),
        }
        done += chunk.len();
        progress(done as f64 / all.max(1) as f64);
        Ok(())
    })
}
