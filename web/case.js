// One case: what is wrong and who, who waits for whom, why, when, what was captured, tested and done, and what people say of it.
import { count, el } from "./dom.js";
import { handled, notesBlock } from "./notes.js";
import { waitGraph } from "./waitgraph.js";
import { ago, seconds, sentence, span, suspectText } from "./words.js";

/** Reasons of a kind that are open at once. */
const REASONS = 3;
/** The report that was asked for as text: of which case, and what it says. */
const ticket = { case: 0, text: "" };

/** What besides the case is asked for: what was done to its job because of it. */
export async function caseMore(ask, one) {
  const told = await ask(`/api/v1/actions?job=${encodeURIComponent(one.job)}&limit=50`).catch(() => ({ actions: [] }));
  return told.actions.filter((action) => action.cases.includes(one.id));
}

/** When what happened: each moment with its distance to the one before. */
function times(one, now) {
  const owner = one.notes?.find((note) => note.acknowledges);
  const known = [
    ["began", one.since], ["detected", one.detected_at], ["settled", one.diagnosed_at], ["revised", one.revised_at],
    [owner ? `${owner.who} looks after it` : "", owner?.at], ["closed", one.closed_at],
  ].filter(([, time]) => time).sort((a, b) => seconds(a[1]) - seconds(b[1]));
  const moment = ([name, time], at) => {
    const later = at > 0 ? seconds(time) - seconds(known[at - 1][1]) : 0;
    const after = later >= 0.05 ? `, ${later < 10 ? `${later.toFixed(1)}\u00a0s` : span(later)} later` : "";
    return el("div", {}, el("dt", { text: name }), el("dd", { text: `${ago(time, now)}${at > 0 ? after : ""}`, title: time.text }));
  };
  return el("dl", { class: "times" }, known.map(moment));
}

function block(title, ...content) {
  return el("div", { class: "block" }, el("h3", { text: title }), content);
}

function list(title, items, kind = "ul") {
  return items.length === 0 ? null : block(title, el(kind, { class: kind === "ol" ? "next" : null }, items));
}

/** Reasons by kind, the first word of their rule: of many alike the first ones, the others folded. */
function reasons(one) {
  const kinds = new Map();
  for (const reason of one.because) {
    const kind = reason.rule.split(".")[0];
    kinds.set(kind, [...(kinds.get(kind) ?? []), reason]);
  }
  const item = (reason) => el("li", {}, reason.text, " ", el("span", { class: "rule", text: reason.rule }));
  const group = ([kind, all]) => [
    all.slice(0, REASONS).map(item),
    all.length > REASONS ? el("li", {}, el("details", {}, el("summary", { id: `why-${kind}`, text: `${count(all.length - REASONS, "more reason")} of ${kind}` }), el("ul", {}, all.slice(REASONS).map(item)))) : null,
  ];
  return list("Why", [...kinds].map(group));
}

/** The graph that was drawn last: it is drawn anew when it differs. */
let drawn = { key: "", node: null };

/** Who waits for whom, drawn, and in words. */
function waits(one) {
  const arrows = one.blast_radius.filter((arrow) => arrow.waiting.length > 0);
  if (arrows.length === 0) return null;
  const ranks = [...new Set(arrows.flatMap((arrow) => [...arrow.waiting, ...arrow.waits_for]))].sort((a, b) => a - b);
  const suspects = one.suspects.filter((suspect) => suspect.kind === "rank").map((suspect) => ({ rank: suspect.rank, doing: "" }));
  const key = JSON.stringify([arrows, suspects]);
  if (drawn.key !== key) drawn = { key, node: waitGraph({ arrows, suspects, ranks }) };
  return el("section", { class: "card" }, el("header", {}, el("h2", { text: "Who waits for whom" }), el("span", { class: "muted", text: "an arrow points to who is waited for" })), drawn.node);
}

function captures(one, now) {
  const path = `/api/v1/jobs/${encodeURIComponent(one.job)}/dumps/`;
  const item = (dump) => el("li", {}, el("a", { href: `${path}${dump.id}`, text: `capture ${dump.id}` }),
    `, ${ago(dump.taken_at, now)}: ${dump.what}${dump.category ? `, ${dump.category}` : ""}${dump.suspects.length > 0 ? `, ${dump.suspects.map(suspectText).join(", ")}` : ""}`);
  return list("Captured", one.dumps.map(item));
}

function actions(done, now) {
  const item = (action) => el("li", { text: `${action.strategy}, ${action.state}, ${ago(action.at, now)} by ${action.who}: ${action.because}` });
  return list("Done about it", done.map(item));
}

/** Fetches the report as text, puts it where it can be pasted from, and shows it where that is refused. */
async function copyTicket(one, refresh) {
  const answer = await fetch(`/api/v1/report?job=${encodeURIComponent(one.job)}&format=text`);
  const text = await answer.text();
  try {
    await navigator.clipboard.writeText(text);
    Object.assign(ticket, { case: one.id, text: "" });
    document.getElementById("ticket").textContent = "Copied";
  } catch {
    Object.assign(ticket, { case: one.id, text });
    refresh();
  }
}

/** The cards of a case; `done`: what `caseMore` said, `refresh` asks and shows again. */
export function caseCards(one, done, now, refresh) {
  const suspects = one.suspects.map((suspect) => el("tr", {},
    el("td", { class: "rank", text: suspectText(suspect) }),
    el("td", {}, el("span", { class: "confidence" }, el("span", { class: "bar" }, el("span", { style: { width: `${suspect.confidence * 100}%` } })), `${Math.round(suspect.confidence * 100)} %`)),
  ));
  const query = `job=${encodeURIComponent(one.job)}`;
  const tested = one.validation ? block("Tested in the held job", el("p", { text: `${one.validation.outcome}: ${one.validation.text} (${one.validation.who}, ${ago(one.validation.at, now)})` })) : null;
  const before = list("What it said before", one.said_before.map((said) => el("li", { text: `until ${ago(said.until, now)}: ${said.what}, ${said.category}, ${said.suspects.map(suspectText).join(", ") || "nobody"}` })));
  return [el("section", { class: "card summary" },
    el("span", { class: `pill ${one.state === "open" ? "bad" : "ok"}`, text: `case ${one.id}: ${one.what}, ${one.state}` }),
    el("h1", { text: `${sentence(one, now)}.` }),
    times(one, now),
    handled(one, now) ? el("p", { class: "handled", text: `${handled(one, now)}.` }) : null,
    one.closed_because ? el("p", { text: `Closed: ${one.closed_because}.` }) : null,
    suspects.length > 0 ? el("table", { class: "suspects" }, el("tbody", {}, suspects)) : null,
    el("div", { class: "blocks" }, list("What to do", one.do_next.map((text) => el("li", { text })), "ol"), reasons(one), captures(one, now), tested, actions(done, now), before, notesBlock(one, now, refresh)),
    el("p", { class: "note" }, el("a", { href: `#${query}`, text: `ranks of ${one.job}` }), " \u00b7 ", el("a", { id: "case-operations", href: `#operations=${encodeURIComponent(one.job)}`, text: "operations" }), " \u00b7 ", el("a", { href: `/api/v1/report?${query}&format=text`, text: "report as text" }), " ", el("button", { id: "ticket", type: "button", text: "Copy for a ticket", on: { click: () => copyTicket(one, refresh) } })),
    ticket.case === one.id && ticket.text ? el("pre", { class: "ticket", tabindex: 0, "aria-label": "the report, to be copied", text: ticket.text }) : null,
  ), waits(one)];
}
