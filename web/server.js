// The view of the server itself: who is heard, what was lost, whose clock is off.
import { count, el } from "./dom.js";
import { span } from "./words.js";

/** Where records can be lost in the server, and what that means. */
const LOST = {
  queue: "neither diagnosed nor stored: the server could not keep up",
  store: "diagnosed, not stored: the disk was too slow or failed",
  jobs: "not diagnosed: more jobs than one server takes",
  limits: "not diagnosed: they name more ranks, hosts or communicators than are kept",
};

function row(name, value, more = "") {
  return el("tr", {}, el("th", { scope: "row" }, name, more ? el("span", { class: "more", text: more }) : null), el("td", { class: "number", text: value }));
}

const number = (n) => n.toLocaleString("en-US");

/** `12.3 GB`. */
function bytes(n) {
  const power = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(n, 1)) / 3)));
  return `${(n / 1000 ** power).toPrecision(3)}\u00a0${["B", "kB", "MB", "GB", "TB"][power]}`;
}

/** `0.35 s ahead`, `2 h behind`. */
function offset(s) {
  const size = Math.abs(s);
  return `${size < 10 ? `${size.toFixed(2)}\u00a0s` : span(size)} ${s < 0 ? "behind" : "ahead"}`;
}

function clocks(told) {
  const right = told.hosts - told.off - told.unknown;
  const head = `${count(right, "host")} right, ${number(told.off)} off by more than 100 ms, ${number(told.unknown)} not known.`;
  const rows = told.told.map((clock) => row(clock.host, offset(clock.offset_s), clock.bound_s === null ? "how well that is known: nobody knows" : `known to ${clock.bound_s.toPrecision(2)} s`));
  return el("section", { class: "card" }, el("header", {}, el("h2", { text: "Clocks of hosts" })), el("p", { class: "lead", text: head }),
    rows.length > 0 ? el("div", { class: "rows" }, el("table", { class: "list facts" }, el("tbody", {}, rows))) : null,
    el("p", { class: "legend", text: "Times of all hosts are put on the server's clock. One that is off is corrected, one that is not known is not: then order between hosts means little. chronyc makestep, or an agent of this version." }));
}

/** The cards of the server, from `GET /api/v1/health`. */
export function serverCards(health) {
  const isWell = health.status === "ok";
  const lost = Object.entries(LOST).map(([place, means]) => row(`records lost: ${place}`, number(health.dropped[place] ?? 0), means));
  return [
    el("section", { class: "card" }, el("header", {}, el("h2", { text: "This server" }), el("span", { class: `pill ${isWell ? "ok" : "bad"}`, text: isWell ? "well" : "not well" })),
      isWell ? el("p", { class: "lead", text: "Nothing is wrong with the server itself." }) : el("ul", { class: "problems" }, health.problems.map((text) => el("li", { text }))),
      el("div", { class: "rows" }, el("table", { class: "list facts" }, el("tbody", {},
        row("version", health.version), row("up for", span(health.uptime_s)), row("its clock, UTC", health.now.text.slice(0, 19).replace("T", " ")),
        row("agents connected", number(health.agents_connected), `${count(health.hosts_heard, "host")} sent something within ten seconds`),
        health.disk ? [row("disk of the store", `${bytes(health.disk.free_bytes)} free`, `of ${bytes(health.disk.bytes)}`), row("records are kept for", span(health.disk.retain_s), `at most ${bytes(health.disk.retain_bytes)} of them`)] : row("disk of the store", "none", "nothing outlives this server: mycroft serve --store DIR"),
        row("records received", number(health.records), `in ${count(health.batches, "batch", "batches")}`),
        row("records that wait to be diagnosed", number(health.queue.records)),
        row("behind", `${number(health.lag_ms)} ms`, "from the agent to the diagnosis, the most of the last second"),
        lost, row("diagnosis failed", number(health.engine_panics), "times that it was begun anew for a job"))))),
    clocks(health.clocks),
  ];
}
