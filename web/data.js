// Reads what `mycroft_serve::autopsy::page` packed: base64 of a zlib stream of
//   u32 (little endian) length of the JSON | JSON | the rows of all groups, one after another.
// A row: varint number of cells; column runs (gap since the last run, length) until all are placed; one varint per cell,
// index into `combos` (operation and call stack); runs of (state + 4 * mark, length).

/** States of a cell. */
export const SCHEDULED = 0, STARTED = 1, DONE = 2;
/** Marks of a cell. */
export const PLAIN = 0, ODD = 1, MISSING = 2, FIRST = 3;

/** A packed cell: `combo << 4 | mark << 2 | state`. */
export const stateOf = (cell) => cell & 3;
export const markOf = (cell) => (cell >> 2) & 3;
export const comboOf = (cell) => cell >>> 4;

/** The model that every component reads. */
export async function decode(base64) {
  const bytes = await inflate(fromBase64(base64));
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const length = view.getUint32(0, true);
  const model = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  model.frames = model.frames.map(([name, file, line]) => ({ name, file, line }));
  const reader = { bytes, at: 4 + length };
  for (const group of model.groups) group.rows = group.ranks.map((rank) => readRow(reader, rank));
  return model;
}

function fromBase64(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function varint(reader) {
  let value = 0;
  for (let shift = 1; ; shift *= 128) {
    const byte = reader.bytes[reader.at++];
    value += (byte & 127) * shift;
    if (byte < 128) return value;
  }
}

function readRow(reader, rank) {
  const n = varint(reader);
  const columns = new Uint32Array(n);
  for (let i = 0, next = 0; i < n; ) {
    next += varint(reader);
    for (let run = varint(reader); run > 0; run--) columns[i++] = next++;
  }
  const cells = new Uint32Array(n);
  for (let i = 0; i < n; i++) cells[i] = varint(reader) << 4;
  for (let i = 0; i < n; ) {
    const flags = varint(reader);
    for (let run = varint(reader); run > 0; run--) cells[i++] |= flags;
  }
  return { rank, columns, cells, contiguous: n === 0 || columns[n - 1] - columns[0] === n - 1 };
}

/** Index of the first cell of a row at or after a column. */
export function lowerBound(row, column) {
  const { columns } = row;
  if (columns.length === 0) return 0;
  if (row.contiguous) return Math.min(Math.max(column - columns[0], 0), columns.length);
  let low = 0, high = columns.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (columns[middle] < column) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The cell of a row at a column; `undefined` where the rank has none. */
export function cellAt(row, column) {
  const i = lowerBound(row, column);
  return i < row.columns.length && row.columns[i] === column ? row.cells[i] : undefined;
}

/** Operation name of a combo. */
export function opOf(model, combo) {
  return model.ops[model.combos[2 * combo]] ?? "unknown operation";
}

/** Frames of a combo, innermost first. */
export function stackOf(model, combo) {
  return (model.stacks[model.combos[2 * combo + 1]] ?? []).map((frame) => model.frames[frame]);
}

/** What a cell's state is called. */
export function stateText(cell) {
  if (markOf(cell) === MISSING) return "not issued: its peers wait for it";
  return ["scheduled, not done", "started, not done", "done"][stateOf(cell)] ?? "done";
}

/** Why a row may have no cell at a column. */
export function absenceText(row, column) {
  if (row.columns.length === 0 || column > row.end) return "not issued, as far as recorded";
  return column < row.columns[0] ? "older than what the recorder kept" : "no operation recorded";
}

/** What a cell's mark is called; empty for a plain one. */
export function markText(cell) {
  return ["", "differs from its peers", "waited for", "first wrong point"][markOf(cell)];
}

/** The state of most cells of each column; of equals the one that is more usual in the whole group. */
function usualStates(group, columns) {
  const counts = new Uint32Array(3 * columns), whole = [0, 0, 0];
  for (const row of group.rows) {
    for (let i = 0; i < row.cells.length; i++) {
      if (markOf(row.cells[i]) === MISSING) continue;
      counts[3 * row.columns[i] + stateOf(row.cells[i])]++;
      whole[stateOf(row.cells[i])]++;
    }
  }
  const order = [DONE, STARTED, SCHEDULED].sort((a, b) => whole[b] - whole[a]);
  const most = (column) => order.reduce((best, state) => (counts[3 * column + state] > counts[3 * column + best] ? state : best));
  return Uint8Array.from({ length: columns }, (_, column) => most(column));
}

/** Facts of a group that several components show: the usual operation per column, the worst state, marks, odd rows. */
export function survey(model, group) {
  const columns = group.columns.length;
  const usual = new Uint32Array(columns), votes = new Int32Array(columns), issued = new Uint32Array(columns);
  const state = new Uint8Array(columns).fill(DONE), mark = new Uint8Array(columns);
  const ends = new Map();
  for (const row of group.rows) {
    row.marked = [];
    let end = -1;
    for (let i = 0; i < row.cells.length; i++) {
      const column = row.columns[i], cell = row.cells[i], combo = comboOf(cell);
      if (markOf(cell) !== PLAIN) row.marked.push(i);
      if (markOf(cell) > mark[column]) mark[column] = markOf(cell);
      if (markOf(cell) === MISSING) continue;
      end = column;
      issued[column]++;
      if (stateOf(cell) < state[column]) state[column] = stateOf(cell);
      if (votes[column] === 0) usual[column] = combo;
      votes[column] += usual[column] === combo ? 1 : -1;
    }
    row.end = end;
    ends.set(end, (ends.get(end) ?? 0) + 1);
  }
  let usualEnd = -1;
  for (const [end, n] of ends) if (n > (ends.get(usualEnd) ?? 0)) usualEnd = end;
  for (const row of group.rows) {
    row.unusual = row.marked.some((i) => markOf(row.cells[i]) !== FIRST) || row.end !== usualEnd;
    for (let i = 0; i < row.cells.length && !row.unusual; i++) {
      row.unusual = comboOf(row.cells[i]) !== usual[row.columns[i]];
    }
  }
  group.survey = { usual, issued, state, mark, usualState: usualStates(group, columns) };
}
