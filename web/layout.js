// Geometry of the grid: which rows are shown, where they lie, and what is at a point. No drawing.

/** Cell sizes in pixels, smallest first; the last ones leave room for the operation's name. */
export const ZOOMS = [[2, 2], [3, 3], [4, 4], [6, 6], [8, 8], [12, 12], [16, 15], [24, 18], [36, 20], [56, 22], [76, 23], [112, 24]];
/** Smallest cell that has room for a name. */
export const NAME_WIDTH_MIN = 56, NAME_HEIGHT_MIN = 15;
/** Width of the rank labels, and on a screen narrower than so much. */
const GUTTER = 208, GUTTER_NARROW = 124, NARROW = 560;
/** Height of a group's header: column labels and a strip that stands for all its rows. */
export const HEAD = 44;
/** Space below a group, and at the right of all. */
const BELOW = 10, BESIDE = 12;
/** Width that a scroll bar takes from the stage. */
const SCROLL_BAR = 16;

/** Rows and places of all groups. */
export class Layout {
  constructor(groups) {
    this.groups = groups;
    this.columns = groups.reduce((most, group) => Math.max(most, group.columns.length), 1);
    this.zoom = 0;
    /** Width of the stage, and whether cells are as wide as it takes to use all of it. */
    this.room = 0;
    this.stretched = false;
    this.onlyUnusual = false;
    this.open = groups.map(() => true);
    this.arrange();
  }

  /** Shows other groups; `open` says by label which were open. */
  show(groups, open) {
    this.groups = groups;
    this.columns = groups.reduce((most, group) => Math.max(most, group.columns.length), 1);
    this.open = groups.map((group) => open.get(group.label) ?? true);
    this.arrange();
  }

  get cell() {
    const [w, h] = ZOOMS[this.zoom];
    const all = Math.floor((this.room - this.gutter - BESIDE - SCROLL_BAR) / this.columns);
    return { w: this.stretched ? Math.max(w, all) : w, h };
  }

  /** Width of the rank labels. */
  get gutter() {
    return this.room > 0 && this.room < NARROW ? GUTTER_NARROW : GUTTER;
  }

  /** Recomputes places after a change of zoom, filter or folding. */
  arrange() {
    const { h } = this.cell;
    let y = 0;
    this.items = this.groups.map((group, index) => {
      const rows = this.open[index] ? this.shownRows(group) : [];
      const item = { index, group, rows, y, offset: this.columns - group.columns.length, height: HEAD + rows.length * h + BELOW };
      y += item.height;
      return item;
    });
    this.height = y;
    this.width = this.gutter + this.columns * this.cell.w + BESIDE;
  }

  /** All rows, or the unusual ones and the first usual one beside them. */
  shownRows(group) {
    const all = group.rows.map((_, i) => i);
    if (!this.onlyUnusual) return all;
    const usual = all.find((i) => !group.rows[i].unusual);
    return all.filter((i) => group.rows[i].unusual || i === usual);
  }

  /** The largest zoom at which the widest group fits, and not taller than needed to be read. */
  fit(width, height) {
    const rows = this.groups.reduce((sum, group, i) => sum + (this.open[i] ? group.rows.length : 0), 0);
    const heads = this.groups.length * (HEAD + BELOW);
    let best = 0;
    for (let zoom = 0; zoom < ZOOMS.length; zoom++) {
      const [w, h] = ZOOMS[zoom];
      if (this.gutter + this.columns * w <= width && heads + rows * h <= height * 1.6) best = zoom;
    }
    return best;
  }

  /** The item at a content height. */
  itemAt(y) {
    let low = 0, high = this.items.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.items[middle].y <= y) low = middle;
      else high = middle - 1;
    }
    return this.items[low];
  }

  /** Left edge of a group's column, in content pixels. */
  x(item, column) {
    return this.gutter + (item.offset + column) * this.cell.w;
  }

  /** Top edge of a shown row, in content pixels. */
  y(item, position) {
    return item.y + HEAD + position * this.cell.h;
  }

  /** What lies at a content point: item, header or row (position among the shown), column. */
  hit(x, y) {
    if (y < 0 || y >= this.height || this.items.length === 0) return undefined;
    const item = this.itemAt(y);
    const inside = y - item.y;
    const column = Math.floor((x - this.gutter) / this.cell.w) - item.offset;
    if (inside < HEAD) return { item, head: true, column };
    const position = Math.floor((inside - HEAD) / this.cell.h);
    return position < item.rows.length ? { item, position, column } : undefined;
  }
}
