// The grid of operations: rows are ranks grouped by process group, columns are sequence numbers. Scrolling is the
// browser's own; only what is seen is drawn.
import { count, el, place, userFrame } from "./dom.js";
import { MISSING, absenceText, cellAt, comboOf, markOf, markText, opOf, stackOf, stateText, survey } from "./data.js";
import { HEAD, Layout, ZOOMS } from "./layout.js";
import { Painter } from "./painter.js";

/** Frames whose drawing time is kept. */
const COSTS_KEPT = 1_000;
/** Ranks from which on a group without anything unusual starts folded. */
const FOLD_RANKS_MIN = 64;
/** Width of a cell that is easily pointed at; where many columns need room, half of it. */
const POINTED_WIDTH = 24;
/** Tallest stage, of the window. */
const STAGE_SHARE = 0.72;

/** The grid. `onSelect` gets `{ item, rows, from, to, row, column }` whenever the selection changes. */
export class OperationGrid {
  constructor(model, onSelect) {
    this.model = model;
    this.onSelect = onSelect;
    model.groups.forEach((group) => survey(model, group));
    this.layout = new Layout(this.inOrder());
    this.costs = [];
    this.build();
    this.painter = new Painter(this.canvas, model, this.layout);
    this.view = { cursor: undefined, selection: undefined, focused: false };
    const many = model.groups.reduce((sum, group) => sum + group.ranks.length, 0) > FOLD_RANKS_MIN;
    if (many) this.layout.open = this.layout.groups.map((group) => group.rows.some((row) => row.unusual) || group.label === model.group);
    if (many && !this.layout.open.includes(true)) this.layout.open[0] = true;
    this.listen();
  }

  /** The suspects' groups of the verdict first, then others with a wrong point, then the rest as they came. */
  inOrder() {
    const suspects = new Set(this.model.suspects.map((suspect) => suspect.rank));
    const weight = (group) => {
      if (group.label === this.model.group && group.ranks.some((rank) => suspects.has(rank))) return group.first_wrong === null ? 1 : 0;
      return group.first_wrong === null ? 3 : 2;
    };
    return this.model.groups.map((group, i) => [weight(group), i, group]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , group]) => group);
  }

  build() {
    const button = (text, label, act) => el("button", { type: "button", title: label, "aria-label": label, on: { click: act } }, text);
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.sizer = el("div", { class: "sizer" });
    this.scroller = el(
      "div",
      { class: "scroller", id: "grid", tabindex: 0, role: "application", "aria-roledescription": "grid of operations", "aria-label": "Operations by rank and sequence number", "aria-describedby": "grid-status grid-keys-hint" },
      this.sizer,
    );
    this.tip = el("div", { class: "tip", hidden: true, role: "presentation" });
    this.stage = el("div", { class: "stage" }, this.canvas, this.scroller, this.tip);
    this.status = el("p", { class: "status", id: "grid-status", role: "status", "aria-live": "polite" });
    this.rankBox = el("input", { type: "search", inputmode: "numeric", id: "find-rank", size: 6, placeholder: "rank", "aria-label": "Go to rank" });
    this.opBox = el("input", { type: "search", id: "find-op", size: 18, placeholder: "operation or code", "aria-label": "Find an operation or a line of code" });
    this.unusual = el("button", { type: "button", "aria-pressed": "false", title: "Show only ranks that differ, and one that does not", on: { click: () => this.setUnusual(!this.layout.onlyUnusual) } }, "Unusual ranks only");
    this.element = el(
      "div",
      { class: "grid" },
      el(
        "div",
        { class: "toolbar" },
        button("First wrong", "Go to the first wrong point (f)", () => this.firstWrong()),
        this.unusual,
        this.rankBox,
        this.opBox,
        el("span", { class: "spacer" }),
        button("\u2212", "Smaller cells (-)", () => this.zoomBy(-1)),
        button("+", "Larger cells (+)", () => this.zoomBy(1)),
        button("Fit", "Fit all columns (0)", () => this.fit()),
      ),
      this.stage,
      this.status,
    );
  }

  listen() {
    const { scroller } = this;
    scroller.addEventListener("scroll", () => this.schedule(), { passive: true });
    scroller.addEventListener("focus", () => this.focusChanged(true));
    scroller.addEventListener("blur", () => this.focusChanged(false));
    scroller.addEventListener("keydown", (event) => this.key(event));
    scroller.addEventListener("pointerdown", (event) => this.pointerDown(event));
    scroller.addEventListener("pointermove", (event) => this.pointerMove(event));
    scroller.addEventListener("pointerup", () => this.pointerUp());
    scroller.addEventListener("pointercancel", () => this.pointerUp());
    scroller.addEventListener("pointerleave", () => (this.tip.hidden = true));
    scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.rankBox.addEventListener("keydown", (event) => this.boxKey(event, () => this.goToRank(this.rankBox.value)));
    this.opBox.addEventListener("keydown", (event) => this.boxKey(event, () => this.find(this.opBox.value, event.shiftKey ? -1 : 1)));
    new ResizeObserver(() => this.resized()).observe(this.stage);
    window.addEventListener("resize", () => this.resized());
  }

  boxKey(event, act) {
    if (event.key === "Enter") act();
    else if (event.key === "Escape") this.scroller.focus();
    else return;
    event.preventDefault();
  }

  /** Shows another model, of the same job later: what is folded stays so, and the cursor on its rank and operation while they are there. */
  update(model) {
    const { cursor } = this.view;
    const before = cursor && this.layout.items[cursor.item];
    const place = before && { label: before.group.label, rank: before.group.rows[before.rows[cursor.position]]?.rank, column: before.group.columns[cursor.column] };
    const open = new Map(this.layout.groups.map((group, at) => [group.label, this.layout.open[at]]));
    model.groups.forEach((group) => survey(model, group));
    this.model = model;
    this.layout.show(this.inOrder(), open);
    this.painter = new Painter(this.canvas, model, this.layout);
    this.view.cursor = this.view.selection = this.anchor = undefined;
    this.relayout();
    const item = this.layout.items.find((one) => one.group.label === place?.label);
    const position = item ? item.rows.findIndex((at) => item.group.rows[at].rank === place.rank) : -1;
    const column = item ? item.group.columns.indexOf(place.column) : -1;
    if (position >= 0 && column >= 0) return this.moveTo(item.index, position, column, false, false);
    this.status.textContent = "";
    this.schedule();
  }

  /** First drawing, when the element is in the document: fits, and goes to the first wrong point. */
  start() {
    this.layout.room = this.stage.clientWidth;
    this.layout.zoom = this.readableZoom();
    this.layout.stretched = true;
    this.relayout();
    if (!this.firstWrong()) {
      const item = this.layout.items.find((one) => one.rows.length > 0);
      if (item) this.moveTo(item.index, 0, Math.max(item.group.columns.length - 1, 0));
    }
  }

  /** All columns where they can then be told apart, otherwise cells that one can point at. */
  readableZoom() {
    const width = this.stage.clientWidth - 20;
    const fit = this.layout.fit(width, window.innerHeight * STAGE_SHARE);
    const least = this.layout.gutter + this.layout.columns * POINTED_WIDTH <= width ? POINTED_WIDTH : POINTED_WIDTH / 2;
    return Math.max(fit, ZOOMS.findIndex(([w]) => w >= least));
  }

  relayout() {
    this.layout.arrange();
    this.sizer.style.width = `${this.layout.width}px`;
    this.sizer.style.height = `${this.layout.height}px`;
    const bar = this.layout.width > this.stage.clientWidth ? 16 : 2;
    this.stage.style.height = `${Math.min(this.layout.height + bar, Math.round(window.innerHeight * STAGE_SHARE))}px`;
    this.resized();
  }

  resized() {
    if (this.layout.room !== this.stage.clientWidth) {
      this.fitRoom();
      return;
    }
    this.painter.resize(this.scroller.clientWidth, this.scroller.clientHeight, window.devicePixelRatio || 1);
    this.draw();
  }

  /** After a change of the width: cells that used all of it do so again, and the cursor stays in sight. */
  fitRoom() {
    const { layout } = this;
    layout.room = this.stage.clientWidth;
    if (layout.stretched) layout.zoom = this.readableZoom();
    this.relayout();
    const { cursor } = this.view;
    if (cursor) this.reveal(layout.items[cursor.item], cursor);
  }

  schedule() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  draw() {
    const began = performance.now();
    this.painter.draw(this.scroller.scrollLeft, this.scroller.scrollTop, this.view);
    this.costs.push(performance.now() - began);
    if (this.costs.length > COSTS_KEPT) this.costs.shift();
  }

  /** After a change of theme. */
  repaint() {
    this.painter.repaint();
    this.draw();
  }

  // --- cursor and selection ---------------------------------------------------------------------------------------

  /** Moves the cursor; `extend` keeps the other corner of the selection. */
  moveTo(index, position, column, extend = false, reveal = true) {
    const item = this.layout.items[index];
    if (!item || item.rows.length === 0) return;
    const cursor = {
      item: index,
      position: Math.min(Math.max(position, 0), item.rows.length - 1),
      column: Math.min(Math.max(column, 0), Math.max(item.group.columns.length - 1, 0)),
    };
    if (!extend || !this.anchor || this.anchor.item !== index) this.anchor = cursor;
    this.view.cursor = cursor;
    const top = Math.min(cursor.position, this.anchor.position), left = Math.min(cursor.column, this.anchor.column);
    this.view.selection = {
      item: index,
      position: top,
      column: left,
      rows: Math.abs(cursor.position - this.anchor.position) + 1,
      columns: Math.abs(cursor.column - this.anchor.column) + 1,
    };
    if (reveal) this.reveal(item, cursor);
    this.schedule();
    this.tell(item, cursor);
  }

  tell(item, cursor) {
    const { selection } = this.view;
    const row = item.group.rows[item.rows[cursor.position]];
    this.status.textContent = this.cellText(item, row, cursor.column) + (selection.rows * selection.columns > 1 ? ` ${count(selection.rows, "rank")} x ${count(selection.columns, "column")} selected.` : "");
    this.onSelect({
      item,
      rows: item.rows.slice(selection.position, selection.position + selection.rows).map((index) => item.group.rows[index]),
      from: selection.column,
      to: selection.column + selection.columns - 1,
      row,
      column: cursor.column,
    });
  }

  /** A cell in one sentence. */
  cellText(item, row, column) {
    const cell = cellAt(row, column);
    const where = `${item.group.label} ${item.group.columns[column] ?? ""}, rank ${row.rank}: `;
    if (cell === undefined) return `${where}${absenceText(row, column)}.`;
    if (markOf(cell) === MISSING) return `${where}${stateText(cell)}.`;
    const frame = userFrame(stackOf(this.model, comboOf(cell)));
    const parts = [opOf(this.model, comboOf(cell)), stateText(cell), markText(cell), frame && `${frame.name} at ${place(frame)}`];
    return `${where}${parts.filter(Boolean).join(", ")}.`;
  }

  reveal(item, cursor) {
    const { scroller, layout } = this;
    const { w, h } = layout.cell;
    const x = layout.x(item, cursor.column), y = layout.y(item, cursor.position);
    const margin = Math.min(4 * w, 120);
    if (x - layout.gutter - margin < scroller.scrollLeft) scroller.scrollLeft = x - layout.gutter - margin;
    if (x + w + margin > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = x + w + margin - scroller.clientWidth;
    if (y - HEAD - h < scroller.scrollTop) scroller.scrollTop = y - HEAD - h;
    if (y + 2 * h > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = y + 2 * h - scroller.clientHeight;
  }

  centre(item, cursor) {
    const { scroller, layout } = this;
    scroller.scrollLeft = layout.x(item, cursor.column) - layout.gutter - (scroller.clientWidth - layout.gutter) * 0.6;
    scroller.scrollTop = layout.y(item, cursor.position) - scroller.clientHeight / 2;
  }

  /** The row of a group to look at for a column: a marked one of a suspect, otherwise any marked one, otherwise the first. */
  tellingRow(item, column) {
    const marked = (index) => {
      const row = item.group.rows[index];
      return row.marked.some((i) => row.columns[i] === column);
    };
    const suspect = (index) => this.painter.suspects.has(item.group.rows[index].rank);
    for (const test of [(index) => marked(index) && suspect(index), suspect, marked]) {
      const position = item.rows.findIndex(test);
      if (position >= 0) return position;
    }
    return 0;
  }

  /** Goes to the first wrong point: of the verdict's group, then of the next group on each further call. */
  firstWrong() {
    const wrong = this.layout.items.filter((item) => item.group.first_wrong !== null && item.group.first_wrong !== undefined);
    if (wrong.length === 0) return false;
    const last = wrong.findIndex((item) => item.index === this.lastWrong);
    let next = wrong[(last + 1) % wrong.length];
    if (last < 0) next = wrong.find((item) => item.group.label === this.model.group) ?? next;
    this.lastWrong = next.index;
    if (!this.layout.open[next.index]) this.fold(next.index, true);
    const item = this.layout.items[next.index];
    const position = this.tellingRow(item, item.group.first_wrong);
    this.moveTo(item.index, position, item.group.first_wrong, false, false);
    this.selectColumn(item, this.view.cursor);
    this.centre(item, this.view.cursor);
    return true;
  }

  /** Selects the cursor's column over all shown ranks: their call stacks beside each other show where paths part. */
  selectColumn(item, cursor) {
    this.view.selection = { item: item.index, position: 0, column: cursor.column, rows: item.rows.length, columns: 1 };
    this.tell(item, cursor);
  }

  /** Goes to a rank: in the cursor's group where it is there, otherwise in the next group that has it. */
  goToRank(text) {
    const rank = Number.parseInt(text, 10);
    const start = this.view.cursor?.item ?? 0;
    const n = this.layout.items.length;
    for (let k = 0; k < n; k++) {
      const index = (start + k) % n;
      const at = this.layout.groups[index].rows.findIndex((row) => row.rank === rank);
      if (at < 0) continue;
      if (!this.layout.open[index]) this.fold(index, true);
      if (!this.layout.items[index].rows.includes(at)) this.setUnusual(false);
      const item = this.layout.items[index];
      const column = this.view.cursor?.item === index ? this.view.cursor.column : item.group.columns.length - 1;
      this.moveTo(index, item.rows.indexOf(at), column);
      this.scroller.focus();
      return;
    }
    this.status.textContent = `No rank ${text} in any group.`;
  }

  /** Goes to the next (or previous) shown cell whose operation, function or file contains the text. */
  find(text, step) {
    const wanted = text.trim().toLowerCase();
    if (wanted === "") return;
    const matches = new Set();
    for (let combo = 0; combo < this.model.combos.length / 2; combo++) {
      const frames = stackOf(this.model, combo).map((frame) => `${frame.name} ${frame.file}:${frame.line}`);
      if ([opOf(this.model, combo), ...frames].some((part) => part.toLowerCase().includes(wanted))) matches.add(combo);
    }
    const found = matches.size > 0 && this.nextCell((cell) => markOf(cell) !== MISSING && matches.has(comboOf(cell)), step);
    if (!found) this.status.textContent = `No operation with "${text}" among the shown rows.`;
    else this.scroller.focus();
  }

  /** Walks row by row from the cursor, through all groups and around. */
  nextCell(test, step) {
    const { items } = this.layout;
    const rows = items.flatMap((item) => item.rows.map((_, position) => [item, position]));
    const { cursor } = this.view;
    const start = Math.max(0, rows.findIndex(([item, position]) => item.index === cursor?.item && position === cursor.position));
    for (let k = 0; k <= rows.length; k++) {
      const [item, position] = rows[(start + step * k + rows.length * 2) % rows.length];
      const row = item.group.rows[item.rows[position]];
      for (let j = 0; j < row.cells.length; j++) {
        const i = step > 0 ? j : row.cells.length - 1 - j;
        const passed = k === 0 && cursor && step * (row.columns[i] - cursor.column) <= 0;
        if (passed || !test(row.cells[i])) continue;
        this.moveTo(item.index, position, row.columns[i]);
        return true;
      }
    }
    return false;
  }

  // --- folding, filter, zoom --------------------------------------------------------------------------------------

  /** Applies a change to the layout and keeps the cursor on its rank. */
  change(act) {
    const { cursor } = this.view;
    const row = cursor && this.layout.items[cursor.item].rows[cursor.position];
    act();
    this.relayout();
    if (!cursor) return;
    const item = this.layout.items[cursor.item];
    const position = item.rows.indexOf(row);
    if (position >= 0) this.moveTo(item.index, position, cursor.column);
    else if (item.rows.length > 0) this.moveTo(item.index, 0, cursor.column);
    else this.view.cursor = this.view.selection = this.anchor = undefined;
    this.draw();
  }

  /** Opens or folds a group. */
  fold(index, open = !this.layout.open[index]) {
    this.change(() => (this.layout.open[index] = open));
    this.status.textContent = `${this.layout.groups[index].label} ${open ? "opened" : "folded"}.`;
  }

  setUnusual(on) {
    this.unusual.setAttribute("aria-pressed", String(on));
    this.change(() => (this.layout.onlyUnusual = on));
  }

  zoomBy(step) {
    this.setZoom(this.layout.zoom + step);
  }

  fit() {
    this.setZoom(this.layout.fit(this.stage.clientWidth - 20, Infinity), this.middle(), true);
  }

  middle() {
    return { x: this.scroller.clientWidth / 2, y: this.scroller.clientHeight / 2 };
  }

  /** Changes the size of cells and keeps what is under a point where it is; `stretched`: all columns use the width. */
  setZoom(zoom, at = this.middle(), stretched = false) {
    const next = Math.min(Math.max(zoom, 0), ZOOMS.length - 1);
    if (next === this.layout.zoom && stretched === this.layout.stretched) return;
    const { scroller } = this;
    const { gutter } = this.layout;
    const before = this.layout.cell;
    const hit = this.layout.hit(scroller.scrollLeft + at.x, scroller.scrollTop + at.y);
    const column = (scroller.scrollLeft + at.x - gutter) / before.w;
    Object.assign(this.layout, { zoom: next, stretched });
    this.relayout();
    scroller.scrollLeft = column * this.layout.cell.w + gutter - at.x;
    if (hit?.item) {
      const item = this.layout.items[hit.item.index];
      scroller.scrollTop = (hit.head ? item.y : this.layout.y(item, hit.position)) - at.y;
    }
    this.draw();
  }

  // --- keyboard and pointer ---------------------------------------------------------------------------------------

  focusChanged(focused) {
    this.view.focused = focused;
    this.schedule();
  }

  key(event) {
    if (event.altKey || event.metaKey) return;
    const act = this.keyAction(event);
    if (!act) return;
    event.preventDefault();
    act();
  }

  keyAction({ key, shiftKey: extend, ctrlKey }) {
    const { cursor } = this.view;
    const item = cursor && this.layout.items[cursor.item];
    const page = Math.max(1, Math.floor((this.scroller.clientHeight - HEAD) / this.layout.cell.h) - 1);
    const go = (rows, columns) => () => this.step(rows, columns, extend);
    const to = (position, column) => () => item && this.moveTo(item.index, position, column, extend);
    if (ctrlKey && !["Home", "End"].includes(key)) return undefined;
    const actions = {
      ArrowLeft: go(0, -1),
      ArrowRight: go(0, 1),
      ArrowUp: go(-1, 0),
      ArrowDown: go(1, 0),
      PageUp: go(-page, 0),
      PageDown: go(page, 0),
      Home: ctrlKey ? () => this.moveTo(this.firstOpen(1), 0, 0, extend) : to(cursor?.position, 0),
      End: ctrlKey ? () => this.moveTo(this.firstOpen(-1), Infinity, Infinity, extend) : to(cursor?.position, Infinity),
      f: () => this.firstWrong(),
      r: () => this.rankBox.focus(),
      "/": () => this.opBox.focus(),
      n: () => this.find(this.opBox.value, 1),
      N: () => this.find(this.opBox.value, -1),
      u: () => this.setUnusual(!this.layout.onlyUnusual),
      c: () => cursor && this.fold(cursor.item),
      a: () => item && this.selectColumn(item, cursor),
      "[": () => this.otherGroup(-1),
      "]": () => this.otherGroup(1),
      "+": () => this.zoomBy(1),
      "=": () => this.zoomBy(1),
      "-": () => this.zoomBy(-1),
      0: () => this.fit(),
      Escape: () => cursor && this.moveTo(cursor.item, cursor.position, cursor.column),
    };
    return actions[key];
  }

  firstOpen(direction) {
    const open = this.layout.items.filter((item) => item.rows.length > 0);
    return (direction > 0 ? open[0] : open[open.length - 1])?.index;
  }

  /** Moves by rows and columns; past a group's edge to the next open group, unless a selection is being made. */
  step(rows, columns, extend) {
    const { cursor } = this.view;
    if (!cursor) {
      this.moveTo(this.firstOpen(1), 0, 0);
      return;
    }
    const item = this.layout.items[cursor.item];
    const position = cursor.position + rows;
    if (!extend && Math.abs(rows) === 1 && (position < 0 || position >= item.rows.length)) this.otherGroup(rows);
    else this.moveTo(item.index, position, cursor.column + columns, extend);
  }

  /** To the next open group; keeps the place on the screen, since groups are aligned at their ends. */
  otherGroup(direction) {
    const { cursor } = this.view;
    const open = this.layout.items.filter((item) => item.rows.length > 0);
    const at = open.findIndex((item) => item.index === cursor?.item);
    const next = open[at + direction];
    if (!next) return;
    const column = cursor ? cursor.column + this.layout.items[cursor.item].offset - next.offset : 0;
    this.moveTo(next.index, direction > 0 ? 0 : Infinity, column);
  }

  point(event) {
    const box = this.scroller.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** What is under the pointer; the header that sticks to the top hides what is below it. */
  under(event) {
    const { x, y } = this.point(event);
    const { scroller, layout } = this;
    if (x >= scroller.clientWidth || y >= scroller.clientHeight || layout.items.length === 0) return undefined;
    const top = layout.itemAt(scroller.scrollTop);
    const headY = Math.min(Math.max(top.y - scroller.scrollTop, 0), top.y + top.height - HEAD - scroller.scrollTop);
    if (y >= headY && y < headY + HEAD) return { item: top, head: true, column: layout.hit(x + scroller.scrollLeft, top.y)?.column };
    return layout.hit(x + scroller.scrollLeft, y + scroller.scrollTop);
  }

  pointerDown(event) {
    const pan = event.button === 1 || (event.button === 0 && event.altKey);
    if (event.button !== 0 && !pan) return;
    const { x } = this.point(event);
    const hit = this.under(event);
    if (pan) {
      event.preventDefault();
      this.drag = { pan: true, x: event.clientX, y: event.clientY, left: this.scroller.scrollLeft, top: this.scroller.scrollTop };
    } else if (hit?.head && x < this.layout.gutter) {
      this.fold(hit.item.index);
      return;
    } else if (hit && !hit.head) {
      this.moveTo(hit.item.index, hit.position, hit.column, event.shiftKey, false);
      this.drag = { pan: false, item: hit.item.index };
    } else return;
    this.scroller.setPointerCapture(event.pointerId);
  }

  pointerMove(event) {
    if (this.drag?.pan) {
      this.scroller.scrollLeft = this.drag.left - (event.clientX - this.drag.x);
      this.scroller.scrollTop = this.drag.top - (event.clientY - this.drag.y);
      return;
    }
    const hit = this.under(event);
    if (this.drag) {
      if (hit && !hit.head && hit.item.index === this.drag.item) this.moveTo(hit.item.index, hit.position, hit.column, true, true);
      return;
    }
    this.showTip(event, hit);
  }

  pointerUp() {
    this.drag = undefined;
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.setZoom(this.layout.zoom + (event.deltaY < 0 ? 1 : -1), this.point(event));
  }

  showTip(event, hit) {
    const { x, y } = this.point(event);
    const lines = hit && x >= this.layout.gutter ? this.tipLines(hit) : undefined;
    this.tip.hidden = !lines;
    if (!lines) return;
    this.tip.replaceChildren(...lines.map(([text, kind]) => el("div", { class: kind, text })));
    const left = Math.min(x + 14, this.stage.clientWidth - this.tip.offsetWidth - 6);
    const below = y + 18 + this.tip.offsetHeight < this.stage.clientHeight;
    this.tip.style.left = `${Math.max(left, 0)}px`;
    this.tip.style.top = `${below ? y + 18 : Math.max(y - this.tip.offsetHeight - 10, 0)}px`;
  }

  tipLines(hit) {
    const { group } = hit.item;
    const label = group.columns[hit.column];
    if (label === undefined) return undefined;
    if (hit.head) return [[`${group.label} ${label}`, "strong"], [`${count(group.survey.issued[hit.column], "rank")} of ${group.rows.length} issued it`, ""]];
    const row = group.rows[hit.item.rows[hit.position]];
    const cell = cellAt(row, hit.column);
    const head = [`rank ${row.rank} \u00b7 ${group.label} ${label}`, "muted"];
    if (cell === undefined) return [head, [absenceText(row, hit.column), ""]];
    if (markOf(cell) === MISSING) return [["not issued", "strong bad"], head, ["its peers wait for it", ""]];
    const frame = userFrame(stackOf(this.model, comboOf(cell)));
    return [
      [opOf(this.model, comboOf(cell)), "strong"],
      head,
      [stateText(cell), ""],
      markText(cell) ? [markText(cell), "bad"] : undefined,
      frame ? [`${frame.name}  ${place(frame)}`, "mono"] : undefined,
    ].filter(Boolean);
  }
}
