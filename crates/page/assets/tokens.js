// The token strip above every view, and the view of what tokens are made of.
import { ask, focusToken, h, heading, card, known, look, state, tokenText } from './state.js';

/** The most tokens that the strip shows at once. */
const STRIP = 240;

/** The source of an encoder-decoder, above its target. */
export function sourceStrip() {
  const strip = document.getElementById('source-strip');
  strip.hidden = !known.model.source;
  if (strip.hidden) return;
  const one = (token, i) => h('span', { class: `token${token.special ? ' special' : ''}`, title: `token ${i} of the source, id ${token.id}` }, h('span', {}, tokenText(token.text)), h('small', {}, token.id));
  strip.replaceChildren(h('span', { class: 'strip-name' }, 'source'), ...known.sources.slice(0, STRIP).map(one), known.sources.length > STRIP ? h('span', {}, `… ${known.sources.length - STRIP} more`) : '');
}

export function tokenStrip() {
  const strip = document.getElementById('strip');
  const chosen = focusToken();
  const first = Math.max(0, Math.min(chosen - STRIP / 2, state.ids.length - STRIP));
  const shown = known.tokens.slice(first, first + STRIP);
  const one = (token, i) => h('button', {
    type: 'button', class: `token${token.special ? ' special' : ''}`, 'aria-pressed': String(first + i === chosen), 'data-place': first + i,
    title: `token ${first + i}, id ${token.id}${token.special ? ', special' : ''}`, click: () => look({ token: first + i, row: null }),
  }, h('span', {}, tokenText(token.text)), h('small', {}, token.id));
  strip.replaceChildren(known.model.source ? h('span', { class: 'strip-name' }, 'target') : '', first > 0 ? h('span', {}, `… ${first}`) : '', ...shown.map(one), first + STRIP < state.ids.length ? h('span', {}, `… ${state.ids.length - first - STRIP} more`) : '');
  const button = strip.querySelector('[aria-pressed="true"]');
  if (button && (button.offsetLeft < strip.scrollLeft || button.offsetLeft + button.offsetWidth > strip.scrollLeft + strip.clientWidth)) strip.scrollLeft = button.offsetLeft - strip.clientWidth / 2;
}

const KINDS = {
  BPE: 'Byte-pair encoding: the text is cut into words, each word into characters or bytes, and the pair of neighbours that was learned first is joined, again and again.',
  WordPiece: 'WordPiece: from the left, the longest piece that is in the vocabulary; pieces inside a word begin with ##.',
  Unigram: 'Unigram: of all ways to cut the text into known pieces, the most probable one.',
  WordLevel: 'Whole words: every word is one token, and a word that is not in the vocabulary is the unknown token.',
};

export async function tokensView() {
  const answer = await ask('tokens', { ids: state.ids });
  const source = known.model.source ? await ask('tokens', { ids: state.source }) : null;
  const chosen = focusToken();
  const merges = (token) => {
    if (!token.merges?.length) return token.start?.length > 1 ? 'no merges' : '–';
    const last = token.merges.length > 6 ? [...token.merges.slice(0, 2), null, ...token.merges.slice(-2)] : token.merges;
    const start = h('div', {}, token.start.map((piece) => h('span', { class: 'chip' }, piece)));
    const step = (merge, i) => {
      if (!merge) return h('div', { class: 'note' }, `… ${token.merges.length - 4} more merges`);
      const before = (i === 0 ? token.start : token.merges[token.merges.indexOf(merge) - 1]?.pieces) ?? token.start;
      const joined = merge.pieces.findIndex((piece, k) => piece !== before[k]);
      return h('div', {}, merge.pieces.map((piece, k) => h('span', { class: `chip${k === joined ? ' joined' : ''}` }, piece)), h('span', { class: 'note' }, ` rule ${merge.rank}`));
    };
    return [start, last.map(step)];
  };
  const row = (own) => (token, i) => h('tr', own ? { class: `pick${i === chosen ? ' chosen' : ''}`, click: () => look({ token: i, row: null }) } : {},
    h('td', { class: 'number' }, i), h('td', {}, h('span', { class: 'chip' }, tokenText(token.text)), token.special ? h('span', { class: 'role' }, 'special') : null), h('td', { class: 'number' }, token.id),
    h('td', { class: 'code' }, (token.bytes ?? []).map((byte) => byte.toString(16).padStart(2, '0')).join(' ') || '–'), h('td', {}, merges(token)));
  const shown = answer.tokens.slice(0, 400);
  const table = (tokens, own) => h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, h('th', { class: 'number' }, 'place'), h('th', {}, 'token'), h('th', { class: 'number' }, 'id'), h('th', {}, 'bytes'), h('th', {}, 'merges, from characters to the token'))), h('tbody', {}, tokens.map(row(own)))));
  return [
    heading('Tokens', 'A model reads numbers. The tokenizer cuts the text into pieces and gives each the number of its row in the vocabulary.'),
    source ? card('Source', table(source.tokens.slice(0, 400), false)) : null,
    card(source ? 'Target so far' : null, h('p', { class: 'lead' }, answer.kind === 'BPE' && answer.tokens.every((token) => token.start.length <= 1) ? 'One token for every character or byte.' : KINDS[answer.kind] ?? 'This model has no tokenizer: the prompt is a list of numbers.'),
      table(shown, true),
      answer.tokens.length > shown.length ? h('p', { class: 'note' }, `the first ${shown.length} of ${answer.tokens.length}`) : null),
  ];
}
