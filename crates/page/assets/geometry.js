// Embeddings as points: neighbours, sums and differences, a map.
import { ask, card, focusToken, h, heading, later, look, plainToken, problemBox, recorded, roomIn, shortText, state, tokenText } from './state.js';
import { scatter, signedBar } from './draw.js';

export async function geometryView(root) {
  const place = focusToken();
  const own = [[1, state.ids[place]]];
  const sum = state.sum.length ? state.sum : own;
  const title = heading('Embeddings', 'Each token is a point. Tokens that are used alike end up in similar directions.');
  const answer = ask('nearest', { sum, count: 12 });
  return [title, h('div', { class: 'wide-left' },
    card('Map', later(ask('plane', { ids: state.ids }), (plane) => [scatter({ points: plane.points.map(([id, text, x, y, strong]) => ({ id, x, y, strong, label: plainToken(text) || String(id), title: `${plainToken(text)} (id ${id})` })), xTitle: `first component, ${shortText(100 * plane.explained[0], 3)} % of the variance`, yTitle: `second, ${shortText(100 * plane.explained[1], 3)} %`, width: Math.min(620, roomIn(root)), pick: (point) => look({ sum: [[1, point.id]] }) }),
      h('div', { class: 'legend' }, h('i', { class: 'swatch', style: 'background:var(--orange)' }), 'tokens of the prompt', h('i', { class: 'swatch', style: 'background:var(--blue)' }), `others${plane.points.length < plane.of ? ` (${plane.points.length} of ${plane.of})` : ''}`),
      h('p', { class: 'note' }, 'A map keeps two of many dimensions: points that look close may be far apart. The list has the true distances.')])),
    h('div', {}, sumCard(sum), card('Nearest tokens', later(answer, nearestTable))))];
}

function nearestTable(answer) {
  const most = Math.max(...answer.nearest.map((one) => Math.abs(one.cosine)), 1e-9);
  const byDistance = [...answer.nearest].sort((a, b) => a.distance - b.distance).map((one) => one.id);
  return [h('div', { class: 'scroll' }, h('table', { style: 'width:100%' }, h('thead', {}, h('tr', {}, h('th', {}, 'token'), h('th', { class: 'number' }, 'cosine'), h('th', {}, ''), h('th', { class: 'number' }, 'distance'), h('th', { class: 'number', title: 'rank among these by distance' }, 'rank'))),
    h('tbody', {}, answer.nearest.map((one) => h('tr', { class: 'pick', click: () => look({ sum: [[1, one.id]] }) }, h('td', {}, h('span', { class: 'chip' }, tokenText(one.text))), h('td', { class: 'number' }, shortText(one.cosine)), h('td', { style: 'width:28%' }, signedBar(one.cosine / most)), h('td', { class: 'number' }, shortText(one.distance)), h('td', { class: 'number' }, byDistance.indexOf(one.id) + 1)))))),
  h('p', { class: 'note' }, 'The rank is that by distance: cosine ignores lengths, distance does not. In many dimensions almost all directions are nearly at right angles: a cosine of 0.3 is already much.')];
}

const texts = new Map();

function sumCard(sum) {
  const line = h('div', { class: 'sum' });
  const unknown = sum.map(([, id]) => id).filter((id) => !texts.has(id));
  const write = () => line.replaceChildren(...sum.flatMap(([factor, id], i) => [factor < 0 ? ' − ' : i ? ' + ' : '', h('span', { class: 'chip' }, tokenText(texts.get(id) ?? String(id)))]));
  if (unknown.length) ask('tokens', { ids: unknown }).then((answer) => { answer.tokens.forEach((token) => texts.set(token.id, token.text)); write(); }, () => {});
  write();
  const box = h('div', {});
  const submit = async (event) => {
    event.preventDefault();
    try {
      // "king - man + woman": every word is one token, tried with a blank before it too.
      const terms = event.target.elements.sum.value.split(/(?=[+−-])/).map((part) => part.trim()).filter(Boolean);
      const found = [];
      for (const term of terms) {
        const factor = /^[−-]/.test(term) ? -1 : 1;
        const word = term.replace(/^[+−-]\s*/, '');
        const tries = await Promise.all([word, ` ${word}`].map((text) => ask('tokens', { text }).catch(() => null)));
        const one = [tries[1], tries[0]].find((answer) => answer?.ids.length === 1) ?? tries[0];
        if (!one || one.ids.length !== 1) throw new Error(`"${word}" is ${one ? `${one.ids.length} tokens` : 'no token'}, expected one.`);
        found.push([factor, one.ids[0]]);
      }
      if (found.length) look({ sum: found });
    } catch (error) { box.replaceChildren(problemBox(error)); }
  };
  return card('A point', line, h('form', { submit, class: 'controls', style: 'flex:none' }, h('input', { name: 'sum', placeholder: 'king − man + woman', 'aria-label': 'sum of tokens', style: 'flex:1' }), h('button', { type: 'submit', disabled: Boolean(recorded) }, 'find')), box,
    state.sum.length ? h('button', { type: 'button', click: () => look({ sum: [] }) }, 'back to the chosen token') : h('p', { class: 'note' }, 'the chosen token of the prompt; click a point or a row for another'));
}
