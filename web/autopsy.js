// The page of an autopsy: puts the components together, below the verdict that stands in the document.
import { count, el, ranksPhrase, stackList } from "./dom.js";
import { decode } from "./data.js";
import { waitGraph } from "./waitgraph.js";
import { linesTable, printedLane, tellingLines } from "./printed.js";
import { StackGrid, framesOf } from "./stackgrid.js";
import { Icicle, tally } from "./icicle.js";
import { OperationGrid } from "./grid.js";
import { cellPanel, regionTable, tellingRows } from "./detail.js";

const KEYS = [
  ["arrows", "move; with Shift select"],
  ["Home End", "first, last column; with Ctrl first, last rank"],
  ["PageUp PageDown", "a screen of ranks"],
  ["f", "first wrong point; again: of the next group"],
  ["r", "go to a rank"],
  ["/", "find an operation or a line of code; n, N: next, previous"],
  ["u", "unusual ranks only"],
  ["a", "select the column: all ranks at this point"],
  ["[ ]", "previous, next group"],
  ["c", "fold the group"],
  ["+ - 0", "zoom, fit; or Ctrl and wheel"],
  ["drag", "select; with Alt or the middle button: move"],
];

function section(id, title, note, ...content) {
  return el("section", { class: "card", id, "aria-labelledby": `${id}-title` }, el("header", {}, el("h2", { id: `${id}-title`, text: title }), note && el("p", { class: "muted note", text: note })), content);
}

/** Where the theme that a person chose is remembered; files opened from disk may be refused a memory. */
const THEME_KEY = "mycroft-theme";

function themeButton(repaint) {
  const names = ["auto", "light", "dark"];
  const apply = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    try {
      localStorage.setItem(THEME_KEY, name);
    } catch {
      // Not remembered, then.
    }
    repaint();
  };
  const button = el("button", { type: "button", id: "theme", on: { click: () => apply(names[(names.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % names.length]) } }, "Theme: auto");
  try {
    const chosen = localStorage.getItem(THEME_KEY);
    if (chosen === "light" || chosen === "dark") {
      document.documentElement.dataset.theme = chosen;
      button.textContent = `Theme: ${chosen}`;
    }
  } catch {
    // As the system prefers.
  }
  return button;
}

function legend() {
  const item = (kind, text) => el("span", {}, el("span", { class: `key ${kind}`, "aria-hidden": "true" }), text);
  return el(
    "p",
    { class: "legend muted" },
    item("done", "done"),
    item("started", "started"),
    item("scheduled", "scheduled"),
    item("apart", "dots, stripes or bars: scheduled, started or done where most ranks of its column are not"),
    item("odd", "differs"),
    item("missing", "not issued"),
    el("span", { text: "Colour: operation and call stack. Groups end at the right edge together." }),
  );
}

/** Groups, stacks and lines of logs that are printed at most. */
const PAPER_GROUPS = 4, PAPER_STACKS = 8, PAPER_LINES = 24;

/** The page around one autopsy. */
class AutopsyPage {
  constructor(model) {
    this.model = model;
    this.repaints = [];
    this.element = el("div", {}, this.waits(), this.printed(), this.stacks(), this.operations(), this.paper());
  }

  /** Buttons of the heading. */
  tools() {
    const repaint = () => this.repaints.forEach((act) => act());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    return [themeButton(repaint), el("button", { type: "button", on: { click: () => window.print() } }, "Print")];
  }

  waits() {
    if (this.model.arrows.length === 0) return null;
    return section("waits", "Who waits for whom", "An arrow points to the rank that is waited for.", waitGraph(this.model));
  }

  printed() {
    if (this.model.printed.lines.length === 0) return null;
    return section("printed", "What was printed", "One mark for each line of the logs. Those that the verdict rests on stand out; what follows from them is grey.", printedLane(this.model));
  }

  stacks() {
    if (this.model.stack_groups.length === 0) return null;
    const stacks = new StackGrid(this.model);
    this.repaints.push(() => stacks.repaint());
    this.stackGrid = stacks;
    return section("stacks", "What the main threads were doing", "Equal stacks have equal colours; the odd ones are framed, suspects ringed in red.", stacks.element);
  }

  operations() {
    const { model } = this;
    if (model.groups.length === 0) return null;
    const panel = el("aside", { class: "panel", "aria-label": "Selected cell" });
    // Where no dump has a call stack there is nothing to draw of them.
    this.icicle = model.stacks.some((stack) => stack.length > 0) ? new Icicle(model) : undefined;
    const table = el("details", { class: "as-table" }, el("summary", { text: "The rows around the cursor as a table" }));
    const redraw = (selection) => {
      this.selection = selection;
      const { item, rows, from, to, column } = selection;
      panel.replaceChildren(...cellPanel(model, this.grid.painter, selection).filter(Boolean));
      this.icicle?.show(tally(rows, from, to));
      if (table.open) this.fillTable(table, item.group, rows, column);
    };
    table.addEventListener("toggle", () => table.open && this.selection && redraw(this.selection));
    this.grid = new OperationGrid(model, redraw);
    this.repaints.push(() => {
      this.grid.repaint();
      if (this.selection) redraw(this.selection);
    });
    const keys = el("details", { class: "keys" }, el("summary", { text: "Keyboard and mouse" }), el("dl", {}, KEYS.map(([keys, text]) => el("div", {}, el("dt", {}, keys.split(" ").map((one) => el("kbd", { text: one }))), el("dd", { text })))));
    const cut = model.groups.some((group) => group.cut_before + group.cut_after > 0);
    return [
      section(
        "operations",
        "Operations",
        `${count(model.groups.length, "process group")}, columns by sequence number.${cut ? " Columns far from the first wrong point are left out to keep this file small." : ""}`,
        el("div", { class: "split" }, el("div", { class: "main" }, this.grid.element, legend(), keys, table), panel),
        el("p", { class: "visually-hidden", id: "grid-keys-hint", text: "Arrow keys move, f goes to the first wrong point, r to a rank, slash finds an operation." }),
      ),
      this.icicle && section("calls", "Call stacks of the selection", "Outermost call on top; width: how many of the selected operations came through it. Click to zoom.", this.icicle.element),
    ];
  }

  fillTable(table, group, rows, column) {
    const whole = rows.length > 1 ? rows : tellingRows(group, new Set(rows.map((row) => row.rank)));
    table.querySelector("table")?.remove();
    table.append(regionTable(this.model, group, whole, column));
  }

  /** What only paper shows: the grid around each first wrong point as a table, and all stacks. */
  paper() {
    const { model } = this;
    const suspects = new Set(model.suspects.map((suspect) => suspect.rank));
    const paper = el("section", { class: "paper" });
    this.fillPaper = () => {
      const wrong = model.groups.filter((group) => group.first_wrong !== null);
      const telling = wrong.filter((group) => group.label === model.group);
      const shown = telling.length > 0 ? telling : wrong.slice(0, PAPER_GROUPS);
      const lines = tellingLines(model).slice(0, PAPER_LINES);
      paper.replaceChildren(
        ...(lines.length > 0 ? [el("h2", { text: "Lines of logs on which the verdict rests" }), linesTable(model, lines)] : []),
        ...(shown.length > 0 ? [el("h2", { text: "Operations around the first wrong point" })] : []),
        ...shown.map((group) => regionTable(model, group, tellingRows(group, suspects), group.first_wrong)),
        ...model.stack_groups.slice(0, PAPER_STACKS).flatMap((group) => [
          el("h3", { text: `${ranksPhrase(group.ranks).replace(/^r/, "R")}${group.doing ? `: ${group.doing}` : ""}` }),
          stackList(framesOf(group)),
        ]),
      );
    };
    return paper;
  }

  start() {
    this.grid?.start();
    this.fillPaper();
  }
}

const model = await decode(document.getElementById("data").textContent);
const page = new AutopsyPage(model);
document.querySelector("header.top").append(...page.tools());
document.getElementById("rest").replaceWith(page.element);
page.start();
globalThis.mycroft = { model, page, grid: page.grid, icicle: page.icicle, readyMs: performance.now() };
