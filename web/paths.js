// What went between hosts in a window: a matrix of senders and receivers, and the same as a table.
import { count, el } from "./dom.js";
import { ms, percent } from "./words.js";

/** Hosts in the matrix, those with the worst paths. */
const HOSTS_MAX = 16;
/** Rows of the table. */
const ROWS_MAX = 32;
/** Excess from which a cell bears a mark, as a share of the iteration. */
const MARKS = [0.02, 0.1, 0.3];

/** Which path is slower than others that carry as much, in one sentence. */
export function pathSentence(told) {
  const worst = told.paths[0];
  if (!worst) return "Nothing went between hosts in this window, or the tracer does not see it.";
  const share = worst.excess_ms / told.iteration_ms;
  if (share < MARKS[0]) return "No path takes longer than others that carry as much.";
  const others = told.paths.filter((path) => path.excess_ms / told.iteration_ms >= MARKS[0]).length - 1;
  const more = others > 0 ? ` So ${others === 1 ? "is one more" : `are ${others} more`}.` : "";
  return `From ${worst.from} to ${worst.to} data is on its way ${ms(worst.excess_ms)} longer than on paths that carry as much.${more}`;
}

function cell(path, iteration) {
  if (!path) return el("td", { class: "none" });
  const share = path.excess_ms / iteration;
  const level = MARKS.filter((mark) => share >= mark).length;
  const says = `${path.from} to ${path.to}: ${ms(path.sent_ms)} for ${path.mb.toPrecision(3)} MB an iteration, ${share < 0 ? "\u2212" : "+"}${percent(Math.abs(share))} of an iteration`;
  return el("td", { class: `cell ${level > 0 ? `slow${level}` : ""}`, title: says, "aria-label": says, text: `${ms(path.sent_ms)}${"+".repeat(level)}` });
}

function matrix(told) {
  // The hosts of the worst paths, in the order in which they are met; then by name, so that neighbours stand together.
  const hosts = [...new Set(told.paths.flatMap((path) => [path.from, path.to]))].slice(0, HOSTS_MAX)
    .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const at = new Map(told.paths.map((path) => [`${path.from}\n${path.to}`, path]));
  return el("div", { class: "rows" }, el("table", { class: "paths" },
    el("caption", { class: "visually-hidden", text: "How long data is on its way, by sender and receiver" }),
    el("thead", {}, el("tr", {}, el("th", { text: "from \\ to" }), hosts.map((host) => el("th", { scope: "col", text: host })))),
    el("tbody", {}, hosts.map((from) => el("tr", {}, el("th", { scope: "row", text: from }),
      hosts.map((to) => (from === to ? el("td", { class: "none" }) : cell(at.get(`${from}\n${to}`), told.iteration_ms))))))));
}

function table(told) {
  const row = (path) => el("tr", {}, el("th", { scope: "row", text: `${path.from} to ${path.to}` }), ...[`${path.mb.toPrecision(3)} MB`, ms(path.sent_ms), ms(path.excess_ms)].map((text) => el("td", { class: "number", text })));
  const heads = ["path", "an iteration", "on its way", "more than alike"];
  return el("div", { class: "rows" }, el("table", { class: "list" },
    el("thead", {}, el("tr", {}, heads.map((head, n) => el("th", { scope: "col", class: n > 0 ? "number" : null, text: head })))),
    el("tbody", {}, told.paths.slice(0, ROWS_MAX).map(row))));
}

/** The card of paths; `details`: whether the numbers are open, and who to tell when that changes. */
export function pathsCard(told, details) {
  const card = (...inside) => el("section", { class: "card job" }, el("header", {}, el("h2", { text: "Paths between hosts" }), el("span", { class: "muted", text: "same window" })), el("p", { class: "lead", text: pathSentence(told) }), inside);
  if (told.paths.length === 0) return card();
  const hosts = new Set(told.paths.flatMap((path) => [path.from, path.to])).size;
  const cut = [
    hosts > HOSTS_MAX ? `${count(hosts - HOSTS_MAX, "more host")}, whose paths are not slower.` : "",
    told.more > 0 ? `${count(told.more, "more path")} not shown.` : "",
    told.left_out ? "The job has more paths than the server keeps." : "",
  ].filter(Boolean).join(" ");
  return card(matrix(told),
    el("p", { class: "legend", text: `How long data is on its way in an iteration; what waits for a late receiver is in it. + ++ +++: 2, 10 or 30 % of an iteration longer than the path in the middle of those that carry from half to twice as much. ${cut}` }),
    el("details", { open: details.isOpen, on: { toggle: (event) => details.toggled(event.target.open) } }, el("summary", { id: "path-numbers", text: "Numbers" }), table(told)));
}
