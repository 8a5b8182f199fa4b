// From logits to a token: temperature, top-k, top-p, min-p, the draw; a click on a token goes on with it.
import { ask, card, exactText, floatsOf, h, heading, known, later, look, percent, recorded, shortText, state, tokenText } from './state.js';
import { bar } from './draw.js';

const SLIDERS = [
  ['temperature', 'temperature', 0, 2, 0.05, (x) => x.toFixed(2), 'logits are divided by it; 0 takes the most likely'],
  ['top_k', 'top-k', 0, 50, 1, (x) => (x ? String(x) : 'off'), 'only the k most likely'],
  ['top_p', 'top-p', 0.05, 1, 0.01, (x) => (x < 1 ? x.toFixed(2) : 'off'), 'only the most likely that reach p together'],
  ['min_p', 'min-p', 0, 0.5, 0.01, (x) => (x ? x.toFixed(2) : 'off'), 'only those at least p times as likely as the most likely'],
  ['seed', 'seed', 0, 30, 1, String, 'the same seed draws the same token'],
];

export async function samplingView() {
  const slider = ([key, name, min, max, step, text, what]) => {
    const output = h('output', {}, text(state[key]));
    const move = (event) => {
      output.textContent = text(Number(event.target.value));
      look({ [key]: Number(event.target.value) });
    };
    return h('label', { class: 'slider', title: what }, name, h('input', { type: 'range', id: `slider-${key}`, min, max, step, value: state[key], input: move, disabled: recorded && key === 'seed' }), output);
  };
  return [
    heading('Sampling', 'The last row of logits becomes a choice: divide by the temperature, take the softmax, filter, draw. Click a token to go on with it.'),
    h('div', { class: 'wide-left controls-first' },
      card('Candidates', h('div', { id: 'candidates' }, later(candidates(), candidateTable))),
      h('div', {}, card('How to choose', SLIDERS.map(slider), h('p', { class: 'note' }, 'Filters act in this order, each on what the one before has left.')),
        h('div', { id: 'draw' }, later(candidates(), drawCard)))),
  ];
}

/** Only the tables change while a slider moves. */
export function samplingMoved() {
  const [table, draw] = ['candidates', 'draw'].map((id) => document.getElementById(id));
  if (!table) return false;
  const answer = candidates();
  answer.then((found) => { table.replaceChildren(candidateTable(found)); draw.replaceChildren(drawCard(found)); }, () => {});
  return true;
}

function candidates() {
  const body = { ids: state.ids, temperature: state.temperature, seed: state.seed };
  if (state.top_k > 0) body.top_k = state.top_k;
  if (state.top_p < 1) body.top_p = state.top_p;
  if (state.min_p > 0) body.min_p = state.min_p;
  return recorded ? ask('logits', { ids: state.ids }).then(fromLogits) : ask('sample', body);
}

/** As the engine filters, over recorded logits. */
export function fromLogits(answer) {
  const logits = floatsOf(answer.logits);
  const texts = new Map(answer.texts);
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
  const top = logits[order[0]];
  const shares = (divisor) => {
    const weights = order.map((id) => Math.exp((logits[id] - top) / divisor));
    const total = weights.reduce((sum, w) => sum + w, 0);
    return weights.map((w) => w / total);
  };
  const plain = shares(1);
  const greedy = state.temperature === 0;
  const warm = greedy ? order.map((_, i) => Number(i === 0)) : shares(state.temperature);
  const count = { temperature: greedy ? 1 : order.length };
  count.top_k = state.top_k > 0 ? Math.min(state.top_k, count.temperature) : count.temperature;
  const mass = warm.slice(0, count.top_k).reduce((sum, p) => sum + p, 0);
  count.top_p = count.top_k;
  if (state.top_p < 1) {
    let sum = 0;
    for (let i = 0; i < count.top_k; i += 1) { sum += warm[i]; if (sum >= state.top_p * mass) { count.top_p = i + 1; break; } }
  }
  count.min_p = count.top_p;
  if (state.min_p > 0) count.min_p = Math.max(1, warm.slice(0, count.top_p).filter((p) => p >= state.min_p * warm[0]).length);
  const total = warm.slice(0, count.min_p).reduce((sum, p) => sum + p, 0);
  const removed = (i) => (i >= count.temperature ? 'temperature 0' : i >= count.top_k ? 'top-k' : i >= count.top_p ? 'top-p' : i >= count.min_p ? 'min-p' : null);
  const rows = order.slice(0, 40).map((id, i) => ({ id, text: texts.get(id) ?? String(id), logit: logits[id], scaled: logits[id] / (state.temperature || 1), plain: plain[i], warm: warm[i], probability: removed(i) ? null : warm[i] / total, removed: removed(i) }));
  return { rows, of: logits.length, left: count, chosen: null };
}

function candidateTable(answer) {
  const most = Math.max(...answer.rows.map((row) => row.probability ?? row.plain), 1e-9);
  const branch = (row) => { if (known.model.can.write) look({ ids: [...state.ids, row.id], token: null, row: null, target: null }, true); };
  const one = (row) => h('tr', { class: `pick${row.removed ? ' removed' : ''}${row.id === answer.chosen?.id ? ' chosen' : ''}`, 'data-id': row.id, click: () => branch(row) },
    h('td', {}, h('span', { class: 'chip' }, tokenText(row.text))), h('td', { class: 'number logit' }, exactText(row.logit)), h('td', { class: 'number roomy' }, shortText(row.scaled)), h('td', { class: 'number roomy' }, percent(row.plain)),
    h('td', { class: 'number probability' }, row.removed ? '' : percent(row.probability)), h('td', { style: 'width:26%' }, row.removed ? h('span', { class: 'note' }, `removed by ${row.removed}`) : bar(row.probability / most)));
  return h('div', { class: 'scroll' }, h('table', { style: 'width:100%' }, h('thead', {}, h('tr', {}, h('th', {}, 'token'), h('th', { class: 'number' }, 'logit'), h('th', { class: 'number roomy' }, 'logit / T'), h('th', { class: 'number roomy' }, 'softmax at T = 1'), h('th', { class: 'number' }, 'chance'), h('th', {}, ''))), h('tbody', {}, answer.rows.map(one))), answer.of > answer.rows.length ? h('p', { class: 'note' }, `the ${answer.rows.length} largest of ${answer.of} logits`) : null);
}

function drawCard(answer) {
  const steps = [['all tokens', answer.of], ['after the temperature', answer.left.temperature], ['after top-k', answer.left.top_k], ['after top-p', answer.left.top_p], ['after min-p', answer.left.min_p]];
  const undo = state.ids.length > 1 && known.model.can.write ? h('button', { type: 'button', click: () => look({ ids: state.ids.slice(0, -1), token: null, row: null, target: null }, true) }, 'take the last token back') : null;
  return card('The draw', h('ul', { class: 'list' }, steps.map(([what, count]) => h('li', {}, what, h('b', { class: 'mono' }, count)))),
    answer.chosen ? h('p', { id: 'drawn' }, 'Seed ', String(state.seed), ' draws ', h('span', { class: 'chip' }, tokenText(answer.chosen.text)), ` (${percent(answer.chosen.probability)})`) : h('p', { class: 'note' }, 'The draw needs the engine; the sliders work on recorded logits.'),
    h('div', { class: 'controls' }, answer.chosen && known.model.can.write ? h('button', { type: 'button', class: 'primary', id: 'append', click: () => look({ ids: [...state.ids, answer.chosen.id], token: null, row: null, target: null }, true) }, 'append it') : null, undo));
}
