// The verdict in words: what, who, where, why, and what to do now.
import { el, place, ranksPhrase, ranksText } from "./dom.js";

const TITLES = {
  hang: "Hang",
  desync: "Desync",
  deadlock: "Deadlock",
  crash: "Crash",
  slowdown: "Slow",
  slow: "Slow",
  healthy: "Healthy",
  "healthy-as-far": "Healthy as far as read",
  unknown: "Not decided",
};

const CAUSES = {
  "cpu-side": "CPU side",
  "gpu-kernel-hang": "GPU kernel hang",
  "wrong-arguments": "wrong arguments",
  "network-or-hardware": "network or hardware",
};

const ROLES = {
  absent: (who, where) => `${who} never issued ${where}`,
  "odd-one-out": (who, where, many) => `${who} ${many ? "differ" : "differs"} from ${many ? "their" : "its"} peers at ${where}`,
  "stuck-inside": (who, where, many) => `${who} ${many ? "are" : "is"} stuck inside ${where}`,
  "in-cycle": (who, where, many, cause) =>
    cause === "cross-group-order"
      ? `${who} ${many ? "call" : "calls"} process groups in another order than ${many ? "their" : "its"} peers: a circle of waiting`
      : `A circle of waiting through ${who.replace(/^R/, "r")} at ${where}`,
  gone: (who, where, many) => `${who} ${many ? "are" : "is"} gone`,
};

const ROLE_WORDS = {
  absent: "never issued it",
  "odd-one-out": "odd one out",
  "stuck-inside": "stuck inside",
  "in-cycle": "in the circle",
  gone: "process gone",
};

/** `all_reduce #6 in default_pg`. */
export function whereText(model) {
  const op = model.collective || "the operation";
  const seq = model.seq === null ? "" : ` #${model.seq}`;
  return `${op}${seq}${model.group ? ` in ${model.group}` : ""}`;
}

/** The verdict in one sentence. */
export function headline(model) {
  const first = model.suspects[0];
  if (!first) {
    if (model.what === "healthy") return "Nothing is wrong.";
    if (model.what === "healthy-as-far") return `Nothing is wrong as far as ${model.told} of ${model.ranks.length} ranks tell: other files could not be read.`;
    if (model.what === "slow") return "The job is slow, not stuck: no rank is to blame for a hang.";
    if (model.what === "unknown") return "The evidence does not tell what happened.";
    return `Something is wrong at ${whereText(model)}, and no rank stands out.`;
  }
  const same = model.suspects.filter((suspect) => suspect.role === first.role).map((suspect) => suspect.rank);
  const who = ranksPhrase(same).replace(/^r/, "R");
  const say = ROLES[first.role] ?? ((name, where) => `${name} caused it at ${where}`);
  return `${say(who, whereText(model), same.length > 1, model.cause)}.`;
}

/** Suspects shown before the rest is folded away. */
const SUSPECTS_OPEN = 12;

function suspectsTable(model) {
  const rows = model.suspects.map((suspect) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "rank" }, `rank ${suspect.rank}`, suspect.host && el("span", { class: "muted host", text: suspect.host })),
      el("td", { text: ROLE_WORDS[suspect.role] ?? suspect.role }),
      el("td", {}, confidence(suspect.confidence)),
      el("td", {}, doing(suspect)),
    ),
  );
  const head = el("tr", {}, ["Suspect", "What it did", "Sure", "Doing"].map((text) => el("th", { scope: "col", text })));
  const table = (part) => el("table", { class: "suspects" }, el("thead", {}, head.cloneNode(true)), el("tbody", {}, part));
  const rest = rows.slice(SUSPECTS_OPEN);
  return [
    table(rows.slice(0, SUSPECTS_OPEN)),
    rest.length > 0 && el("details", {}, el("summary", { text: `${rest.length} more` }), table(rest)),
  ];
}

function confidence(value) {
  const percent = Math.round(100 * Math.min(Math.max(value, 0), 1));
  return el(
    "span",
    { class: "confidence" },
    el("span", { class: "bar", "aria-hidden": "true" }, el("span", { style: { width: `${percent}%` } })),
    `${percent}\u2009%`,
  );
}

function doing(suspect) {
  const frame = suspect.at && { name: suspect.at[0], file: suspect.at[1], line: suspect.at[2] };
  const told = frame && suspect.doing.includes(`${frame.name} (`) && suspect.doing.includes(`:${frame.line})`);
  return [
    suspect.doing && el("span", { text: suspect.doing }),
    frame && !told && el("code", { class: "at", title: frame.file, text: `${frame.name} \u00b7 ${place(frame)}` }),
    !suspect.doing && !frame && el("span", { class: "muted", text: "no stack tells" }),
  ];
}

function block(title, ...content) {
  return el("section", { class: "block" }, el("h3", { text: title }), content);
}

/** Everything that is known of where and what kind, as pairs. */
function facts(model) {
  const pairs = [
    ["Where", model.group || model.collective ? whereText(model) : ""],
    ["Cause", [model.family && (CAUSES[model.family] ?? model.family), model.cause].filter(Boolean).join(" \u203a ")],
    ["Category", model.category ?? ""],
    ["Looked at", `${model.ranks.length === 1 ? "1 rank" : `${model.ranks.length.toLocaleString("en-US")} ranks`}`],
  ];
  return el(
    "dl",
    { class: "facts" },
    pairs.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))),
  );
}

/** Missing dumps by reason, so that a thousand ranks without a dump are one line. */
function missing(model) {
  const reasons = new Map();
  for (const [rank, why] of model.missing) reasons.set(why, [...(reasons.get(why) ?? []), rank]);
  return el("ul", {}, [...reasons].map(([why, ranks]) => el("li", {}, el("b", { text: ranksPhrase(ranks).replace(/^r/, "R") }), why && `: ${why}`)));
}

/** The summary of an autopsy. */
export function summary(model) {
  const calm = model.what === "healthy" ? "ok" : ["healthy-as-far", "unknown", "slow"].includes(model.what) ? "warn" : "bad";
  return el(
    "section",
    { class: "card summary", "aria-labelledby": "verdict" },
    el("p", { class: "verdict" }, el("span", { class: `pill ${calm}`, id: "what", text: TITLES[model.what] ?? model.what })),
    el("h1", { id: "verdict", text: headline(model) }),
    facts(model),
    model.suspects.length > 0 && suspectsTable(model),
    el(
      "div",
      { class: "blocks" },
      model.do_next.length > 0 && block("Do next", el("ol", { class: "next" }, model.do_next.map((text) => el("li", { text })))),
      model.because.length > 0 &&
        block("Because", el("ul", { class: "because" }, model.because.map(({ rule, text }) => el("li", {}, text, " ", el("code", { class: "rule", text: rule }))))),
      model.missing.length > 0 && block(`No usable dump (${ranksText(model.missing.map(([rank]) => rank), 4)})`, missing(model)),
      model.unread.length > 0 &&
        block("Not read", el("ul", {}, model.unread.map(([rank, file, why]) => el("li", {}, rank !== null && el("b", { text: `Rank ${rank}: ` }), `${file}: ${why}`)))),
      model.caveats.length > 0 &&
        block("What is missing", el("ul", {}, model.caveats.map(([text, way]) => el("li", {}, text, way && [" ", el("code", { class: "switch", text: way })])))),
    ),
  );
}
