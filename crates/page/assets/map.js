// The map of the model, drawn from the model itself; a click opens any stage.
import { amount, ask, blockTitle, byteText, card, h, heading, known, look, prompt_, shortText, state } from './state.js';

const SHADES = { attention: 'var(--blue)', cross_attention: 'var(--green)', feed_forward: 'var(--orange)' };

export const shapeText = (shape) => `(${shape.join(', ')})`;

/** The stages of the chosen block, and those around the blocks. */
export async function mapView() {
  const model = known.model;
  const run = await ask('run', prompt_());
  const now = new Map(run.stages.map((stage) => [stage.name, stage]));
  const { stack } = model;
  const operations = model.parts.reduce((sum, part) => sum + part.operations, 0);
  const tokens = state.ids.length;
  const tiles = [
    [amount(model.parameters), 'parameters'], [byteText(model.bytes), 'of weights (f32)'], [model.blocks?.length || stack.layers, 'blocks'], [stack.width, 'width C'],
    [stack.kv_heads === stack.heads ? stack.heads : `${stack.heads} / ${stack.kv_heads}`, stack.kv_heads === stack.heads ? 'heads H' : 'heads H / key heads K'],
    [amount(operations * tokens + attentionOperations(stack, tokens)), `operations for ${tokens} tokens`], [model.vocabulary, 'vocabulary V'], [model.context, 'context'],
    [`${shortText(run.milliseconds, 3)} ms`, `this pass; ${byteText(run.bytes)} of values`],
  ];
  const blocks = [...new Set(model.stages.map((stage) => stage.block).filter((block) => block !== null))];
  const chosen = blocks.includes(state.block) ? state.block : blocks[0] ?? 0;
  const title = blockTitle(chosen);
  const outside = model.stages.filter((stage) => stage.block === null);
  const first = model.stages.findIndex((stage) => stage.block !== null);
  const before = outside.filter((stage) => model.stages.indexOf(stage) < first);
  const after = outside.filter((stage) => model.stages.indexOf(stage) > first);
  const own = model.stages.filter((stage) => stage.block === chosen);
  const inBranch = (stage) => (/cross_attention|norm_cross/.test(stage.part) ? 'cross-attention' : /^attention|norm1/.test(stage.part) ? 'attention' : /^feed_forward|norm2/.test(stage.part) ? 'feed-forward' : 'residual stream');
  const groups = [];
  for (const stage of own) {
    const name = inBranch(stage);
    if (groups.at(-1)?.name !== name) groups.push({ name, stages: [] });
    groups.at(-1).stages.push(stage);
  }
  const kinds = { attention: '', 'cross-attention': '', 'feed-forward': ' second', 'residual stream': ' stream' };
  const list = (stages) => stages.map((stage) => stageButton(stage, now.get(stage.name)));
  return [
    heading('Map of the model', `${model.name}: ${model.summary}. Choose a block, then a stage to see its numbers.`),
    h('div', { class: 'tiles' }, tiles.map(([value, what]) => h('div', { class: 'tile' }, h('b', {}, String(value)), h('span', {}, what)))),
    h('div', { class: 'cards' },
      card('From the tokens up', h('div', { class: 'blocks' }, partRows(model, chosen)),
        h('div', { class: 'legend' }, [['var(--blue)', 'attention'], ['var(--orange)', 'feed-forward'], ['var(--green)', 'other']].map(([color, what]) => h('span', {}, h('i', { class: 'swatch', style: `background:${color};margin:0 5px 0 0` }), what)), '· length: parameters')),
      card(`${title[0].toUpperCase()}${title.slice(1)}, in the order of computation`, groups.map((group) => h('div', { class: `branch${kinds[group.name]}` }, h('div', { class: 'note' }, group.name), list(group.stages)))),
      h('div', {}, card('Before the blocks', list(before)), card(model.source ? 'Between and after the blocks' : 'After the blocks', list(after)), parametersCard(model, chosen))),
  ];
}

/** q·k and weight·value: two products per pair of tokens and dimension, in every head. */
const attentionOperations = (stack, tokens) => 2 * stack.layers * stack.heads * (stack.head_width + stack.value_width) * tokens * tokens;

function partRows(model, chosen) {
  const names = [];
  const rows = new Map();
  for (const part of model.parts) {
    const name = part.block === null ? part.name : blockTitle(part.block);
    if (!rows.has(name)) { rows.set(name, { block: part.block, count: 0, parts: [] }); names.push(name); }
    rows.get(name).count += part.count;
    rows.get(name).parts.push(part);
  }
  const most = Math.max(...[...rows.values()].map((row) => row.count));
  // The last norm is registered where it is made, but it stands on top.
  const last = (name) => ['norm', 'decoder.norm', 'head'].includes(name);
  const order = [...names.filter((name) => !last(name)), ...names.filter(last)];
  return order.map((name) => {
    const { block, count, parts } = rows.get(name);
    const shade = (part) => SHADES[part.name.split('.').at(-1)] ?? 'var(--green)';
    const share = (part) => `width:${(part.count / most) * 100}%;background:${shade(part)}`;
    return h('button', { type: 'button', class: 'block-row', 'aria-pressed': String(block === chosen), title: parts.map((part) => `${part.name}: ${part.count}`).join('\n'), click: () => block !== null && look({ block }) },
      h('span', {}, name), h('span', { class: 'stack-bar' }, parts.map((part) => h('i', { style: share(part) }))), h('span', { class: 'number' }, amount(count)));
  });
}

function stageButton(stage, now) {
  const shape = now ? now.shape : stage.shape;
  return h('button', { type: 'button', class: 'stage', 'data-stage': stage.name, click: () => look({ view: 'numbers', stage: stage.name, row: null, column: 0 }, true) },
    h('code', {}, stage.block === null ? stage.name : stage.part.replace(/^(attention|feed_forward)\./, '')), h('span', { class: 'shape', title: shapeText(stage.shape) }, shapeText(shape)),
    h('span', { class: 'words' }, `${stage.sentence} `, h('code', {}, stage.formula)),
    now?.gradient_norm !== null && now?.gradient_norm !== undefined ? h('span', { class: 'gradient-norm' }, `‖∂L‖ ${shortText(now.gradient_norm)}${now.mark ? ` — ${now.mark}` : ''}`) : null);
}

function parametersCard(model, chosen) {
  const parts = model.parts.filter((part) => part.block === chosen || part.block === null);
  const row = (parameter) => h('tr', { class: 'pick', click: () => look({ view: 'numbers', stage: `parameter:${parameter.name}`, row: 0, column: 0 }, true) }, h('td', { class: 'code long' }, parameter.name), h('td', { class: 'number', title: `${parameter.count} numbers` }, parameter.shape.join(' × ')));
  return card('Parameters', h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'name'), h('th', { class: 'number' }, 'shape'))), h('tbody', {}, parts.flatMap((part) => part.parameters).map(row)))));
}
