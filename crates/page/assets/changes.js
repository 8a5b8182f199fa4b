// Interventions: switch heads, layers or neurons off, patch from another prompt, edit a weight; before and
// after beside each other. And: is a large attention weight a large effect?
import { ask, card, exactText, h, heading, known, later, look, percent, plainToken, problemBox, recorded, roomIn, selectOf, shortText, state, tokenText } from './state.js';
import { bar, scatter } from './draw.js';
import { headGrid } from './attention.js';

const mixedOf = (site, head) => `${site}.mixed[${head}]`;

export async function changesView(root) {
  const title = heading('Interventions', 'Change something inside and see what becomes of the prediction. What a part is good for shows when it is gone.');
  const body = { ids: state.ids, ...(state.target ? { target: state.target } : {}) };
  const changes = state.changes;
  const sites = known.model.stages.map((stage) => stage.name).filter((name) => name.endsWith('attention.weights')).map((name) => name.slice(0, -8));
  const isOff = (site, head) => changes.some((change) => change.ablate === mixedOf(site, head));
  const toggle = (site, head) => look({ changes: isOff(site, head) ? changes.filter((change) => change.ablate !== mixedOf(site, head)) : [...changes, { ablate: mixedOf(site, head) }] });
  const grid = known.run?.long ? [h('p', { class: 'note' }, 'A long prompt: choose heads by name below.')] : sites.map((site) => [h('div', { class: 'layer-label' }, site), later(ask('heads', { ids: state.ids, site }), (answer) => headGrid(answer, null, -1, toggle, isOff))]);
  return [title,
    h('div', { class: 'wide-left' },
      h('div', {}, card('Before and after', later(ask('intervene', { ...body, changes }), effectTable)), effectsCard(body, sites, roomIn(root))),
      h('div', {}, card(`Changes (${changes.length})`, changes.length ? h('ul', { class: 'list' }, changes.map((change, i) => h('li', {}, h('span', { class: 'mono' }, changeText(change)), h('button', { type: 'button', title: 'remove', 'aria-label': 'remove', click: () => look({ changes: changes.filter((_, k) => k !== i) }) }, '×')))) : h('p', { class: 'note' }, 'None yet.'),
        changes.length ? h('button', { type: 'button', id: 'clear', click: () => look({ changes: [] }) }, 'remove all') : null),
      card('Switch off heads', h('p', { class: 'note', style: 'margin:0 0 4px' }, 'Click a head: what it mixes becomes zero.'), grid), moreCard(changes, sites)))];
}

function changeText(change) {
  if (change.ablate) return `${change.ablate}${change.column !== undefined ? ` column ${change.column}` : ''} = 0`;
  if (change.patch) return `${change.patch} from "${plainToken(change.text ?? '')}"`;
  return `${change.edit}[${change.index}] = ${change.value}`;
}

function effectTable(answer) {
  const rise = answer.after.loss !== null && answer.before.loss !== null ? answer.after.loss - answer.before.loss : null;
  const most = Math.max(...answer.tokens.flatMap((token) => [token.before, token.after]), 1e-9);
  return [
    rise !== null ? h('p', {}, 'Loss of the target: ', h('b', { class: 'mono', id: 'loss-before' }, shortText(answer.before.loss, 6)), ' → ', h('b', { class: 'mono', id: 'loss-after' }, shortText(answer.after.loss, 6)), ` (${rise >= 0 ? '+' : ''}${shortText(rise)})`) : null,
    h('div', { class: 'scroll' }, h('table', { style: 'width:100%' }, h('thead', {}, h('tr', {}, h('th', {}, 'token'), h('th', { class: 'number' }, 'before'), h('th', {}, ''), h('th', { class: 'number' }, 'after'), h('th', {}, ''), h('th', { class: 'number roomy' }, 'logit'))),
      h('tbody', {}, answer.tokens.map((token) => h('tr', { class: token.id === state.target?.[1] ? 'chosen' : '' }, h('td', {}, h('span', { class: 'chip' }, tokenText(token.text))), h('td', { class: 'number' }, percent(token.before)), h('td', { style: 'width:20%' }, bar(token.before / most)), h('td', { class: 'number' }, percent(token.after)), h('td', { style: 'width:20%' }, bar(token.after / most, '', 'after')), h('td', { class: 'number roomy' }, `${shortText(token.logit_before)} → ${shortText(token.logit_after)}`)))))),
    h('p', { class: 'note' }, `Divergence of the two predictions, KL(before ‖ after): ${shortText(answer.divergence)} nats. The marked row is the target.`)];
}

function moreCard(changes, sites) {
  const add = (change) => look({ changes: [...changes, change] });
  const stages = known.model.stages.map((stage) => [stage.name, stage.name]);
  const parameters = known.model.parts.flatMap((part) => part.parameters).map((one) => [one.name, one.name]);
  const chosen = { layer: `${sites[0]}.out`, neuron: stages.find(([name]) => name.endsWith('feed_forward.active'))?.[0] ?? stages[0][0], patch: stages.find(([name]) => name.endsWith('residual_after'))?.[0] ?? stages[0][0], edit: parameters[0]?.[0] };
  const pickTo = (key) => (value) => { chosen[key] = value; };
  const number = (id, label, value = 0) => h('label', { class: 'field', style: 'width:86px' }, h('span', {}, label), h('input', { type: 'number', id, value, step: 'any' }));
  const read = (id) => Number(document.getElementById(id).value);
  const row = (...parts) => h('div', { class: 'controls' }, parts);
  const layers = stages.filter(([name]) => /(attention|feed_forward)\.out$/.test(name));
  return card('Other changes', row(selectOf(layers, chosen.layer, pickTo('layer'), 'Whole layer'), h('button', { type: 'button', click: () => add({ ablate: chosen.layer }) }, 'switch off')),
    row(selectOf(stages.filter(([name]) => name.endsWith('feed_forward.active')), chosen.neuron, pickTo('neuron'), 'Neuron of'), number('neuron', 'column'), h('button', { type: 'button', click: () => add({ ablate: chosen.neuron, column: Math.max(0, Math.round(read('neuron'))) }) }, 'switch off')),
    row(selectOf(stages.filter(([name]) => !/(scores|weights)$/.test(name)), chosen.patch, pickTo('patch'), 'Patch'), h('label', { class: 'field', style: 'flex:1;min-width:130px' }, h('span', {}, 'from a prompt of equal length'), h('input', { id: 'other' })), h('button', { type: 'button', click: () => add({ patch: chosen.patch, text: document.getElementById('other').value, places: [state.token ?? state.ids.length - 1] }) }, 'patch the chosen token')),
    row(selectOf(parameters, chosen.edit, pickTo('edit'), 'Weight'), number('edit-index', 'index'), number('edit-value', 'becomes'), h('button', { type: 'button', click: () => add({ edit: chosen.edit, index: Math.max(0, Math.round(read('edit-index'))), value: read('edit-value') }) }, 'edit')),
    h('p', { class: 'note' }, 'An embedding is a row of embedding.weight: index = id · width + dimension. Nothing is saved.'));
}

const measured = { key: null, points: [] };

/** Attention weight against the effect of ablation. */
function effectsCard(body, sites, width) {
  if (!state.target) return card('Is attention explanation?', h('p', { class: 'note' }, 'Choose a target first.'));
  const key = JSON.stringify(body);
  if (measured.key !== key) Object.assign(measured, { key, points: [] });
  const box = h('div', { id: 'effects' });
  const draw = () => {
    if (!measured.points.length) return box.replaceChildren();
    const order = [...measured.points].sort((a, b) => b.y - a.y);
    if (order[0].x === null) {
      return box.replaceChildren(h('p', { class: 'note' }, 'Every head silenced by itself: how much the loss rises. (This attention has no weights to compare it with.)'),
        h('table', {}, h('tbody', {}, order.map((one) => h('tr', { title: one.title }, h('td', {}, one.label), h('td', { class: 'number' }, shortText(one.y)))))));
    }
    return box.replaceChildren(scatter({ points: measured.points.map((point, i) => ({ ...point, strong: order.indexOf(point) < 3 })), xTitle: 'largest attention weight of the predicting token', yTitle: 'rise of the loss', width: Math.min(560, width), height: 300 }),
      h('p', { class: 'note' }, `Every head silenced by itself. The head with the largest effect is ${order[0].label} (${shortText(order[0].y)}); that with the largest weight is ${[...measured.points].sort((a, b) => b.x - a.x)[0].label}. A head may look hard at a token and do nothing with it.`));
  };
  const layers = known.model.stack.layers;
  const measure = async (event) => {
    if (event) event.target.disabled = true;
    measured.points = [];
    try {
      for (let layer = 0; layer < layers; layer += 1) {
        const answer = await ask('effects', { ...body, layer });
        measured.points.push(...answer.heads.map((one) => ({ x: one.attention, y: one.rise, label: `${layer}.${one.head}`, title: `block ${layer}, head ${one.head}: ${one.attention === null ? '' : `weight ${exactText(one.attention)}, `}loss ${one.rise >= 0 ? '+' : ''}${shortText(one.rise)}` })));
        draw();
      }
    } catch (error) { box.replaceChildren(problemBox(error)); }
  };
  draw();
  if (recorded && !measured.points.length) measure(null);
  const heads = known.model.stack.heads * layers;
  return card('Is attention explanation?', h('div', { class: 'controls' }, h('button', { type: 'button', id: 'measure', click: measure }, `silence each of the ${heads} heads`), h('span', { class: 'note' }, `${heads + layers} passes`)), box, sites.length ? null : '');
}
