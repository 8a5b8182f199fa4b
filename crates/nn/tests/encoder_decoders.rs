//! Encoder-decoders, whole: gradients, checkpointing, padding, the cache, taps.

use hearken_base::settings::Settings;
use hearken_kernels::threads::with_threads;
use hearken_nn::cache::CacheKind;
use hearken_nn::config::{
    Cross, DropoutConfig, EncoderDecoderConfig, FeedForwardKind, ModelConfig,
};
use hearken_nn::gradcheck::gradient_error;
use hearken_nn::models::{
    self, EncoderDecoder, Generates, Model, PredictsTokens, Tokens, Translates,
};
use hearken_nn::pass::{Layout, Noise, Pass};
use hearken_nn::slot::{Feed, Slot};
use hearken_nn::taps::Taps;
use hearken_nn::variants;
use hearken_tensor::ops::cross_entropy::{IGNORED, Options};
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var};
use std::sync::Arc;

const BATCH: usize = 3;
const SOURCE: usize = 9;
const TARGET: usize = 7;
const SOURCES: [usize; BATCH] = [SOURCE, 4, 1];
const TARGETS: [usize; BATCH] = [5, TARGET, 2];

fn ids(seed: u64, count: usize) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| rng.below(13) as u32).collect()
}

/// Three pairs of different lengths, padded.
struct Pairs {
    sources: Vec<u32>,
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl Pairs {
    fn new() -> Self {
        let mut targets = ids(3, BATCH * TARGET);
        for (row, length) in TARGETS.into_iter().enumerate() {
            targets[row * TARGET + length..(row + 1) * TARGET].fill(IGNORED);
        }
        Self { sources: ids(1, BATCH * SOURCE), inputs: ids(2, BATCH * TARGET), targets }
    }

    fn source(&self) -> Tokens<'_> {
        Tokens::new(&self.sources, BATCH).laid_out(Layout::padded(&SOURCES))
    }

    fn loss(&self, model: &EncoderDecoder, pass: &Pass, options: Options) -> Var {
        let source = self.source();
        let tokens = Tokens::new(&self.inputs, BATCH).about(&source);
        model.loss(&tokens, &self.targets, pass, options).mean()
    }

    fn logits(&self, model: &EncoderDecoder) -> Tensor {
        let source = self.source();
        model.logits(&Tokens::new(&self.inputs, BATCH).about(&source))
    }

    /// The source and the inputs of one pair without padding.
    fn pair(&self, row: usize) -> (&[u32], &[u32]) {
        let source = &self.sources[row * SOURCE..][..SOURCES[row]];
        (source, &self.inputs[row * TARGET..][..TARGETS[row]])
    }
}

/// The largest difference, relative to the largest number.
fn off(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let size = want.iter().fold(0.0_f32, |m, w| m.max(w.abs()));
    got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max) / size
}

#[test]
fn gradients_match_differences_of_the_loss() {
    let pairs = Pairs::new();
    let options = Options { label_smoothing: 0.1, ..Options::default() };
    for (name, config) in variants::encoder_decoders() {
        // As of decoders: ReLU has kinks, which a start may lie beside.
        let (step, bound, starts) = if variants::chooses(&config.stack) {
            (1e-4, 1e-2, 1..65) // choices jump, as of decoders
        } else if config.stack.feed_forward.kind == FeedForwardKind::Relu {
            (3e-4, 1e-2, 1..9)
        } else {
            // Two stacks are sharper than one: a shorter step than of decoders, and as good a bound.
            (5e-4, 2e-3, 7..8)
        };
        let error = |seed| {
            let model = EncoderDecoder::drawn(config.clone(), seed);
            let loss = || pairs.loss(&model, &Pass::evaluate(), options);
            gradient_error(model.parameters(), loss, step)
        };
        let mut errors = Vec::new();
        let found = starts.into_iter().any(|seed| {
            errors.push(error(seed));
            errors.last().is_some_and(|error| *error < bound)
        });
        assert!(found, "{name}: off by {errors:?}");
    }
}

#[test]
fn checkpointing_and_threads_give_the_same_bits() {
    let pairs = Pairs::new();
    for (name, mut config) in variants::encoder_decoders() {
        config.stack.dropout = DropoutConfig::everywhere(0.2);
        let run = |checkpointing, threads| {
            let mut model = EncoderDecoder::drawn(config.clone(), 7);
            model.set_checkpointing(checkpointing);
            with_threads(threads, || {
                let pass = Pass::train(Noise { seed: 1, step: 2 });
                let loss = pairs.loss(&model, &pass, Options::default());
                loss.backward();
                let gradients =
                    model.parameters().iter().map(|p| p.gradient().unwrap().data().to_vec());
                (loss.value().item(), gradients.collect::<Vec<_>>())
            })
        };
        let plain = run(false, 1);
        assert!(run(true, 1) == plain, "{name}: checkpointing");
        assert!(run(false, 3) == plain, "{name}: threads");
    }
}

#[test]
fn a_batch_of_different_lengths_gives_what_each_pair_gives_alone() {
    let pairs = Pairs::new();
    for (name, config) in variants::encoder_decoders() {
        let model = EncoderDecoder::drawn(config, 7);
        let together = pairs.logits(&model); // (B, T, V)
        for row in 0..BATCH {
            let (source, inputs) = pairs.pair(row);
            let alone = model.logits(&Tokens::new(inputs, 1).about(&Tokens::new(source, 1)));
            let among = &together.data()[row * TARGET * 13..][..inputs.len() * 13];
            let off = off(among, alone.data());
            assert!(off <= 1e-5, "{name}, row {row}: off by {off}");
        }
    }
}

/// Greedy tokens and logits of all pairs with the cache, begun together.
fn greedy_cached(model: &EncoderDecoder, pairs: &Pairs, steps: usize) -> Vec<(Vec<u32>, Tensor)> {
    let mut slots = model.begin(&pairs.source(), CacheKind::F32);
    let mut texts: Vec<(Vec<u32>, Tensor)> =
        slots.iter().map(|_| (vec![2], Tensor::zeros([13]))).collect();
    for _ in 0..steps {
        let mut feeds: Vec<Feed<'_>> = slots
            .iter_mut()
            .zip(&texts)
            .map(|(slot, (text, _))| Feed { ids: &text[slot.len()..], slot })
            .collect();
        let logits = model.step(&mut feeds);
        for ((text, last), row) in texts.iter_mut().zip(logits.data().chunks(13)) {
            text.push(best(row));
            *last = Tensor::new([13], row);
        }
    }
    texts
}

fn best(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32
}

#[test]
fn cached_greedy_texts_are_the_uncached_ones() {
    let (pairs, steps) = (Pairs::new(), 12);
    for (name, config) in variants::encoder_decoders() {
        let model = EncoderDecoder::drawn(config, 7);
        for (row, (text, last)) in greedy_cached(&model, &pairs, steps).into_iter().enumerate() {
            let (source, _) = pairs.pair(row);
            let source = Tokens::new(source, 1);
            let mut want = vec![2];
            let mut logits = Vec::new();
            for _ in 0..steps {
                let all = model.logits(&Tokens::new(&want, 1).about(&source));
                logits = all.data()[(want.len() - 1) * 13..].to_vec();
                want.push(best(&logits));
            }
            assert_eq!(text, want, "{name}, row {row}");
            let off = off(last.data(), &logits);
            assert!(off <= 1e-5, "{name}, row {row}: logits off by {off}");
        }
    }
}

#[test]
fn narrow_caches_are_close_and_a_cleared_slot_keeps_its_source() {
    let pairs = Pairs::new();
    let model = EncoderDecoder::drawn(variants::t5(), 7);
    let source = pairs.source();
    let first = |slots: &mut [Slot]| {
        let mut feeds: Vec<Feed<'_>> =
            slots.iter_mut().map(|slot| Feed { ids: &[2, 5, 1], slot }).collect();
        model.step(&mut feeds).data().to_vec()
    };
    let mut slots = model.begin(&source, CacheKind::F32);
    let wide = slots.iter().map(Slot::bytes).collect::<Vec<_>>();
    let want = first(&mut slots);
    for (kind, bound) in [(CacheKind::F16, 1e-2), (CacheKind::Int8, 1e-1)] {
        let mut slots = model.begin(&source, kind);
        assert!(slots.iter().zip(&wide).all(|(slot, wide)| slot.bytes() < *wide));
        let off = off(&first(&mut slots), &want);
        assert!(off > 0.0 && off <= bound, "{kind:?}: off by {off}");
    }
    slots.iter_mut().for_each(Slot::clear);
    assert!(slots.iter().zip(&wide).all(|(slot, wide)| slot.bytes() == *wide && slot.is_empty()));
    assert_eq!(first(&mut slots), want);
}

#[test]
fn cross_attention_layer_by_layer_is_not_that_to_the_last_layer() {
    let pairs = Pairs::new();
    let of = |cross| {
        let config = EncoderDecoderConfig { cross, ..variants::t5() };
        pairs.logits(&EncoderDecoder::drawn(config, 7))
    };
    assert!(off(of(Cross::Layers).data(), of(Cross::Last).data()) > 1e-2);
}

#[test]
fn taps_see_both_stacks_and_change_nothing() {
    let pairs = Pairs::new();
    for (name, config) in variants::encoder_decoders().into_iter().take(10) {
        let layers = config.stack.layers;
        let model = EncoderDecoder::drawn(config, 7);
        let taps = Arc::new(Taps::new().record("*"));
        let source = pairs.source();
        let tokens = Tokens::new(&pairs.inputs, BATCH).about(&source);
        let outputs = models::outputs(&model, &tokens, &Pass::evaluate().watched(&taps));
        let names: Vec<&str> = outputs.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["encoder_hidden", "hidden", "logits"]);
        let difference = off(outputs[2].1.value().data(), pairs.logits(&model).data());
        assert!(difference <= 1e-5, "{name}: off by {difference}");
        let shape = |tap: &str| taps.get(tap).unwrap_or_else(|| panic!("{name}: no {tap}")).shape();
        let last = layers - 1;
        assert_eq!(shape("encoder.embedding").dims(), [BATCH, SOURCE, 16]);
        assert_eq!(shape("decoder.embedding").dims(), [BATCH, TARGET, 16]);
        let [_, heads, queries, keys] =
            taps.get(&format!("decoder.blocks.{last}.cross_attention.weights")).unwrap().dims();
        assert_eq!([heads, queries, keys], [4, TARGET, SOURCE], "{name}");
        let weights = taps.get("decoder.blocks.0.cross_attention.weights").unwrap();
        // The second source has 4 tokens: nobody attends to its padding, and weights sum to 1.
        let row = &weights.data()[4 * TARGET * SOURCE..][..SOURCE];
        assert!(row[SOURCES[1]..].iter().all(|w| *w == 0.0), "{name}: {row:?}");
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    }
}

#[test]
fn configurations_are_read_written_and_checked() {
    let read =
        |text: &str| -> hearken_base::Result<ModelConfig> { Settings::parse(text, "m")?.read() };
    let short = "kind = \"encoder-decoder\"\ncontext = 8\nlayers = 2\nwidth = 8\nheads = 2\n";
    let ModelConfig::EncoderDecoder(config) = read(short).unwrap() else { panic!("another kind") };
    assert!(config.shared && config.tied && config.encoder_stack() == config.stack);
    for (name, config) in variants::encoder_decoders() {
        let config = ModelConfig::EncoderDecoder(config);
        let json = serde_json::json!({ "model": serde_json::to_value(&config).unwrap() });
        let same = Settings::from_json(&json, "m").unwrap().read_only("model").unwrap();
        assert_eq!(same, Some(config), "{name}");
    }
    for (line, message) in [
        ("cross = \"layers\"\nencoder = { layers = 3 }", "the encoder has 3 layers, the decoder 2"),
        ("encoder = { heads = 3 }", "model.encoder.heads is 3, which does not divide"),
        ("encoder = { layers = 0 }", "model.encoder.layers is 0"),
        ("vocabulary = 1000000000000", "model.vocabulary is 1000000000000"),
        (
            "position = { kind = \"learned\", combine = { kind = \"concatenate\", width = 2 } }",
            "model.tied is true",
        ),
    ] {
        let error = read(&format!("{short}{line}")).unwrap().validate().unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("\nhint: "), "{error}");
    }
}
