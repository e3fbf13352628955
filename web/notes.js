// What people say of a case, and where they say it: that they look after it, that it is to be quiet, what they found.
import { el } from "./dom.js";
import { ago, seconds } from "./words.js";

/** Silences that are offered: name, seconds. */
const SILENCES = [["for an hour", 3600], ["for 8 hours", 28800], ["for a day", 86400]];
/** Where the browser keeps the name of who uses it. */
const NAME = "mycroft-who";

/** What is typed and not sent yet, and what the server said against it. */
const typed = { case: 0, text: "", error: "" };

function who() {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return "";
  }
}

function remember(name) {
  try {
    localStorage.setItem(NAME, name);
  } catch {
    // A browser that keeps nothing: it is asked for again.
  }
}

/** Until when nobody is told of a case, seconds; null where alerts go out. */
export function silentUntil(one, now) {
  const said = one.notes?.findLast((note) => note.silent_until);
  const until = said ? seconds(said.silent_until) : null;
  return one.state === "open" && until > now ? until : null;
}

/** `ada looks after it`, `quiet until 15:03`: what is to be seen at once. */
export function handled(one, now) {
  const owner = one.notes?.findLast((note) => note.acknowledges);
  const until = silentUntil(one, now);
  const parts = [];
  if (owner) parts.push(`${owner.who} looks after it`);
  if (until !== null) parts.push(`no alerts until ${new Date(until * 1e3).toLocaleTimeString("en-GB")}`);
  return parts.join("; ");
}

function line(note, now) {
  const parts = [];
  if (note.acknowledges) parts.push("looks after it");
  if (note.silent_until) parts.push(seconds(note.silent_until) <= seconds(note.at) ? "alerts again" : `no alerts until ${new Date(seconds(note.silent_until) * 1e3).toLocaleString("en-GB")}`);
  if (note.text) parts.push(note.text);
  return el("li", {}, el("strong", { text: note.who }), ` ${ago(note.at, now)}: ${parts.join("; ")}`);
}

async function send(one, what, refresh) {
  const name = document.getElementById("note-who").value.trim();
  remember(name);
  const answer = await fetch(`/api/v1/cases/${one.id}/notes`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ who: name, text: typed.text.trim(), ...what }) })
    .catch((error) => ({ ok: false, json: () => ({ error: error.message }) }));
  typed.error = answer.ok ? "" : (await answer.json()).error;
  if (answer.ok) typed.text = "";
  document.activeElement?.blur();
  refresh();
}

/** The notes of a case and the form for another one; `refresh` asks and shows again. */
export function notesBlock(one, now, refresh) {
  if (typed.case !== one.id) Object.assign(typed, { case: one.id, text: "", error: "" });
  const isOpen = one.state === "open";
  const name = el("input", { id: "note-who", autocomplete: "name", maxlength: 200, required: "", "aria-label": "your name", placeholder: "your name", value: who() });
  const text = el("input", { id: "note-text", maxlength: 2000, "aria-label": "note", placeholder: "note", value: typed.text, on: { input: (event) => { typed.text = event.target.value; } } });
  const say = (id, label, what) => el("button", { id, type: "button", text: label, on: { click: () => send(one, what, refresh) } });
  const quiet = silentUntil(one, now) !== null
    ? [say("alerts-again", "Alerts again", { silence_s: 0 })]
    : SILENCES.map(([label, silence_s], at) => say(`silence-${at}`, at === 0 ? `Quiet ${label}` : label, { silence_s }));
  const submit = (event) => {
    event.preventDefault();
    send(one, {}, refresh);
  };
  return el("div", { class: "block notes" }, el("h3", { text: "Notes" }),
    one.notes?.length ? el("ul", {}, one.notes.map((note) => line(note, now))) : null,
    el("form", { class: "note-form", on: { submit } }, name, text, el("button", { type: "submit", id: "note-add", text: "Add note" }),
      isOpen ? [say("acknowledge", "I look after it", { acknowledge: true }), el("span", { class: "spans", role: "group", "aria-label": "no alerts" }, quiet)] : null),
    typed.error ? el("p", { class: "note", role: "alert", text: typed.error }) : null);
}

/** Whether somebody is typing: what is typed must stay where it is. */
export function isTyping() {
  return ["note-who", "note-text"].includes(document.activeElement?.id);
}
