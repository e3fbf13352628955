// Two windows of series beside each other: of one job before and after, or of two jobs.
import { count, el, ranksPhrase } from "./dom.js";
import { clock, ms, percent } from "./words.js";

/** The parts of an iteration, in the order of the bars. */
const PARTS = ["computation", "issue", "copy", "proxy", "wire", "waiting"];
/** Ranks in the table. */
const RANKS = 32;

/** The window that somebody keeps to compare others with: job, from, to; null: none. */
let kept = null;
/** The last answer: windows do not change once they are over. */
let answered = { query: "", told: null };

/** Keeps a window. */
export function keep(window) {
  kept = window;
}

/** The window that is kept. */
export function keptWindow() {
  return kept;
}

/** The address of a comparison: windows are job, from, to in milliseconds. */
export function compareHref(after, before) {
  const query = new URLSearchParams({ job: after.job, from: after.from, to: after.to, with: before.job, with_from: before.from, with_to: before.to });
  return `#compare=${query}`;
}

/** A window in words. */
export function windowText(window, long = 0) {
  return `${window.job}, ${clock(window.from, long)} to ${clock(window.to, long)}`;
}

/** Asks for the comparison that the address names. */
export async function comparison(ask, query) {
  if (answered.query !== query) answered = { query, told: await ask(`/api/v1/compare?${query}&limit=${RANKS}`) };
  return answered.told;
}

function signed(value) {
  return `${value < 0 ? "\u2212" : "+"}${ms(Math.abs(value))}`;
}

/** How an iteration and the worst rank differ, in one or two sentences. */
function sentence(told) {
  const { iteration, ranks } = told;
  if (!iteration) return "One of the two windows has no iteration.";
  const share = iteration.before_ms > 0 ? iteration.more_ms / iteration.before_ms : 0;
  const by = Math.abs(share) < 0.002 ? "as long as before" : `${percent(Math.abs(share))} ${share > 0 ? "longer" : "shorter"} than before`;
  const first = `An iteration takes ${ms(iteration.after_ms)}, ${by}.`;
  const worst = ranks[0];
  if (ranks.length > 0 && ranks.every((rank) => rank.own.chance === null)) return `${first} The windows are too short to tell what of ranks is more than chance.`;
  if (!worst || !worst.own.is_clear) return `${first} No rank clearly takes more or less itself.`;
  const [part] = PARTS.slice(0, -1).map((name) => [name, worst.parts[name].more_ms * Math.sign(worst.own.more_ms)]).sort((a, b) => b[1] - a[1])[0];
  const word = worst.own.more_ms > 0 ? "more" : "less";
  const others = told.slower + told.faster - 1;
  const rest = others > 0 ? ` ${count(others, "more rank")} clearly ${others === 1 ? "differs" : "differ"}.` : "";
  return `${first} Rank ${worst.rank ?? "?"} on ${worst.host} takes ${ms(Math.abs(worst.own.more_ms))} ${word} itself, most of it ${part}.${rest}`;
}

/** A difference: clear ones stand out, of others it is said that they may be chance. */
function cell(difference) {
  const sure = difference.within_ms === null ? "of one piece of time nobody knows how sure" : `give or take ${ms(difference.within_ms)}`;
  const title = `${ms(difference.before_ms)} before, ${ms(difference.after_ms)} after: ${signed(difference.more_ms)}, ${sure}${difference.is_clear ? "" : "; may be chance"}`;
  return el("td", { class: `number ${difference.is_clear ? (difference.more_ms > 0 ? "more" : "less") : "muted"}`, title, "aria-label": title, text: signed(difference.more_ms) });
}

function table(told) {
  const heads = ["rank", "host", "itself", ...PARTS];
  const host = (one) => (one.host === one.host_before ? one.host : `${one.host}, before ${one.host_before}`);
  const row = (one) => el("tr", {}, el("th", { scope: "row", text: `${one.rank ?? "?"}` }), el("td", { text: host(one) }), cell(one.own), PARTS.map((part) => cell(one.parts[part])));
  return el("div", { class: "rows" }, el("table", { class: "list compared" },
    el("caption", { class: "visually-hidden", text: "How much more or less ranks take of an iteration, by part" }),
    el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: at > 1 ? "number" : null, text: head })))),
    el("tbody", {}, told.ranks.map(row))));
}

function only(ranks, where) {
  const known = ranks.filter((rank) => rank !== null);
  return known.length > 0 ? `${ranksPhrase(known, 6)} ${known.length === 1 ? "is" : "are"} ${where} only.` : "";
}

/** The card of a comparison. */
export function compareCards(told) {
  if (told.error) return [el("section", { class: "card" }, el("p", { text: told.error }))];
  const window = (one, name) => el("tr", {}, el("th", { scope: "row", text: name }), el("td", { text: one.from_ms === null ? `${one.job}: nothing is known` : windowText({ job: one.job, from: one.from_ms, to: one.to_ms }, one.to_ms - one.from_ms > 86400e3 ? one.to_ms - one.from_ms : 0) }), el("td", { class: "number", text: count(one.iterations, "iteration") }), el("td", { class: "number", text: ms(one.iteration_ms) }));
  const cut = [told.more > 0 ? `${count(told.more, "more rank")}, which differ less.` : "", only(told.only_before, "before"), only(told.only_after, "after")].filter(Boolean).join(" ");
  return [el("section", { class: "card job" }, el("header", {}, el("h2", { text: "Compared" })),
    el("p", { class: "lead", text: sentence(told) }),
    el("div", { class: "rows" }, el("table", { class: "list facts" }, el("tbody", {}, window(told.before, "before"), window(told.after, "after")))),
    told.ranks.length > 0 ? table(told) : el("p", { class: "muted", text: "No rank is in both windows." }),
    el("p", { class: "legend", text: `How much more or less of an iteration; what stands out is more than chance (at most one of a hundred of these is), what is grey may be none. ${cut}` }))];
}
