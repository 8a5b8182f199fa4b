// The cache: the prompt at once, then one token; what is read and what is written.
import { amount, ask, byteText, card, h, heading, labelOf, shortText, state } from './state.js';

export async function cacheView() {
  const answer = await ask('cache', { ids: state.ids });
  const most = Math.min(48, answer.tokens);
  const first = answer.tokens - most;
  const layers = Array.from({ length: Math.min(answer.layers, 24) }, (_, i) => i);
  const row = (layer) => h('div', { class: 'cache-row' }, h('b', {}, `block ${layer}`), Array.from({ length: most }, (_, i) => h('i', { class: first + i === answer.tokens - 1 ? 'written' : '', title: `${labelOf(first + i)} (${first + i}): keys and values, ${answer.bytes_per_token_and_layer} bytes${first + i === answer.tokens - 1 ? ', written now' : ', read again'}` })));
  const tiles = [
    [byteText(answer.bytes_per_token), 'per token'], [byteText(answer.read), 'read in this step'], [byteText(answer.written), 'written in this step'],
    [byteText(answer.full_context), `a full context of ${answer.context}`], [byteText(answer.allocated.after_step), 'allocated (pages of 64)'], [shortText(answer.difference, 2), 'largest |Δ logit|'],
  ];
  const { prompt, step, without_cache: without } = answer.milliseconds;
  return [
    heading('Cache', 'A causal model computes keys and values of a token once. A new token reads those of all tokens before it and writes its own.'),
    h('div', { class: 'tiles' }, tiles.map(([value, what]) => h('div', { class: 'tile' }, h('b', {}, value), h('span', {}, what)))),
    card('One decoding step', h('div', { class: 'cache-grid' }, layers.map(row), most <= 32 ? h('div', { class: 'cache-row labels' }, h('b', {}, 'token'), Array.from({ length: most }, (_, i) => h('span', {}, labelOf(first + i)))) : null),
      h('div', { class: 'legend' }, h('span', {}, h('i', { class: 'swatch', style: 'background:var(--blue);margin:0 5px 0 0' }), 'read: keys and values of earlier tokens'), h('span', {}, h('i', { class: 'swatch', style: 'background:var(--orange);margin:0 5px 0 0' }), `written: those of ${labelOf(answer.tokens - 1)}`)),
      answer.source ? h('p', { class: 'note', id: 'source-kept' }, `Beside these, keys and values of the ${answer.source.tokens} tokens of the source: ${byteText(answer.source.bytes)}, computed once and read by cross-attention in every step.`) : null,
      first > 0 ? h('p', { class: 'note' }, `the last ${most} of ${answer.tokens} tokens`) : null, answer.layers > layers.length ? h('p', { class: 'note' }, `the first ${layers.length} of ${answer.layers} blocks`) : null),
    h('div', { class: 'cards' },
      card('The sum', h('p', {}, 'Bytes per token:'), h('div', { class: 'sum', id: 'cache-sum' }, `${answer.layers} blocks · ${answer.kv_heads} key heads · (${answer.key_width} + ${answer.value_width}) numbers · 4 bytes = ${answer.bytes_per_token}`),
        answer.kv_heads < answer.heads ? h('p', { class: 'note' }, `With keys and values for all ${answer.heads} heads it would be ${answer.all_heads}: grouped heads save ${shortText(answer.all_heads / answer.bytes_per_token, 3)} times.`) : null),
      card('Measured now', h('ul', { class: 'list' }, [[`prompt of ${answer.tokens - 1} tokens, at once`, prompt], ['the last token, with the cache', step], [`all ${answer.tokens} tokens again, without`, without]].map(([what, ms]) => h('li', {}, what, h('b', { class: 'mono' }, ms === null ? '–' : `${shortText(ms, 3)} ms`)))),
        h('p', { class: 'note' }, `A step also reads all weights, ${byteText(answer.weights_read)}: that is why one token costs so much, and many at once so little more. Both ways give the same logits, to ${shortText(answer.difference, 2)}.`), h('p', { class: 'note' }, `${amount(answer.tokens)} tokens are in the cache.`))),
  ];
}
