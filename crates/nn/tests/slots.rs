//! Sequences that are decoded together: each gets what it gets alone.

use hearken_kernels::isa::{Isa, with_isa};
use hearken_kernels::threads::with_threads;
use hearken_nn::cache::CacheKind;
use hearken_nn::config::DecoderConfig;
use hearken_nn::models::{Decoder, Generates};
use hearken_nn::slot::{Feed, Slot};
use hearken_nn::variants;
use hearken_tensor::rng::Rng;

const KINDS: [CacheKind; 3] = [CacheKind::F32, CacheKind::F16, CacheKind::Int8];
/// Of eight prompts: some are a few tokens, some fill more than a page of the cache.
const LENGTHS: [usize; 8] = [1, 70, 3, 9, 33, 8, 64, 17];
/// How many tokens each is continued by, one at a time.
const STEPS: usize = 4;

/// Sets whose products promise a row the same bits whatever the number of rows.
fn vector_sets() -> impl Iterator<Item = Isa> {
    Isa::all_available().filter(|isa| *isa != Isa::Amx)
}

fn texts(vocabulary: usize) -> Vec<Vec<u32>> {
    let mut rng = Rng::new(3);
    let text = |length| (0..length + STEPS).map(|_| rng.below(vocabulary) as u32).collect();
    LENGTHS.map(text).into()
}

/// The logits after the prompt and after every further token of each of `texts`, decoded together.
fn decode(model: &Decoder, texts: &[&[u32]], kind: CacheKind) -> Vec<Vec<Vec<f32>>> {
    let mut slots: Vec<Slot> = texts.iter().map(|_| model.slot(kind)).collect();
    let mut logits = vec![Vec::new(); texts.len()];
    for step in 0..=STEPS {
        let new = |text: &[u32]| match step {
            0 => 0..text.len() - STEPS,
            _ => text.len() - STEPS + step - 1..text.len() - STEPS + step,
        };
        let feeds = slots.iter_mut().zip(texts);
        let mut feeds: Vec<Feed<'_>> =
            feeds.map(|(slot, text)| Feed { ids: &text[new(text)], slot }).collect();
        let rows = model.step(&mut feeds);
        for (logits, row) in logits.iter_mut().zip(rows.data().chunks(model.vocabulary())) {
            logits.push(row.to_vec());
        }
    }
    for (slot, text) in slots.iter().zip(texts) {
        assert_eq!(slot.len(), text.len());
    }
    logits
}

fn check(name: &str, config: DecoderConfig, kind: CacheKind) {
    let model = Decoder::drawn(DecoderConfig { context: 80, ..config }, 7);
    let texts = texts(model.vocabulary());
    let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let together = decode(&model, &texts, kind);
    for (text, together) in texts.iter().zip(together) {
        let alone = decode(&model, &[text], kind).remove(0);
        assert!(together == alone, "{name}, {kind:?}, a prompt of {}", text.len() - STEPS);
    }
}

#[test]
fn eight_prompts_together_give_the_bits_of_each_alone() {
    for isa in vector_sets() {
        with_isa(isa, || {
            for (i, (name, config)) in variants::all().into_iter().enumerate() {
                check(&format!("{isa:?}, {name}"), config, KINDS[i % 3]);
            }
        });
    }
}

#[test]
fn wide_layers_give_these_bits_too_on_any_number_of_threads() {
    // Products of several blocks in all three dimensions.
    let mut config = variants::base();
    config.vocabulary = 301;
    (config.stack.width, config.stack.heads) = (384, 6);
    for isa in vector_sets() {
        with_isa(isa, || {
            for (threads, kind) in [1, 2, 3].into_iter().zip(KINDS) {
                with_threads(threads, || check(&format!("{isa:?}"), config.clone(), kind));
            }
        });
    }
}

#[test]
fn a_copy_of_a_slot_goes_its_own_way() {
    for kind in KINDS {
        let model = Decoder::drawn(DecoderConfig { context: 80, ..variants::base() }, 7);
        let prompt: Vec<u32> = (0..66).map(|i| i % 13).collect();
        let step =
            |ids: &[u32], slot: &mut Slot| model.step(&mut [Feed { ids, slot }]).data().to_vec();
        let mut one = model.slot(kind);
        step(&prompt, &mut one);
        let mut two = one.clone();
        let (first, second) = (step(&[1], &mut one), step(&[2], &mut two));
        assert_ne!(first, second);
        let (first, second) = (step(&[3], &mut one), step(&[3], &mut two));
        for (token, want) in [(1, first), (2, second)] {
            let mut slot = model.slot(kind);
            step(&prompt, &mut slot);
            step(&[token], &mut slot);
            assert_eq!(step(&[3], &mut slot), want, "{kind:?}");
        }
        one.clear();
        assert!(one.is_empty() && one.bytes() == 0);
        let mut fresh = model.slot(kind);
        assert_eq!(step(&prompt, &mut one), step(&prompt, &mut fresh));
    }
}
