// The live page: what is wrong now, the jobs, a case, a job's ranks. It asks the server again and again; what it is told only
// ever becomes text.
import { count, el } from "./dom.js";
import { capturesCard, capturesOf } from "./captures.js";
import { caseCards, caseMore } from "./case.js";
import { compareCards, comparison } from "./compare.js";
import { isHeld, jobCards, jobSeries } from "./job.js";
import { handled, isTyping } from "./notes.js";
import { isGridUsed, operationsCards, operationsHref, operationsOf } from "./operations.js";
import { ranksCard, ranksOf } from "./ranks.js";
import { serverCards } from "./server.js";
import { spark } from "./strip.js";
import { ago, ms, percent, seconds, sentence, span, urgent } from "./words.js";

/** Between two rounds of questions, milliseconds. */
const EVERY_MS = 1000;

const state = { told: "", view: null, failedAt: 0, isLoggedOut: false, shownMs: 0, asked: 0, answered: 0 };

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
  if (answer.status === 401) throw Object.assign(new Error("token"), { isLoggedOut: true });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error ?? `HTTP ${answer.status}`);
  return told;
}

/** What the address asks for: `#job=NAME`, `#operations=NAME`, `#case=ID`, `#compare=WINDOWS`, `#server`, or all. */
function wanted() {
  const [kind, ...rest] = location.hash.slice(1).split("=");
  const text = rest.join("=");
  return { kind, name: kind === "compare" ? text : decodeURIComponent(text) };
}

async function round() {
  const { kind, name } = wanted();
  const [health, jobs, cases] = await Promise.all([
    ask("/api/v1/health"), ask("/api/v1/jobs?limit=1000"), ask("/api/v1/cases?state=open&limit=200"),
  ]);
  const view = { kind, name, health, jobs: jobs.jobs, moreJobs: jobs.more, cases: urgent(cases.cases), closed: [] };
  if (view.cases.length > 0) view.cases[0] = await newest(view.cases[0]);
  if (kind === "case") {
    view.one = await ask(`/api/v1/cases/${encodeURIComponent(name)}`).then(newest).catch((error) => ({ error: error.message }));
    view.done = view.one.error ? [] : await caseMore(ask, view.one);
  }
  if (kind === "job") {
    view.ranks = await ranksOf(ask, name);
    view.series = await jobSeries(ask, name, seconds(health.now) * 1e3).catch((error) => ({ error: error.message }));
  }
  if (kind === "operations") {
    view.operations = await operationsOf(ask, name).catch((error) => ({ error: error.message }));
    view.captures = await capturesOf(ask, name).catch(() => []);
  }
  if (kind === "compare") view.compared = await comparison(ask, name).catch((error) => ({ error: error.message }));
  if (kind === "job" || kind === "") {
    const of = kind === "job" ? `job=${encodeURIComponent(name)}&` : "";
    view.closed = (await ask(`/api/v1/cases?${of}limit=20`)).cases.filter((one) => one.state !== "open");
  }
  return view;
}

/** A case as of now: who waits grows while it is open, and only a job's report tells that at once. */
async function newest(one) {
  if (one.state !== "open") return one;
  const report = await ask(`/api/v1/report?job=${encodeURIComponent(one.job)}&limit=1`).catch(() => ({ cases: [] }));
  return report.cases.find((other) => other.id === one.id && other.state === "open") ?? one;
}

/** Shows what was told, once it differs from what is shown; whoever uses the keyboard stays where he is. */
function show(view) {
  const told = JSON.stringify(view);
  if (told === state.told) return;
  state.told = told;
  state.view = view;
  const now = seconds(view.health.now);
  const focused = document.activeElement?.id;
  band(view, now);
  // Whoever has marked something is about to copy it.
  const main = document.getElementById("main");
  const selection = getSelection();
  if (isHeld() || isTyping() || isGridUsed() || (!selection.isCollapsed && main.contains(selection.anchorNode))) return;
  const began = performance.now();
  const open = [...main.querySelectorAll("details[open] > summary[id]")].map((summary) => summary.id);
  main.replaceChildren(...page(view, now).flat(3).filter(Boolean));
  for (const id of open) document.getElementById(id)?.parentElement.setAttribute("open", "");
  state.shownMs = performance.now() - began;
  if (focused) document.getElementById(focused)?.focus();
}

function band(view, now) {
  const { health } = view;
  const worst = view.cases[0];
  const isHealthy = view.cases.length === 0;
  const trouble = health.status === "ok" ? "" : ` The server: ${health.problems.join("; ")}.`;
  const kind = isHealthy ? (trouble ? "warn" : "ok") : "bad";
  const live = view.jobs.filter((job) => job.state === "live").length;
  const quiet = live > 0 ? `Nothing is wrong: ${count(live, "job")} live.` : "No job is live.";
  const more = view.cases.length > 1 ? ` And ${count(view.cases.length - 1, "more case")}.` : "";
  const lost = view.jobs.reduce((sum, job) => sum + job.lost, 0);
  const vitals = [count(health.agents_connected, "agent"), count(health.hosts_heard, "host"), `${count(lost, "record")} lost`, `${health.lag_ms} ms behind`];
  const node = document.getElementById("band");
  node.className = `band ${kind}`;
  node.replaceChildren(
    el("span", { class: "state", text: { ok: "OK", warn: "Look", bad: "Wrong" }[kind] }),
    el("h1", { text: (isHealthy ? quiet : `${sentence(worst, now)}.${more}`) + trouble }),
    worst && location.hash !== `#case=${worst.id}` ? el("a", { class: "action", id: "worst", href: `#case=${worst.id}`, text: "What to do" }) : "",
    el("a", { class: "vitals", id: "to-server", href: "#server", title: "the server itself", text: vitals.join(" \u00b7 ") }),
  );
  document.title = isHealthy ? "Mycroft" : `(${view.cases.length}) ${worst.job} ${worst.what} - Mycroft`;
}

function page(view, now) {
  const job = { job: view.name, operations: view.name, compare: new URLSearchParams(view.name).get("job") }[view.kind];
  const here = view.kind === "job" || !job ? el("strong", { text: job ?? "" }) : el("a", { id: "the-job", href: `#job=${encodeURIComponent(job)}`, text: job });
  const back = el("nav", { class: "places", "aria-label": "where you are" }, el("a", { href: "#", id: "all", text: "All jobs" }), job ? here : null);
  if (view.kind === "server") return [back, serverCards(view.health)];
  if (view.kind === "compare") return [back, compareCards(view.compared)];
  if (view.kind === "operations") return [back, caseList("Open cases", view.cases.filter((one) => one.job === view.name), now), operationsCards(view.operations), capturesCard(view.captures, now)];
  if (view.kind === "case") return [back, view.one.error ? trouble(view.one.error) : caseCards(view.one, view.done, now, refresh)];
  if (view.kind === "job") {
    const cases = view.cases.filter((one) => one.job === view.name);
    return [back, caseList("Open cases", cases, now), jobCards(view.name, view.series, refresh), ranksCard(view.ranks, cases, operationsHref(view.name)), caseList("Lately", view.closed, now)];
  }
  return [caseList("Open cases", view.cases, now), jobsCard(view, now), caseList("Lately", view.closed, now)];
}

function trouble(text) {
  return el("section", { class: "card" }, el("p", { text }));
}

function table(heads, rows) {
  const cell = (tag, [text, kind]) => el(tag, { class: kind ?? null }, text);
  return el("div", { class: "rows" }, el("table", { class: "list" }, el("thead", {}, el("tr", {}, heads.map((head) => cell("th", head)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((one) => cell("td", one)))))));
}

function caseList(title, cases, now) {
  if (cases.length === 0) return "";
  const rows = cases.map((one) => [
    [el("a", { id: `case-${one.id}`, href: `#case=${one.id}`, text: `${one.id}` })],
    [one.state === "open" ? [sentence(one, now), handled(one, now)].filter(Boolean).join("; ") : `${sentence(one, now)}. ${one.state}: ${one.closed_because}`],
  ]);
  return el("section", { class: "card" }, el("header", {}, el("h2", { text: title })), table([["case"], ["what"]], rows));
}

/** `327 ms, +46 %`: how long an iteration takes, and how much longer that is than when nothing is wrong. */
function iterationText(job) {
  if (!job.iteration_us) return "";
  const over = job.healthy_iteration_us ? job.iteration_us / job.healthy_iteration_us - 1 : 0;
  return `${ms(job.iteration_us / 1e3)}${over >= 0.02 ? `, +${percent(over)}` : ""}`;
}

/** What a day has lost, in hours of all ranks together. */
function lostText(job) {
  const hours = (job.lost_rank_s ?? 0) / 3600;
  return hours < 0.01 ? "nothing" : `${hours < 10 ? hours.toFixed(2) : Math.round(hours).toLocaleString("en-US")}\u00a0GPU h`;
}

/** How the list of jobs is ordered and filtered: by the person who looks. */
const fleet = { text: "", by: "trouble" };
const SORTS = [
  ["trouble", (a, b) => b.open_cases - a.open_cases || (b.lost_rank_s ?? 0) - (a.lost_rank_s ?? 0)],
  ["lost", (a, b) => (b.lost_rank_s ?? 0) - (a.lost_rank_s ?? 0)],
  ["size", (a, b) => b.processes - a.processes],
  ["name", () => 0],
];

function sorted(jobs) {
  const text = fleet.text.toLowerCase();
  const [, compare] = SORTS.find(([name]) => name === fleet.by);
  // The server lists by name, and a stable sort keeps that where others are equal.
  return jobs.filter((job) => `${job.name} ${job.state}`.toLowerCase().includes(text)).sort(compare);
}

function fleetTools(all, shown) {
  if (all < 2) return null;
  const filter = el("input", { id: "filter", type: "search", "aria-label": "filter jobs", placeholder: "filter jobs", value: fleet.text, on: { input: (event) => { fleet.text = event.target.value; again(); } } });
  const by = SORTS.map(([name]) => el("button", { id: `sort-${name}`, "aria-pressed": `${fleet.by === name}`, text: name, on: { click: () => { fleet.by = name; again(); } } }));
  return [filter, el("span", { class: "spans", role: "group", "aria-label": "order" }, by), shown < all ? el("span", { class: "muted", text: `${shown} of ${count(all, "job")}` }) : null];
}

function jobsCard(view, now) {
  const jobs = sorted(view.jobs);
  const rows = jobs.map((job) => [
    [el("a", { id: `job-${job.name}`, href: `#job=${encodeURIComponent(job.name)}`, text: job.name })],
    [spark(job.recent_iterations_us, job.healthy_iteration_us), "wide"],
    [iterationText(job), "number"],
    [lostText(job), "number wide"],
    [job.state === "ended" ? `ended: ${job.ended_because}` : job.state],
    [job.open_cases > 0 ? el("span", { class: "pill small bad", text: count(job.open_cases, "open case") }) : "none"],
    [`${job.hosts}`, "number wide"],
    [`${job.processes}`, "number wide"],
    [job.lost.toLocaleString("en-US"), "number wide"],
    [ago(job.last_seen_at, now), "number"],
  ]);
  const heads = [["job"], ["iterations", "wide"], ["one takes", "number"], ["lost in a day", "number wide"], ["state"], ["cases"], ["hosts", "number wide"], ["processes", "number wide"], ["records lost", "number wide"], ["heard", "number"]];
  const none = el("p", { class: "muted", text: "No job has been seen: start an agent on each host, and the job with NCCL_PROFILER_PLUGIN (mycroft doctor looks for what is missing)." });
  const more = view.moreJobs > 0 ? el("p", { class: "note muted", text: `and ${count(view.moreJobs, "more job")}` }) : null;
  return el("section", { class: "card" }, el("header", {}, el("h2", { text: "Jobs" }), fleetTools(view.jobs.length, jobs.length)), view.jobs.length > 0 ? table(heads, rows) : none, more);
}

/** A server with a token: whoever gives it gets a cookie that only this server reads. */
function login(said) {
  const field = el("input", { id: "token", type: "password", autocomplete: "current-password", "aria-label": "token", placeholder: "token" });
  const enter = async (event) => {
    event.preventDefault();
    const answer = await fetch("/login", { method: "POST", headers: { Authorization: `Bearer ${field.value.trim()}` } });
    if (!answer.ok) return login((await answer.json()).error);
    Object.assign(state, { isLoggedOut: false, told: "" });
    turn();
  };
  const node = document.getElementById("band");
  node.className = "band warn";
  node.replaceChildren(el("h1", { text: "This server wants its token." }));
  document.getElementById("main").replaceChildren(el("section", { class: "card" },
    el("form", { class: "login", on: { submit: enter } }, field, el("button", { type: "submit", text: "Look" })),
    said ? el("p", { class: "note", text: said }) : null));
  field.focus();
}

/** Shows what is known once more, otherwise ordered or filtered; the cursor stays where it is in the filter. */
function again() {
  const at = document.getElementById("filter")?.selectionStart;
  state.told = "";
  show(state.view);
  const field = document.getElementById("filter");
  if (document.activeElement === field && at !== undefined) field?.setSelectionRange(at, at);
}

/** Asks and shows at once: something else is wanted. */
function refresh() {
  state.told = "";
  turn();
}

async function turn() {
  if (state.isLoggedOut) return;
  const number = ++state.asked;
  // What was asked before is no answer any more: somebody may have gone to another view since.
  const isLate = () => number < state.answered;
  try {
    const view = await round();
    if (isLate()) return;
    state.answered = number;
    show(view);
    state.failedAt = 0;
  } catch (error) {
    if (isLate()) return;
    if (error.isLoggedOut) {
      state.isLoggedOut = true;
      return login("");
    }
    state.failedAt ||= Date.now();
    state.told = "";
    const node = document.getElementById("band");
    node.className = "band warn";
    node.replaceChildren(el("h1", { text: `The server does not answer since ${span((Date.now() - state.failedAt) / 1e3)}: what is below may be old. ${error.message}` }));
  }
}

addEventListener("hashchange", turn);
async function loop() {
  await turn();
  globalThis.mycroft = { turns: (globalThis.mycroft?.turns ?? 0) + 1, shownMs: state.shownMs };
  setTimeout(loop, document.hidden ? EVERY_MS * 10 : EVERY_MS);
}
loop();
