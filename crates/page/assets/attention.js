// Attention: all heads small, one head large, scores and weights, roles by measurement.
import { ask, bytesOf, card, exactText, floatsOf, focusToken, h, heading, keysOf, known, labelOf, later, look, mixesKeys, roomIn, rowsOf, segmented, sourceLabelOf, selectOf, shortText, state } from './state.js';
import { bar, css, legend, sequential } from './draw.js';
import { heatMap } from './heatmap.js';

const sites = () => known.model.stages.map((stage) => stage.name).filter((name) => name.endsWith('attention.weights')).map((name) => name.slice(0, -8));

/** The chosen one, or the first on the way to the logits. */
export const siteName = () => (sites().includes(state.site) ? state.site : sites().find((site) => !site.startsWith('encoder.')) ?? sites()[0]);

/** The query that is looked at: a token of the prompt, or in the encoder one of the source. */
const queryOf = (site) => (site.startsWith('encoder.') ? Math.min(state.row ?? state.source.length - 1, state.source.length - 1) : focusToken());

export async function attentionView(root) {
  const site = siteName();
  // An encoder may have heads of its own.
  const shapeOf = (part) => known.model.stages.find((stage) => stage.name === `${site}.${part}`)?.shape[0];
  const heads = Number(shapeOf('weights') ?? known.model.stack.heads);
  const kv_heads = Number(shapeOf('keys') ?? known.model.stack.kv_heads);
  const head = Math.min(state.head, heads - 1);
  const shared = heads / kv_heads;
  const group = shared > 1 ? `Heads ${Math.floor(head / shared) * shared} to ${Math.floor(head / shared) * shared + shared - 1} share keys and values.` : null;
  const long = known.run?.long;
  const shownSites = long ? [site] : sites();
  const grid = shownSites.map((one) => [h('div', { class: 'layer-label' }, one), later(ask('heads', { ids: state.ids, site: one }), (answer) => headGrid(answer, site, head))]);
  const many = heads * shownSites.length > 16;
  const all = card('All heads', grid, legend('sequential', 0, 1, 'weight'), long ? h('p', { class: 'note' }, 'A long prompt: only the chosen layer is computed.') : null);
  return [
    heading('Attention', `Each head lets every token (a row, the query) look at ${mixesKeys(site) ? 'a few mixtures of all tokens' : 'others'} (columns, the keys). The weights of a row add up to 1.`),
    h('div', { class: 'wide-left' },
      h('div', {}, card(`${site}, head ${head}`,
        h('div', { class: 'controls' }, selectOf(sites().map((one) => [one, one]), site, (value) => look({ site: value }), 'Layer'), selectOf(Array.from({ length: heads }, (_, i) => [i, `head ${i}`]), head, (value) => look({ head: Number(value) }), 'Head'),
          segmented([['scores', 'scores'], ['weights', 'weights']], state.kind, (kind) => look({ kind }), 'Before or after softmax')),
        group ? h('p', { class: 'note', style: 'margin:0 0 8px' }, group) : null,
        later(ask('tensor', { ids: state.ids, name: `${site}.${state.kind}`, head }), (answer) => bigHead(answer, site, roomIn(root)))),
      rowCard(site, head)),
      h('div', {}, later(ask('heads', { ids: state.ids, site }), (answer) => rolesCard(answer, head)), many ? null : all)),
    many ? h('div', { style: 'margin-top:14px' }, all) : null,
  ];
}

function bigHead(answer, site, width) {
  const [queries, keys] = answer.shape.slice(-2);
  const kind = state.kind === 'weights' ? 'sequential' : 'diverging';
  return [heatMap({ answer, cells: floatsOf(answer.cells), kind, low: answer.low, high: kind === 'sequential' ? 1 : answer.high, width, square: true, rowLabel: rowsOf(site, queries)?.label ?? ((i) => i), columnLabel: keysOf(site, keys) ?? ((i) => i), rowTitle: 'query', columnTitle: site.endsWith('cross_attention') ? 'key (source)' : 'key', chosen: [queryOf(site), state.column], pick: (row, column) => look({ ...(site.startsWith('encoder.') ? {} : { token: row }), row, column }) }),
    legend(kind, answer.low, kind === 'sequential' ? 1 : answer.high, state.kind === 'weights' ? 'weight after softmax' : 'score before softmax', state.kind === 'scores'),
    answer.row_step * answer.column_step > 1 ? h('p', { class: 'note' }, `Each cell is the largest of ${answer.row_step} × ${answer.column_step}.`) : null];
}

/** Where the chosen token looks: score, mask, weight. */
function rowCard(site, head) {
  const place = queryOf(site);
  const named = site.startsWith('encoder.') ? sourceLabelOf : labelOf;
  const rows = [place, place + 1];
  const both = known.run?.long ? [ask('tensor', { ids: state.ids, name: `${site}.scores`, head, rows }), ask('tensor', { ids: state.ids, name: `${site}.weights`, head, rows })] : [ask('tensor', { ids: state.ids, name: `${site}.scores`, head }), ask('tensor', { ids: state.ids, name: `${site}.weights`, head })];
  return card(h('span', {}, 'Where ', h('span', { class: 'chip' }, named(place)), ` (${place}) looks`), later(Promise.all(both), ([scores, weights]) => {
    if (weights.column_step > 1) return h('p', { class: 'note' }, 'Too many keys to list; hover over the map.');
    const columns = weights.columns[1] - weights.columns[0];
    const from = (place - weights.rows[0]) * columns;
    const [s, w] = [floatsOf(scores.cells).slice(from, from + columns), floatsOf(weights.cells).slice(from, from + columns)];
    const order = Array.from(w.keys()).sort((a, b) => w[b] - w[a] || a - b).slice(0, 12);
    const entropy = w.reduce((sum, x) => (x > 0 ? sum - x * Math.log(x) : sum), 0);
    const open = s.reduce((count, x) => count + Number(x !== -Infinity), 0);
    return [h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'key'), h('th', { class: 'number' }, 'score'), h('th', { class: 'number' }, 'weight'), h('th', {}, ''))),
      h('tbody', {}, order.map((key) => h('tr', { class: 'pick', click: () => look({ view: 'numbers', stage: `${site}.weights`, head, ...(site.startsWith('encoder.') ? {} : { token: place }), row: place, column: key }, true) }, h('td', { class: 'code', style: 'white-space:nowrap' }, `${keysOf(site, columns)?.(key) ?? `key ${key}`} (${key})`), h('td', { class: 'number' }, exactText(s[key])), h('td', { class: 'number weight' }, exactText(w[key])), h('td', { style: 'width:30%' }, bar(w[key]))))))),
    h('p', { class: 'note' }, `Entropy ${shortText(entropy)} nats of at most ${shortText(Math.log(Math.max(1, open)))}; ${open} of ${columns} keys are visible. Click a key for the sum behind its weight.`)];
  }));
}

const WHAT = {
  'previous token': 'on the token just before', 'first token': 'on the first token', duplicate: 'on earlier copies of the same token',
  induction: 'on what followed earlier copies of the same token', 'who she is': 'from she, he, her, his, him to the name at the beginning', uniform: 'entropy, as a share of the most possible: such a head averages',
};

function rolesCard(answer, head) {
  const own = answer.heads[head];
  if (!own?.scores?.length) return null;
  const limit = (name) => (name === 'uniform' ? answer.uniform : answer.threshold);
  return card('What this head does, by measurement',
    own.role ? h('p', {}, h('span', { class: 'role found' }, own.role), ` ${shortText(own.score, 3)}`) : h('p', { class: 'note' }, 'No role reaches its threshold on this prompt.'),
    h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'mean weight'), h('th', { class: 'number' }, 'score'), h('th', { class: 'number' }, 'needs'), h('th', {}, ''))), h('tbody', {}, own.scores.filter(({ score }) => score !== null).map(({ name, score }) => h('tr', { class: name === own.role ? 'chosen' : '' }, h('td', { title: WHAT[name] }, h('b', { style: 'font-weight:560' }, name), h('div', { class: 'note', style: 'margin:0' }, WHAT[name])), h('td', { class: 'number' }, score === null ? '–' : shortText(score, 3)), h('td', { class: 'number' }, limit(name)), h('td', { style: 'width:24%' }, score === null ? '' : bar(score)))))),
    h('p', { class: 'note' }, `The mean weight over all tokens that have such a key. Mean entropy ${shortText(own.entropy)} nats.`));
}

/** Small pictures of all heads of a layer. `onPick` and `isOff` are for the view of interventions. */
export function headGrid(answer, site, head, onPick = null, isOff = () => false) {
  const columns = Math.min(answer.heads.length, answer.heads.length > 6 && globalThis.innerWidth > 900 && !onPick ? 12 : 6);
  const one = (own) => {
    const { rows, columns: across, bytes } = own.picture;
    const canvas = h('canvas', { width: across, height: rows });
    const pen = canvas.getContext('2d');
    const picture = pen.createImageData(across, rows);
    bytesOf(bytes).forEach((byte, i) => picture.data.set([...sequential(byte / 255), 255], 4 * i));
    pen.putImageData(picture, 0, 0);
    const chosen = answer.site === site && own.head === head;
    return h('button', { type: 'button', class: `head-cell${isOff(answer.site, own.head) ? ' off' : ''}`, 'aria-pressed': String(chosen), 'data-head': `${answer.site}[${own.head}]`, title: `${answer.site}, head ${own.head}: ${own.role ?? 'no role found'}, entropy ${shortText(own.entropy)}`, click: () => (onPick ? onPick(answer.site, own.head) : look({ site: answer.site, head: own.head })) },
      canvas, h('span', { class: own.role ? 'what' : '' }, own.role?.replace(' token', '') ?? `head ${own.head}`), h('span', {}, `H ${shortText(own.entropy, 3)}`));
  };
  return h('div', { class: 'heads', style: `grid-template-columns:repeat(${columns}, minmax(0, 1fr))` }, answer.heads.map(one));
}

export const cellColor = (share) => css(sequential(share));
