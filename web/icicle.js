// The icicle of call stacks: outermost call on top, width = how many of the selected operations came through it.
import { count, el, isLibrary, place } from "./dom.js";
import { hash } from "./colour.js";
import { MISSING, comboOf, lowerBound, markOf, opOf, stackOf } from "./data.js";

/** Narrowest part that is drawn, of the whole width: below it nothing can be clicked. */
const SHARE_MIN = 0.002;

/** Levels for which room is kept, and levels drawn at most: recursion in the user's code may be thousands deep. */
const LEVELS_KEPT = 24, LEVELS_DRAWN = 200;

/** How many selected operations there are of each combo; cells that were never issued do not count. */
export function tally(rows, from, to) {
  const counts = new Map();
  for (const row of rows) {
    for (let i = lowerBound(row, from); i < row.cells.length && row.columns[i] <= to; i++) {
      if (markOf(row.cells[i]) === MISSING) continue;
      const combo = comboOf(row.cells[i]);
      counts.set(combo, (counts.get(combo) ?? 0) + 1);
    }
  }
  return counts;
}

/** The tree of calls of a tally: every node knows how many operations came through it. */
export function callTree(model, counts) {
  const root = node("all selected operations", null, 0);
  for (const [combo, n] of counts) {
    const stack = stackOf(model, combo);
    let at = root;
    at.count += n;
    for (let i = stack.length - 1; i >= 0; i--) at = child(at, stack[i].name || "?", stack[i], n);
    if (stack.length === 0) at = child(at, "no call stack recorded", null, n);
    child(at, opOf(model, combo), "op", n);
  }
  return root;
}

function node(name, frame, depth, parent = null) {
  return { name, frame, depth, parent, count: 0, children: new Map() };
}

function child(at, name, frame, n) {
  const key = frame === "op" ? `op ${name}` : `${name} ${frame?.file} ${frame?.line}`;
  let next = at.children.get(key);
  if (!next) at.children.set(key, (next = node(name, frame, at.depth + 1, at)));
  next.count += n;
  return next;
}

const byCount = (at) => [...at.children.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));

/** The icicle. `show(counts, what)` replaces what it shows. */
export class Icicle {
  constructor(model) {
    this.model = model;
    this.crumbs = el("nav", { class: "crumbs", "aria-label": "Zoomed calls" });
    this.chart = el("div", { class: "icicle", role: "group", "aria-label": "Call stacks of the selected operations" });
    this.element = el("div", {}, this.crumbs, this.chart);
    // As tall as the deepest stack needs, so that a new selection does not move the page.
    this.chart.style.setProperty("--levels-max", Math.min(model.stacks.reduce((most, stack) => Math.max(most, stack.length), 1) + 1, LEVELS_KEPT));
  }

  show(counts) {
    this.root = callTree(this.model, counts);
    this.zoom(this.root);
  }

  zoom(to) {
    this.at = to;
    const path = [];
    for (let at = to; at; at = at.parent) path.unshift(at);
    this.crumbs.replaceChildren(
      ...path.map((at, i) =>
        i === path.length - 1
          ? el("span", { "aria-current": "true", text: i === 0 ? count(at.count, "operation") : `${at.name} (${at.count.toLocaleString("en-US")})` })
          : el("button", { type: "button", on: { click: () => this.zoom(at) }, text: i === 0 ? count(at.count, "operation") : at.name }),
      ),
    );
    this.chart.replaceChildren();
    if (to.count === 0) {
      this.chart.append(el("p", { class: "muted", text: "No operation is selected." }));
      return;
    }
    const depth = this.place(to, 0, 1, 0);
    this.chart.style.setProperty("--levels", depth + 1);
  }

  place(at, left, width, level) {
    let deepest = level;
    if (level > LEVELS_DRAWN) return deepest;
    if (at !== this.root) this.chart.append(this.bar(at, left, width, level));
    let x = left;
    const inner = at === this.root ? level : level + 1;
    for (const next of byCount(at)) {
      const share = (width * next.count) / at.count;
      if (share >= SHARE_MIN) deepest = Math.max(deepest, this.place(next, x, share, inner));
      x += share;
    }
    return deepest;
  }

  bar(at, left, width, level) {
    const isOp = at.frame === "op";
    const kind = isOp ? "op" : at.frame === null ? "none" : isLibrary(at.frame) ? "library" : "user";
    const where = at.frame && !isOp ? place(at.frame) : "";
    const text = `${at.name}${where ? ` ${where}` : ""}: ${count(at.count, "operation")}, ${Math.round((100 * at.count) / this.root.count)} %`;
    return el(
      "button",
      {
        type: "button",
        class: `call ${kind}`,
        title: text,
        "aria-label": text,
        "data-count": at.count,
        "data-level": level,
        style: { left: `${100 * left}%`, width: `${100 * width}%`, "--level": level, "--hue": 58 + (hash(`${at.name} ${at.frame?.file}`) % 14) * 23.5 },
        on: { click: () => this.zoom(at === this.at ? this.root : at) },
      },
      el("span", { class: "fn", text: at.name }),
      where && el("span", { class: "at", text: where }),
    );
  }
}
