//! Keys and values that are kept: the prompt at once, then one token.

use crate::Session;
use crate::ask::Ask;
use hearken_base::{Error, Result};
use hearken_explain::stack_of;
use hearken_nn::cache::CacheKind;
use hearken_nn::slot::Feed;
use hearken_tensor::no_grad;
use serde_json::{Value, json};
use std::time::Instant;

/// Reads all tokens but the last into a cache, then the last one with it, and compares with a pass
/// over all.
pub(crate) fn cache(session: &mut Session<'_>, ask: Ask<'_>) -> Result<Value> {
    let ids = session.ids(ask)?;
    let Some(model) = session.model().generates() else {
        let message = "a model that does not write token by token keeps no cache";
        return Err(Error::new(message, "look at a decoder"));
    };
    let (Some((last, before)), config) = (ids.split_last(), model.config()) else {
        return Err(Error::new("an empty prompt", "give at least one token"));
    };
    let stack = stack_of(&config)?;
    let mut slot = model.slot(CacheKind::F32);
    let timed = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64() * 1e3
    };
    let prefill = (!before.is_empty()).then(|| {
        timed(&mut || drop(no_grad(|| model.step(&mut [Feed { ids: before, slot: &mut slot }]))))
    });
    let prefill_bytes = slot.bytes();
    let mut cached = None;
    let last = [*last];
    let step = timed(&mut || {
        cached = Some(no_grad(|| model.step(&mut [Feed { ids: &last, slot: &mut slot }])));
    });
    let mut scratch = None;
    let again = timed(&mut || scratch = Some(model.next_logits(&ids, 1)));
    let difference = cached.zip(scratch).map_or(0.0, |(a, b)| {
        let pairs = a.data().iter().zip(b.data());
        pairs.map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
    });
    let (groups, key, value) = (stack.kv_heads(), stack.head_width(), stack.value_width());
    let weights: usize = model.parameters().iter().map(|p| p.shape().len()).sum();
    let (tokens, source) = (ids.len(), session.source().len());
    // Keys and values of one token in one layer, f32.
    let each = 4 * groups * (key + value);
    Ok(json!({
        "layers": stack.layers, "kv_heads": groups, "heads": stack.heads,
        "key_width": key, "value_width": value, "tokens": tokens,
        "bytes_per_token": each * stack.layers, "bytes_per_token_and_layer": each,
        "written": each * stack.layers, "read": each * stack.layers * tokens,
        "weights_read": 4 * weights, "full_context": each * stack.layers * config.context(),
        "context": config.context(),
        "allocated": { "after_prompt": prefill_bytes, "after_step": slot.bytes() },
        "milliseconds": { "prompt": prefill, "step": step, "without_cache": again },
        "difference": difference,
        // Keys and values of a source are computed once, and read in every step.
        "source": (source > 0).then(|| json!({ "tokens": source,
            "bytes": 4 * stack.heads * (key + value) * stack.layers * source })),
        "all_heads": 4 * stack.heads * (key + value) * stack.layers,
    }))
}
