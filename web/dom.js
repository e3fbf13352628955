// Small helpers to build the document. Text from dumps is hostile: it only ever becomes text nodes or attribute values,
// never markup (the page's Trusted Types policy makes the browser refuse anything else).

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `props`: `class`, `text`, `on` (listeners), `style` (properties); all others become attributes. */
export function el(tag, props = {}, ...children) {
  return furnish(document.createElement(tag), props, children);
}

/** An SVG element, as `el`. */
export function svg(tag, props = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), props, children);
}

function furnish(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "style") for (const [key, item] of Object.entries(value)) node.style.setProperty(key, item);
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

/** Pieces after which a list of ranks is cut: one line of text. */
const RANK_PIECES_MAX = 8;

/** Ranks as people write them: `0, 2-5`. */
export function ranksText(ranks, piecesMax = RANK_PIECES_MAX) {
  const sorted = [...ranks].sort((a, b) => a - b);
  const pieces = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (end + 1 < sorted.length && sorted[end + 1] <= sorted[end] + 1) end++;
    const dash = sorted[end] > sorted[i] + 1 ? "\u2013" : ", ";
    pieces.push(sorted[i] === sorted[end] ? `${sorted[i]}` : `${sorted[i]}${dash}${sorted[end]}`);
    i = end + 1;
  }
  if (pieces.length <= piecesMax) return pieces.join(", ");
  return `${pieces.slice(0, piecesMax).join(", ")} and more (${sorted.length} in all)`;
}

/** `rank 3` or `ranks 3, 5`. */
export function ranksPhrase(ranks, piecesMax) {
  return `${ranks.length === 1 ? "rank" : "ranks"} ${ranksText(ranks, piecesMax)}`;
}

/** As `ranksPhrase` in so few characters: `ranks 0, 8, 16 ... (64)` where there are more than fit. */
export function ranksWithin(ranks, most) {
  for (let pieces = most; pieces > 0; pieces = Math.min(pieces, 12) - 1) {
    const text = ranksPhrase(ranks, pieces).replace(/ and more \((\d+) in all\)$/, " \u2026 ($1)");
    if (text.length <= most) return text;
  }
  return count(ranks.length, "rank");
}

/** A long text without its middle: names differ at both ends. */
export function middleCut(text, most) {
  return text.length > most ? `${text.slice(0, Math.ceil(most * 0.6) - 1)}\u2026${text.slice(-Math.floor(most * 0.4))}` : text;
}

/** A number with thousands separators, and its noun. */
export function count(n, one, many = `${one}s`) {
  return `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;
}

/** `file.py:12`, with the last folders only where the path is long. */
export function place(frame, parts = 2) {
  if (!frame || !frame.file) return "";
  const short = frame.file.split("/").slice(-parts).join("/");
  return frame.line > 0 ? `${short}:${frame.line}` : short;
}

/** Library code: PyTorch, installed packages, the interpreter's own. What is left is the user's. */
export function isLibrary(frame) {
  return /(^|\/)(site|dist)-packages\/|(^|\/)torch\/|\/lib\/python\d|^<|^$|\.so(\.|$)|\.(cpp|cc|h|cu)$/.test(frame.file);
}

/** The innermost frame of the user's code, or the innermost frame. `stack`: frames, innermost first. */
export function userFrame(stack) {
  return stack.find((frame) => !isLibrary(frame)) ?? stack[0];
}

/** A call stack as a list, innermost first, the user's own frames standing out. */
export function stackList(frames, empty = "no call stack recorded") {
  if (frames.length === 0) return el("p", { class: "muted", text: empty });
  return el(
    "ol",
    { class: "stack" },
    frames.map((frame) =>
      el(
        "li",
        { class: isLibrary(frame) ? "library" : "user" },
        el("span", { class: "fn", text: frame.name || "?" }),
        el("span", { class: "at", text: place(frame, isLibrary(frame) ? 1 : 2), title: `${frame.file}:${frame.line}` }),
      ),
    ),
  );
}
