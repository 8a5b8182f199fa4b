//! Neurons by the texts that excite them most, in whole models.

use hearken_explain::Flow;
use hearken_explain::neurons::{MOST_PLACES, neurons, stage_of, values};
use hearken_nn::models::{Decoder, Encoder, Model};
use hearken_nn::variants;

/// Texts of different lengths.
fn texts() -> Vec<Vec<u32>> {
    (0..9).map(|i| (0..2 + i % 5).map(|t| (3 * i + t * t) % 11).collect()).collect()
}

/// One pass records all values, the other a layer's neurons alone: these round in another order.
fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + b.abs()))
}

#[test]
fn the_places_are_those_of_the_largest_values_of_each_text() {
    let (texts, mut seen) = (texts(), 0);
    let decoders = variants::all().into_iter();
    let decoders = decoders
        .map(|(name, config)| (name, Box::new(Decoder::drawn(config, 5)) as Box<dyn Model>));
    let encoders = variants::encoders().into_iter();
    let encoders = encoders
        .map(|(name, config)| (name, Box::new(Encoder::drawn(config, 5)) as Box<dyn Model>));
    for (name, model) in decoders.chain(encoders) {
        let model = model.as_ref();
        let stage = stage_of(model, 1);
        let flows: Vec<Flow> =
            texts.iter().map(|ids| Flow::of(model, ids, None, None).unwrap()).collect();
        let Some(first) = flows[0].stage(&stage) else {
            // Experts have no layer of their own.
            assert!(neurons(model, &texts, &stage, 3, &mut |_| {}).is_err(), "{name}");
            continue;
        };
        let width = first.shape[1];
        let found = neurons(model, &texts, &stage, 3, &mut |_| {}).unwrap();
        assert_eq!((found.neurons.len(), found.tokens), (width, texts.concat().len()), "{name}");
        let of = |text: usize, neuron: usize| -> Vec<f32> {
            let rows = flows[text].value(&stage).unwrap();
            rows.data().chunks(width).map(|row| row[neuron]).collect()
        };
        for (i, neuron) in found.neurons.iter().enumerate() {
            let all: Vec<Vec<f32>> = (0..texts.len()).map(|text| of(text, i)).collect();
            let mut best: Vec<f32> =
                all.iter().map(|x| x.iter().copied().fold(f32::NEG_INFINITY, f32::max)).collect();
            best.sort_by(|a, b| b.total_cmp(a));
            let values: Vec<f32> = neuron.places.iter().map(|place| place.value).collect();
            assert!(close(&values, &best[..3]), "{name}, neuron {i}: {values:?} {best:?}");
            for place in &neuron.places {
                let own = all[place.text][place.place];
                assert!(close(&[own], &[place.value]), "{name}, neuron {i}: {place:?} {own}");
            }
            let lowest = all.concat().into_iter().fold(f32::INFINITY, f32::min);
            assert!(close(&[neuron.lowest], &[lowest]), "{name}, neuron {i}");
        }
        let order = found.by_selectivity();
        let of = |i: usize| found.neurons[i].selectivity();
        assert!(order.windows(2).all(|pair| of(pair[0]) >= of(pair[1])), "{name}");
        seen += 1;
    }
    assert!(seen >= 20, "only {seen} models have neurons");
}

#[test]
fn what_has_no_neurons_is_refused() {
    let model = Decoder::drawn(variants::base(), 3);
    assert!(values(&model, &[1, 2], "blocks.0.feed_forward.up").is_err());
    assert!(values(&model, &[1, 2], "blocks.9.feed_forward.active").is_err());
    assert!(values(&model, &[99_999], "blocks.0.feed_forward.active").is_err());
    let stage = stage_of(&model, 0);
    for most in [0, MOST_PLACES + 1] {
        assert!(neurons(&model, &[vec![1]], &stage, most, &mut |_| {}).is_err());
    }
    assert!(neurons(&model, &[], &stage, 3, &mut |_| {}).is_err());
}
