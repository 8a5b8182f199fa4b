// The way back: the gradient of the loss at every stage, and a check of one number by differences.
import { ask, card, exactText, focusToken, h, heading, isOfSource, known, labelOf, later, look, problemBox, shortText, state, tokenText } from './state.js';
import { stageName } from './numbers.js';

export async function backwardView() {
  const title = heading('Backward', 'How the loss would change if a number changed a little: the gradient, from the logits back to the embedding.');
  if (!known.model.can.learn) return [title, card(null, h('p', {}, 'This model has no loss of its own.'))];
  if (!state.target) return [title, card(null, h('p', {}, 'Choose a target first.'))];
  const body = { ids: state.ids, target: state.target };
  const run = await ask('run', body);
  return [title, h('div', { class: 'cards' }, lossCard(run), checkCard(body)), normsCard(run)];
}

function lossCard(run) {
  const text = known.targetText ?? String(state.target[1]);
  const p = Math.exp(-run.loss);
  return card('Loss', h('p', {}, 'Target ', h('span', { class: 'chip' }, tokenText(text)), ' after ', h('span', { class: 'chip' }, labelOf(state.target[0])), ` (${state.target[0]})`), h('div', { class: 'big', id: 'loss' }, exactText(run.loss)), h('div', { class: 'sum' }, `${shortText(run.loss)} = −ln ${shortText(p)}`), h('p', { class: 'note' }, `The model gives the target ${shortText(100 * p, 3)} %. The gradient of a logit is its probability, less 1 for the target.`));
}

function normsCard(run) {
  const stages = run.stages.filter((stage) => stage.gradient_norm !== null);
  const logs = stages.map((stage) => Math.log10(Math.max(stage.gradient_norm, 1e-12)));
  const [low, high] = [Math.floor(Math.min(...logs)), Math.ceil(Math.max(...logs))];
  const share = (norm) => (Math.log10(Math.max(norm, 1e-12)) - low) / Math.max(1, high - low);
  const shown = stages.length > 90 ? stages.filter((stage) => /residual|embedding|norm$|logits/.test(stage.name)) : stages;
  const row = (stage) => h('tr', { class: 'pick', click: () => look({ view: 'numbers', stage: stage.name, row: null, column: 0, gradients: true }, true) },
    h('td', { class: 'code' }, stage.name), h('td', { class: 'number roomy' }, shortText(stage.norm)), h('td', { class: 'number' }, shortText(stage.gradient_norm)), h('td', { style: 'width:40%' }, h('div', { class: 'bar' }, h('i', { class: 'after', style: `width:${Math.max(0.5, share(stage.gradient_norm) * 100)}%` }))), h('td', {}, stage.mark ? h('span', { class: 'role warn' }, stage.mark) : ''));
  const marks = stages.filter((stage) => stage.mark).length;
  return card('Gradient norm of every stage, from the loss back', h('p', { class: 'note', style: 'margin:0 0 8px' }, marks ? `${marks} stages of the stream are marked: their gradient is less than 1/1000 (vanishing) or more than 1000 times (exploding) that at the end of the stream.` : 'No stage of the stream vanishes or explodes: all are within a factor of 1000 of the end of the stream.'),
    h('div', { class: 'scroll' }, h('table', { style: 'width:100%' }, h('thead', {}, h('tr', {}, h('th', {}, 'stage'), h('th', { class: 'number roomy' }, '‖value‖'), h('th', { class: 'number' }, '‖∂L‖'), h('th', {}, `10^${low} … 10^${high}, logarithmic`), h('th', {}, ''))), h('tbody', {}, [...shown].reverse().map(row)))));
}

/** The number that was chosen in "Numbers", or one of the embedding. */
function checkCard(body) {
  const parameter = state.stage?.startsWith('parameter:');
  const name = parameter ? state.stage.slice(10) : stageName();
  const [row, column] = [state.row ?? (parameter || isOfSource(name) ? 0 : focusToken()), state.column];
  const result = h('div', { id: 'check-result' });
  const where = ask('number', parameter ? { name, parameter: true, row, column } : { ...body, name, head: state.head, row, column });
  const run = async () => {
    result.replaceChildren(h('p', { class: 'note' }, 'Computing the loss at many nearby points …'));
    try {
      const number = await where;
      const found = await ask('check', { ...body, name, index: number.index, ...(parameter ? { parameter: true } : {}) });
      result.replaceChildren(h('table', {}, h('tbody', {}, [['gradient, by backward', found.gradient], ['slope, by differences', found.slope], ['rounding hides slopes below', found.rounding]].map(([what, x]) => h('tr', {}, h('td', {}, what), h('td', { class: 'number' }, shortText(x, 6)))))),
        h('p', { id: 'verdict' }, found.hidden ? h('span', { class: 'role' }, 'rounding hides the answer') : found.error < 1e-3 ? h('span', { class: 'role found' }, 'they agree to 3 digits') : h('span', { class: 'role warn' }, `off by ${shortText(100 * found.error, 2)} %`), ` ${found.losses} losses in ${shortText(found.milliseconds, 3)} ms`));
    } catch (error) { result.replaceChildren(problemBox(error)); }
  };
  return card('Is it right? Differences of the loss', later(where, (number) => [
    h('p', { class: 'note', style: 'margin:0 0 6px' }, h('code', {}, name), ` [${parameter ? '' : `head ${number.head}, `}row ${number.row}, column ${number.column}] = `, h('b', { class: 'mono' }, number.hidden ? '−∞' : exactText(number.value)), '. Choose another number in "Numbers".'),
    h('button', { type: 'button', class: 'primary', id: 'check', click: run }, 'Check this number'), result,
    h('p', { class: 'note' }, 'The number is moved a little up and down, the loss is computed each time, and a curve through these losses gives its slope.')]));
}
