// Neurons: which tokens of the texts excite a neuron of a feed-forward layer most.
import { ask, card, exactText, h, heading, known, later, look, percent, plainToken, selectOf, shortText, state } from './state.js';
import { bar, css, diverging, inkOn, legend } from './draw.js';

const stages = () => known.model.stages.map((stage) => stage.name).filter((name) => name.endsWith('feed_forward.active'));

export const neuronStage = () => (stages().includes(state.stage) ? state.stage : stages()[0]);

export async function neuronsView() {
  const title = heading('Neurons', 'A neuron is one of the F numbers between the two matrices of a feed-forward layer. The texts that excite it most tell what it may stand for.');
  const stage = neuronStage();
  if (!stage) return [title, card(null, h('p', { class: 'note', id: 'no-neurons' }, 'This model has no layer whose neurons could be shown: its feed-forward layers are mixtures of experts.'))];
  const own = state.neuron === null ? {} : { neuron: Math.max(0, Math.round(state.neuron)) };
  const answer = await ask('neurons', { ids: state.ids, stage, ...own });
  const { chosen } = answer;
  const number = h('input', { type: 'number', id: 'neuron-number', value: chosen.neuron, min: 0, max: answer.neurons - 1, change: (event) => look({ neuron: Number(event.target.value) }) });
  const read = answer.of_texts === null ? `Only the ${stage.startsWith('encoder.') ? 'source' : 'prompt'} above was read: `
    : `${answer.tokens} tokens were read (${answer.texts} of ${answer.name}): `;
  const more = answer.of_texts === null ? 'no texts are at hand for this layer; --data FILE brings some.' : answer.texts < answer.of_texts ? "as many as take a few seconds; 'hearken inspect neuron --tokens N' reads more." : 'of every text its most exciting token counts.';
  return [title,
    h('div', { class: 'controls' }, selectOf(stages().map((name) => [name, name]), stage, (value) => look({ stage: value, neuron: null }), 'Layer'),
      h('label', { class: 'field', style: 'width:110px' }, h('span', {}, `Neuron, 0 to ${answer.neurons - 1}`), number)),
    h('div', { class: 'wide-left' },
      h('div', {}, card(h('span', {}, 'What excites neuron ', h('b', { id: 'neuron' }, chosen.neuron)),
        h('p', { class: 'note', style: 'margin:0 0 8px' }, read, more),
        h('div', { id: 'places' }, chosen.places.map((place) => onePlace(place, chosen))),
        legend('diverging', Math.min(0, chosen.lowest), Math.max(0, chosen.highest), "the neuron's value at each token")),
      card('Usually', h('table', {}, h('tbody', {}, [['largest value', exactText(chosen.highest)], ['smallest value', exactText(chosen.lowest)], ['root mean square', shortText(chosen.rms)], ['largest / root mean square', shortText(chosen.selectivity, 3)], ['above 0 at', `${percent(chosen.active)} of the tokens`]].map(([what, value]) => h('tr', {}, h('td', {}, what), h('td', { class: 'number' }, value))))),
        effectOf(stage, chosen.neuron))),
      card('Excited rarely, then strongly', table(answer))),
  ];
}

/** A token that excites it, in its context; each token in the colour of the neuron's value there. */
function onePlace(place, chosen) {
  const size = Math.max(Math.abs(chosen.highest), Math.abs(chosen.lowest), 1e-30);
  const piece = ([text, value], i) => {
    const color = diverging(value / size);
    const at = place.from + i === place.place;
    return h('span', { class: `excited${at ? ' at' : ''}`, style: `background:${css(color)};color:${inkOn(color)}`, title: `${plainToken(text)}: ${exactText(value)}` }, String(text).replace(/\n/g, '⏎'));
  };
  const end = place.from + place.tokens.length;
  return h('div', { class: 'place' }, h('b', { class: 'mono' }, shortText(place.value)),
    h('div', { class: 'passage' }, place.from > 0 ? '… ' : '', place.tokens.map(piece), end < place.length ? ' …' : ''));
}

function table(answer) {
  const most = Math.max(...answer.listed.map((one) => one.selectivity), 1e-9);
  const row = (one) => h('tr', { class: `pick${one.neuron === answer.chosen.neuron ? ' chosen' : ''}`, 'data-neuron': one.neuron, click: () => look({ neuron: one.neuron }) },
    h('td', { class: 'number' }, one.neuron), h('td', { class: 'number' }, shortText(one.highest, 3)), h('td', { class: 'number' }, shortText(one.selectivity, 3)), h('td', {}, bar(one.selectivity / most)), h('td', { class: 'number' }, percent(one.active)));
  return h('div', { class: 'scroll', style: 'max-height:560px' }, h('table', {}, h('thead', {}, h('tr', {}, ['neuron', 'largest', '÷ usual'].map((text) => h('th', { class: 'number' }, text)), h('th', {}, ''), h('th', { class: 'number' }, 'above 0'))), h('tbody', {}, answer.listed.map(row))));
}

/** What becomes of the loss without it. */
function effectOf(stage, neuron) {
  if (!state.target || !known.model.can.learn) return null;
  const box = h('div', { id: 'neuron-effect' });
  const measure = () => box.replaceChildren(later(ask('intervene', { ids: state.ids, target: state.target, changes: [{ ablate: stage, column: neuron }] }), ({ before, after }) => h('p', {}, 'Loss of the target: ', h('b', { class: 'mono' }, shortText(before.loss, 6)), ' → ', h('b', { class: 'mono' }, shortText(after.loss, 6)), ' without it.')));
  return [h('div', { class: 'controls', style: 'margin:10px 0 0' }, h('button', { type: 'button', id: 'silence', click: measure }, 'silence it on the prompt')), box];
}
