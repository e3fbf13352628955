// Operations of a job that runs: collectives by communicator, rank and order number in the grid of the autopsy's page, and what is in
// flight. It follows the job until somebody uses the grid.
import { count, el } from "./dom.js";
import { DONE, MISSING, PLAIN, SCHEDULED, STARTED } from "./data.js";
import { OperationGrid } from "./grid.js";
import { ms, seconds, span } from "./words.js";

/** How far an operation is, as the answer says it and as cells do. */
const STAGES = [SCHEDULED, STARTED, DONE];
/** Ranks that are listed. */
const FLYING = 16;

const shown = { job: "", told: null, grid: null, node: null, isHeld: false };

/** A group of the answer as the grid takes it; who has not issued what others have is marked. */
function groupOf(group, columns) {
  const from = Math.max(0, group.next - columns);
  const numbers = Array.from({ length: group.next - from }, (_, at) => from + at);
  const rows = group.rows.map((row) => {
    const missing = numbers.filter((seq) => seq >= row.next).map((seq) => [seq, 0, MISSING, SCHEDULED]);
    const cells = [...row.ops.map(([seq, kind, stage]) => [seq, kind, PLAIN, STAGES[stage]]), ...missing].filter(([seq]) => seq >= from);
    const places = Uint32Array.from(cells, ([seq]) => seq - from);
    const values = Uint32Array.from(cells, ([, kind, mark, state]) => (kind << 4) | (mark << 2) | state);
    return { rank: row.rank ?? "?", columns: places, cells: values, contiguous: places.length === 0 || places[places.length - 1] - places[0] === places.length - 1 };
  });
  const behind = group.rows.filter((row) => row.next < group.next).map((row) => row.next);
  const first = behind.length > 0 ? Math.min(...behind) - from : null;
  return { label: group.name, ranks: rows.map((row) => row.rank), columns: numbers.map((seq) => `#${seq}`), first_wrong: first !== null && first >= 0 ? first : null, cut_before: from, cut_after: 0, rows };
}

/** The answer as the model of a grid. */
function modelOf(told, columns) {
  return {
    ops: told.kinds, combos: told.kinds.flatMap((_, at) => [at, 0]), stacks: [[]], frames: [], suspects: [],
    group: told.groups.find((group) => group.behind > 0)?.name ?? "", ranks: [],
    groups: told.groups.map((group) => groupOf(group, columns)),
  };
}

/** Who is behind, in one sentence. */
function sentence(told) {
  if (told.groups.length === 0) return "No collective has been seen yet.";
  const [worst] = told.groups;
  if (worst.behind === 0) return "All ranks have issued the same collectives.";
  const row = [...worst.rows].sort((a, b) => a.next - b.next)[0];
  const missing = worst.next - row.next;
  const more = worst.behind > 1 ? ` ${count(worst.behind - 1, "more rank")} of it ${worst.behind === 2 ? "is" : "are"} behind.` : "";
  return `Rank ${row.rank ?? "?"} on ${row.host} has not issued ${missing === 1 ? `#${row.next}` : `#${row.next} to #${worst.next - 1}`} of ${worst.name}, which others have.${more}`;
}

/** How long: milliseconds below a second. */
function age(s) {
  return s < 1 ? ms(Math.max(0, s) * 1e3) : span(s);
}

function flying(told) {
  const now = seconds(told.as_of);
  const row = (op) => el("tr", {}, el("td", { class: "number", text: op.since ? age(now - seconds(op.since)) : "?" }), el("td", { text: `rank ${op.rank ?? "?"} on ${op.host}` }), el("td", { text: op.what }), el("td", { class: "word", text: op.stage === "over" ? "on the wire" : op.stage }), el("td", { class: "number wide", text: op.more > 0 ? `and ${op.more} more` : "" }));
  const cut = Math.max(0, told.in_flight.length - FLYING) + told.more_in_flight;
  const heads = [["for", "number"], ["who"], ["in"], ["how far"], ["", "wide"]];
  return el("section", { class: "card" }, el("header", {}, el("h2", { text: "What ranks are in" }), el("span", { class: "muted", text: "those that have been in it longest first" })),
    told.in_flight.length === 0 ? el("p", { class: "muted", text: "Nothing is in flight." })
      : el("div", { class: "rows" }, el("table", { class: "list" }, el("thead", {}, el("tr", {}, heads.map(([text, kind]) => el("th", { scope: "col", class: kind ?? null, text })))), el("tbody", {}, told.in_flight.slice(0, FLYING).map(row)))),
    cut > 0 ? el("p", { class: "note muted", text: `and ${count(cut, "more rank")}` }) : null);
}

function build(model) {
  // The grid itself says what is under its cursor.
  shown.grid = new OperationGrid(model, () => {});
  const hold = (is) => {
    shown.isHeld = is;
    shown.node.querySelector("#follow").setAttribute("aria-pressed", `${!is}`);
    shown.node.querySelector("#follow").textContent = is ? "Follow the job" : "Follows the job";
  };
  const follow = el("button", { id: "follow", type: "button", "aria-pressed": "true", text: "Follows the job", on: { click: () => hold(!shown.isHeld) } });
  shown.grid.scroller.addEventListener("focus", () => hold(true));
  shown.lead = el("p", { class: "lead" });
  shown.cut = el("p", { class: "legend" });
  shown.node = el("section", { class: "card operations" }, el("header", {}, el("h2", { text: "Operations" }), follow), shown.lead, shown.grid.element, shown.cut);
}

/** Asks for the operations of a job. */
export function operationsOf(ask, name) {
  return ask(`/api/v1/jobs/${encodeURIComponent(name)}/operations`);
}

/** The cards of operations. The grid stays the same element: its cursor and what is scrolled to stay, too. */
export function operationsCards(told, columns = 32) {
  if (told.error) return [el("section", { class: "card" }, el("p", { text: told.error }))];
  const isOther = shown.job !== told.job;
  if (!isOther && shown.isHeld && shown.node) return [shown.node, flying(told)];
  const model = modelOf(told, columns);
  if (isOther || !shown.node) {
    Object.assign(shown, { job: told.job, isHeld: false });
    build(model);
    queueMicrotask(() => shown.grid.start());
  } else {
    queueMicrotask(() => shown.grid.update(model));
  }
  shown.lead.textContent = sentence(told);
  const rows = told.groups.reduce((sum, group) => sum + group.rows.length, 0);
  const all = told.groups.reduce((sum, group) => sum + group.ranks, 0);
  const cuts = [
    told.more_groups > 0 ? `${count(told.more_groups, "more communicator")}, in which nobody is further behind.` : "",
    rows < all ? "Of large ones the ranks that are furthest behind." : "",
  ].filter(Boolean).join(" ");
  shown.cut.textContent = `A row is a rank, a column the order number of a collective; an open frame: others have issued it, this rank has not. ${cuts}`;
  return [shown.node, flying(told)];
}

/** Whether somebody uses the grid: it stays where it is then. */
export function isGridUsed() {
  return shown.node?.isConnected && shown.node.contains(document.activeElement);
}

/** What stands for the view in the address. */
export const operationsHref = (job) => `#operations=${encodeURIComponent(job)}`;

