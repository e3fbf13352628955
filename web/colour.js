// Colours. Hue tells operation and call stack, lightness tells state; red is kept for what is wrong.

/** Hues in degrees of OKLCH, evenly spaced, without the reds (10 to 45). */
const HUES = Array.from({ length: 14 }, (_, i) => 58 + i * 23.5);
/** Chroma and lightness offset of each round through the hues. */
const ROUNDS = [[0.125, 0], [0.06, 0.02], [0.1, -0.06]];
/** OKLCH lightness by state (scheduled, started, done): what is not done stands out. */
const LIGHTNESS = { light: [0.5, 0.66, 0.855], dark: [0.8, 0.64, 0.41] };

/** FNV-1a over a text's UTF-16 units: the same text has the same colour in every report. */
export function hash(text) {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  value ^= value >>> 15;
  return Math.imul(value, 0x2c1b3c6d) >>> 0;
}

function linearToByte(x) {
  const clamped = Math.min(Math.max(x, 0), 1);
  return Math.round(255 * (clamped <= 0.0031308 ? 12.92 * clamped : 1.055 * clamped ** (1 / 2.4) - 0.055));
}

/** OKLCH to sRGB bytes (Ottosson's matrices). */
export function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180), b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    linearToByte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    linearToByte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    linearToByte(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

/** `rgb(r, g, b)`. */
export const css = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;

/** Step from a taken hue to the next candidate: far away on the circle, and prime to the number of hues. */
const STRIDE = 5;

/**
 * Slots of a palette for texts: each text's own by its hash; a far one where another text took it or, while there is
 * room, its neighbour, so that few texts never look alike.
 */
export function slots(texts) {
  const n = HUES.length, size = n * ROUNDS.length;
  const order = texts.map((text, i) => [hash(text), i]).sort((x, y) => x[0] - y[0] || x[1] - y[1]);
  const taken = new Set(), result = new Uint16Array(texts.length);
  for (const [value, i] of order) {
    const base = Math.min(Math.floor(taken.size / n), ROUNDS.length - 1) * n;
    const free = (slot) => !taken.has(slot);
    const roomy = (slot) => free(slot) && free(base + ((slot - base + 1) % n)) && free(base + ((slot - base + n - 1) % n));
    const candidates = Array.from({ length: n }, (_, k) => base + ((value + k * STRIDE) % n));
    const slot = candidates.find(roomy) ?? candidates.find(free) ?? value % size;
    taken.add(slot);
    result[i] = slot;
  }
  return result;
}

/** Colour of a slot at a state, in a theme (`light` or `dark`), as sRGB bytes. */
export function shade(slot, state, theme) {
  const [chroma, offset] = ROUNDS[Math.floor(slot / HUES.length) % ROUNDS.length];
  const lightness = LIGHTNESS[theme][state] + (theme === "dark" ? -offset : offset);
  return oklch(lightness, state === 2 ? chroma * 0.72 : chroma, HUES[slot % HUES.length]);
}

/** The theme in force: what the person chose, otherwise what the system prefers. */
export function theme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
