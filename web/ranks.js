// What the ranks of a job do now: by host, those with suspects and rare states first.
import { count, el } from "./dom.js";

/** Ranks that are shown: hosts as a whole, those of which something is to be seen. */
const RANKS_MAX = 384;
/** Letters of what ranks do, beside colour and shape. */
const LETTERS = { running: "", idle: "i", waiting: "w", stopped: "s", exited: "x", dead: "d", unknown: "?" };
const ODD = ["stopped", "exited", "dead", "unknown"];

/** Asks for the ranks of a job. */
export function ranksOf(ask, name) {
  return ask(`/api/v1/ranks?job=${encodeURIComponent(name)}&order=trouble&limit=${RANKS_MAX}`).catch((error) => ({ error: error.message }));
}

function cell(rank, middle, isSuspect) {
  const over = middle > 0 && rank.iteration_ms > 0 ? rank.iteration_ms / middle - 1 : 0;
  const slow = over > 0.5 ? "slow3" : over > 0.2 ? "slow2" : over > 0.05 ? "slow1" : "";
  const letter = LETTERS[rank.state] ?? "?";
  const odd = ODD.includes(rank.state) ? "odd" : "";
  const name = rank.rank ?? "?";
  const says = `rank ${name} on ${rank.host}: ${rank.state}${rank.doing ? `, ${rank.doing}` : ""}${rank.iteration_ms ? `; iteration ${rank.iteration_ms.toFixed(1)} ms (${over >= 0 ? "+" : ""}${Math.round(over * 100)} %)` : ""}${isSuspect ? "; suspect" : ""}`;
  return el("span", { class: `cell ${slow} ${odd} ${isSuspect ? "suspect" : ""}`, title: says, role: "img", "aria-label": says, text: `${name}${letter}` });
}

/** `1,020 waiting, 3 running, 1 stopped`: most first. */
function statesText(states) {
  return Object.entries(states).sort((a, b) => b[1] - a[1]).map(([state, n]) => `${n.toLocaleString("en-US")} ${state}`).join(", ");
}

function grouped(ranks) {
  const hosts = new Map();
  for (const rank of ranks) hosts.set(rank.host, [...(hosts.get(rank.host) ?? []), rank]);
  return hosts;
}

/** The card; `cases`: open ones of the job, `href`: where its operations are. */
export function ranksCard(told, cases, href) {
  if (told.error) return el("section", { class: "card" }, el("p", { text: told.error }));
  const suspects = cases.flatMap((one) => one.suspects);
  const ranks = new Set(suspects.filter((one) => one.kind === "rank").map((one) => one.rank));
  const suspectHosts = new Set(suspects.filter((one) => one.kind === "host").map((one) => one.host));
  const middle = told.middle_ms ?? 0;
  const hosts = grouped(told.ranks);
  const cells = [...hosts].flatMap(([host, some]) => [
    el("span", { class: "host", text: host }),
    el("span", { class: "cells" }, some.map((rank) => cell(rank, middle, ranks.has(rank.rank) || suspectHosts.has(host)))),
  ]);
  const more = told.more > 0 ? ` ${count(told.more, "more rank")} on other hosts, where no state is rarer.` : "";
  const legend = `Number: the rank. Letter: w waits, s stopped, i idle, x exited, d dead, ? unknown. Bar below: its iterations take 5, 20 or 50 % longer than the middle. Frame: a suspect.${more}`;
  const split = (told.layout ?? []).map((one) => `${one.of} among ${one.ranks}`);
  const splits = split.length > 0 ? `How the job is split, from what its communicators do: ${[...new Set(split)].join(", ")}.` : null;
  const all = told.ranks.length + told.more;
  const median = middle > 0 ? `iteration ${middle.toFixed(1)} ms in the middle` : "no iteration yet";
  return el("section", { class: "card" },
    el("header", {}, el("h2", { text: "Ranks" }), el("span", { class: "muted", text: `${count(all, "rank")} on ${count(told.hosts, "host")}, ${median}` }), el("a", { id: "operations", href, text: "operations" })),
    el("p", { class: "lead", text: `${statesText(told.states)}.` }),
    el("div", { class: "heat" }, cells), el("p", { class: "legend", text: legend }), splits ? el("p", { class: "legend", text: splits }) : null);
}
