//! Translations: together as alone, greedy as one beam, and cached as computed from scratch.

use hearken_infer::beam::Found;
use hearken_infer::engine::with_translator;
use hearken_infer::sampler::Sampling;
use hearken_infer::translate::{Strategy, Translating};
use hearken_nn::cache::CacheKind;
use hearken_nn::constraints::Constraints;
use hearken_nn::models::{EncoderDecoder, PredictsTokens, Tokens, Translates};
use hearken_nn::variants;

const BEGIN: u32 = 0;
const END: u32 = 4;

fn how(strategy: Strategy) -> Translating {
    Translating {
        begin: BEGIN,
        ends: vec![END],
        constraints: Constraints::default(),
        most_tokens: 15,
        length_penalty: 1.0,
        cache: CacheKind::F32,
        strategy,
    }
}

fn greedy() -> Strategy {
    Strategy::Sampled(Sampling { temperature: 0.0, ..Sampling::default() }, 1)
}

fn sources() -> Vec<Vec<u32>> {
    let source = |i: u32| (0..=i * 7 % 20).map(|t| (t * 5 + i) % 13).collect();
    (0..9).map(source).collect()
}

/// Everything handed in at once, so many sequences at a time.
fn translate(model: &dyn Translates, how: &Translating, at_once: usize) -> Vec<Vec<Found>> {
    with_translator(model, at_once, |client| {
        let pending: Vec<_> =
            sources().iter().map(|source| client.translate(source, how).unwrap()).collect();
        pending.into_iter().map(|pending| pending.wait().unwrap()).collect()
    })
}

#[test]
fn translations_together_are_those_made_alone() {
    for (name, config) in variants::encoder_decoders().into_iter().step_by(2) {
        let model = EncoderDecoder::drawn(config, 7);
        let sampled = Strategy::Sampled(Sampling { seed: 3, ..Sampling::default() }, 3);
        for strategy in [greedy(), Strategy::Beams(4), sampled] {
            let (alone, together) =
                (translate(&model, &how(strategy), 1), translate(&model, &how(strategy), 64));
            for (alone, together) in alone.iter().zip(&together) {
                assert_eq!(alone.len(), together.len(), "{name}");
                for (alone, together) in alone.iter().zip(together) {
                    assert_eq!(alone.tokens, together.tokens, "{name}");
                    let apart = (alone.log_probability - together.log_probability).abs();
                    assert!(apart < 1e-4, "{name}: {alone:?} and {together:?}");
                }
            }
        }
    }
}

#[test]
fn one_beam_is_greedy_and_more_find_likelier_translations() {
    let mut means = [0.0; 3];
    for (name, config) in variants::encoder_decoders() {
        let model = EncoderDecoder::drawn(config, 5);
        let greedy = translate(&model, &how(greedy()), 64);
        for (mean, beams) in means.iter_mut().zip([1, 4, 8]) {
            let found = translate(&model, &how(Strategy::Beams(beams)), 64);
            if beams == 1 {
                let tokens = |all: &[Vec<Found>]| -> Vec<Vec<u32>> {
                    all.iter().map(|found| found[0].tokens.clone()).collect()
                };
                assert_eq!(tokens(&found), tokens(&greedy), "{name}");
            }
            *mean += found.iter().map(|found| found[0].score).sum::<f64>();
        }
    }
    assert!(means[1] >= means[0] && means[2] >= means[1], "{means:?}");
}

#[test]
fn cached_decoding_takes_the_tokens_of_whole_passes() {
    for (name, config) in variants::encoder_decoders() {
        let model = EncoderDecoder::drawn(config, 11);
        let found = translate(&model, &how(greedy()), 64);
        for (source, found) in sources().iter().zip(&found) {
            let said = &found[0].tokens;
            let inputs = [&[BEGIN], &said[..said.len() - 1]].concat();
            let source = Tokens::new(source, 1);
            let logits = model.logits(&Tokens::new(&inputs, 1).about(&source)); // (1, T, V)
            let mut sum = 0.0;
            for (row, token) in logits.data().chunks(13).zip(said) {
                let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                // Of two that are equal but for rounding, either may be taken.
                assert!(best - row[*token as usize] < 1e-5, "{name}: {said:?}");
                let total: f64 = row.iter().map(|z| f64::from(z - best).exp()).sum();
                sum += f64::from(row[*token as usize] - best) - total.ln();
            }
            assert!((sum - found[0].log_probability).abs() < 1e-4, "{name}");
        }
    }
}

#[test]
fn what_cannot_be_translated_is_refused() {
    let model = EncoderDecoder::drawn(variants::encoder_decoder(), 1);
    with_translator(&model, 4, |client| {
        let refused = |source: &[u32], strategy| {
            client.translate(source, &how(strategy)).map(|_| ()).unwrap_err().to_string()
        };
        assert!(refused(&[], greedy()).starts_with("a source of 0 tokens, expected 1 to 24"));
        assert!(refused(&[1; 25], greedy()).starts_with("a source of 25 tokens"));
        assert!(refused(&[1, 13], greedy()).starts_with("token 13 is in the source"));
        assert!(refused(&[1], Strategy::Beams(0)).starts_with("no translation is asked for"));
    });
}
