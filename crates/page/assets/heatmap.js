// A heat map of exact numbers: hover to read, click or arrow keys to choose.
import { exactText, h } from './state.js';
import { canvasOf, css, inkOn, noColor, scaleOf, styleOf, tip } from './draw.js';

/**
 * `answer` is that of the question "tensor". `rowLabel(i)` and `columnLabel(i)` name rows and columns by
 * their own numbers; `chosen` is [row, column]; `pick(row, column)` is called with what was chosen.
 */
export function heatMap({ answer, cells, kind, low, high, rowLabel, columnLabel, rowTitle, columnTitle, chosen, pick, width, most = 42, least = 3, square = false }) {
  const [row0, row1] = answer.rows;
  const [column0, column1] = answer.columns;
  const [rowStep, columnStep] = [answer.row_step, answer.column_step];
  const [rows, columns] = [Math.ceil((row1 - row0) / rowStep), Math.ceil((column1 - column0) / columnStep)];
  const labels = Array.from({ length: rows }, (_, i) => String(rowLabel?.(row0 + i * rowStep) ?? row0 + i * rowStep));
  const gutter = Math.min(116, 20 + 7.4 * Math.max(2, ...labels.map((label) => Math.min(12, label.length))));
  const room = Math.max(120, width - gutter - 6);
  let cellWidth = Math.max(columns > 150 ? 1.3 : least, Math.min(most, room / Math.max(1, columns)));
  let cellHeight = Math.max(rows > 120 ? 2 : 4, Math.min(24, 460 / Math.max(1, rows)));
  if (square) { cellWidth = Math.max(rows > 200 ? 1 : 3, Math.min(most, room / Math.max(1, columns), 560 / Math.max(1, rows))); cellHeight = cellWidth; }
  const named = columnLabel && cellWidth >= 11;
  const longest = named ? Math.max(1, ...Array.from({ length: columns }, (_, i) => String(columnLabel(column0 + i * columnStep)).length)) : 0;
  const upright = longest * 7 > cellWidth - 2;
  const top = named ? (upright ? 24 + 6.9 * Math.min(9, longest) : 34) : 34;
  const size = [gutter + columns * cellWidth + 4, top + rows * cellHeight + 4];
  const [canvas, pen] = canvasOf(size[0], size[1]);
  const color = scaleOf(kind, low, high);
  let at = chosen ? [Math.floor((chosen[0] - row0) / rowStep), Math.floor((chosen[1] - column0) / columnStep)] : null;
  const inside = ([r, c]) => r >= 0 && c >= 0 && r < rows && c < columns;
  const number = ([r, c]) => cells[r * columns + c];

  function paint() {
    pen.clearRect(0, 0, size[0], size[1]);
    const [ink, dim, mono, sans] = [styleOf('--ink'), styleOf('--dim'), styleOf('--mono'), styleOf('--sans')];
    for (let r = 0; r < rows; r += 1) {
      for (let c = 0; c < columns; c += 1) {
        const x = cells[r * columns + c];
        const own = Number.isFinite(x) ? color(x) : null;
        pen.fillStyle = own ? css(own) : noColor();
        const gap = cellWidth > 6 && cellHeight > 6 ? 0.5 : 0;
        pen.fillRect(gutter + c * cellWidth, top + r * cellHeight, cellWidth - gap, cellHeight - gap);
        if (own && x !== 0 && cellWidth >= 33 && cellHeight >= 14) {
          pen.fillStyle = inkOn(own);
          pen.font = `9.5px ${mono}`;
          pen.textAlign = 'center';
          pen.fillText(briefly(x), gutter + (c + 0.5) * cellWidth, top + (r + 0.5) * cellHeight + 3.5);
        }
      }
    }
    pen.fillStyle = dim;
    pen.font = `11px ${mono}`;
    pen.textAlign = 'right';
    const everyRow = Math.max(1, Math.ceil(12 / cellHeight));
    for (let r = 0; r < rows; r += everyRow) pen.fillText(clip(labels[r], 12), gutter - 5, top + (r + 0.5) * cellHeight + 4);
    if (named) {
      pen.textAlign = 'left';
      if (!upright) pen.textAlign = 'center';
      for (let c = 0; c < columns; c += 1) {
        if (!upright) { pen.fillText(String(columnLabel(column0 + c * columnStep)), gutter + (c + 0.5) * cellWidth, top - 6); continue; }
        pen.save();
        pen.translate(gutter + (c + 0.5) * cellWidth + 4, top - 5);
        pen.rotate(-Math.PI / 2);
        pen.fillText(clip(String(columnLabel(column0 + c * columnStep)), 9), 0, 0);
        pen.restore();
      }
    } else {
      pen.textAlign = 'center';
      const step = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000, 2000, 5000, 10000].find((s) => (s / columnStep) * cellWidth >= 34) ?? 20000;
      for (let c = Math.ceil(column0 / step) * step; c < column1; c += step) pen.fillText(String(c), gutter + ((c - column0) / columnStep + 0.5) * cellWidth, top - 5);
    }
    pen.font = `11px ${sans}`;
    pen.textAlign = 'left';
    pen.fillText(`${rowTitle} ↓  ${columnTitle} →`, 2, 10);
    if (at && inside(at)) {
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.strokeRect(gutter + at[1] * cellWidth, top + at[0] * cellHeight, Math.max(3, cellWidth), Math.max(3, cellHeight));
    }
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top - top) / cellHeight), Math.floor((event.clientX - box.left - gutter) / cellWidth)];
  };
  const own = ([r, c]) => [Math.min(row1 - 1, row0 + r * rowStep), Math.min(column1 - 1, column0 + c * columnStep)];
  const words = (cell) => {
    const [r, c] = own(cell);
    const across = columnLabel ? `${columnLabel(c)} (${c})` : c;
    const many = rowStep * columnStep > 1 ? `\nlargest of ${rowStep} × ${columnStep}` : '';
    return `${labels[cell[0]]} (${r}), ${columnTitle} ${across}\n${exactText(number(cell))}${many}`;
  };
  const choose = (cell) => {
    at = cell;
    paint();
    canvas.setAttribute('aria-label', words(cell));
    pick?.(...own(cell));
  };
  canvas.className = 'map-canvas';
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', `heat map, ${rows} × ${columns}; arrow keys choose a number`);
  canvas.addEventListener('mousemove', (event) => tip(inside(place(event)) ? words(place(event)) : '', event));
  canvas.addEventListener('mouseleave', (event) => tip('', event));
  canvas.addEventListener('click', (event) => inside(place(event)) && choose(place(event)));
  canvas.addEventListener('keydown', (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = [(at?.[0] ?? 0) + step[0], (at?.[1] ?? 0) + step[1]];
    if (inside(next)) choose(next);
  });
  // For tests, and for whoever looks at the page with a program.
  canvas.cellAt = (row, column) => ({ x: gutter + (Math.floor((column - column0) / columnStep) + 0.5) * cellWidth, y: top + (Math.floor((row - row0) / rowStep) + 0.5) * cellHeight });
  paint();
  return h('div', { class: 'scroll' }, canvas);
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function briefly(x) {
  const size = Math.abs(x);
  if (x === 0) return '0';
  if (size >= 1000 || size < 0.005) return x.toExponential(0).replaceAll('-', '−').replace('e+', 'e');
  return (size >= 100 ? x.toFixed(0) : size >= 10 ? x.toFixed(1) : x.toFixed(2)).replace('-', '−');
}
