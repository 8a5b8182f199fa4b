// What is looked at (and stands in the address), the questions to the engine, and small helpers.

/** What is looked at. Everything here is in the address, so that a view can be shared. */
export const state = {
  view: 'map', source: [], ids: [], target: null, gradients: false, token: null, site: null, head: 0, stage: null, row: null,
  column: 0, block: 0, kind: 'weights', temperature: 1, top_k: 0, top_p: 1, min_p: 0, seed: 0,
  weight: null, index: 0, changes: [], sum: [], neuron: null,
};

/** The map of the model, once it is there. */
export const known = { model: null, tokens: [], sources: [], run: null, problem: null };

const listeners = [];
export const onChange = (listener) => listeners.push(listener);

const LISTS = ['source', 'ids', 'target', 'changes', 'sum'];
const NUMBERS = ['token', 'head', 'row', 'column', 'block', 'temperature', 'top_k', 'top_p', 'min_p', 'seed', 'index', 'neuron'];
const DEFAULTS = { ...state };

export function readAddress() {
  const found = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(DEFAULTS)) {
    const text = found.get(key);
    if (text === null) state[key] = DEFAULTS[key];
    else if (LISTS.includes(key)) state[key] = parseList(text) ?? DEFAULTS[key];
    else if (NUMBERS.includes(key)) state[key] = Number.isFinite(Number(text)) ? Number(text) : DEFAULTS[key];
    else if (key === 'gradients') state[key] = text === '1';
    else state[key] = text;
  }
}

function parseList(text) {
  try {
    const list = JSON.parse(`[${text}]`);
    return Array.isArray(list) && list.length ? list : null;
  } catch { return null; }
}

function address() {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (JSON.stringify(value) === JSON.stringify(DEFAULTS[key]) || value === null) continue;
    if (LISTS.includes(key)) parts.set(key, JSON.stringify(value).slice(1, -1));
    else parts.set(key, key === 'gradients' ? '1' : value);
  }
  return `#${parts}`;
}

/** Changes what is looked at; `push` makes a step for the browser's back button. */
export function look(changes, push = false) {
  Object.assign(state, changes);
  history[push ? 'pushState' : 'replaceState'](null, '', address());
  for (const listener of listeners) listener(changes);
}

export const recorded = globalThis.RECORDED ?? null;

/** An error with what to do about it. */
export class Problem extends Error {
  constructor(message, hint) {
    super(message);
    this.hint = hint ?? '';
  }
}

const NEEDS_ENGINE = 'This needs the engine: this file holds recorded numbers only.';
const answers = new Map();
let waiting = 0;

export function forgetAnswers() { answers.clear(); }

const question = (name, body) => {
  const sorted = Object.fromEntries(Object.keys(body).sort().filter((key) => body[key] !== undefined && body[key] !== null).map((key) => [key, body[key]]));
  return { key: `${name} ${JSON.stringify(sorted)}`, text: JSON.stringify(sorted) };
};

/** Asks the engine. Answers are kept, unless the question changes something. */
export function ask(name, given, keep = true) {
  // What an encoder-decoder reads is part of every question; a recorded page has one source.
  const body = known.model?.source && !recorded ? { source: state.source, ...given } : given;
  const { key, text } = question(name, body);
  if (recorded) {
    const answer = recorded.answers[key];
    if (!answer) return Promise.reject(new Problem(NEEDS_ENGINE, 'hearken explain --page opens the living page'));
    return answer.error ? Promise.reject(new Problem(answer.error, answer.hint)) : Promise.resolve(answer);
  }
  if (keep && answers.has(key)) return answers.get(key);
  const answer = request(name, text);
  if (keep) {
    if (answers.size > 300) answers.clear();
    answers.set(key, answer);
    answer.catch(() => answers.delete(key));
  }
  return answer;
}

async function request(name, text, tries = 6) {
  busy(1);
  try {
    const response = await fetch(`api/${name}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: text });
    if (response.status === 503 && tries > 0) {
      await new Promise((done) => setTimeout(done, 400));
      return await request(name, text, tries - 1);
    }
    const answer = await response.json();
    if (!response.ok) throw new Problem(answer.error, answer.hint);
    return answer;
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem('The engine does not answer.', 'Is "hearken explain --page" still running?');
  } finally { busy(-1); }
}

function busy(change) {
  waiting += change;
  document.getElementById('busy').hidden = waiting === 0;
}

/** The prompt and, with gradients on, the target: part of most questions. */
export const prompt_ = () => (state.gradients && state.target ? { ids: state.ids, target: state.target } : { ids: state.ids });

/** The token that is looked at: the last, unless one was chosen. */
export const focusToken = () => Math.min(state.token ?? state.ids.length - 1, state.ids.length - 1);

export function bytesOf(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Exact numbers from their bits. */
export const floatsOf = (text) => new Float32Array(bytesOf(text).buffer);

const minus = (text) => text.replaceAll('-', '−').replace('e+', 'e');

/** All digits of an f32: the shortest decimal that gives the same bits back. */
export function exactText(x) {
  if (x === null || x === undefined || x === -Infinity) return '−∞';
  if (Number.isNaN(x)) return 'NaN';
  for (let digits = 1; digits <= 9; digits += 1) {
    const text = x.toPrecision(digits);
    if (Math.fround(Number(text)) === Math.fround(x)) return minus(Math.abs(x) < 1e-4 && x !== 0 ? Number(text).toExponential() : String(Number(text)));
  }
  return minus(String(x));
}

/** A few digits, for reading. */
export function shortText(x, digits = 4) {
  if (x === null || x === undefined) return '–';
  if (x === -Infinity) return '−∞';
  if (!Number.isFinite(x)) return String(x);
  if (x === 0) return '0';
  const size = Math.abs(x);
  return minus(size < 1e-3 || size >= 1e5 ? x.toExponential(2) : x.toPrecision(digits).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, ''));
}

export const percent = (p) => (p === null || p === undefined ? '–' : p >= 0.0995 ? `${(100 * p).toFixed(1)} %` : p >= 0.00095 ? `${(100 * p).toFixed(2)} %` : p === 0 ? '0 %' : `${(100 * p).toExponential(1).replace('e-', 'e−')} %`);

export function amount(n) {
  for (const [size, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) if (n >= size) return `${(n / size).toPrecision(3)} ${unit}`;
  return String(n);
}

export function byteText(n) {
  for (const [size, unit] of [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']]) if (n >= size) return `${(n / size).toPrecision(3)} ${unit}`;
  return `${n} B`;
}

/** An element. Attributes that are functions are listeners. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (typeof value === 'function') element.addEventListener(key, value);
    else if (key === 'style') element.style.cssText = value;
    else if (value === true) element.setAttribute(key, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Text of a token with what is invisible made visible. */
export function tokenText(text) {
  const parts = [];
  for (const piece of String(text).split(/([ \n\t]|[\u0000-\u001f])/)) {
    if (piece === ' ') parts.push(h('span', { class: 'blank' }, '·'));
    else if (piece === '\n') parts.push(h('span', { class: 'blank' }, '⏎'));
    else if (piece === '\t') parts.push(h('span', { class: 'blank' }, '⇥'));
    else if (/^[\u0000-\u001f]$/.test(piece)) parts.push(h('span', { class: 'blank' }, '�'));
    else if (piece) parts.push(piece);
  }
  return parts;
}

export const plainToken = (text) => String(text).replace(/ /g, '·').replace(/\n/g, '⏎').replace(/\t/g, '⇥');

/** The label of a token of the source. */
export const sourceLabelOf = (place) => plainToken(known.sources[place]?.text ?? String(state.source[place] ?? ''));

/** Are the rows of a value tokens of the source? */
export const isOfSource = (name) => /^encoder\.|cross_attention\.(keys|values)$/.test(name);

/** The tokens that the rows of a value are of, and what names them; null, if they are of none. */
export function rowsOf(name, count) {
  if (/\.mixed_(keys|values)$/.test(name)) return null;
  const source = isOfSource(name);
  const [ids, label] = source ? [state.source, sourceLabelOf] : [state.ids, labelOf];
  return count === ids.length ? { label, source } : null;
}

/** Do the queries of an attention layer meet mixtures of keys in place of tokens? */
export const mixesKeys = (site) => known.model.stages.some((stage) => stage.name === `${site}.mixed_keys`);

/** What names the keys of an attention layer. */
export function keysOf(name, count) {
  if (mixesKeys(name.replace(/\.(scores|weights)$/, ''))) return (i) => `mixture ${i}`;
  const source = /^encoder\.|cross_attention/.test(name);
  return count === (source ? state.source : state.ids).length ? (source ? sourceLabelOf : labelOf) : null;
}

/** A block by its number, as the map counts them. */
export const blockTitle = (block) => known.model.blocks?.[block] ?? `block ${block}`;

/** The label of a token of the prompt. */
export const labelOf = (place) => plainToken(known.tokens[place]?.text ?? String(state.ids[place] ?? ''));

/** The width that a card of the view has for a picture; `share` of the page on a wide one. */
export const roomIn = (root, share = 0.62) => (root.clientWidth > 900 ? Math.min(900, (root.clientWidth - 36) * share - 40) : root.clientWidth - 58);

export const problemBox = (error) => h('p', { class: 'problem', role: 'alert' }, error.message, error.hint ? ` ${error.hint}` : '');

/** A heading and a sentence. */
export const heading = (title, lead) => [h('h1', {}, title), h('p', { class: 'lead' }, lead)];

export const card = (title, ...children) => h('section', { class: 'card' }, title ? h('h2', {}, title) : null, ...children);

/** Buttons of which one is pressed. */
export function segmented(choices, chosen, pick, label) {
  const button = ([value, text]) => h('button', { type: 'button', 'aria-pressed': String(value === chosen), click: () => pick(value) }, text);
  return h('div', { class: 'segmented', role: 'group', 'aria-label': label }, choices.map(button));
}

/** A box that is filled when the answer is there. */
export function later(promise, fill) {
  const box = h('div', {});
  promise.then(async (answer) => box.replaceChildren(...[await fill(answer)].flat(9).filter(Boolean)), (error) => box.replaceChildren(problemBox(error)));
  return box;
}

export function selectOf(options, chosen, pick, label) {
  const one = ([value, text]) => h('option', { value, selected: String(value) === String(chosen) }, text ?? value);
  return h('label', { class: 'field' }, h('span', {}, label), h('select', { change: (event) => pick(event.target.value) }, options.map(one)));
}
