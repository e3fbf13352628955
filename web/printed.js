// What was printed: time x rank, one mark for each line of the logs that tells something of the end.
import { count, el, svg } from "./dom.js";

/** Pixels: height of a row, room for its name, room for the times below, width of the picture, edge. */
const ROW = 16, NAMES = 150, FOOT = 26, WIDTH = 1240, EDGE = 14;

/** Rows drawn at most: those of marks that matter come first. */
const LANE_ROWS_MAX = 256;

/** Lines of the table at most; marks have all of them. */
const TABLE_MAX = 400;

const PARTS = {
  "first-failure": { rank: 0, name: "first failure", radius: 6 },
  evidence: { rank: 1, name: "the verdict rests on it", radius: 4.5 },
  consequence: { rank: 2, name: "a consequence", radius: 3 },
  beside: { rank: 3, name: "not used", radius: 3 },
};

/** `07-14 11:20:01.104`; times count the days of a leap year. */
function moment(ms) {
  return ms === null ? "" : new Date(Date.UTC(2024, 0, 1) + ms).toISOString().slice(5, 23).replace("T", " ");
}

/** The lines of a model as objects, in the order of files and lines. */
function linesOf(model) {
  return model.printed.lines.map(([file, line, rank, host, ms, part, text]) => ({ place: `${model.printed.files[file]}:${line}`, file, line, rank, host, ms, part, text }));
}

/** The lines on which the verdict rests, first failures first. */
export function tellingLines(model) {
  const telling = linesOf(model).filter(({ part }) => part === "first-failure" || part === "evidence");
  return telling.sort((a, b) => PARTS[a.part].rank - PARTS[b.part].rank);
}

function who({ rank, host, file }, model) {
  if (rank !== null) return `rank ${rank}`;
  return host || model.printed.files[file];
}

/** Lines as a table. */
export function linesTable(model, lines) {
  const head = ["Time", "Who", "What it says", "Line", "What it is"];
  const row = (line) =>
    el(
      "tr",
      { class: line.part },
      [moment(line.ms), who(line, model), line.text].map((text) => el("td", { text })),
      el("td", {}, el("code", { text: line.place })),
      el("td", { text: PARTS[line.part].name }),
    );
  return el("table", { class: "lines region" }, el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col", text })))), el("tbody", {}, lines.map(row)));
}

/** Rows of the picture: ranks by number, then hosts and files; where there are too many, those with marks that matter. */
function rowsOf(lines, model) {
  const rows = new Map();
  for (const line of lines) {
    const name = who(line, model);
    const row = rows.get(name) ?? { name, rank: line.rank ?? Infinity, best: 9 };
    row.best = Math.min(row.best, PARTS[line.part].rank);
    rows.set(name, row);
  }
  const order = (a, b) => (a.rank === b.rank ? a.name.localeCompare(b.name, "en") : a.rank - b.rank);
  const all = [...rows.values()].sort((a, b) => a.best - b.best || order(a, b));
  const shown = all.slice(0, LANE_ROWS_MAX).sort(order);
  shown.forEach((row, at) => (row.at = at));
  return { shown, hidden: all.length - shown.length };
}

/** Places each line on the axis: by its time, a line without one where the line before it in its file is; by lines where
 * no line has a time. */
function placed(lines) {
  const last = new Map();
  const isTimed = lines.some((line) => line.ms !== null);
  lines.forEach((line, at) => {
    line.x = isTimed ? (line.ms ?? last.get(line.file) ?? null) : at;
    if (line.x !== null) last.set(line.file, line.x);
  });
  const known = lines.filter((line) => line.x !== null).map((line) => line.x);
  const [from, to] = known.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
  const inner = WIDTH - NAMES - 2 * EDGE;
  for (const line of lines) line.x = NAMES + EDGE + (line.x === null || to === from ? 0 : (inner * (line.x - from)) / (to - from));
  return { isTimed, from, to };
}

function mark(line, model, y) {
  const { radius, name } = PARTS[line.part];
  const text = `${[moment(line.ms), who(line, model)].filter(Boolean).join(" ")}: ${line.text} (${line.place}; ${name})`;
  const title = svg("title", { text });
  const { x } = line;
  if (line.part === "first-failure") return svg("path", { class: `mark ${line.part}`, d: `M${x} ${y - radius} L${x + radius} ${y} L${x} ${y + radius} L${x - radius} ${y} Z` }, title);
  return svg("circle", { class: `mark ${line.part}`, cx: x, cy: y, r: radius }, title);
}

function axis({ isTimed, from, to }, height) {
  const ends = isTimed ? [moment(from), to > from ? moment(to) : ""] : ["first line", "last line"];
  const text = (at, anchor, words) => svg("text", { class: "axis", x: at, y: height - 8, "text-anchor": anchor, text: words });
  return [text(NAMES + EDGE, "start", ends[0]), text(WIDTH - EDGE, "end", ends[1])];
}

/** The picture, with the lines as a table below it. */
export function printedLane(model) {
  const lines = linesOf(model);
  const { shown, hidden } = rowsOf(lines, model);
  const scale = placed(lines);
  const rows = new Map(shown.map((row) => [row.name, row]));
  const height = shown.length * ROW + FOOT;
  const middle = (row) => row.at * ROW + ROW / 2;
  const marks = lines
    .filter((line) => rows.has(who(line, model)))
    .sort((a, b) => PARTS[b.part].rank - PARTS[a.part].rank)
    .map((line) => mark(line, model, middle(rows.get(who(line, model)))));
  const names = shown.map((row) => [
    svg("line", { class: "row", x1: NAMES, x2: WIDTH, y1: middle(row), y2: middle(row) }),
    svg("text", { class: row.best === 0 ? "name first" : "name", x: NAMES - 8, y: middle(row) + 4, "text-anchor": "end", text: row.name.length > 20 ? `\u2026${row.name.slice(-19)}` : row.name }),
  ]);
  const label = `${count(lines.length, "line")} of ${count(model.printed.files.length, "log")} by time and rank`;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "img", "aria-label": label }, names.flat(), axis(scale, height), marks);
  const cut = [hidden > 0 && `${count(hidden, "row")} without a telling line`, model.printed.left_out > 0 && count(model.printed.left_out, "line")].filter(Boolean);
  const key = (part) => el("span", {}, svg("svg", { class: "dot", width: 14, height: 14, "aria-hidden": "true" }, mark({ x: 7, part, ms: null, rank: null, host: " ", file: 0, text: "", place: "" }, model, 7)), PARTS[part].name);
  return el(
    "div",
    { class: "printed" },
    el("div", { class: "picture", tabindex: 0, role: "group", "aria-label": label }, picture),
    el("p", { class: "legend muted" }, Object.keys(PARTS).map(key), cut.length > 0 && el("span", { text: `Left out: ${cut.join(", ")}.` })),
    el(
      "details",
      { class: "as-table" },
      el("summary", { text: "The lines as a table" }),
      linesTable(model, [...tellingLines(model), ...linesOf(model).filter(({ part }) => PARTS[part].rank > 1)].slice(0, TABLE_MAX)),
    ),
  );
}
