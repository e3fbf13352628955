// The view of one job: its iterations as a strip, and where the time of a window of it went.
import { el } from "./dom.js";
import { compareHref, keep, keptWindow, windowText } from "./compare.js";
import { pathsCard } from "./paths.js";
import { bars, excessSentence, heat } from "./spent.js";
import { levels, strip } from "./strip.js";
import { clock, ms, percent, span } from "./words.js";

/** What the strip may show: its name, and milliseconds. */
const SPANS = [["10 min", 600e3], ["hour", 3600e3], ["day", 86400e3], ["week", 604800e3]];
/** Ranks with a bar: more than anybody looks at. */
const BARS = 64;
/** Paths that are asked for: those of the matrix and some. */
const PATHS = 1000;
/** Points of the strip: one each two pixels of a wide window. */
const POINTS = 600;
/** Nothing has ended for so many iterations, and for so many milliseconds, before a sentence says so. */
const SILENT = [5, 60e3];
/** An iteration is longer than usual by this share before a sentence says so. */
const LONGER = 0.02;

const chosen = { job: "", span: SPANS[0][1], window: null, isOpen: false, arePathsOpen: false, isHeld: false };

/** Whether a window is being drawn: nothing may move under the pointer. */
export function isHeld() {
  return chosen.isHeld;
}

/** Asks for the series of a job, as of `now`, milliseconds. */
export async function jobSeries(ask, name, now) {
  if (chosen.job !== name) Object.assign(chosen, { job: name, window: null });
  const path = `/api/v1/jobs/${encodeURIComponent(name)}`;
  const told = await ask(`${path}/iterations?from=${now - chosen.span}&points=${POINTS}`);
  if (told.points.length < 2) return { told, range: null, spent: null, paths: null };
  // Up to now: that nothing has ended since is seen.
  const range = [told.points[0].at_ms, Math.max(now, told.points[told.points.length - 1].at_ms)];
  if (chosen.window && chosen.window[1] <= range[0]) chosen.window = null;
  const [from, to] = shown(told, range);
  const [spent, paths] = await Promise.all([
    ask(`${path}/ranks/series?from=${from}&to=${to}&limit=${BARS}`), ask(`${path}/paths?from=${from}&to=${to}&limit=${PATHS}`),
  ]);
  return { told, range, spent, paths };
}

/** All of the strip, however long it gets. */
const WHOLE = [-Infinity, Infinity];

/** The window. Where nobody chose one: from the last change of the level on, so that what was before does not hide what is now. */
function shown(told, range) {
  const [from, to] = chosen.window ?? [levels(told, range).at(-1)?.from ?? range[0], range[1]];
  return [Math.max(from, range[0]), Math.min(to, range[1])];
}

function iterationSentence(told, range) {
  const now = told.level_ms;
  if (now === null) return "The level of iteration times is not known yet.";
  const silent = range[1] - told.points[told.points.length - 1].at_ms;
  if (silent > Math.max(SILENT[0] * now, SILENT[1])) {
    return `No iteration has ended for ${span(silent / 1e3)}; one took ${ms(now)} before.`;
  }
  const pieces = levels(told, range);
  const since = pieces.length > 1 ? `, since ${clock(pieces[pieces.length - 1].from, 0)}` : "";
  const over = told.healthy_ms > 0 ? now / told.healthy_ms - 1 : 0;
  if (over < LONGER) return `An iteration takes ${ms(now)}, as it does when nothing is wrong.`;
  return `An iteration takes ${ms(now)}, ${percent(over)} longer than the ${ms(told.healthy_ms)} of before${since}.`;
}

function spans(refresh) {
  const button = ([name, span]) => el("button", { id: `span-${name.replace(" ", "")}`, "aria-pressed": `${chosen.span === span}`, text: name, on: { click: () => {
    Object.assign(chosen, { span, window: null });
    refresh();
  } } });
  return el("span", { class: "spans", role: "group", "aria-label": "time shown" }, SPANS.map(button));
}

/** What the window can be compared with: what was before the last change, or a window that is kept. */
function comparing(name, told, range, [from, to], refresh) {
  const here = { job: name, from, to };
  const pieces = levels(told, range);
  const before = pieces.length > 1 && from >= pieces.at(-1).from - 1 ? { job: name, from: pieces.at(-2).from, to: pieces.at(-2).to } : null;
  const held = keptWindow();
  const isOther = held && (held.job !== name || held.from !== from || held.to !== to);
  const link = (id, text, other, title) => el("a", { id, class: "button", href: compareHref(here, other), text, title });
  return [
    before ? link("compare-before", "Compare with before", before, windowText(before)) : null,
    isOther ? link("compare-kept", "Compare with what is kept", held, windowText(held)) : null,
    el("button", { id: "keep", text: "Keep to compare", title: "then choose another window, or another job", on: { click: () => { keep(here); refresh(); } } }),
  ];
}

/** The cards of a job's series; `refresh` asks and shows again. */
export function jobCards(name, series, refresh) {
  if (series.error) return [el("section", { class: "card" }, el("p", { text: series.error }))];
  const { told, range, spent, paths } = series;
  const head = el("header", {}, el("h2", { text: "Iterations" }), spans(refresh));
  if (!range) return [el("section", { class: "card" }, head, el("p", { class: "muted", text: "No iteration has been measured in this time." }))];
  const width = Math.max(260, document.getElementById("main").clientWidth - (innerWidth <= 520 ? 54 : 100));
  const choose = (window) => {
    chosen.window = window;
    refresh();
  };
  const held = (is) => {
    chosen.isHeld = is;
  };
  const window = () => shown(told, range);
  const other = chosen.window ? [["present", "What is now", null]] : [];
  const whole = window().every((at, end) => at === range[end]) ? [] : [["whole", "All of it", WHOLE]];
  const windows = [...other, ...whole].map(([id, text, window]) => el("button", { id, text, on: { click: () => choose(window) } }));
  const [from, to] = [spent.from_ms ?? range[0], spent.to_ms ?? range[1]];
  const long = to - from > 86400e3 ? to - from : 0;
  return [
    el("section", { class: "card job" }, head, el("p", { class: "lead", text: iterationSentence(told, range) }),
      strip(told, range, window, width, choose, held),
      el("p", { class: "legend", text: "Line: an iteration, or the one in the middle of several; area: the shortest and longest of them. Dashes: the level, a triangle where it changed. Shaded red: a case. Drag to choose a window, or move its ends with arrow keys; Esc: since the last change." })),
    el("section", { class: "card job" },
      el("header", {}, el("h2", { text: "Where time goes" }), el("span", { class: "muted", text: `${clock(from, long)} to ${clock(to, long)}, iterations of ${ms(spent.iteration_ms)}` }), el("span", { class: "spans" }, windows, comparing(name, told, range, window(), refresh))),
      el("p", { class: "lead", text: excessSentence(spent) }),
      bars(spent, width, { isOpen: chosen.isOpen, toggled: (is) => { chosen.isOpen = is; } })),
    el("section", { class: "card job" }, el("header", {}, el("h2", { text: "Excess over peers" }), el("span", { class: "muted", text: "by host, the worst first" })), heat(spent)),
    pathsCard(paths, { isOpen: chosen.arePathsOpen, toggled: (is) => { chosen.arePathsOpen = is; } }),
  ];
}
