// The number inspector: a heat map of any value, gradient or parameter, and the sum behind one number.
import { ask, card, exactText, floatsOf, focusToken, h, heading, keysOf, known, later, look, prompt_, recorded, roomIn, rowsOf, segmented, selectOf, shortText, state } from './state.js';
import { bar, legend, signedBar } from './draw.js';
import { heatMap } from './heatmap.js';

/** The stage that is looked at. */
export function stageName() {
  const names = known.model.stages.map((stage) => stage.name);
  if (state.stage?.startsWith('parameter:')) return state.stage;
  return names.includes(state.stage) ? state.stage : names.find((name) => /^(?!encoder).*attention\.weights$/.test(name)) ?? names[0];
}

const isParameter = (name) => name.startsWith('parameter:');

/** The question for a value: with a target only where its gradient is asked for. */
export function tensorAsk(name, head, gradient) {
  if (isParameter(name)) return { name: name.slice(10), parameter: true };
  return gradient ? { ...prompt_(), name, head, gradient: true } : { ids: state.ids, name, head };
}

const zoomed = { key: null, rows: null, columns: null };

export async function numbersView(root) {
  const name = stageName();
  const stage = known.model.stages.find((one) => one.name === name);
  const base = tensorAsk(name, state.head, false);
  const key = JSON.stringify([base, state.ids]);
  if (zoomed.key !== key) Object.assign(zoomed, { key, rows: null, columns: null });
  const part = zoomed.rows ? { rows: zoomed.rows, columns: zoomed.columns } : {};
  const answer = await ask('tensor', { ...base, ...part });
  const withGradient = state.gradients && state.target && !isParameter(name);
  const gradient = withGradient ? await ask('tensor', { ...tensorAsk(name, state.head, true), ...part }).catch(() => null) : null;
  const rows = answer.shape.length > 1 ? answer.shape.at(-2) : 1;
  const columns = answer.shape.at(-1) ?? 1;
  const named = isParameter(name) ? null : rowsOf(name, rows);
  const ofTokens = Boolean(named) && !named.source;
  const square = /\.(scores|weights)$/.test(name) && !isParameter(name);
  const row = Math.min(state.row ?? (ofTokens ? focusToken() : 0), rows - 1);
  const column = Math.min(state.column, columns - 1);
  const pick = (r, c) => {
    if (answer.row_step * answer.column_step > 1 && (answer.row_step > 1 || answer.column_step > 1)) {
      // A cell of many numbers: show these one by one.
      zoomed.rows = [Math.max(0, r - 16), r - Math.min(r, 16) + 32];
      zoomed.columns = [Math.max(0, c - 64), c - Math.min(c, 64) + 128];
    }
    look({ row: r, column: c, ...(ofTokens ? { token: r } : {}) });
  };
  const width = roomIn(root);
  const vocabulary = name === 'logits' && known.model.can.predict;
  const map = (one, kind) => heatMap({
    answer: one, cells: floatsOf(one.cells), kind, low: one.low, high: one.high, width, square,
    rowLabel: named ? named.label : isParameter(name) ? (i) => i : null, columnLabel: square ? keysOf(name, columns) : null,
    rowTitle: named ? (square ? 'query' : named.source ? 'token of the source' : 'token') : 'row', columnTitle: square ? 'key' : vocabulary ? 'token id' : 'dimension', chosen: [row, column], pick,
  });
  const kind = name.endsWith('.weights') && !isParameter(name) ? 'sequential' : 'diverging';
  const heads = answer.heads > 1 ? selectOf(Array.from({ length: answer.heads }, (_, i) => [i, `head ${i}`]), answer.head, (head) => look({ head: Number(head), row: null }), 'Head') : null;
  const step = answer.row_step * answer.column_step;
  const stages = known.model.stages.map((one) => [one.name, one.name]);
  const parameters = known.model.parts.flatMap((one) => one.parameters).map((one) => [`parameter:${one.name}`, `weight: ${one.name}`]);
  return [
    heading('Numbers', 'Every value, exactly as the engine computed it. Hover to read, click a number to see the sum behind it.'),
    h('div', { class: 'controls' }, selectOf([...stages, ...(recorded ? [] : parameters)], name, (value) => look({ stage: value, row: null, column: 0 }), 'Stage'), heads,
      zoomed.rows ? h('button', { type: 'button', click: () => { zoomed.rows = null; look({}); } }, 'whole value') : null),
    h('div', { class: 'wide-left' },
      h('div', {}, card(h('span', {}, h('code', {}, name), ` (${answer.shape.join(', ')})`),
        stage ? h('p', { class: 'note', style: 'margin:0 0 8px' }, `${stage.sentence} `, h('code', {}, stage.formula)) : null,
        map(answer, kind), legend(kind, answer.low, answer.high, 'value', name.endsWith('.scores')),
        step > 1 ? h('p', { class: 'note' }, `Too many numbers to show at once: each cell is the one with the largest magnitude of ${answer.row_step} × ${answer.column_step}. Click one to see them.`) : null),
      gradient ? card(h('span', {}, 'gradient ', h('code', {}, `∂L/∂ ${name}`)), map(gradient, 'diverging'), legend('diverging', gradient.low, gradient.high, '∂L')) : null),
      card('One number', later(ask('number', { ...(isParameter(name) ? base : { ...prompt_(), name, head: state.head }), row, column }), (number) => oneNumber(name, number, named?.label)))),
  ];
}

function oneNumber(name, number, label) {
  const where = label ? `${label(number.row)} (${number.row})` : `row ${number.row}`;
  const sum = number.arithmetic;
  return [
    h('div', { class: 'note' }, h('code', {}, isParameter(name) ? name.slice(10) : name), ` · head ${number.head} · ${where} · column ${number.column}`),
    h('div', { class: 'big', id: 'value' }, number.hidden ? '−∞' : exactText(number.value)),
    number.gradient !== undefined ? [h('div', { class: 'note' }, 'gradient ∂L'), h('div', { class: 'big gradient', id: 'gradient' }, exactText(number.gradient))] : null,
    sum ? [h('div', { class: 'sum', id: 'sum' }, sum.text.replaceAll('-', '−')), h('p', { class: 'note' }, `The right-hand side, computed again in f64: ${sum.computed === null ? '−∞' : shortText(sum.computed, 9)}`), sum.terms ? termsTable(sum.terms, name) : null]
      : h('p', { class: 'note' }, isParameter(name) ? 'A weight: it was learned, not computed.' : 'No sum is spelt out for this stage.'),
  ];
}

const SHOWN = 14;

/** The terms of a sum, the largest first. */
export function termsTable(terms, name) {
  if (terms.kind === 'products') {
    const [left, right] = [floatsOf(terms.left), floatsOf(terms.right)];
    const all = Array.from(left, (a, i) => ({ i, a, b: right[i], product: a * right[i] })).sort((x, y) => Math.abs(y.product) - Math.abs(x.product));
    const most = Math.abs(all[0]?.product ?? 1) || 1;
    const rest = all.slice(SHOWN).reduce((sum, term) => sum + term.product, 0);
    const total = all.reduce((sum, term) => sum + term.product, 0);
    return h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, ['i', terms.names[0], terms.names[1], 'product'].map((text) => h('th', { class: 'number' }, text)), h('th', {}, 'largest first'))),
      h('tbody', {}, all.slice(0, SHOWN).map((term) => h('tr', {}, h('td', { class: 'number' }, term.i), h('td', { class: 'number' }, shortText(term.a)), h('td', { class: 'number' }, shortText(term.b)), h('td', { class: 'number' }, shortText(term.product)), h('td', {}, signedBar(term.product / most)))),
        all.length > SHOWN ? h('tr', {}, h('td', { class: 'number' }, '…'), h('td', {}, ''), h('td', { class: 'number' }, `${all.length - SHOWN} more`), h('td', { class: 'number' }, shortText(rest)), h('td', {}, '')) : null,
        h('tr', {}, h('td', {}, 'Σ'), h('td', {}, ''), h('td', { class: 'number' }, terms.divisor !== 1 ? `÷ ${shortText(terms.divisor)}` : ''), h('td', { class: 'number' }, shortText(total)), h('td', {}, '')),
        terms.plus !== null ? h('tr', {}, h('td', {}, '+'), h('td', {}, ''), h('td', { class: 'number' }, 'bias'), h('td', { class: 'number' }, shortText(terms.plus)), h('td', {}, '')) : null)));
  }
  if (terms.kind === 'softmax') {
    const scores = floatsOf(terms.scores);
    const top = Math.max(...scores);
    const total = scores.reduce((sum, s) => sum + Math.exp(s - top), 0);
    const all = Array.from(scores, (s, i) => ({ i, s, share: Math.exp(s - top) / total })).filter((one) => one.s !== -Infinity).sort((x, y) => y.share - x.share);
    const shown = all.slice(0, SHOWN);
    if (!shown.some((one) => one.i === terms.at)) shown.push(...all.filter((one) => one.i === terms.at));
    return h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'key'), ['score s', 'e^s', 'share'].map((text) => h('th', { class: 'number' }, text)), h('th', {}, ''))),
      h('tbody', {}, shown.map((one) => h('tr', { class: one.i === terms.at ? 'chosen' : '' }, h('td', { class: 'code', style: 'white-space:nowrap' }, `${keysOf(name, scores.length)?.(one.i) ?? 'key'} (${one.i})`), h('td', { class: 'number' }, shortText(one.s)), h('td', { class: 'number' }, shortText(Math.exp(one.s))), h('td', { class: 'number' }, shortText(one.share)), h('td', {}, bar(one.share)))))),
    all.length > shown.length ? h('p', { class: 'note' }, `${all.length - shown.length} more keys`) : null);
  }
  const x = floatsOf(terms.x);
  return h('table', {}, h('tbody', {}, [['numbers of the vector', x.length], ['mean', shortText(terms.mean, 6)], ['√(variance + ε)', shortText(terms.deviation, 6)], ['gain w', shortText(terms.gain, 6)], ['bias b', terms.bias === null ? 'none' : shortText(terms.bias, 6)]].map(([what, value]) => h('tr', {}, h('td', {}, what), h('td', { class: 'number' }, value)))));
}

export const gradientSwitch = (chosen, pick) => segmented([['value', 'value'], ['gradient', 'gradient']], chosen, pick, 'Value or gradient');
