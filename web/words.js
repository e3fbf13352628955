// What the live page says of cases, suspects and times, in the words of the reports.
import { count } from "./dom.js";

/** What a kind of case does to a job. */
const DOES = { hang: "hangs", slowdown: "is slow", desync: "is out of step", deadlock: "is deadlocked", crash: "lost a process" };

/** A time of the server as a number of seconds. */
export function seconds(time) {
  return time ? Number(BigInt(time.ns) / 1000000n) / 1e3 : null;
}

/** How long: `12 s`, `4 min`, `3 h`, `2 d`; number and unit stay on one line. */
export function span(s) {
  if (s === null || Number.isNaN(s)) return "?";
  if (s < 120) return `${Math.max(0, Math.round(s))}\u00a0s`;
  if (s < 7200) return `${Math.round(s / 60)}\u00a0min`;
  return s < 172800 ? `${Math.round(s / 3600)}\u00a0h` : `${Math.round(s / 86400)}\u00a0d`;
}

/** What stops a job goes before what slows it. */
const ORDER = ["crash", "deadlock", "hang", "desync", "slowdown"];

/** Cases, the most urgent first; of equals the newest. */
export function urgent(cases) {
  return [...cases].sort((a, b) => ORDER.indexOf(a.what) - ORDER.indexOf(b.what) || b.id - a.id);
}

/** `12 s ago`; empty where there is no time. */
export function ago(time, now) {
  const at = seconds(time);
  return at === null ? "" : `${span(now - at)} ago`;
}

/** `rank 6 on host1`, `host1`, `the link from host1 to host2`. */
export function suspectText(suspect) {
  if (suspect.kind === "link" && suspect.link) return `the link from ${suspect.link.from} to ${suspect.link.to}`;
  if (suspect.kind === "host") return `${suspect.host}`;
  return suspect.host ? `rank ${suspect.rank} on ${suspect.host}` : `rank ${suspect.rank}`;
}

/** Suspects that are as sure as the first, at most three of them named. */
function leads(suspects) {
  const first = suspects.filter((one) => one.confidence >= suspects[0].confidence - 1e-9);
  const named = first.slice(0, 3).map(suspectText).join(", ");
  return first.length > 3 ? `${named} and ${first.length - 3} more` : named;
}

/** One sentence for a case, as of `now`. */
export function sentence(one, now) {
  const parts = [];
  if (one.suspects.length > 0) {
    const sure = Math.round(one.suspects[0].confidence * 100);
    parts.push(`${leads(one.suspects)} (${one.category}, ${sure}\u00a0%)`);
  } else {
    parts.push(`${one.category}, nobody is named`);
  }
  const since = seconds(one.since) ?? seconds(one.opened_at);
  const until = seconds(one.closed_at);
  if (since !== null) parts.push(until === null ? `for ${span(now - since)}` : `it lasted ${span(until - since)}`);
  const waiting = new Set(one.blast_radius.flatMap((arrow) => arrow.waiting)).size;
  if (waiting > 0) parts.push(`${count(waiting, "rank")} ${waiting === 1 ? "waits" : "wait"}`);
  if (!one.settled) parts.push("not settled yet");
  return `${one.job} ${DOES[one.what] ?? one.what}: ${parts.join("; ")}`;
}

/** Milliseconds with their unit, three digits: `12.3 ms`, `1.25 s`, `450 us`. */
export function ms(value) {
  const size = Math.abs(value);
  const [number, unit] = size >= 1000 ? [value / 1000, "s"] : size >= 0.9995 || size < 5e-4 ? [value, "ms"] : [value * 1000, "us"];
  const digits = Math.abs(number) >= 100 || number === 0 ? 0 : Math.abs(number) >= 10 ? 1 : 2;
  return `${Number(number.toFixed(digits))}\u00a0${unit}`;
}

/** A share as percent, two digits. */
export function percent(share) {
  return `${Number((100 * share).toPrecision(share < 0.1 ? 1 : 2))}\u00a0%`;
}

/** A moment, milliseconds since the epoch, on the reader's clock; with its day where it is one of more than a day (`span`, milliseconds). */
export function clock(at, span) {
  const date = new Date(at);
  const time = date.toLocaleTimeString("en-GB", span > 7200e3 ? { hour: "2-digit", minute: "2-digit" } : {});
  return span > 86400e3 ? `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}` : time;
}
