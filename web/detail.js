// What the grid's cursor is on, in words and as a table: the cell, what the other ranks did there, and the rows around.
import { count, el, place, ranksPhrase, stackList, userFrame } from "./dom.js";
import { FIRST, MISSING, ODD, absenceText, cellAt, comboOf, markOf, markText, opOf, stackOf, stateOf, stateText } from "./data.js";

/** Columns to each side in the table. */
const SIDE = 4;
/** Rows in the table at most. */
const ROWS_MAX = 16;

/** Rows of a group at a column, by what they did: most ranks first. */
export function breakdown(group, column) {
  const kinds = new Map();
  for (const row of group.rows) {
    const cell = cellAt(row, column);
    const key = cell === undefined ? "none" : markOf(cell) === MISSING ? "missing" : `${comboOf(cell)} ${stateOf(cell)}`;
    if (!kinds.has(key)) kinds.set(key, { key, cell, ranks: [] });
    kinds.get(key).ranks.push(row.rank);
  }
  return [...kinds.values()].sort((a, b) => b.ranks.length - a.ranks.length);
}

/** Panel for a cell. */
export function cellPanel(model, painter, { item, row, column }) {
  const { group } = item;
  const cell = cellAt(row, column);
  const issued = cell !== undefined && markOf(cell) !== MISSING;
  const mark = cell === undefined ? "" : markText(cell);
  return [
    el(
      "div",
      { class: "cell-head" },
      el("h3", {}, issued && el("span", { class: "swatch", style: { background: painter.colour(comboOf(cell), stateOf(cell)) } }), issued ? opOf(model, comboOf(cell)) : cell === undefined ? absenceText(row, column) : "not issued"),
      el("p", { class: "muted", text: `rank ${row.rank} \u00b7 ${group.label} \u00b7 ${group.columns[column] ?? ""}` }),
      cell !== undefined && el("p", {}, el("span", { text: stateText(cell) }), mark && el("span", { class: `pill small ${markOf(cell) === FIRST ? "warn" : "bad"}`, text: mark })),
    ),
    issued && stackList(stackOf(model, comboOf(cell))),
    el("h4", { text: `All ranks at ${group.columns[column] ?? "this column"}` }),
    el(
      "ul",
      { class: "breakdown" },
      breakdown(group, column).map(({ key, cell: one, ranks }) =>
        el(
          "li",
          {},
          el("span", { class: `swatch ${key === "missing" ? "missing" : ""}`, style: one !== undefined && key !== "missing" ? { background: painter.colour(comboOf(one), stateOf(one)) } : {} }),
          el("span", {}, key === "none" ? "nothing recorded" : key === "missing" ? "not issued" : `${opOf(model, comboOf(one))}, ${stateText(one)}`, el("span", { class: "muted", text: ` \u00b7 ${ranksPhrase(ranks, 5)}` })),
        ),
      ),
    ),
  ];
}

/** A region of a group as a table: for readers of text, and for paper. */
export function regionTable(model, group, rows, middle) {
  const from = Math.max(0, Math.min(middle - SIDE, group.columns.length - 2 * SIDE - 1));
  const to = Math.min(group.columns.length, from + 2 * SIDE + 1);
  const columns = Array.from({ length: Math.max(to - from, 0) }, (_, i) => from + i);
  const word = (row, column) => {
    const cell = cellAt(row, column);
    if (cell === undefined) return "";
    if (markOf(cell) === MISSING) return "\u2717 not issued";
    const state = ["scheduled", "started", ""][stateOf(cell)], frame = userFrame(stackOf(model, comboOf(cell)));
    const op = `${opOf(model, comboOf(cell)).replace(/^.*:/, "")}${state ? ` (${state})` : ""}`;
    return [el("div", { text: op }), frame && el("div", { class: "from", text: place(frame, 1), title: `${frame.name} ${frame.file}` })];
  };
  const kind = (row, column) => {
    const cell = cellAt(row, column);
    const marked = cell !== undefined && [ODD, MISSING].includes(markOf(cell));
    return [marked ? "marked" : "", column === group.first_wrong ? "wrong" : column === middle ? "here" : ""].join(" ").trim();
  };
  const shown = rows.slice(0, ROWS_MAX);
  return el(
    "table",
    { class: "region" },
    el("caption", { text: `${ranksPhrase(shown.map((row) => row.rank)).replace(/^r/, "R")} \u00b7 ${group.label}${rows.length > shown.length ? `, of ${count(rows.length, "rank")}` : ""}` }),
    el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "rank" }), columns.map((column) => el("th", { scope: "col", class: column === group.first_wrong ? "wrong" : "", text: group.columns[column] })))),
    el("tbody", {}, shown.map((row) => el("tr", {}, el("th", { scope: "row", text: row.rank }), columns.map((column) => el("td", { class: kind(row, column) }, word(row, column)))))),
  );
}

/** Rows worth printing for a group: the unusual ones, then usual ones to compare with. */
export function tellingRows(group, suspects) {
  const weight = (row) => (suspects.has(row.rank) ? 2 : row.unusual ? 1 : 0);
  const order = group.rows.map((row, i) => [weight(row), i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const rows = order.slice(0, ROWS_MAX).map(([, i]) => group.rows[i]);
  const usual = group.rows.find((row) => weight(row) === 0);
  if (usual && !rows.includes(usual)) rows[rows.length - 1] = usual;
  return rows.sort((a, b) => a.rank - b.rank);
}
