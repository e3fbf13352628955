// What main threads were doing in the newest captures of a job, side by side, the oldest at the left: what does not move stands out.
import { el } from "./dom.js";
import { StackGrid } from "./stackgrid.js";
import { ago } from "./words.js";

/** Captures beside each other. */
const CAPTURES = 3;
/** What was fetched: captures that are done do not change. */
const known = new Map();

/** The newest captures of a job with their stacks, oldest first. */
export async function capturesOf(ask, job) {
  const path = `/api/v1/jobs/${encodeURIComponent(job)}/dumps`;
  const listed = (await ask(`${path}?limit=${CAPTURES}`).catch(() => ({ dumps: [] }))).dumps.filter((dump) => dump.state === "done" && dump.stacks);
  for (const { id } of listed) if (!known.has(`${job} ${id}`)) known.set(`${job} ${id}`, await ask(`${path}/${id}`));
  return listed.map(({ id }) => known.get(`${job} ${id}`)).filter((dump) => dump.autopsy?.stacks?.length > 0).reverse();
}

function modelOf(dump) {
  const groups = dump.autopsy.stacks.map((group) => ({ ranks: group.ranks, frames: group.frames.map((frame) => [frame.name, frame.file, frame.line]), odd: group.odd, doing: group.doing }));
  const suspects = dump.autopsy.verdict.suspects.filter((suspect) => suspect.rank !== null && suspect.rank !== undefined);
  return { stack_groups: groups, groups: [], suspects, ranks: groups.flatMap((group) => group.ranks).sort((a, b) => a - b) };
}

let drawn = { key: "", node: null };

/** The card; nothing where no capture has stacks. */
export function capturesCard(dumps, now) {
  if (dumps.length === 0) return "";
  const key = dumps.map((dump) => `${dump.job} ${dump.id}`).join();
  if (drawn.key !== key) {
    const one = (dump) => el("div", { class: "capture" }, el("h3", { text: `capture ${dump.id}` }), el("p", { class: "muted", text: dump.autopsy.verdict.what }), new StackGrid(modelOf(dump)).element);
    drawn = { key, node: el("div", { class: "captures" }, dumps.map(one)) };
  }
  drawn.node.querySelectorAll(".capture > h3").forEach((head, at) => { head.textContent = `capture ${dumps[at].id}, ${ago(dumps[at].taken_at, now)}`; });
  return el("section", { class: "card" }, el("header", {}, el("h2", { text: "Call stacks" }), el("span", { class: "muted", text: "captures in the order of time; a tile is a rank, equal stacks have equal colours" })), drawn.node);
}
