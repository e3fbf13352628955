// What every rank's main thread was doing: one tile per rank, equal stacks in equal colour, odd ones stand out.
import { count, el, ranksPhrase, stackList } from "./dom.js";
import { css, shade, slots, theme } from "./colour.js";

/** Tiles in a line where no process group says how many belong together; more and smaller ones for many ranks. */
const LINE_DEFAULT = 32, LINE_MANY = 64;
/** Ranks from which on tiles are smaller, and have no number. */
const DENSE_RANKS_MIN = 65, TINY_RANKS_MIN = 257;

/** Families of groups that part the ranks, e.g. all `tp_*`: ways to lay the tiles out. */
export function layouts(model) {
  const families = new Map();
  for (const group of model.groups) {
    const family = group.label.replace(/[\s_\-:.#\[\]\d,]+$/, "") || group.label;
    families.set(family, [...(families.get(family) ?? []), group]);
  }
  const result = [];
  for (const [name, groups] of families) {
    const seen = new Set(groups.flatMap((group) => group.ranks));
    const parts = groups.reduce((sum, group) => sum + group.ranks.length, 0) === seen.size;
    if (groups.length > 1 && parts) result.push({ name, lines: groups.map((group) => ({ label: group.label, ranks: group.ranks })) });
  }
  const lines = [];
  const size = model.ranks.length < TINY_RANKS_MIN ? LINE_DEFAULT : LINE_MANY;
  for (let i = 0; i < model.ranks.length; i += size) {
    const ranks = model.ranks.slice(i, i + size);
    lines.push({ label: ranks.length > 1 ? `${ranks[0]}\u2013${ranks[ranks.length - 1]}` : `${ranks[0]}`, ranks });
  }
  return [{ name: "rank", lines }, ...result];
}

/** Frames of a stack group as the components take them. */
export const framesOf = (group) => group.frames.map(([name, file, line]) => ({ name, file, line }));

/** The stack grid. */
export class StackGrid {
  constructor(model) {
    this.model = model;
    this.of = new Map();
    model.stack_groups.forEach((group, i) => group.ranks.forEach((rank) => this.of.set(rank, i)));
    this.slots = slots(model.stack_groups.map((group) => group.frames.map((frame) => frame.join(" ")).join("\n")));
    this.ways = layouts(model);
    this.suspects = new Set(model.suspects.map((suspect) => suspect.rank));
    const ranks = model.ranks.length;
    this.tiles = el("div", { class: `tiles ${ranks >= TINY_RANKS_MIN ? "tiny" : ranks >= DENSE_RANKS_MIN ? "dense" : ""}` });
    this.legend = el("div", { class: "stack-legend" });
    this.chosen = el("div", { class: "chosen-stack", "aria-live": "polite" });
    const select = el(
      "select",
      { id: "stack-layout", on: { change: () => this.layOut(this.ways[select.selectedIndex]) } },
      this.ways.map((way) => el("option", { text: way.name })),
    );
    this.element = el(
      "div",
      { class: "stackgrid" },
      this.ways.length > 1 && el("label", { class: "tool", for: "stack-layout" }, "Lines by ", select),
      el("div", { class: "stack-split" }, el("div", {}, this.tiles, this.legend), this.chosen),
    );
    this.layOut(this.ways[0]);
    this.choose(this.firstShown());
  }

  /** The odd stack of a suspect, otherwise any odd one, otherwise the largest group. */
  firstShown() {
    const groups = this.model.stack_groups;
    const suspect = groups.findIndex((group) => group.ranks.some((rank) => this.suspects.has(rank)));
    if (suspect >= 0) return suspect;
    return Math.max(groups.findIndex((group) => group.odd), 0);
  }

  colour(index, state) {
    return css(shade(this.slots[index], state, theme()));
  }

  layOut(way) {
    this.way = way;
    this.tiles.replaceChildren(
      ...way.lines.map((line) =>
        el("div", { class: "line" }, el("span", { class: "label muted", text: line.label }), el("span", { class: "row" }, line.ranks.map((rank) => this.tile(rank)))),
      ),
    );
    this.legend.replaceChildren(
      ...this.model.stack_groups.map((group, i) =>
        el(
          "button",
          { type: "button", class: `${group.odd ? "odd" : ""} ${group.ranks.some((rank) => this.suspects.has(rank)) ? "suspect" : ""}`, "data-stack": i, on: { click: () => this.choose(i) } },
          el("span", { class: "swatch", style: { background: this.colour(i, group.odd ? 0 : 2) } }),
          el("span", { class: "doing", text: group.doing || group.frames[0]?.[0] || "no frames" }),
          el("span", { class: "muted", text: count(group.ranks.length, "rank") }),
        ),
      ),
    );
    this.mark();
  }

  tile(rank) {
    const index = this.of.get(rank);
    const group = this.model.stack_groups[index];
    const suspect = this.suspects.has(rank);
    const what = group ? group.doing || group.frames[0]?.[0] || "" : "no stack";
    return el("button", {
      type: "button",
      class: ["tile", group ? "" : "none", group?.odd ? "odd" : "", suspect ? "suspect" : ""].join(" "),
      "data-rank": rank,
      "data-stack": index ?? "",
      title: `rank ${rank}: ${what}${suspect ? " (suspect)" : ""}`,
      "aria-label": `rank ${rank}: ${what}${suspect ? ", suspect" : ""}`,
      text: rank,
      style: group ? { background: this.colour(index, group.odd ? 0 : 2) } : {},
      on: { click: () => (group ? this.choose(index) : this.none(rank)) },
    });
  }

  choose(index) {
    const group = this.model.stack_groups[index];
    if (!group) return;
    this.index = index;
    this.mark();
    this.chosen.replaceChildren(
      el("h3", {}, ranksPhrase(group.ranks).replace(/^r/, "R"), group.odd && el("span", { class: "pill warn small", text: "odd one out" })),
      group.doing && el("p", { class: "doing", text: group.doing }),
      stackList(framesOf(group), "no frames"),
    );
  }

  none(rank) {
    this.index = undefined;
    this.mark();
    this.chosen.replaceChildren(el("h3", { text: `Rank ${rank}` }), el("p", { class: "muted", text: "No stack of its main thread was found." }));
  }

  mark() {
    for (const node of this.element.querySelectorAll("[data-stack]")) {
      node.setAttribute("aria-pressed", String(this.index !== undefined && node.dataset.stack === String(this.index)));
    }
  }

  /** After a change of theme. */
  repaint() {
    this.layOut(this.way);
  }
}
