// Iteration times as a strip: each point, the level, its changes, the cases as bands; a window is chosen in it by mouse or keys.
import { svg } from "./dom.js";
import { clock, ms, percent } from "./words.js";

/** Height of the strip and of what is around its curve, pixels. */
const HEIGHT = 190;
const LEFT = 56;
const TOP = 26;
const BOTTOM = 22;
/** A key moves an end of the window by this share of the strip; with Shift by ten times as much. */
const STEP = 0.01;

/** Where things lie in a strip of so many pixels: times from `from` to `to`, milliseconds from 0 to `most`. */
function scales(width, [from, to], most) {
  const inner = Math.max(1, width - LEFT - 8);
  return {
    width,
    x: (at) => LEFT + ((Math.min(to, Math.max(from, at)) - from) / (to - from)) * inner,
    at: (x) => from + (Math.min(1, Math.max(0, (x - LEFT) / inner)) * (to - from)),
    y: (value) => TOP + (1 - Math.min(1, value / most)) * (HEIGHT - TOP - BOTTOM),
  };
}

/** A number that people count in: 1, 2 or 5 times a power of ten, not less than `least`. */
function round(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-3)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= least * 0.999);
}

/** The levels as pieces: from, to, milliseconds. */
export function levels(told, [from, to]) {
  const inside = told.changes.filter((change) => change.at_ms > from && change.at_ms < to);
  const later = told.changes.find((change) => change.at_ms >= to);
  const first = inside[0]?.before_ms ?? later?.before_ms ?? told.level_ms;
  const starts = [{ at_ms: from, after_ms: first }, ...inside];
  const ends = [...inside.map((change) => change.at_ms), to];
  return starts.map((start, at) => ({ from: start.at_ms, to: ends[at], ms: start.after_ms })).filter((piece) => piece.ms > 0);
}

function curve(points, scale) {
  const place = (point, value) => `${scale.x(point.at_ms).toFixed(1)} ${scale.y(value).toFixed(1)}`;
  const up = points.map((point) => place(point, point.max_ms));
  const down = [...points].reverse().map((point) => place(point, point.min_ms));
  return [
    svg("path", { class: "range", d: `M${[...up, ...down].join("L")}Z` }),
    svg("path", { class: "curve", d: `M${points.map((point) => place(point, point.median_ms)).join("L")}` }),
  ];
}

function axes(scale, [from, to], most, step) {
  const values = Array.from({ length: Math.round(most / step) + 1 }, (_, n) => n * step);
  const marks = scale.width < 480 ? 3 : 6;
  const times = Array.from({ length: marks }, (_, n) => from + ((to - from) * n) / (marks - 1));
  const anchor = (n) => (n === 0 ? "start" : n === marks - 1 ? "end" : "middle");
  return [
    values.map((value) => [
      svg("line", { class: "rule-line", x1: LEFT, x2: scale.width - 8, y1: scale.y(value), y2: scale.y(value) }),
      svg("text", { class: "tick", x: LEFT - 6, y: scale.y(value) + 4, "text-anchor": "end", text: ms(value) }),
    ]),
    times.map((at, n) => svg("text", { class: "tick", x: scale.x(at), y: HEIGHT - 5, "text-anchor": anchor(n), text: clock(at, to - from) })),
  ];
}

function bands(told, scale, [from, to]) {
  const seen = told.bands.filter((band) => band.from_ms < to && (band.to_ms ?? to) > from);
  return seen.map((band) => {
    const [x1, x2] = [scale.x(band.from_ms), scale.x(band.to_ms ?? to)];
    const width = Math.max(2, x2 - x1);
    return svg("a", { href: `#case=${band.case}`, id: `band-${band.case}`, "aria-label": `case ${band.case}: ${band.what}, ${band.category}` },
      svg("rect", { class: `case ${band.to_ms === null ? "open" : ""}`, x: x1, y: TOP, width, height: HEIGHT - TOP - BOTTOM }),
      svg("text", { class: "case-name", x: Math.min(x1 + 3, scale.width - 60), y: 12, text: `case ${band.case}` }));
  });
}

function changes(told, scale, [from, to]) {
  const inside = told.changes.filter((change) => change.at_ms > from && change.at_ms < to);
  return inside.map((change) => {
    const x = scale.x(change.at_ms);
    const by = `${change.after_ms > change.before_ms ? "+" : "\u2212"}${percent(Math.abs(change.after_ms / change.before_ms - 1))}`;
    return svg("g", { class: "change" },
      svg("line", { x1: x, x2: x, y1: TOP - 4, y2: HEIGHT - BOTTOM }),
      svg("path", { d: `M${x - 4} ${TOP - 6}h8l-4 6z` }),
      svg("text", { x: Math.min(x + 6, scale.width - 44), y: TOP, text: by }));
  });
}

/** An end of the window: a slider for keys, and for those who hear the page. */
function end(name, now, scale, [from, to], move) {
  const at = now();
  const x = scale.x(at);
  const onKey = (event) => {
    // Keys may come faster than the page is shown again.
    const at = now();
    const step = (to - from) * STEP * (event.shiftKey ? 10 : 1);
    const next = { ArrowLeft: at - step, ArrowDown: at - step, ArrowRight: at + step, ArrowUp: at + step, Home: from, End: to }[event.key];
    if (event.key === "Escape") move(null);
    else if (next === undefined) return;
    else move(Math.min(to, Math.max(from, next)));
    event.preventDefault();
  };
  const share = Math.round((100 * (at - from)) / (to - from));
  return svg("g", { id: `window-${name}`, class: "end", tabindex: 0, role: "slider", "aria-label": `${name} of the window`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": share, "aria-valuetext": clock(at, to - from), on: { keydown: onKey } },
    svg("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
    svg("rect", { x: x - 4, y: HEIGHT / 2 - 12, width: 8, height: 24, rx: 3 }));
}

/** Chooses a window with the pointer; `held` is told while one is being drawn. */
function drawn(picture, shade, scale, choose, held) {
  const at = (event) => {
    const box = picture.getBoundingClientRect();
    return scale.at(((event.clientX - box.left) / box.width) * scale.width);
  };
  let began = null;
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("a")) return;
    began = at(event);
    picture.setPointerCapture(event.pointerId);
    held(true);
  });
  picture.addEventListener("pointermove", (event) => {
    if (began === null) return;
    const [left, right] = [began, at(event)].sort((a, b) => a - b);
    shade.setAttribute("x", scale.x(left));
    shade.setAttribute("width", Math.max(1, scale.x(right) - scale.x(left)));
  });
  const over = (event) => {
    if (began === null) return;
    const [left, right] = [began, at(event)].sort((a, b) => a - b);
    began = null;
    held(false);
    // A click without a way takes the choice back.
    choose(scale.x(right) - scale.x(left) < 4 ? null : [left, right]);
  };
  picture.addEventListener("pointerup", over);
  picture.addEventListener("pointercancel", over);
}

/**
 * The strip. `told`: answer of `/iterations`; `range`: times shown; `shown()`: the window; `choose(window)` is
 * called with another, null for that which nobody chose; `held(is)` while one is being drawn.
 */
export function strip(told, range, shown, width, choose, held) {
  const longest = 1.02 * Math.max(...told.points.map((point) => point.max_ms), told.level_ms ?? 0, 1e-3);
  const step = round(longest / 5);
  const most = Math.ceil(longest / step) * step;
  const scale = scales(width, range, most);
  const [left, right] = shown();
  const shade = svg("rect", { class: "window", x: scale.x(left), y: TOP, width: Math.max(1, scale.x(right) - scale.x(left)), height: HEIGHT - TOP - BOTTOM });
  const with_ = (at, value) => {
    if (value === null) return choose(null);
    const next = [...shown()];
    next[at] = value;
    choose(next.sort((a, b) => a - b));
  };
  const level = levels(told, range).map((piece) => svg("line", { class: "level", x1: scale.x(piece.from), x2: scale.x(piece.to), y1: scale.y(piece.ms), y2: scale.y(piece.ms) }));
  const picture = svg("svg", { class: "strip", viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": "iteration times" },
    axes(scale, range, most, step), shade, bands(told, scale, range), curve(told.points, scale), level, changes(told, scale, range),
    end("begin", () => shown()[0], scale, range, (value) => with_(0, value)), end("end", () => shown()[1], scale, range, (value) => with_(1, value)));
  drawn(picture, shade, scale, choose, held);
  return picture;
}

/** A small picture of the last iterations, microseconds, and of what one takes when nothing is wrong; nothing of fewer than three. */
export function spark(us, healthy) {
  if (!us || us.length < 3) return "";
  const most = Math.max(...us, healthy ?? 0, 1);
  const place = (value, at) => `${((at / (us.length - 1)) * 88 + 1).toFixed(1)} ${(19 - (value / most) * 17).toFixed(1)}`;
  const last = us[us.length - 1] / 1e3;
  return svg("svg", { class: "spark", viewBox: "0 0 90 20", role: "img", "aria-label": `the last ${us.length} iterations, the newest ${ms(last)}` },
    healthy ? svg("path", { class: "healthy", d: `M${place(healthy, 0)}H89` }) : null,
    svg("path", { class: "curve", d: `M${us.map(place).join("L")}` }));
}
