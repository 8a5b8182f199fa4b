//! What is seen inside a model now and then while it is trained.

use hearken_nn::pass::Pass;
use hearken_nn::taps::Taps;
use hearken_tensor::{Tensor, no_grad};
use hearken_train::{LayerAttention, Observation};
use std::sync::Arc;

/// How every layer attends in a pass that `run` takes through the model. One head's scores are in
/// memory at a time.
pub fn attention(run: impl FnOnce(&Pass)) -> Observation {
    let taps = Arc::new(Taps::new().measure("*.attention.scores[*]", entropy));
    no_grad(|| run(&Pass::evaluate().watched(&taps)));
    let mut attention: Vec<LayerAttention> = Vec::new();
    for (name, measured) in taps.take() {
        let Some((layer, _)) = name.rsplit_once(".attention.") else { continue };
        let &[entropy, most] = measured.data() else { continue };
        match attention.last_mut() {
            Some(last) if last.layer == layer => last.entropy.push(entropy),
            _ => attention.push(LayerAttention {
                layer: layer.to_owned(),
                entropy: vec![entropy],
                most,
            }),
        }
    }
    Observation { attention, ..Observation::default() }
}

/// Of a head's scores (B, T, S): the entropy −Σⱼ pⱼ ln pⱼ of p = softmax(scores), and what it would
/// be if everything visible had the same weight; both as means over the queries that see anything.
///
/// With wⱼ = exp(sⱼ − max), −Σ p ln p is ln Σw − Σ w·(s − max) / Σw: 0 if one key has all the weight.
fn entropy(scores: &Tensor) -> Tensor {
    if scores.is_dry() {
        return Tensor::zeros([2]);
    }
    let (mut sum, mut most, mut queries) = (0.0, 0.0, 0);
    for row in scores.data().chunks(scores.shape().width().max(1)) {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if largest == f32::NEG_INFINITY {
            continue;
        }
        let (mut total, mut weighted, mut visible) = (0.0, 0.0, 0);
        for score in row.iter().filter(|score| **score != f32::NEG_INFINITY) {
            let below = score - largest;
            let weight = f64::from(below.exp());
            total += weight;
            weighted += weight * f64::from(below);
            visible += 1;
        }
        sum += total.ln() - weighted / total;
        most += f64::from(visible).ln();
        queries += 1;
    }
    let mean = |sum: f64| (sum / f64::from(queries.max(1))) as f32;
    Tensor::new([2], &[mean(sum), mean(most)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_nn::models::{Decoder, PredictsTokens, Tokens};
    use hearken_nn::variants;

    const HIDDEN: f32 = f32::NEG_INFINITY;

    #[test]
    fn entropies_are_those_of_the_formula() {
        // Even over two, all on one, nothing seen, and p = (1/4, 3/4).
        let scores = [5.0, 5.0, HIDDEN, 900.0, 0.0, 0.0, HIDDEN, HIDDEN, HIDDEN, 0.0, HIDDEN]
            .into_iter()
            .chain([3.0_f32.ln()]);
        let scores = Tensor::new([1, 4, 3], &scores.collect::<Vec<_>>());
        let [a, b] = [0.25_f64, 0.75].map(|p| -p * p.ln());
        let want = (2.0_f64.ln() + 0.0 + a + b) / 3.0;
        let most = (2.0 * 2.0_f64.ln() + 3.0_f64.ln()) / 3.0;
        let got = entropy(&scores);
        assert!((f64::from(got.data()[0]) - want).abs() < 1e-6, "{got:?}, expected {want}");
        assert!((f64::from(got.data()[1]) - most).abs() < 1e-6, "{got:?}, expected {most}");
    }

    #[test]
    fn a_head_on_one_place_has_no_entropy() {
        let collapsed = entropy(&Tensor::new([1, 2, 3], &[0.0, 400.0, 0.0, -400.0, 7.0, -400.0]));
        assert_eq!(collapsed.data()[0], 0.0);
        assert_eq!(collapsed.data()[1], 3.0_f32.ln());
    }

    #[test]
    fn every_layer_and_head_is_seen_in_order() {
        let model = Decoder::drawn(variants::base(), 3);
        let ids = [1, 2, 3, 4, 5];
        let seen = attention(|pass| {
            model.hidden(&Tokens::new(&ids, 1), pass);
        });
        let layers: Vec<&str> = seen.attention.iter().map(|a| a.layer.as_str()).collect();
        assert_eq!(layers, ["blocks.0", "blocks.1"]);
        // Causal: query i sees i + 1 keys.
        let most = (1..=5).map(|n| f64::from(n).ln()).sum::<f64>() / 5.0;
        for layer in &seen.attention {
            assert_eq!(layer.entropy.len(), 4);
            assert!((f64::from(layer.most) - most).abs() < 1e-6);
            assert!(layer.entropy.iter().all(|e| *e > 0.0 && *e < layer.most), "{layer:?}");
        }
        assert_ne!(seen.attention[0].entropy, seen.attention[1].entropy);
    }
}
