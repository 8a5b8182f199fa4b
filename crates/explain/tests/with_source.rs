//! An encoder-decoder with a source is looked at as a decoder is: every variant of one.

use hearken_explain::arithmetic::line;
use hearken_explain::attribution::{contributions, lens};
use hearken_explain::difference::{Effort, check, check_value};
use hearken_explain::intervene::{Change, heads, logits_with};
use hearken_explain::neurons::{neurons_of_sources, values_of_source};
use hearken_explain::roles::roles;
use hearken_explain::update::Updates;
use hearken_explain::{Flow, Focus, Source, WithSource, stack_of};
use hearken_nn::cache::CacheKind;
use hearken_nn::config::{EncoderDecoderConfig, Placement};
use hearken_nn::models::{Decoder, EncoderDecoder, Generates, Model, PredictsTokens, Tokens};
use hearken_nn::slot::Feed;
use hearken_nn::taps::Pattern;
use hearken_nn::variants;

const SOURCE: [u32; 5] = [3, 1, 4, 1, 5];
const IDS: [u32; 7] = [0, 5, 2, 6, 1, 5, 2];

fn told(config: EncoderDecoderConfig) -> (WithSource, EncoderDecoder) {
    let model = EncoderDecoder::drawn(config, 5);
    (WithSource::new(Box::new(model.clone()), &SOURCE).unwrap(), model)
}

fn flow(model: &WithSource, target: Option<(usize, u32)>) -> Flow {
    Flow::of(model, &IDS, target, None).unwrap().about(model.source().ids())
}

#[test]
fn logits_are_those_of_the_model_with_this_source() {
    for (name, config) in variants::encoder_decoders() {
        let (model, inner) = told(config);
        let logits = |source: &[u32]| {
            inner.logits(&Tokens::new(&IDS, 1).about(&Tokens::new(source, 1))).data().to_vec()
        };
        let own = flow(&model, None).value("logits").unwrap().data().to_vec();
        // What is recorded is computed step by step.
        let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(own.len() == logits(&SOURCE).len() && same(&own, &logits(&SOURCE)), "{name}");
        let source: Source = model.source();
        source.set(&[7, 7]);
        assert_eq!(model.logits(&Tokens::new(&IDS, 1)).data(), logits(&[7, 7]), "{name}");
        // Token by token, with what is kept of the source.
        let mut slot = model.slot(CacheKind::F32);
        let last = model.step(&mut [Feed { ids: &IDS, slot: &mut slot }]);
        let whole = logits(&[7, 7]);
        let want = &whole[whole.len() - last.data().len()..];
        assert!(same(last.data(), want), "{name}");
    }
    let decoder = Box::new(Decoder::drawn(variants::base(), 3));
    assert!(WithSource::new(decoder, &SOURCE).is_err());
    let model = Box::new(EncoderDecoder::drawn(variants::encoder_decoder(), 3));
    assert!(WithSource::new(model, &[99_999]).is_err());
}

#[test]
fn every_line_of_arithmetic_comes_to_the_number_it_explains() {
    for (name, config) in variants::encoder_decoders() {
        let (model, _) = told(config);
        let flow = flow(&model, Some((6, 3)));
        let mut lines = 0;
        for stage in &flow.stages {
            assert!(stage.gradient.is_some(), "{name}: {} has no gradient", stage.name);
            for focus in [
                Focus { head: 0, token: 6, column: 0 },
                Focus { head: 1, token: 3, column: 2 },
                Focus { head: 99, token: 99, column: 99 },
            ] {
                let Some(line) = line(&model, &flow, stage, focus) else { continue };
                lines += 1;
                let (want, got) = (line.computed, f64::from(line.actual));
                let close = want == got || (want - got).abs() < 1e-4 * (1.0 + want.abs());
                assert!(close, "{name}, {}: {} but {want}", stage.name, line.text);
            }
        }
        let layers = stack_of(&model.config()).unwrap().layers;
        assert!(lines >= 3 * 20 * layers, "{name}: only {lines} lines");
    }
}

#[test]
fn contributions_add_up_to_the_logit_and_the_lens_ends_with_it() {
    let mut seen = 0;
    for (name, config) in variants::encoder_decoders() {
        if config.stack.norm.placement == Placement::Post {
            continue;
        }
        let (model, _) = told(config);
        let flow = flow(&model, None);
        let parts = contributions(&model, &flow, 6, 4).unwrap();
        assert!(parts.iter().any(|part| part.part.contains("cross_attention[")), "{name}");
        let sum: f64 = parts.iter().map(|part| part.logit).sum();
        let logits = flow.value("logits").unwrap();
        let row = &logits.data()[6 * logits.shape().width()..];
        let want = f64::from(row[4]);
        assert!((sum - want).abs() < 1e-4 * (1.0 + want.abs()), "{name}: {sum} but {want}");
        let glimpses = lens(&model, &flow, 6, 1).unwrap();
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        assert_eq!(glimpses.last().unwrap().likeliest[0].0 as usize, best, "{name}");
        assert_eq!(glimpses.len(), 1 + 3 * stack_of(&model.config()).unwrap().layers);
        seen += 1;
    }
    assert!(seen >= 3, "{seen} variants with pre-norm");
}

#[test]
fn roles_changes_checks_and_steps_reach_both_stacks() {
    let (model, _) = told(variants::t5());
    let flow = flow(&model, Some((6, 3)));
    let found = roles(&flow);
    let sites = |prefix: &str| found.iter().filter(|role| role.site.starts_with(prefix)).count();
    let stack = stack_of(&model.config()).unwrap().clone();
    assert_eq!(sites("decoder.blocks.0.attention"), stack.heads);
    assert_eq!(sites("encoder.blocks.0.attention"), stack.heads);
    assert_eq!(heads(&model, &flow, (6, 3)).unwrap().len(), stack.layers * stack.heads);
    let before = logits_with(&model, &IDS, &[]).unwrap();
    for name in ["encoder.blocks.0.attention.mixed[1]", "decoder.blocks.1.cross_attention.out"] {
        let change = Change::Ablate { names: Pattern::from(name), column: None };
        assert_ne!(logits_with(&model, &IDS, &[change]).unwrap().data(), before.data(), "{name}");
    }
    let weight = "encoder.blocks.0.feed_forward.up.weight";
    let found = check(&model, &IDS, (6, 3), weight, 5).unwrap();
    assert!(found.is_hidden() || found.error() < 1e-2, "{found:?}");
    let name = "decoder.blocks.0.cross_attention.mixed";
    let found = check_value(&model, &flow, (6, 3), name, 12, Effort::THOROUGH).unwrap();
    assert!(found.is_hidden() || found.error() < 1e-2, "{found:?}");
    let mut updates = Updates::new(&model, 1e-2, 1.0, 2, None).unwrap();
    let step = updates.step(&IDS, (6, 3)).unwrap();
    assert!(step.after < step.before, "{step:?}");
}

#[test]
fn texts_excite_neurons_of_the_encoder_as_sources() {
    let (model, _) = told(variants::t5());
    let (source, stage) = (model.source(), "encoder.blocks.1.feed_forward.active");
    let texts = vec![vec![1, 2, 3], vec![4, 5, 6, 7], vec![8]];
    let found = neurons_of_sources(&model, &source, &texts, stage, 3, &mut |_| {}).unwrap();
    assert_eq!((found.tokens, source.ids()), (8, SOURCE.to_vec()));
    for (i, neuron) in found.neurons.iter().enumerate() {
        for place in &neuron.places {
            let values = values_of_source(&model, &source, &texts[place.text], stage).unwrap();
            let width = values.shape().width();
            assert_eq!(values.data()[place.place * width + i], place.value);
        }
    }
    assert_eq!(source.ids(), SOURCE);
}
