//! Feed-forward neurons by the texts that excite them most.
//!
//! A neuron is a column of `feed_forward.active`: what the nonlinear function gives, before `down` brings
//! it back to the stream. Of every text its most exciting token counts, so that what is found comes from
//! different texts.

use crate::flow::Flow;
use crate::with_source::Source;
use hearken_base::{Error, Result};
use hearken_nn::models::Model;
use hearken_nn::taps::Pattern;
use hearken_tensor::Tensor;

/// The most places of a neuron that are kept.
pub const MOST_PLACES: usize = 100;

/// A token that excites a neuron.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Excitement {
    /// The text, by its number.
    pub text: usize,
    /// The token in it.
    pub place: usize,
    /// The neuron's value there.
    pub value: f32,
}

/// What excites one neuron.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Neuron {
    /// The largest values, one of each text, largest first; of equal ones the earlier text.
    pub places: Vec<Excitement>,
    /// The smallest value that was seen.
    pub lowest: f32,
    /// √ of the mean square over all tokens.
    pub rms: f64,
    /// The share of tokens at which it is above 0.
    pub active: f64,
}

impl Neuron {
    /// The largest value as a multiple of the usual one: what is rarely excited, but then strongly, is
    /// above the others.
    pub fn selectivity(&self) -> f64 {
        let most = self.places.first().map_or(0.0, |place| f64::from(place.value));
        if self.rms > 0.0 { most / self.rms } else { 0.0 }
    }
}

/// All neurons of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Neurons {
    /// The stage: `blocks.1.feed_forward.active`.
    pub stage: String,
    /// Tokens that were read.
    pub tokens: usize,
    /// By column.
    pub neurons: Vec<Neuron>,
}

impl Neurons {
    /// The most selective neurons first; of equal ones the smaller number.
    pub fn by_selectivity(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.neurons.len()).collect();
        let of = |i: &usize| self.neurons[*i].selectivity();
        order.sort_by(|a, b| of(b).total_cmp(&of(a)).then(a.cmp(b)));
        order
    }
}

/// The stage of the neurons of a block: `blocks.N.feed_forward.active`, of the decoder if there are two
/// stacks.
pub fn stage_of(model: &dyn Model, layer: usize) -> String {
    format!("{}blocks.{layer}.feed_forward.active", crate::stack_prefix(model))
}

/// The values (T, F) of all neurons of a stage in one text.
pub fn values(model: &dyn Model, ids: &[u32], stage: &str) -> Result<Tensor> {
    let flow = Flow::only(model, ids, None, vec![Pattern::parse(stage)?], None)?;
    let fits =
        |stage: &crate::Stage| stage.part() == "feed_forward.active" && stage.shape.len() == 2;
    let found = flow.stages.into_iter().find(fits).ok_or_else(|| {
        Error::new(
            format!("'{stage}' are no neurons"),
            "neurons are the columns of blocks.N.feed_forward.active, which a mixture of experts lacks",
        )
    })?;
    let [tokens, neurons] = found.shape[..] else { unreachable!("checked above") };
    Ok(found.value.reshape([tokens, neurons]))
}

/// What excites each neuron of a stage most in these texts. `progress` is given the texts that were read.
pub fn neurons(
    model: &dyn Model,
    texts: &[Vec<u32>],
    stage: &str,
    most: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Neurons> {
    gather(texts, stage, most, progress, &mut |ids| values(model, ids, stage))
}

/// As [`neurons`], of the encoder of a [`WithSource`](crate::WithSource): the texts are read as its
/// sources, one after the other; its own source is put back.
pub fn neurons_of_sources(
    model: &dyn Model,
    source: &Source,
    texts: &[Vec<u32>],
    stage: &str,
    most: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Neurons> {
    let own = source.ids();
    let found = gather(texts, stage, most, progress, &mut |ids| {
        values_of_source(model, source, ids, stage)
    });
    source.set(&own);
    found
}

/// As [`values`], of the encoder of a [`WithSource`](crate::WithSource) that reads `ids`; its own source
/// is put back.
pub fn values_of_source(
    model: &dyn Model,
    source: &Source,
    ids: &[u32],
    stage: &str,
) -> Result<Tensor> {
    crate::checked(model, ids)?;
    let own = source.ids();
    source.set(ids);
    // The encoder does not see the target.
    let found = values(model, &[0], stage);
    source.set(&own);
    found
}

fn gather(
    texts: &[Vec<u32>],
    stage: &str,
    most: usize,
    progress: &mut dyn FnMut(usize),
    read: &mut dyn FnMut(&[u32]) -> Result<Tensor>,
) -> Result<Neurons> {
    if most == 0 || most > MOST_PLACES {
        let message = format!("{most} places of each neuron");
        return Err(Error::new(message, format!("give 1 to {MOST_PLACES}")));
    }
    let mut found: Vec<Neuron> = Vec::new();
    let mut squares: Vec<f64> = Vec::new();
    let mut tokens = 0;
    for (text, ids) in texts.iter().enumerate() {
        let values = read(ids)?; // (T, F)
        let width = values.shape().width();
        if found.is_empty() {
            found = vec![Neuron { lowest: f32::INFINITY, ..Neuron::default() }; width];
            squares = vec![0.0; width];
        }
        let mut best = vec![(0, f32::NEG_INFINITY); width];
        for (place, row) in values.data().chunks(width.max(1)).enumerate() {
            tokens += 1;
            for (i, value) in row.iter().copied().enumerate() {
                if value > best[i].1 {
                    best[i] = (place, value);
                }
                found[i].lowest = found[i].lowest.min(value);
                found[i].active += f64::from(u8::from(value > 0.0));
                squares[i] += f64::from(value).powi(2);
            }
        }
        for (neuron, (place, value)) in found.iter_mut().zip(best) {
            let at = neuron.places.partition_point(|kept| kept.value >= value);
            if at < most {
                neuron.places.truncate(most - 1);
                neuron.places.insert(at, Excitement { text, place, value });
            }
        }
        progress(text + 1);
    }
    if tokens == 0 {
        return Err(Error::new("no text to read", "name a file with --data FILE"));
    }
    for (neuron, square) in found.iter_mut().zip(squares) {
        neuron.active /= tokens as f64;
        neuron.rms = (square / tokens as f64).sqrt();
    }
    Ok(Neurons { stage: stage.to_owned(), tokens, neurons: found })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two neurons whose values are the tokens themselves, and their negatives.
    #[test]
    fn of_every_text_the_best_place_counts_and_earlier_texts_win() {
        let texts = vec![vec![1, 5, 5], vec![9], vec![2, 5], vec![3]];
        let mut read = |ids: &[u32]| {
            let all: Vec<f32> = ids.iter().flat_map(|id| [*id as f32, -(*id as f32)]).collect();
            Ok(Tensor::new([ids.len(), 2], &all))
        };
        let mut seen = Vec::new();
        let found = gather(&texts, "x", 3, &mut |n| seen.push(n), &mut read).unwrap();
        assert_eq!((found.tokens, seen), (7, vec![1, 2, 3, 4]));
        let [first, second] = &found.neurons[..] else { panic!("two neurons") };
        let places = |neuron: &Neuron| {
            neuron.places.iter().map(|p| (p.text, p.place, p.value)).collect::<Vec<_>>()
        };
        assert_eq!(places(first), [(1, 0, 9.0), (0, 1, 5.0), (2, 1, 5.0)]);
        assert_eq!(places(second), [(0, 0, -1.0), (2, 0, -2.0), (3, 0, -3.0)]);
        assert_eq!((first.active, second.active), (1.0, 0.0));
        assert_eq!((first.lowest, second.lowest), (1.0, -9.0));
        let square = 1.0 + 25.0 + 25.0 + 81.0 + 4.0 + 25.0 + 9.0;
        assert!((first.rms - (square / 7.0_f64).sqrt()).abs() < 1e-9);
        assert_eq!(found.by_selectivity(), [0, 1]);
        assert!(gather(&texts, "x", 0, &mut |_| {}, &mut read).is_err());
        assert!(gather(&[], "x", 3, &mut |_| {}, &mut read).is_err());
    }
}
