// Where the time of a job's iterations went: bars of the ranks that take most more than their peers, and all ranks by host.
import { count, el } from "./dom.js";
import { ms, percent } from "./words.js";

/** The parts of an iteration, in the order of the bars. */
const PARTS = ["computation", "issue", "copy", "proxy", "wire", "waiting"];
/** A part bears its name where there is room: pixels of a character, and beside the text; and of what stands beside all bars. */
const CHARACTER = 6.2;
const MARGIN = 10;
const BESIDE = 180;
/** Hosts that are shown, those with the worst ranks. */
const HOSTS_MAX = 48;
/** Excess from which a cell bears a mark, as a share of the iteration: what may be worth a look, a lot, very much. */
const MARKS = [0.05, 0.2, 0.5];

/** Who takes more than the others, in one sentence. */
export function excessSentence(told) {
  const worst = told.ranks[0];
  if (!worst) return "Nothing has been measured in this window yet.";
  const share = worst.excess_ms / told.iteration_ms;
  if (share < MARKS[0]) return `No rank takes more than ${percent(Math.max(0, share))} of an iteration longer than its peers.`;
  const [part] = Object.entries(worst.more_ms).sort((a, b) => b[1] - a[1])[0];
  const others = told.hosts.flatMap((host) => host.excess_ms).filter((excess) => excess / told.iteration_ms >= MARKS[0]).length - 1;
  const more = others > 0 ? ` ${count(others, "more rank")} ${others === 1 ? "takes" : "take"} at least 5 % longer.` : "";
  return `Rank ${worst.rank ?? "?"} on ${worst.host} takes ${ms(worst.excess_ms)} longer than its peers, most of it ${part}.${more}`;
}

function bar(rank, longest, width) {
  const pieces = PARTS.map((part) => {
    const share = rank.parts_ms[part] / longest;
    const name = `${part} ${ms(rank.parts_ms[part])}`;
    const text = share * width > name.length * CHARACTER + MARGIN ? name : "";
    return el("span", { class: `part ${part}`, style: { width: `${Math.max(0, 100 * share)}%` }, title: `${part} ${ms(rank.parts_ms[part])}`, text });
  });
  return [
    el("span", { class: "who", text: `${rank.rank ?? "?"}` }, el("span", { class: "muted", text: ` ${rank.host}` })),
    el("span", { class: "more", text: `${rank.excess_ms < 0 ? "\u2212" : "+"}${ms(Math.abs(rank.excess_ms))}` }),
    el("span", { class: "parts" }, pieces),
  ];
}

function numbers(told) {
  const heads = ["rank", "host", ...PARTS, "more than peers"];
  const row = (rank) => el("tr", {}, el("th", { scope: "row", text: `${rank.rank ?? "?"}` }), el("td", { text: rank.host }),
    PARTS.map((part) => el("td", { class: "number", text: ms(rank.parts_ms[part]) })), el("td", { class: "number", text: ms(rank.excess_ms) }));
  return el("div", { class: "rows" }, el("table", { class: "list" },
    el("caption", { class: "visually-hidden", text: "Where the time of an iteration goes, by rank" }),
    el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: at > 1 ? "number" : null, text: head })))),
    el("tbody", {}, told.ranks.map(row))));
}

/** Bars and their numbers; `width`: of the card, pixels; `details`: whether the numbers are open, and who to tell when that changes. */
export function bars(told, width, details) {
  if (told.ranks.length === 0) return [];
  const longest = Math.max(...told.ranks.map((rank) => PARTS.reduce((sum, part) => sum + rank.parts_ms[part], 0)), 1e-9);
  const room = width > 500 ? width - BESIDE : width;
  const key = el("p", { class: "legend parts-key", "aria-hidden": "true" }, PARTS.map((part) => el("span", {}, el("span", { class: `swatch ${part}` }), part)));
  const cut = told.more > 0 ? el("p", { class: "legend", text: `${count(told.more, "more rank")}, which take less more than their peers, below only.` }) : null;
  const open = el("details", { open: details.isOpen, on: { toggle: (event) => details.toggled(event.target.open) } },
    el("summary", { id: "numbers", text: "Numbers" }), numbers(told));
  return [key, el("div", { class: "spent", "aria-hidden": "true" }, told.ranks.map((rank) => bar(rank, longest, room))), cut, open];
}

function cell(rank, excess, iteration) {
  const share = excess / iteration;
  const level = MARKS.filter((mark) => share >= mark).length;
  const title = `rank ${rank ?? "?"}: ${share < 0 ? "\u2212" : "+"}${percent(Math.abs(share))} of an iteration`;
  return el("span", { class: `cell ${level > 0 ? `slow${level}` : ""}`, title, "aria-label": title, text: `${rank ?? "?"}${"+".repeat(level)}` });
}

/** All ranks by host, the host with the worst rank first. */
export function heat(told) {
  const worst = (host) => Math.max(...host.excess_ms);
  const hosts = [...told.hosts].sort((a, b) => worst(b) - worst(a));
  const seen = hosts.slice(0, HOSTS_MAX);
  const rest = hosts.slice(HOSTS_MAX);
  const rows = seen.flatMap((host) => [
    el("span", { class: "host", text: host.host }),
    el("span", { class: "cells" }, host.ranks.map((rank, at) => cell(rank, host.excess_ms[at], told.iteration_ms))),
  ]);
  const cut = rest.length > 0 ? ` ${count(rest.length, "more host")}, whose ranks take at most ${percent(Math.max(0, worst(rest[0]) / told.iteration_ms))} longer.` : "";
  return [el("div", { class: "heat" }, rows), el("p", { class: "legend", text: `Number: the rank. + ++ +++: its own time is 5, 20 or 50 % of an iteration more than that of its peers.${cut}` })];
}
