// The residual stream: its length, what it would predict at every half-layer, what each part adds.
import { ask, card, focusToken, h, heading, known, labelOf, later, look, percent, plainToken, roomIn, selectOf, shortText, state, tokenText } from './state.js';
import { bar, css, inkOn, legend, lineChart, sequential, signedBar } from './draw.js';

const stageShort = (name) => name.replace(/^decoder\./, '').replace('blocks.', '').replace('residual_cross', 'cross-attention').replace('residual_before', 'in').replace('residual_middle', 'attention').replace('residual_after', 'feed-forward').replace('.', ' · ');

export async function streamView(root) {
  const place = focusToken();
  const body = { ids: state.ids, place };
  const wanted = state.target && place === state.target[0] && state.gradients ? { ...body, token: state.target[1] } : body;
  const answer = await ask('stream', wanted).catch((error) => { if (wanted === body) throw error; return ask('stream', body); });
  const norms = answer.glimpses.map((glimpse) => ({ y: glimpse.norm, label: glimpse.stage }));
  return [
    heading('Residual stream', 'Every block adds to one vector per token. Read with the last norm and the output table, the vector says at every half-layer what the model would predict there.'),
    h('div', { class: 'cards' },
      card(h('span', {}, 'Length of the vector of ', h('span', { class: 'chip' }, labelOf(place)), ` (${place})`), lineChart({ points: norms, xLabels: answer.glimpses.map((glimpse) => stageShort(glimpse.stage).replace(' · cross-attention', 'c').replace(' · attention', 'a').replace(' · feed-forward', 'f').replace(' · in', '')), xTitle: known.model.source ? 'a: attention, c: cross-attention, f: feed-forward' : 'half-layer (a: after attention, f: after feed-forward)', yTitle: 'norm', width: Math.min(560, roomIn(root, 0.5)) })),
      card('Logit lens', lensTable(answer.glimpses))),
    card(h('span', {}, 'What each part adds to the logit of ', h('span', { class: 'chip' }, tokenText(answer.token.text))), contributionsTable(answer, place)),
    card('Logit lens of all tokens', h('p', { class: 'note', style: 'margin:0 0 8px' }, 'The most likely next token after each token of the prompt, from the bottom (embeddings) to the top (the answer).'), later(ask('lens', { ids: state.ids }), lensGrid)),
  ];
}

function lensTable(glimpses) {
  return h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'after'), h('th', {}, 'most likely'), h('th', { class: 'number' }, 'probability'), h('th', {}, ''), h('th', {}, 'then'))),
    h('tbody', {}, glimpses.map((glimpse) => h('tr', {}, h('td', { class: 'code' }, stageShort(glimpse.stage)), h('td', {}, h('span', { class: 'chip' }, tokenText(glimpse.likeliest[0].text))), h('td', { class: 'number' }, percent(glimpse.likeliest[0].probability)), h('td', {}, bar(glimpse.likeliest[0].probability)), h('td', { style: 'white-space:nowrap' }, glimpse.likeliest.slice(1, 4).map((one) => h('span', { class: 'chip', title: percent(one.probability) }, tokenText(one.text)))))))));
}

function contributionsTable(answer, place) {
  const choices = answer.glimpses.at(-1).likeliest.map((one) => [one.id, plainToken(one.text)]);
  if (!choices.some(([id]) => id === answer.token.id)) choices.push([answer.token.id, plainToken(answer.token.text)]);
  const pickToken = async (id) => {
    const box = document.getElementById('contributions');
    const next = await ask('stream', { ids: state.ids, place, token: Number(id) }).catch((error) => { box.replaceChildren(h('p', { class: 'problem' }, error.message)); return null; });
    if (next) box.replaceChildren(contributionRows(next));
  };
  if (!answer.contributions) return h('p', { class: 'note' }, 'The parts of a prompt this long are not kept.');
  return [h('div', { class: 'controls' }, selectOf(choices, answer.token.id, pickToken, 'Logit of')), h('div', { id: 'contributions' }, contributionRows(answer))];
}

function contributionRows(answer) {
  const all = answer.contributions;
  const most = Math.max(...all.map((part) => Math.abs(part.logit)), 1e-12);
  const sum = all.reduce((total, part) => total + part.logit, 0);
  const order = [...all].sort((a, b) => Math.abs(b.logit) - Math.abs(a.logit)).slice(0, 24);
  const shown = all.length > 24 ? order : all;
  const open = (part) => {
    const found = part.match(/^(.*blocks\.\d+\.(?:cross_)?attention)\[(\d+)\]$/);
    if (found) look({ view: 'attention', site: found[1], head: Number(found[2]) }, true);
  };
  return h('div', { class: 'scroll' }, h('table', { style: 'width:100%' }, h('thead', {}, h('tr', {}, h('th', {}, 'part'), h('th', { class: 'number' }, 'adds'), h('th', { style: 'width:52%' }, 'less ← → more'))),
    h('tbody', {}, shown.map((part) => h('tr', { class: 'pick', click: () => open(part.part) }, h('td', { class: 'code', title: part.part }, part.part.replace(/^decoder\./, '').replace('blocks.', '')), h('td', { class: 'number' }, shortText(part.logit)), h('td', {}, signedBar(part.logit / most)))),
      h('tr', { class: 'chosen' }, h('td', {}, all.length > shown.length ? `sum of all ${all.length} parts` : 'sum'), h('td', { class: 'number' }, shortText(sum, 6)), h('td', {}, `the engine's logit: ${shortText(answer.logit, 6)}`)))));
}

function lensGrid(answer) {
  if (answer.refused) return h('p', { class: 'note' }, answer.refused);
  const rows = [...answer.rows].reverse();
  const count = Math.min(state.ids.length, 60);
  const cell = ([id, text, probability]) => {
    const color = sequential(probability);
    return h('td', {}, h('div', { class: 'cell', style: `background:${css(color)};color:${inkOn(color)}`, title: `${plainToken(text)} (id ${id}): ${percent(probability)}` }, plainToken(text)));
  };
  return [h('div', { class: 'scroll' }, h('table', { class: 'lens' }, h('tbody', {}, rows.map((row) => h('tr', {}, h('th', {}, stageShort(row.stage)), row.cells.slice(0, count).map(cell))), h('tr', {}, h('th', {}, 'prompt'), Array.from({ length: count }, (_, i) => h('td', {}, h('div', { class: 'cell' }, labelOf(i)))))))),
    legend('sequential', 0, 1, 'probability'), count < state.ids.length ? h('p', { class: 'note' }, `the first ${count} of ${state.ids.length} tokens`) : null];
}

export const hasLens = () => known.model.can.write && known.model.stack.placement === 'pre';
