// Draws the visible part of the grid on a canvas. Cells become pixels of a small bitmap that is blown up without
// smoothing, so that 100,000 visible cells cost what their bytes cost; what needs strokes is drawn for few cells.
import { middleCut, ranksWithin } from "./dom.js";
import { HEAD, NAME_HEIGHT_MIN, NAME_WIDTH_MIN } from "./layout.js";
import { DONE, FIRST, MISSING, PLAIN, SCHEDULED, STARTED, comboOf, lowerBound, markOf, opOf, stateOf } from "./data.js";
import { css, shade, slots, theme } from "./colour.js";

/** Least distance of column labels, pixels. */
const LABEL_STEP = 58;
/** From this cell width on, cells have gaps and patterns. */
const PATTERN_WIDTH_MIN = 6;
/** From this row height on, every row has its rank. */
const RANK_HEIGHT_MIN = 11;

/** Pixels of a character of a group's ranks and of its name, at most: what fits beside its rows. */
const RANK_CHAR = 7.4, NAME_CHAR = 7.6;
/** Characters of the first wrong column's label. */
const WRONG_CHARS_MAX = 36;

/** Whether a cell is in another state than is usual in its column. */
function isApart(usualState, row, i) {
  return markOf(row.cells[i]) !== MISSING && stateOf(row.cells[i]) !== usualState[row.columns[i]];
}

/** The painter of one grid. */
export class Painter {
  constructor(canvas, model, layout) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d", { alpha: false });
    this.model = model;
    this.layout = layout;
    this.bitmap = document.createElement("canvas");
    this.small = this.bitmap.getContext("2d");
    this.suspects = new Set(model.suspects.map((suspect) => suspect.rank));
    const combos = model.combos.length / 2;
    const stackTexts = model.stacks.map((stack) => stack.map((frame) => Object.values(model.frames[frame]).join(" ")).join("\n"));
    this.slots = slots(Array.from({ length: combos }, (_, i) => `${opOf(model, i)}\n${stackTexts[model.combos[2 * i + 1]] ?? ""}`));
    this.repaint();
  }

  /** Reads the theme's colours anew. */
  repaint() {
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(
      ["bg", "surface", "sunken", "ink", "muted", "line", "accent", "bad", "bad-soft"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    );
    this.sans = style.getPropertyValue("--sans");
    this.mono = style.getPropertyValue("--mono");
    this.theme = theme();
    this.table = new Uint32Array(this.slots.length * 4);
    this.slots.forEach((slot, combo) => {
      for (let state = 0; state < 4; state++) {
        const [r, g, b] = shade(slot, Math.min(state, DONE), this.theme);
        this.table[combo * 4 + state] = (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
      }
    });
    this.patterns = [SCHEDULED, STARTED, DONE].map((state) => this.pattern(state));
  }

  /** Scheduled: dots. Started: stripes. Done: bars. So that states differ without colour. */
  pattern(state) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const ctx = tile.getContext("2d");
    ctx.strokeStyle = ctx.fillStyle = this.theme === "dark" ? "rgba(0, 0, 0, 0.55)" : "rgba(255, 255, 255, 0.75)";
    if (state === SCHEDULED) {
      ctx.fillRect(2, 2, 2, 2);
    } else if (state === DONE) {
      ctx.fillRect(0, 3, 6, 1);
    } else {
      ctx.lineWidth = 1.4;
      ctx.beginPath();
      for (const shift of [-6, 0, 6]) {
        ctx.moveTo(shift, 6);
        ctx.lineTo(shift + 6, 0);
      }
      ctx.stroke();
    }
    return this.ctx.createPattern(tile, "repeat");
  }

  /** Colour of a combo at a state, as CSS. */
  colour(combo, state) {
    return css(shade(this.slots[combo], state, this.theme));
  }

  /** Fits the canvas to its box; the drawing is lost. */
  resize(width, height, ratio) {
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
  }

  /** Draws what is seen with the content's point (`left`, `top`) in the corner. `view`: cursor, selection, focus, find. */
  draw(left, top, view) {
    const { ctx, layout } = this;
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ctx.fillStyle = this.colours.surface;
    ctx.fillRect(0, 0, this.width, this.height);
    if (layout.items.length === 0) return;
    ctx.textBaseline = "middle";
    for (let i = layout.itemAt(Math.max(top, 0)).index; i < layout.items.length; i++) {
      const item = layout.items[i];
      if (item.y > top + this.height) break;
      this.drawRows(item, left, top, view);
      this.drawHead(item, left, top);
    }
  }

  visibleColumns(item, left) {
    const { w } = this.layout.cell;
    const from = Math.max(0, Math.floor(left / w) - item.offset);
    const to = Math.min(item.group.columns.length, Math.ceil((left + this.width - this.layout.gutter) / w) - item.offset);
    return [from, Math.max(from, to)];
  }

  drawRows(item, left, top, view) {
    const { ctx, layout } = this;
    const { w, h } = layout.cell;
    const first = Math.max(0, Math.floor((top + HEAD - item.y - HEAD) / h));
    const last = Math.min(item.rows.length, Math.ceil((top + this.height - item.y - HEAD) / h));
    if (last <= first) return;
    const [from, to] = this.visibleColumns(item, left);
    ctx.save();
    ctx.beginPath();
    ctx.rect(this.layout.gutter, 0, this.width - this.layout.gutter, this.height);
    ctx.clip();
    if (to > from) this.drawCells(item, first, last, from, to, left, top);
    this.drawFirstWrong(item, left, top, layout.y(item, first) - top, (last - first) * h);
    this.drawView(item, left, top, view);
    ctx.restore();
    this.drawRanks(item, first, last, top, view);
    ctx.fillStyle = this.colours.line;
    ctx.fillRect(0, item.y + item.height - top - 6, this.width, 1);
  }

  drawCells(item, first, last, from, to, left, top) {
    const { ctx, layout, table } = this;
    const { w, h } = layout.cell;
    const columns = to - from, rows = last - first;
    if (this.bitmap.width < columns || this.bitmap.height < rows) {
      this.bitmap.width = Math.max(this.bitmap.width, columns);
      this.bitmap.height = Math.max(this.bitmap.height, rows);
    }
    const image = this.small.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let r = 0; r < rows; r++) {
      const row = item.group.rows[item.rows[first + r]];
      const base = r * columns - from;
      for (let i = lowerBound(row, from); i < row.cells.length && row.columns[i] < to; i++) {
        const cell = row.cells[i];
        if (((cell >> 2) & 3) !== MISSING) pixels[base + row.columns[i]] = table[(cell >>> 4) * 4 + (cell & 3)];
      }
    }
    this.small.putImageData(image, 0, 0);
    const x = layout.x(item, from) - left, y = layout.y(item, first) - top;
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.bitmap, 0, 0, columns, rows, x, y, columns * w, rows * h);
    if (w >= PATTERN_WIDTH_MIN) {
      this.drawStates(item, first, last, from, to, x, y);
      ctx.fillStyle = this.colours.surface;
      for (let c = 0; c <= columns; c++) ctx.fillRect(x + c * w - 1, y, 1, rows * h);
      for (let r = 0; r <= rows; r++) ctx.fillRect(x, y + r * h - 1, columns * w, 1);
    }
    if (w >= NAME_WIDTH_MIN && h >= NAME_HEIGHT_MIN) this.drawNames(item, first, last, from, to, x, y);
    this.drawMarks(item, first, last, from, to, x, y);
  }

  /** Patterns over cells in another state than is usual in their column, one rectangle per run: the rule needs no ink. */
  drawStates(item, first, last, from, to, x, y) {
    const { ctx } = this;
    const { w, h } = this.layout.cell;
    const { usualState } = item.group.survey;
    for (let r = first; r < last; r++) {
      const row = item.group.rows[item.rows[r]];
      for (let i = lowerBound(row, from); i < row.cells.length && row.columns[i] < to; ) {
        const state = stateOf(row.cells[i]), apart = isApart(usualState, row, i);
        let end = i + 1;
        while (end < row.cells.length && row.columns[end] === row.columns[end - 1] + 1 && row.columns[end] < to && stateOf(row.cells[end]) === state && isApart(usualState, row, end) === apart) end++;
        if (apart) {
          ctx.fillStyle = this.patterns[state];
          ctx.fillRect(x + (row.columns[i] - from) * w, y + (r - first) * h, (end - i) * w - 1, h - 1);
        }
        i = end;
      }
    }
  }

  drawNames(item, first, last, from, to, x, y) {
    const { ctx } = this;
    const { w, h } = this.layout.cell;
    ctx.font = `11px ${this.sans}`;
    ctx.textAlign = "left";
    const most = Math.floor((w - 8) / 6.2);
    for (let r = first; r < last; r++) {
      const row = item.group.rows[item.rows[r]];
      for (let i = lowerBound(row, from); i < row.cells.length && row.columns[i] < to; i++) {
        const cell = row.cells[i];
        if (markOf(cell) === MISSING) continue;
        const name = opOf(this.model, comboOf(cell)).replace(/^.*:/, "");
        const text = name.length > most ? `${name.slice(0, most - 1)}\u2026` : name;
        const cx = x + (row.columns[i] - from) * w, cy = y + (r - first) * h;
        const dark = this.theme === "dark";
        if (isApart(item.group.survey.usualState, row, i)) {
          ctx.fillStyle = this.colour(comboOf(cell), stateOf(cell));
          ctx.fillRect(cx + 2, cy + 3, ctx.measureText(text).width + 5, h - 7);
        }
        if (stateOf(cell) < DONE) {
          const bright = dark || stateOf(cell) === STARTED;
          ctx.fillStyle = bright ? "#0d0f12" : "#ffffff";
        } else {
          ctx.fillStyle = dark ? "#f2f4f6" : "#1c1f24";
        }
        ctx.fillText(text, cx + 4, cy + h / 2);
      }
    }
  }

  /** Marks keep a visible size at any zoom. The first wrong column has a line of its own. */
  drawMarks(item, first, last, from, to, x, y) {
    const { ctx } = this;
    const { w, h } = this.layout.cell;
    const size = Math.max(w, 4), height = Math.max(h, 4);
    for (let r = first; r < last; r++) {
      const row = item.group.rows[item.rows[r]];
      for (const i of row.marked) {
        const column = row.columns[i];
        if (column < from || column >= to) continue;
        const mark = markOf(row.cells[i]);
        const cx = x + (column - from) * w - (size - w) / 2, cy = y + (r - first) * h - (height - h) / 2;
        if (mark === FIRST) continue;
        if (mark === MISSING) this.markMissing(cx, cy, size, height);
        else if (w < PATTERN_WIDTH_MIN) {
          ctx.fillStyle = this.colours.bad;
          ctx.fillRect(cx, cy, size, height);
        } else {
          ctx.strokeStyle = this.colours.bad;
          ctx.lineWidth = 2;
          ctx.strokeRect(cx + 1, cy + 1, size - 3, height - 3);
        }
      }
    }
  }

  markMissing(x, y, w, h) {
    const { ctx } = this;
    ctx.fillStyle = w < PATTERN_WIDTH_MIN ? this.colours.bad : this.colours["bad-soft"];
    ctx.fillRect(x, y, w - 1, h - 1);
    if (w < PATTERN_WIDTH_MIN) return;
    ctx.strokeStyle = this.colours.bad;
    ctx.lineWidth = 1.5;
    const arm = Math.min(w, h) * 0.22, cx = x + (w - 1) / 2, cy = y + (h - 1) / 2;
    ctx.beginPath();
    ctx.moveTo(cx - arm, cy - arm);
    ctx.lineTo(cx + arm, cy + arm);
    ctx.moveTo(cx + arm, cy - arm);
    ctx.lineTo(cx - arm, cy + arm);
    ctx.stroke();
    ctx.setLineDash([3, 2]);
    ctx.strokeRect(x + 0.75, y + 0.75, w - 2.5, h - 2.5);
    ctx.setLineDash([]);
  }

  drawFirstWrong(item, left, top, y, height) {
    const column = item.group.first_wrong;
    if (column === null || column === undefined) return;
    const { ctx } = this;
    ctx.fillStyle = this.colours.bad;
    ctx.fillRect(this.layout.x(item, column) - left - 2, y, 2, height);
  }

  /** Selection, cursor. */
  drawView(item, left, top, view) {
    const { ctx, layout } = this;
    const { w, h } = layout.cell;
    const { selection, cursor } = view;
    if (selection && selection.item === item.index && (selection.rows > 1 || selection.columns > 1)) {
      ctx.strokeStyle = this.colours.accent;
      ctx.lineWidth = 1.5;
      const x = layout.x(item, selection.column) - left, y = layout.y(item, selection.position) - top;
      ctx.globalAlpha = 0.16;
      ctx.fillStyle = this.colours.accent;
      ctx.fillRect(x, y, selection.columns * w, selection.rows * h);
      ctx.globalAlpha = 1;
      ctx.strokeRect(x - 0.5, y - 0.5, selection.columns * w, selection.rows * h);
    }
    if (cursor && cursor.item === item.index) {
      const x = layout.x(item, cursor.column) - left, y = layout.y(item, cursor.position) - top;
      ctx.strokeStyle = this.colours.ink;
      ctx.lineWidth = view.focused ? 2.5 : 1.5;
      const grow = w < PATTERN_WIDTH_MIN ? 3 : 1;
      ctx.strokeRect(x - grow, y - grow, w - 1 + 2 * grow, h - 1 + 2 * grow);
    }
  }

  drawRanks(item, first, last, top, view) {
    const { ctx, layout } = this;
    const { h } = layout.cell;
    ctx.fillStyle = this.colours.surface;
    ctx.fillRect(0, layout.y(item, first) - top, this.layout.gutter - 6, (last - first) * h);
    ctx.textAlign = "right";
    const every = h >= RANK_HEIGHT_MIN ? 1 : Math.ceil(RANK_HEIGHT_MIN / h / 4) * 4;
    for (let r = first; r < last; r++) {
      const rank = item.group.rows[item.rows[r]].rank;
      const suspect = this.suspects.has(rank);
      const current = view.cursor?.item === item.index && view.cursor.position === r;
      const y = layout.y(item, r) - top;
      if (suspect) {
        ctx.fillStyle = this.colours.bad;
        ctx.fillRect(this.layout.gutter - 12, y, 5, Math.max(h - 1, 2));
      }
      if (!suspect && !current && r % every !== 0) continue;
      ctx.fillStyle = suspect ? this.colours.bad : current ? this.colours.ink : this.colours.muted;
      ctx.font = `${suspect || current ? "600 " : ""}${h < 15 ? 10.5 : 11.5}px ${this.sans}`;
      ctx.fillText(suspect && h >= RANK_HEIGHT_MIN ? `suspect  rank ${rank}` : `rank ${rank}`, this.layout.gutter - 18, y + h / 2);
    }
  }

  /** The group's header stays in sight while any of its rows is. */
  drawHead(item, left, top) {
    const { ctx, layout, colours } = this;
    const { w } = layout.cell;
    const y = Math.min(Math.max(item.y - top, 0), item.y + item.height - HEAD - top);
    ctx.fillStyle = colours.surface;
    ctx.fillRect(0, y, this.width, HEAD);
    const [from, to] = this.visibleColumns(item, left);
    ctx.save();
    ctx.beginPath();
    ctx.rect(this.layout.gutter, y, this.width - this.layout.gutter, HEAD);
    ctx.clip();
    const every = Math.max(1, Math.ceil(LABEL_STEP / w));
    const taken = this.drawWrongLabel(item, left, y);
    ctx.font = `11px ${this.sans}`;
    ctx.textAlign = "left";
    for (let column = from - (from % every); column < Math.min(to, item.group.columns.length); column += every) {
      const x = layout.x(item, column) - left;
      const text = this.fitText(item.group.columns[column], every * w - 6);
      if (taken && x < taken.right && x + 3 + ctx.measureText(text).width > taken.left) continue;
      ctx.fillStyle = colours.line;
      ctx.fillRect(x - 1, y + 6, 1, 16);
      ctx.fillStyle = colours.muted;
      ctx.fillText(text, x + 3, y + 13);
    }
    this.drawStrip(item, from, to, layout.x(item, from) - left, y + 24);
    ctx.restore();
    this.drawHeadLabel(item, y);
  }

  /** Label of the first wrong column, whole and always in sight; where the column is not, it points there. */
  drawWrongLabel(item, left, y) {
    const column = item.group.first_wrong;
    if (column === null || column === undefined) return undefined;
    const { ctx, layout } = this;
    const x = layout.x(item, column) - left;
    const sign = x + layout.cell.w <= layout.gutter ? "\u25c0" : x >= this.width ? "\u25b6" : "\u25bc";
    const label = `${sign} ${middleCut(item.group.columns[column], WRONG_CHARS_MAX)}`;
    ctx.font = `600 11px ${this.sans}`;
    ctx.textAlign = "left";
    const width = ctx.measureText(label).width;
    const at = Math.max(Math.min(x - 4, this.width - width - 4), layout.gutter + 2);
    ctx.fillStyle = this.colours.bad;
    ctx.fillText(label, at, y + 13);
    return { left: at - 4, right: at + width + 6 };
  }

  fitText(text, width) {
    const most = Math.max(2, Math.floor(width / 6));
    return text.length > most ? `${text.slice(0, most - 1)}\u2026` : text;
  }

  drawHeadLabel(item, y) {
    const { ctx, colours } = this;
    ctx.fillStyle = colours.surface;
    ctx.fillRect(0, y, this.layout.gutter - 6, HEAD);
    ctx.textAlign = "left";
    ctx.fillStyle = colours.muted;
    ctx.font = `10px ${this.sans}`;
    ctx.fillText(this.layout.open[item.index] ? "\u25bc" : "\u25b6", 6, y + 14);
    const room = this.layout.gutter - 30;
    ctx.fillStyle = colours.ink;
    ctx.font = `600 12.5px ${this.sans}`;
    const [who, name] = this.headTexts(item.group);
    ctx.fillText(who, 20, y + 14, room);
    ctx.fillStyle = colours.muted;
    ctx.font = `11px ${this.sans}`;
    ctx.fillText(name, 20, y + 31, room);
  }

  /** A group's ranks, which tell it from others, and its name, which many share. */
  headTexts(group) {
    const room = this.layout.gutter - 30;
    return [ranksWithin(group.ranks, Math.floor(room / RANK_CHAR)), middleCut(group.label, Math.floor(room / NAME_CHAR))];
  }

  /** One line for all rows: the usual operation, the worst state; red where something is marked. */
  drawStrip(item, from, to, x, y) {
    const { ctx, table } = this;
    const { w } = this.layout.cell;
    const columns = to - from;
    if (columns <= 0) return;
    const { usual, issued, state, mark } = item.group.survey;
    const image = this.small.createImageData(columns, 1);
    const pixels = new Uint32Array(image.data.buffer);
    for (let c = 0; c < columns; c++) if (issued[from + c] > 0) pixels[c] = table[usual[from + c] * 4 + state[from + c]];
    if (this.bitmap.width < columns) this.bitmap.width = columns;
    this.small.putImageData(image, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.bitmap, 0, 0, columns, 1, x, y, columns * w, 12);
    for (let c = 0; c < columns; c++) {
      if (mark[from + c] === PLAIN) continue;
      ctx.fillStyle = this.colours.bad;
      ctx.fillRect(x + c * w - 1, y + 9, Math.max(w, 3), 4);
    }
  }
}
