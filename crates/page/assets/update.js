// The optimiser's step: gradient, moments, corrections, decay and clip factor of any weight; and back.
import { ask, byteText, card, exactText, forgetAnswers, h, heading, known, look, problemBox, recorded, roomIn, selectOf, shortText, state } from './state.js';
import { lineChart } from './draw.js';

const history_ = [];
let rate = 0.001;

const weightName = () => {
  const names = known.model.parts.flatMap((part) => part.parameters).map((parameter) => parameter.name);
  return names.includes(state.weight) ? state.weight : names.find((name) => name.endsWith('attention.qkv.weight')) ?? names[0];
};

export async function updateView(root) {
  const title = heading('Update', 'One step of AdamW towards the target, in memory only: the files stay as they are, and every step can be taken back to the bit.');
  if (recorded) return [title, problemBox(new Error('This needs the engine: this file holds recorded numbers only.'))];
  if (!known.model.can.learn || !state.target) return [title, card(null, h('p', {}, known.model.can.learn ? 'Choose a target first.' : 'This model has no loss of its own.'))];
  const name = weightName();
  const shape = known.model.parts.flatMap((part) => part.parameters).find((one) => one.name === name).shape;
  const size = shape.reduce((a, b) => a * b, 1);
  const index = Math.min(Math.max(0, state.index), size - 1);
  const body = { name, index, lr: rate };
  const answer = await ask('update', body, false);
  known.steps = answer.steps;
  const act = (action) => async (event) => {
    event.target.disabled = true;
    try {
      const found = await ask('update', { ...body, lr: rate, action, ids: state.ids, target: state.target }, false);
      if (action === 'step') { if (!history_.length) history_.push(found.step.before); history_.push(found.step.after); }
      else if (action === 'undo') history_.pop();
      if (action === 'reset' || found.steps === 0) history_.length = 0;
      known.steps = found.steps;
      known.lastStep = found.step ?? null;
      forgetAnswers();
      look({});
    } catch (error) { document.getElementById('update-problem').replaceChildren(problemBox(error)); event.target.disabled = false; }
  };
  const refused = answer.most_steps < 1;
  const names = known.model.parts.flatMap((part) => part.parameters).map((one) => [one.name, `${one.name} (${one.shape.join(' × ')})`]);
  const width = shape.at(-1);
  const steps = history_.length > 1 ? lineChart({ points: history_.map((y) => ({ y })), xLabels: history_.map((_, i) => String(i)), xTitle: 'step', yTitle: 'loss of the target', color: 'var(--orange)', height: 170, width: Math.min(640, roomIn(root, 1)) }) : h('p', { class: 'note' }, 'Step once and see the loss fall.');
  const field = (label, value, change, max) => h('label', { class: 'field', style: 'width:92px' }, h('span', {}, label), h('input', { type: 'number', value, min: 0, max, step: 'any', change }));
  return [title,
    h('div', { id: 'update-problem' }),
    card('Steps', h('p', {}, `It takes ${byteText(answer.bytes)} for gradients, moments and the first step, and ${byteText(answer.bytes_per_step)} for each further one that can be taken back`, refused ? '. That is more than half of the free memory: refused.' : `; up to ${answer.most_steps} steps.`),
      h('div', { class: 'controls' }, field('learning rate', rate, (event) => { const x = Number(event.target.value); if (x > 0 && x <= 10) { rate = x; look({}); } }),
        h('button', { type: 'button', class: 'primary', id: 'step', disabled: refused || answer.steps >= answer.most_steps, click: act('step') }, 'Step'), h('button', { type: 'button', id: 'back', disabled: !answer.steps, click: act('undo') }, 'Back'), h('button', { type: 'button', id: 'reset', disabled: !answer.steps, click: act('reset') }, 'All the way back'),
        h('span', { id: 'steps', 'data-steps': answer.steps }, `${answer.steps} ${answer.steps === 1 ? 'step' : 'steps'} from the file`)), steps,
      known.lastStep ? h('p', { class: 'note', id: 'last-step' }, `last step: loss ${exactText(known.lastStep.before)} → ${exactText(known.lastStep.after)}, norm of all gradients ${shortText(known.lastStep.gradient_norm)}, clip factor ${shortText(known.lastStep.clip_factor)}`) : null),
    card('One weight', h('div', { class: 'controls' }, selectOf(names, name, (value) => look({ weight: value, index: 0 }), 'Parameter'),
      shape.length > 1 ? field('row', Math.floor(index / width), (event) => look({ index: clampTo(event.target.value, shape[0]) * width + (index % width) }), shape[0] - 1) : null,
      field(shape.length > 1 ? 'column' : 'index', index % width, (event) => look({ index: Math.floor(index / width) * width + clampTo(event.target.value, width) }), width - 1)),
    h('div', { class: 'note' }, 'value now'), h('div', { class: 'big', id: 'weight' }, exactText(answer.weight.value)), answer.weight.change ? changeTable(answer.weight.change, answer) : h('p', { class: 'note' }, 'No step has been taken yet.')),
  ];
}

const clampTo = (text, size) => Math.max(0, Math.min(size - 1, Math.round(Number(text) || 0)));

function changeTable(change, answer) {
  const [b1, b2] = answer.betas;
  const g = change.gradient * change.clip_factor;
  const [mHat, vHat] = [change.first[1] / change.corrections[0], change.second[1] / change.corrections[1]];
  const rows = [
    ['gradient', 'g = clip · ∂L', `${shortText(g, 6)} = ${shortText(change.clip_factor)} · ${exactText(change.gradient)}`],
    ['first moment', 'm ← β₁·m + (1 − β₁)·g', `${shortText(change.first[1], 6)} = ${b1}·${shortText(change.first[0])} + ${shortText(1 - b1, 3)}·${shortText(g)}`],
    ['second moment', 'v ← β₂·v + (1 − β₂)·g²', `${shortText(change.second[1], 6)} = ${b2}·${shortText(change.second[0])} + ${shortText(1 - b2, 3)}·${shortText(g)}²`],
    ['bias correction', 'm̂ = m/(1 − β₁ᵗ), v̂ = v/(1 − β₂ᵗ)', `${shortText(mHat, 6)} = ${shortText(change.first[1])}/${shortText(change.corrections[0])}; ${shortText(vHat, 6)} = ${shortText(change.second[1])}/${shortText(change.corrections[1])}   (t = ${change.t})`],
    ['decay', 'decay · w', change.decay ? `${shortText(change.decay * change.before)} = ${change.decay}·${shortText(change.before)}` : 'this parameter does not decay'],
    ['change', 'w ← w − lr·(m̂/(√v̂ + ε) + decay·w)', `${exactText(change.after)} = ${exactText(change.before)} − ${change.lr}·(${shortText(mHat)}/(${shortText(Math.sqrt(vHat))} + ${answer.epsilon}) + ${shortText(change.decay * change.before)})`],
    ['computed again in f64', '', shortText(change.computed, 9)],
  ];
  return h('div', { class: 'scroll' }, h('table', { id: 'change' }, h('tbody', {}, rows.map(([what, formula, numbers]) => h('tr', {}, h('td', {}, what), h('td', { class: 'code' }, formula), h('td', { class: 'code' }, numbers))))));
}
