//! Generation with a cache writes what generation without one writes.

use hearken_infer::beam::BeamSearch;
use hearken_infer::generate::{Finish, Flow, Request, beam_search, generate};
use hearken_infer::sampler::Sampling;
use hearken_nn::cache::CacheKind;
use hearken_nn::models::{Decoder, build};
use hearken_nn::scope::Weights;
use hearken_nn::variants;

fn request(cache: Option<CacheKind>, most_tokens: usize) -> Request {
    Request {
        prompt: vec![1, 2, 3],
        sampling: Sampling::greedy(),
        most_tokens,
        ends: vec![],
        cache,
    }
}

#[test]
fn two_hundred_tokens_are_the_same_for_every_position_and_pattern() {
    for (name, mut config) in variants::all() {
        config.context = 224;
        config.stack.layers = 1; // the uncached way is slow, and layers are alike
        let model = Decoder::drawn(config, 5);
        let run = |cache| generate(&model, &request(cache, 200), |_| Flow::Continue).unwrap().0;
        let plain = run(None);
        assert_eq!(plain.len(), 200, "{name}");
        assert_eq!(run(Some(CacheKind::F32)), plain, "{name}");
    }
}

#[test]
fn models_without_attention_write_the_same_from_a_state_and_beyond_their_windows() {
    for (name, config) in variants::without_attention() {
        let model = build(&config, Weights::Drawn { seed: 5 }); // windows of 24 tokens
        let model = model.generates().unwrap();
        let run = |cache| generate(model, &request(cache, 60), |_| Flow::Continue).unwrap().0;
        let plain = run(None);
        assert_eq!(plain.len(), 60, "{name}");
        assert_eq!(run(Some(CacheKind::F32)), plain, "{name}");
    }
}

#[test]
fn a_full_context_forgets_its_older_half_with_and_without_a_cache() {
    let model = Decoder::drawn(variants::base(), 5); // context 24
    let run = |cache| generate(&model, &request(cache, 60), |_| Flow::Continue).unwrap().0;
    assert_eq!(run(Some(CacheKind::F32)), run(None));
}

#[test]
fn writing_stops_where_it_should() {
    let model = Decoder::drawn(variants::base(), 5);
    let all = generate(&model, &request(Some(CacheKind::F32), 9), |_| Flow::Continue).unwrap();
    assert_eq!(all.1, Finish::Length);
    let mut ended = request(Some(CacheKind::F32), 9);
    ended.ends = vec![all.0[2]];
    let first = all.0.iter().position(|id| *id == all.0[2]).unwrap();
    let (tokens, finish) = generate(&model, &ended, |_| Flow::Continue).unwrap();
    assert_eq!((tokens.len(), finish), (first + 1, Finish::End));
    let (tokens, finish) = generate(&model, &request(None, 9), |_| Flow::Stop).unwrap();
    assert_eq!((tokens.len(), finish), (1, Finish::Stopped));
}

#[test]
fn bad_prompts_are_errors() {
    let model = Decoder::drawn(variants::base(), 5);
    let with =
        |prompt| generate(&model, &Request { prompt, ..request(None, 1) }, |_| Flow::Continue);
    assert_eq!(with(vec![]).unwrap_err().message(), "the prompt is empty");
    let unknown = with(vec![13]).unwrap_err();
    assert!(unknown.message().starts_with("the prompt has token 13, but"), "{unknown}");
}

#[test]
fn one_beam_is_greedy_and_more_are_no_worse() {
    for (name, config) in variants::all().into_iter().step_by(7) {
        let model = Decoder::drawn(config, 5);
        let search = |beams| {
            let search = BeamSearch { beams, length_penalty: 0.0, most_tokens: 12, ends: vec![] };
            beam_search(&model, &[1, 2, 3], &search, CacheKind::F32).unwrap().remove(0)
        };
        let greedy = generate(&model, &request(None, 12), |_| Flow::Continue).unwrap().0;
        let one = search(1);
        assert_eq!(one.tokens, greedy, "{name}");
        // A wider beam is no promise, but for these little models it does find better texts.
        assert!(search(6).log_probability >= one.log_probability - 1e-4, "{name}");
    }
}
