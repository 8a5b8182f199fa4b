//! Generation with a cache writes what generation without one writes.

use hearken_infer::beam::{BeamSearch, Beams, Branch};
use hearken_infer::generate::{Finish, Flow, Request, beam_search, generate};
use hearken_infer::sampler::Sampling;
use hearken_nn::cache::CacheKind;
use hearken_nn::models::{Decoder, EncoderDecoder, Generates, PredictsTokens, Tokens, Translates};
use hearken_nn::pass::Layout;
use hearken_nn::slot::{Feed, Slot};
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

/// Sources of different lengths, read together.
fn begun(model: &EncoderDecoder) -> (Vec<Vec<u32>>, Vec<Slot>) {
    let sources: Vec<Vec<u32>> =
        [9, 2, 5, 1].iter().map(|n| (0..*n).map(|i| (i * 5 + n) % 13).collect()).collect();
    let padded: Vec<u32> = sources
        .iter()
        .flat_map(|source| source.iter().copied().chain(std::iter::repeat(0)).take(9))
        .collect();
    let lengths: Vec<usize> = sources.iter().map(Vec::len).collect();
    let tokens = Tokens::new(&padded, sources.len()).laid_out(Layout::padded(&lengths));
    let slots = model.begin(&tokens, CacheKind::F32);
    (sources, slots)
}

/// Greedy, from the logits of the whole target so far at every step.
fn greedy_from_scratch(model: &EncoderDecoder, source: &[u32], steps: usize) -> Vec<u32> {
    let source = Tokens::new(source, 1);
    let mut text = vec![2];
    for _ in 0..steps {
        let logits = model.logits(&Tokens::new(&text, 1).about(&source));
        let last = &logits.data()[(text.len() - 1) * 13..];
        let best = (0..13).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
        text.push(best as u32);
    }
    text.split_off(1)
}

/// Beam search over copies of a slot.
struct Copies<'a> {
    model: &'a EncoderDecoder,
    slots: Vec<Slot>,
}

impl Copies<'_> {
    fn fed(&mut self, tokens: &[u32]) -> Vec<f32> {
        let feeds = self.slots.iter_mut().zip(tokens.chunks(1));
        let mut feeds: Vec<Feed<'_>> = feeds.map(|(slot, ids)| Feed { ids, slot }).collect();
        self.model.step(&mut feeds).data().to_vec()
    }
}

impl Beams for Copies<'_> {
    fn start(&mut self) -> Vec<f32> {
        self.fed(&[2])
    }

    fn step(&mut self, branches: &[Branch]) -> Vec<f32> {
        self.slots = branches.iter().map(|branch| self.slots[branch.parent].clone()).collect();
        self.fed(&branches.iter().map(|branch| branch.token).collect::<Vec<u32>>())
    }
}

#[test]
fn one_beam_from_a_source_is_greedy_and_more_are_no_worse() {
    let mut sums = [0.0; 3];
    for (name, config) in variants::encoder_decoders().into_iter().step_by(4) {
        let model = EncoderDecoder::drawn(config, 5);
        let (sources, slots) = begun(&model);
        for (source, slot) in sources.iter().zip(slots) {
            for (sum, beams) in sums.iter_mut().zip([1, 4, 8]) {
                let search =
                    BeamSearch { beams, length_penalty: 0.0, most_tokens: 12, ends: vec![] };
                let mut copies = Copies { model: &model, slots: vec![slot.clone()] };
                let best = search.run(&mut copies).remove(0);
                *sum += best.log_probability;
                if beams == 1 {
                    let greedy = greedy_from_scratch(&model, source, 12);
                    assert_eq!(best.tokens, greedy, "{name}, {source:?}");
                }
            }
        }
    }
    assert!(sums[0] <= sums[1] && sums[1] <= sums[2], "{sums:?}");
}
