//! Generation with a cache writes what generation without one writes.

use hearken_infer::beam::{BeamSearch, Beams, Branch};
use hearken_infer::contrastive::{Contrastive, contrastive_search};
use hearken_infer::generate::{Finish, Flow, Request, beam_search, generate};
use hearken_infer::sampler::Sampling;
use hearken_infer::speculative::{Acceptance, Draft, generate_with_draft};
use hearken_nn::cache::CacheKind;
use hearken_nn::config::{DecoderConfig, ModelConfig};
use hearken_nn::layers::Head;
use hearken_nn::models::{
    Decoder, EncoderDecoder, Generates, Model, PredictsTokens, Tokens, Translates, build,
};
use hearken_nn::pass::{Layout, Pass};
use hearken_nn::scope::Weights;
use hearken_nn::slot::{Feed, Slot};
use hearken_nn::variants;
use hearken_tensor::{Param, Tensor, Var, no_grad};
use std::sync::atomic::{AtomicUsize, Ordering};

fn request(cache: Option<CacheKind>, most_tokens: usize) -> Request {
    Request { sampling: Sampling::greedy(), cache, ..Request::new(vec![1, 2, 3], most_tokens) }
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
            let search = BeamSearch { length_penalty: 0.0, ..BeamSearch::new(beams, 12) };
            beam_search(&model, &[1, 2, 3], &search, CacheKind::F32).unwrap().remove(0)
        };
        let greedy = generate(&model, &request(None, 12), |_| Flow::Continue).unwrap().0;
        let one = search(1);
        assert_eq!(one.tokens, greedy, "{name}");
        // A wider beam is no promise, but for these little models it does find better texts.
        assert!(search(6).log_probability >= one.log_probability - 1e-4, "{name}");
    }
}

/// A model with the vocabulary of a small one.
fn of(name: &str, seed: u64) -> Decoder {
    let (_, config) = variants::all().into_iter().find(|(known, _)| known == name).unwrap();
    Decoder::drawn(config, seed)
}

#[test]
fn a_draft_changes_nothing_of_a_greedy_text() {
    let draft = of("rope, full", 6);
    let prompts = (0..20).map(|i| (0..=i % 7).map(|j| (i * 5 + j * 3) % 13).collect::<Vec<u32>>());
    let prompts: Vec<Vec<u32>> = prompts.collect();
    let mut kept = 0;
    let prefix = variants::all().into_iter().find(|(_, config)| config.stack.prefix).unwrap().0;
    let names = ["learned, full", "rope, window", "llama", "linear", "performer", "reversible"];
    for (i, name) in names.into_iter().chain([prefix.as_str()]).enumerate() {
        let model = of(name, 5); // context 24, which is exceeded
        for (number, prompt) in prompts.iter().enumerate().skip(if i == 0 { 0 } else { 15 }) {
            let mut request = request(Some(CacheKind::F32), 40);
            request.prompt.clone_from(prompt);
            let (want, _) = generate(&model, &request, |_| Flow::Continue).unwrap();
            // Sometimes the model drafts for itself, and everything is kept.
            let author = if number % 4 == 3 { &model } else { &draft };
            let draft = Draft { model: author, tokens: 1 + number % 7 };
            let mut shown = Vec::new();
            let (got, finish, found) = generate_with_draft(&model, &draft, &request, |step| {
                shown.push(step.id);
                Flow::Continue
            })
            .unwrap();
            assert_eq!(got, want, "{name}, prompt {number}");
            assert_eq!((finish, &shown), (Finish::Length, &got));
            assert!(found.kept <= found.drafted && found.steps <= 40, "{found:?}");
            if number % 4 == 3 {
                assert_eq!(found.rate(), Some(1.0), "{name}: {found:?}");
            }
            kept += found.kept;
        }
    }
    assert!(kept > 0);
}

/// A model that counts the tokens that it reads.
#[derive(Debug)]
struct Counting<'a> {
    model: &'a dyn Generates,
    read: AtomicUsize,
}

impl<'a> Counting<'a> {
    fn new(model: &'a dyn Generates) -> Self {
        Self { model, read: AtomicUsize::new(0) }
    }

    /// How many tokens it has read since it was asked last.
    fn taken(&self) -> usize {
        self.read.swap(0, Ordering::SeqCst)
    }
}

impl Model for Counting<'_> {
    fn config(&self) -> ModelConfig {
        self.model.config()
    }

    fn parameters(&self) -> &[Param] {
        self.model.parameters()
    }

    fn set_checkpointing(&mut self, _: bool) {}
}

impl PredictsTokens for Counting<'_> {
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        self.model.hidden(tokens, pass)
    }

    fn head(&self) -> Head {
        self.model.head()
    }
}

impl Generates for Counting<'_> {
    fn vocabulary(&self) -> usize {
        self.model.vocabulary()
    }

    fn context(&self) -> usize {
        self.model.context()
    }

    fn slot(&self, kind: CacheKind) -> Slot {
        self.model.slot(kind)
    }

    fn step_hidden(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        let new = feeds.iter().map(|feed| feed.ids.len()).sum();
        self.read.fetch_add(new, Ordering::SeqCst);
        self.model.step_hidden(feeds)
    }
}

#[test]
fn a_poor_draft_costs_recurrent_models_no_second_reading_of_the_text() {
    for (name, config) in variants::without_attention() {
        let model = build(&config, Weights::Drawn { seed: 5 });
        let other = build(&config, Weights::Drawn { seed: 6 });
        let [model, other] =
            [&model, &other].map(|model| Counting::new(model.generates().unwrap()));
        let prompt: Vec<u32> = (0..200).map(|i| i * 7 % 13).collect();
        let request = Request { prompt, ..request(Some(CacheKind::F32), 30) };
        let (want, _) = generate(&model, &request, |_| Flow::Continue).unwrap();
        let alone = model.taken();
        let draft = Draft { model: &other, tokens: 7 };
        let (got, _, found) =
            generate_with_draft(&model, &draft, &request, |_| Flow::Continue).unwrap();
        assert_eq!(got, want, "{name}");
        assert!(found.kept < found.drafted, "{name}: {found:?}");
        // The prompt once, and in every step at most what was drafted and what was decided before.
        let most = alone + 2 * 8 * found.steps;
        assert!(model.taken() <= most && other.taken() <= most, "{name}: {found:?}");
    }
}

#[test]
fn drafted_texts_are_drawn_as_the_model_would() {
    const V: usize = 16;
    let model = |seed| Decoder::drawn(DecoderConfig { vocabulary: V, ..variants::base() }, seed);
    let (model, other) = (model(5), model(6));
    let chances = |ids: &[u32]| {
        let logits = model.next_logits(ids, 1);
        let all: Vec<f64> = logits.data().iter().map(|x| f64::from(*x).exp()).collect();
        let total: f64 = all.iter().sum();
        all.into_iter().map(|x| x / total).collect::<Vec<f64>>()
    };
    // The second token, whatever the first.
    let mut want = [0.0; V];
    for (first, p) in chances(&[1, 2, 3]).into_iter().enumerate() {
        for (want, q) in want.iter_mut().zip(chances(&[1, 2, 3, first as u32])) {
            *want += p * q;
        }
    }
    let (texts, mut counts) = (4000, [0.0; V]);
    let draft = Draft { model: &other, tokens: 3 };
    let mut found = Acceptance::default();
    for seed in 0..texts {
        let mut request = request(Some(CacheKind::F32), 4);
        request.sampling = Sampling { seed, ..Sampling::default() };
        let (ids, _, each) =
            generate_with_draft(&model, &draft, &request, |_| Flow::Continue).unwrap();
        counts[ids[1] as usize] += 1.0;
        (found.drafted, found.kept) = (found.drafted + each.drafted, found.kept + each.kept);
    }
    // Some are kept and some are not, or this would show nothing.
    assert!((0.1..0.9).contains(&found.rate().unwrap()), "{found:?}");
    let square = |(count, p): (&f64, &f64)| (count - p * texts as f64).powi(2) / (p * texts as f64);
    let chi: f64 = counts.iter().zip(&want).map(square).sum();
    assert!(want.iter().all(|p| p * texts as f64 > 5.0), "{want:?}");
    // χ² of 15 degrees of freedom exceeds 37.7 once in a thousand.
    assert!(chi < 37.7, "{chi}: {counts:?} of {want:?}");
}

#[test]
fn drafts_that_cannot_be_are_errors() {
    let model = of("llama", 5);
    let other = Decoder::drawn(DecoderConfig { vocabulary: 14, ..variants::base() }, 1);
    let error = |model: &Decoder, draft: &Decoder, tokens, cache| {
        let draft = Draft { model: draft, tokens };
        generate_with_draft(model, &draft, &request(cache, 4), |_| Flow::Continue)
            .unwrap_err()
            .to_string()
    };
    let cache = Some(CacheKind::F32);
    for (error, message) in [
        (error(&model, &other, 4, cache), "the draft model knows 14 tokens, and the model 13"),
        (error(&model, &model, 8, cache), "8 drafted tokens, expected 1 to 7"),
        (error(&model, &model, 0, cache), "0 drafted tokens"),
        (error(&model, &model, 4, None), "in a cache, and there is none"),
        (error(&of("lsh", 5), &model, 4, cache), "cannot check a draft"),
    ] {
        assert!(error.contains(message) && error.contains("hint: "), "{error}");
    }
}

#[test]
fn contrastive_search_that_cannot_be_is_an_error() {
    let error = |name, cache| {
        let search = Contrastive { penalty: 0.6, candidates: 4 };
        let found =
            contrastive_search(&of(name, 5), &search, &request(cache, 4), |_| Flow::Continue);
        found.unwrap_err().to_string()
    };
    for (error, message) in [
        (error("lsh", Some(CacheKind::F32)), "a later token changes that"),
        (error("llama", None), "after a cache, and there is none"),
    ] {
        assert!(error.contains(message) && error.contains("hint: "), "{error}");
    }
}

/// The rule, computed from scratch for every token.
fn contrastive_by_hand(
    model: &Decoder,
    prompt: &[u32],
    search: Contrastive,
    most: usize,
) -> Vec<u32> {
    let mut ids = prompt.to_vec();
    for _ in 0..most {
        let logits = model.next_logits(&ids, 1);
        let total: f64 = logits.data().iter().map(|x| f64::from(*x).exp()).sum();
        let mut candidates: Vec<(u32, f64)> =
            (0..).zip(logits.data()).map(|(id, x)| (id, f64::from(*x).exp() / total)).collect();
        candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
        let scored = candidates.into_iter().take(search.candidates).map(|(id, p)| {
            let with: Vec<u32> = ids.iter().copied().chain([id]).collect();
            let hidden = no_grad(|| model.hidden(&Tokens::new(&with, 1), &Pass::evaluate()));
            let rows: Vec<Vec<f64>> = hidden
                .value()
                .data()
                .chunks(16)
                .map(|row| row.iter().map(|x| f64::from(*x)).collect())
                .collect();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let cosine = |a: &[f64], b: &[f64]| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
            let (own, earlier) = rows.split_last().unwrap();
            let like = earlier.iter().map(|other| cosine(own, other)).fold(f64::MIN, f64::max);
            let alpha = f64::from(search.penalty);
            (id, (1.0 - alpha) * p - alpha * like)
        });
        ids.push(scored.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0);
    }
    ids[prompt.len()..].to_vec()
}

#[test]
fn contrastive_search_follows_its_rule() {
    let prefix = variants::all().into_iter().find(|(_, config)| config.stack.prefix).unwrap().0;
    for name in ["learned, full", "linear", "reversible", &prefix] {
        let model = of(name, 5);
        let run = |penalty, tokens| {
            let search = Contrastive { penalty, candidates: 4 };
            let request = request(Some(CacheKind::F32), tokens);
            contrastive_search(&model, &search, &request, |_| Flow::Continue).unwrap()
        };
        let (greedy, _) =
            generate(&model, &request(Some(CacheKind::F32), 12), |_| Flow::Continue).unwrap();
        assert_eq!(run(0.0, 12), (greedy.clone(), Finish::Length), "{name}");
        assert_eq!(run(0.6, 50).0.len(), 50, "{name}: beyond the context of 24");
        if name == prefix {
            continue; // by hand everything is read in one direction
        }
        let search = Contrastive { penalty: 0.6, candidates: 4 };
        let by_hand = contrastive_by_hand(&model, &[1, 2, 3], search, 12);
        assert_eq!(run(0.6, 12).0, by_hand, "{name}");
        assert_ne!(by_hand, greedy, "{name}");
        assert_eq!(run(0.6, 0), (vec![], Finish::Length));
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
                let search = BeamSearch { length_penalty: 0.0, ..BeamSearch::new(beams, 12) };
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
