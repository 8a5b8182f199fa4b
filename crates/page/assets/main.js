// The page: header, views, keyboard. Every view is a function that gives the elements of the view.
import { Problem, ask, forgetAnswers, h, known, look, onChange, plainToken, problemBox, readAddress, recorded, state } from './state.js';
import { sourceStrip, tokenStrip, tokensView } from './tokens.js';
import { mapView } from './map.js';
import { numbersView } from './numbers.js';
import { attentionView } from './attention.js';
import { streamView } from './stream.js';
import { samplingMoved, samplingView } from './sampling.js';
import { cacheView } from './cache.js';
import { backwardView } from './backward.js';
import { updateView } from './update.js';
import { changesView } from './changes.js';
import { geometryView } from './geometry.js';
import { neuronsView } from './neurons.js';

const VIEWS = [
  ['map', 'Map', mapView], ['tokens', 'Tokens', tokensView], ['numbers', 'Numbers', numbersView], ['attention', 'Attention', attentionView],
  ['stream', 'Residual stream', streamView], ['sampling', 'Sampling', samplingView], ['cache', 'Cache', cacheView], ['backward', 'Backward', backwardView],
  ['update', 'Update', updateView], ['changes', 'Interventions', changesView], ['geometry', 'Embeddings', geometryView],
  ['neurons', 'Neurons', neuronsView],
];
const KEYS = '1234567890-=';
const byId = (id) => document.getElementById(id);
let drawing = 0;

const SLIDES = ['temperature', 'top_k', 'top_p', 'min_p', 'seed'];

/** Draws what is looked at. A later call overtakes an earlier one. */
async function draw(changes = {}) {
  const changed = Object.keys(changes);
  if (state.view === 'sampling' && changed.length && changed.every((key) => SLIDES.includes(key)) && samplingMoved()) return;
  const turn = ++drawing;
  const main = byId('main');
  for (const button of byId('nav').children) button.toggleAttribute('aria-current', false);
  const current = byId(`nav-${state.view}`) ?? byId('nav-map');
  current.setAttribute('aria-current', 'page');
  if (changed.includes('view')) current.scrollIntoView({ block: 'nearest', inline: 'center' });
  const view = VIEWS.find(([name]) => name === state.view) ?? VIEWS[0];
  document.title = `${view[1]} · hearken`;
  let found;
  try {
    if (changed.includes('ids') || changed.includes('source') || changed.includes('target') || !known.tokens.length || known.forIds !== JSON.stringify([state.source, state.ids])) await prepare();
    if (turn !== drawing) return;
    await chooseTarget();
    sourceStrip();
    tokenStrip();
    banner();
    found = await view[2](main);
  } catch (error) {
    if (!(error instanceof Problem)) console.error(error);
    found = [h('h1', {}, view[1]), problemBox(error)];
  }
  if (turn !== drawing) return;
  const top = changed.includes('view') ? 0 : globalThis.scrollY;
  main.replaceChildren(...[found].flat(9).filter(Boolean));
  main.dataset.view = view[0];
  main.dataset.turn = String(turn);
  globalThis.scrollTo(0, top);
}

/** Tokens and the run of a new prompt. */
async function prepare() {
  known.forIds = JSON.stringify([state.source, state.ids]);
  if (known.model.source) {
    known.sources = (await ask('tokens', { ids: state.source })).tokens;
    const box = byId('source');
    if (document.activeElement !== box) box.value = known.model.tokenizer ? textOf(known.sources.filter((token, i) => !(token.special && i === known.sources.length - 1))) : state.source.join(', ');
  }
  const answer = await ask('tokens', { ids: state.ids });
  known.tokens = answer.tokens;
  known.text = answer.text;
  known.run = await ask('run', { ids: state.ids });
  const input = byId('prompt');
  if (document.activeElement !== input) input.value = known.model.tokenizer ? plainPrompt() : state.ids.join(', ');
}

/** Line ends cannot stand in one line. */
const inOneLine = (text) => text.replace(/\n/g, '⏎');
const textOf = (tokens) => inOneLine(tokens.map((token) => token.text).join(''));

/** The token that begins targets comes by itself. */
function plainPrompt() {
  const { source } = known.model;
  if (!source && known.text) return inOneLine(known.text);
  return textOf(source && known.tokens[0]?.id === source.begin ? known.tokens.slice(1) : known.tokens);
}

/** Without a target, the most likely token is one, where the model has a loss. */
async function chooseTarget() {
  const { can } = known.model;
  const input = byId('target');
  byId('gradients').disabled = !can.learn;
  byId('gradients').checked = state.gradients && can.learn;
  byId('target-label').textContent = known.model.labels ? 'Target label' : 'Target token';
  input.disabled = !can.learn || Boolean(recorded);
  if (!can.learn) { state.target = null; return; }
  const last = state.ids.length - 1;
  if (!state.target || state.target[0] > last) state.target = recorded?.target ?? [last, known.run.next?.[0]?.id ?? 0];
  const found = known.run.next?.find((one) => one.id === state.target[1]);
  known.targetText = found?.text ?? (known.model.labels ? known.model.labels[state.target[1]] : null) ?? (await ask('tokens', { ids: [state.target[1]] }).catch(() => null))?.tokens[0].text;
  if (document.activeElement !== input) input.value = plainToken(known.targetText ?? String(state.target[1])).replace(/·/g, '\u00b7');
}

function banner() {
  const box = byId('banner');
  const parts = [];
  if (recorded) parts.push('A recorded page: what was computed for this prompt can be looked at; other prompts need the engine (', h('code', {}, 'hearken explain --page'), ').');
  const steps = known.steps ?? 0;
  if (steps) parts.push(`The weights in memory are ${steps} ${steps === 1 ? 'step' : 'steps'} away from the file. `, h('a', { href: '#', click: (event) => { event.preventDefault(); look({ view: 'update' }, true); } }, 'Go to Update to take them back.'));
  box.hidden = !parts.length;
  box.replaceChildren(...parts);
}

async function submitPrompt(event) {
  event.preventDefault();
  const box = byId('prompt-problem');
  box.hidden = true;
  try {
    const text = byId('prompt').value.replace(/⏎/g, '\n');
    const numbers = (list) => list.split(/[ ,]+/).filter(Boolean).map(Number);
    const read = async (written, as) => (known.model.tokenizer ? (await ask('tokens', { text: written, as })).ids : numbers(written));
    const source = known.model.source ? await read(byId('source').value.replace(/⏎/g, '\n'), 'source') : state.source;
    const ids = await read(text, known.model.source ? 'prompt' : undefined);
    let target = null;
    const wanted = byId('target').value.replace(/·/g, ' ').replace(/⏎/g, '\n');
    const unchanged = known.targetText !== null && wanted === plainToken(known.targetText ?? '').replace(/·/g, ' ').replace(/⏎/g, '\n');
    const sameIds = JSON.stringify([source, ids]) === JSON.stringify([state.source, state.ids]);
    if (wanted !== '' && known.model.can.learn && !(unchanged && !sameIds)) {
      const label = known.model.labels?.indexOf(wanted);
      const id = known.model.labels ? (label >= 0 ? label : Number(wanted)) : known.model.tokenizer ? (await ask('tokens', { text: wanted })).ids[0] : Number(wanted);
      target = [ids.length - 1, id];
    }
    document.activeElement?.blur();
    look({ source, ids, target, token: null, row: null, column: 0 }, true);
  } catch (error) {
    box.textContent = `${error.message} ${error.hint ?? ''}`;
    box.hidden = false;
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem('hearken-theme', name); } catch { /* a file may have no storage */ }
}

function preferredTheme() {
  try { const kept = localStorage.getItem('hearken-theme'); if (kept) return kept; } catch { /* as above */ }
  return globalThis.matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

function keyboard(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const view = VIEWS[KEYS.indexOf(event.key)];
  if (view) return look({ view: view[0] }, true);
  if (event.key === 'g' && !byId('gradients').disabled) return look({ gradients: !state.gradients });
  if (event.key === 't') return byId('theme').click();
  if (event.key === '/') { event.preventDefault(); return byId('prompt').focus(); }
  const step = { '[': -1, ']': 1 }[event.key];
  if (step) look({ token: Math.max(0, Math.min(state.ids.length - 1, (state.token ?? state.ids.length - 1) + step)), row: null });
  return undefined;
}

async function start() {
  theme(preferredTheme());
  byId('theme').addEventListener('click', () => { theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'); draw(); });
  byId('nav').append(...VIEWS.map(([name, title], i) => h('button', { type: 'button', id: `nav-${name}`, click: () => look({ view: name }, true) }, h('kbd', {}, KEYS[i]), title)));
  byId('skip').addEventListener('click', (event) => { event.preventDefault(); byId('main').focus(); });
  byId('gradients').addEventListener('change', (event) => look({ gradients: event.target.checked }));
  byId('prompt-form').addEventListener('submit', submitPrompt);
  if (recorded) for (const id of ['source', 'prompt', 'run']) byId(id).disabled = true;
  document.addEventListener('keydown', keyboard);
  let width = globalThis.innerWidth;
  globalThis.addEventListener('resize', () => { if (globalThis.innerWidth !== width) { width = globalThis.innerWidth; draw(); } });
  globalThis.addEventListener('popstate', () => { readAddress(); if (!state.ids.length) state.ids = known.model.start.ids; if (!state.source.length) state.source = known.model.source?.ids ?? []; draw({ view: 1, ids: 1 }); });
  try {
    known.model = await ask('model', {});
    known.steps = known.model.weights_steps;
    byId('model-name').textContent = known.model.name;
    readAddress();
    if (!state.ids.length || recorded) state.ids = known.model.start.ids;
    if (!state.source.length || recorded) state.source = known.model.source?.ids ?? [];
    byId('source-field').hidden = !known.model.source;
    if (known.model.source) byId('prompt-label').textContent = 'Target so far';
    if (!state.target && known.model.start.target) state.target = known.model.start.target;
    onChange(draw);
    forgetAnswers();
    await draw({ view: 1 });
  } catch (error) { byId('main').replaceChildren(problemBox(error)); }
}

start();
