// Colours, legends and small charts. Colours are safe for colour-blind eyes: blue against orange for
// signs, light to dark (or dark to light) for sizes.
import { h, shortText } from './state.js';

const LIGHT = { low: [31, 95, 168], middle: [247, 246, 242], high: [190, 84, 10], none: '#e9e6df', stops: ['#fbfaf6', '#c4e0cf', '#6ab6a5', '#2f8391', '#2b4f82', '#2a1f54'] };
const DARK = { low: [96, 168, 245], middle: [28, 31, 38], high: [245, 150, 66], none: '#0f1114', stops: ['#181b21', '#32306b', '#33618d', '#2a9d8f', '#8fd166', '#fde725'] };

export const isDark = () => document.documentElement.dataset.theme === 'dark';
const palette = () => (isDark() ? DARK : LIGHT);
const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** −1 … 1 as blue … orange. */
export function diverging(t) {
  const { low, middle, high } = palette();
  const size = Math.min(1, Math.abs(t)) ** 0.7; // small numbers can still be seen
  return mix(middle, t < 0 ? low : high, size);
}

/** 0 … 1 from the paper to the strongest colour. */
export function sequential(t) {
  const { stops } = palette();
  const at = Math.max(0, Math.min(1, t)) ** 0.6 * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  return mix(rgb(stops[i]), rgb(stops[i + 1]), at - i);
}

/** A function from a number to its colour. */
export function scaleOf(kind, low, high) {
  if (kind === 'sequential') {
    const top = Math.max(high ?? 1, 1e-30);
    return (x) => sequential(x / top);
  }
  const size = Math.max(Math.abs(low ?? 0), Math.abs(high ?? 0), 1e-30);
  return (x) => diverging(x / size);
}

export const css = (color) => `rgb(${color.join(' ')})`;
export const noColor = () => palette().none;
export const inkOn = (color) => (0.3 * color[0] + 0.59 * color[1] + 0.11 * color[2] > 140 ? '#16181d' : '#fbfaf7');
export const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A canvas for sharp lines on any screen. */
export function canvasOf(width, height) {
  const canvas = document.createElement('canvas');
  const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  return [canvas, pen];
}

/** What the colours mean. */
export function legend(kind, low, high, what, hidden = false) {
  const [canvas, pen] = canvasOf(120, 10);
  const size = Math.max(Math.abs(low ?? 0), Math.abs(high ?? 0));
  for (let x = 0; x < 120; x += 1) {
    pen.fillStyle = css(kind === 'sequential' ? sequential(x / 119) : diverging((x / 119) * 2 - 1));
    pen.fillRect(x, 0, 1, 10);
  }
  const ends = kind === 'sequential' ? ['0', shortText(high ?? 1, 3)] : [shortText(-size, 3), shortText(size, 3)];
  return h('div', { class: 'legend' }, what ? `${what}: ` : '', ends[0], canvas, ends[1], hidden ? [h('i', { class: 'swatch', style: `background:${noColor()};border:1px solid var(--line)` }), 'hidden (−∞)'] : null);
}

/** A bar from 0 to `share`; for signed numbers from the middle. */
export function bar(share, title = '', kind = '') {
  return h('div', { class: 'bar', title }, h('i', { class: kind, style: `width:${Math.max(0, Math.min(1, share)) * 100}%` }));
}

export function signedBar(share, title = '') {
  const width = Math.min(1, Math.abs(share)) * 50;
  const left = share < 0 ? 50 - width : 50;
  return h('div', { class: 'bar middle', title }, h('i', { class: share < 0 ? 'positive' : 'negative', style: `left:${left}%;width:${width}%` }));
}

const SVG = 'http://www.w3.org/2000/svg';
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key, value);
    else element.setAttribute(key, value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Round numbers between two ends. */
export function ticks(low, high, count = 4) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw) ?? raw;
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-9; x += step) found.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return found;
}

/** A line through points, with axes. `marks` are {x, y, label}. */
export function lineChart({ points, xLabels, xTitle, yTitle, width = 560, height = 190, color = 'var(--blue)', zero = true }) {
  const [left, right, top, bottom] = [54, 12, 12, 50];
  const ys = points.map((p) => p.y).filter(Number.isFinite);
  const low = zero ? Math.min(0, ...ys) : Math.min(...ys);
  const high = Math.max(...ys, low + 1e-12);
  const xs = Math.max(1, points.length - 1);
  const x = (i) => left + (i / xs) * (width - left - right);
  const y = (v) => top + (1 - (v - low) / (high - low)) * (height - top - bottom);
  const every = Math.max(1, Math.ceil(points.length / 9));
  const path = points.map((p, i) => `${i ? 'L' : 'M'}${x(i).toFixed(1)} ${y(p.y).toFixed(1)}`).join('');
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, width: '100%', role: 'img', 'aria-label': `${yTitle} by ${xTitle}` },
    ticks(low, high, 4).map((t) => [svg('line', { class: 'axis', x1: left, x2: width - right, y1: y(t), y2: y(t) }), svg('text', { x: left - 6, y: y(t) + 4, 'text-anchor': 'end' }, shortText(t, 3))]),
    svg('path', { d: path, fill: 'none', stroke: color, 'stroke-width': 2 }),
    points.map((p, i) => svg('circle', { cx: x(i), cy: y(p.y), r: 3.2, fill: color }, svg('title', {}, `${p.label ?? xLabels?.[i] ?? i}: ${shortText(p.y, 6)}`))),
    points.map((_, i) => (i % every === 0 && xLabels ? svg('text', { x: x(i), y: height - bottom + 16, 'text-anchor': 'middle' }, xLabels[i]) : null)),
    svg('text', { x: (left + width - right) / 2, y: height - 8, 'text-anchor': 'middle' }, xTitle),
    svg('text', { x: 12, y: (top + height - bottom) / 2, 'text-anchor': 'middle', transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, yTitle));
}

/** Points in a plane, with axes. */
export function scatter({ points, xTitle, yTitle, width = 620, height = 420, pick }) {
  const [left, right, top, bottom] = [58, 16, 14, 42];
  const range = (values) => { const [a, b] = [Math.min(...values), Math.max(...values)]; const pad = (b - a || 1) * 0.06; return [a - pad, b + pad]; };
  const [x0, x1] = range(points.map((p) => p.x));
  const [y0, y1] = range(points.map((p) => p.y));
  const x = (v) => left + ((v - x0) / (x1 - x0)) * (width - left - right);
  const y = (v) => top + (1 - (v - y0) / (y1 - y0)) * (height - top - bottom);
  // A label is drawn only where no other stands; those of the prompt come first.
  const placed = [];
  const order = points.map((p, i) => i).sort((a, b) => Number(points[b].strong) - Number(points[a].strong));
  const labelled = new Set();
  for (const i of order) {
    const [px, py] = [x(points[i].x) + 6, y(points[i].y)];
    const wide = 7 * String(points[i].label).length + 4;
    const free = placed.every(([a, b, w]) => px + wide < a || a + w < px || Math.abs(py - b) > 12);
    if (free && px + wide < width) { placed.push([px, py, wide]); labelled.add(i); }
  }
  const dots = points.map((p, i) => svg('g', { style: pick ? 'cursor:pointer' : '', click: () => pick?.(p) },
    svg('circle', { cx: x(p.x), cy: y(p.y), r: p.strong ? 5 : 3, fill: p.strong ? 'var(--orange)' : 'var(--blue)', 'fill-opacity': p.strong ? 1 : 0.45 }, svg('title', {}, p.title ?? p.label)),
    labelled.has(i) ? svg('text', { class: p.strong ? 'ink' : '', x: x(p.x) + 7, y: y(p.y) + 4 }, p.label) : null));
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, width: '100%', role: 'img', 'aria-label': `${yTitle} against ${xTitle}` },
    ticks(x0, x1, 5).map((t) => [svg('line', { class: 'axis', x1: x(t), x2: x(t), y1: top, y2: height - bottom }), svg('text', { x: x(t), y: height - bottom + 15, 'text-anchor': 'middle' }, shortText(t, 3))]),
    ticks(y0, y1, 5).map((t) => [svg('line', { class: 'axis', x1: left, x2: width - right, y1: y(t), y2: y(t) }), svg('text', { x: left - 6, y: y(t) + 4, 'text-anchor': 'end' }, shortText(t, 3))]),
    dots,
    svg('text', { x: (left + width - right) / 2, y: height - 6, 'text-anchor': 'middle' }, xTitle),
    svg('text', { x: 13, y: (top + height - bottom) / 2, 'text-anchor': 'middle', transform: `rotate(-90 13 ${(top + height - bottom) / 2})` }, yTitle));
}

/** A few words beside the pointer. */
export function tip(text, event) {
  const box = document.getElementById('tip');
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const { innerWidth: w, innerHeight: t } = globalThis;
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, w - box.offsetWidth - 8))}px`;
  box.style.top = `${event.clientY + 18 + box.offsetHeight > t ? event.clientY - box.offsetHeight - 10 : event.clientY + 18}px`;
}
