// Who waits for whom: ranks that wait alike are one node; suspects stand out; a circle of waiting is drawn as one.
import { count, el, middleCut, ranksPhrase, ranksText, svg } from "./dom.js";

/** Nodes drawn at most; the list below the picture has all of them. */
const NODES_MAX = 36;
/** Classes of ranks up to which it is tried to find those that wait alike: arrows between them grow by the square. */
const CLASSES_MAX = 400;
const NODE = { width: 168, height: 46 };
const GAP = { x: 252, y: 26 };
const LABEL_CHARS_MAX = 34;
/** Lines of the list that are open, and that are printed; up to so few it needs no unfolding. */
const WAITS_OPEN = 12, WAITS_FEW = 8;
/** Least size of the picture, of its own: its smallest letters are 11 pixels. Below it, it scrolls; a phone has the list alone. */
const SCALE_MIN = 0.92;
/** Width of a phone, as in `page.css`. */
const PHONE = "(max-width: 640px)";
/** Height of a circle of nodes, of its width: boxes are wide, and so are screens. */
const SQUEEZE = 0.55;

/** What is waited in, without the sentence around it where there is one: `all_reduce default_pg #6`. */
export function waitedIn(text) {
  const inside = text.match(/^ranks? [\d, -]+ (?:waits?|is|are) in (.*?)(?: for ranks? [\d, -]+)?$/);
  return (inside ? inside[1] : text).replace(/^the oldest open /, "");
}

/** Ranks in classes that no arrow and no blame tells apart, and the arrows between classes. */
export function waitClasses(model) {
  const suspects = new Set(model.suspects.map((suspect) => suspect.rank));
  const signs = new Map();
  model.arrows.forEach((arrow, i) => {
    for (const rank of arrow.waiting) signs.set(rank, `${signs.get(rank) ?? ""} w${i}`);
    for (const rank of arrow.waits_for) signs.set(rank, `${signs.get(rank) ?? ""} f${i}`);
  });
  for (const rank of suspects) if (signs.has(rank)) signs.set(rank, `${signs.get(rank)} s`);
  const bySign = new Map();
  for (const [rank, sign] of [...signs].sort((a, b) => a[0] - b[0])) bySign.set(sign, [...(bySign.get(sign) ?? []), rank]);
  const nodes = [...bySign.values()].map((ranks) => ({ ranks, suspect: suspects.has(ranks[0]) }));
  const classOf = new Map();
  nodes.forEach((node, i) => node.ranks.forEach((rank) => classOf.set(rank, i)));
  if (nodes.length > CLASSES_MAX) return { nodes, edges: [] };
  const edges = new Map();
  for (const arrow of model.arrows) {
    for (const from of new Set(arrow.waiting.map((rank) => classOf.get(rank)))) {
      for (const to of new Set(arrow.waits_for.map((rank) => classOf.get(rank)))) {
        const key = `${from} ${to}`;
        if (!edges.has(key)) edges.set(key, { from, to, texts: [] });
        const text = waitedIn(arrow.text);
        if (!edges.get(key).texts.includes(text)) edges.get(key).texts.push(text);
      }
    }
  }
  return alike(connected(nodes, [...edges.values()]));
}

/** Without the nodes that no arrow touches: who waits for nobody in particular is told in words. */
function connected(nodes, edges) {
  const touched = new Set(edges.flatMap((edge) => [edge.from, edge.to]));
  const number = new Map([...touched].sort((a, b) => a - b).map((old, i) => [old, i]));
  return {
    nodes: nodes.filter((_, i) => touched.has(i)),
    edges: edges.map((edge) => ({ ...edge, from: number.get(edge.from), to: number.get(edge.to) })),
  };
}

/** Nodes that wait for the same and are waited for by the same are one, whatever the operations. */
function alike({ nodes, edges }) {
  const out = nodes.map(() => []), into = nodes.map(() => []);
  for (const { from, to } of edges) {
    out[from].push(to);
    into[to].push(from);
  }
  const sorted = (list) => list.sort((a, b) => a - b).join(" ");
  const sign = (i) => `${nodes[i].suspect} ${sorted(out[i])} / ${sorted(into[i])}`;
  const first = new Map(), number = [];
  nodes.forEach((_, i) => {
    const key = sign(i);
    if (!first.has(key)) first.set(key, first.size);
    number.push(first.get(key));
  });
  const merged = [...first.keys()].map(() => ({ ranks: [], suspect: false }));
  nodes.forEach((node, i) => {
    merged[number[i]].ranks.push(...node.ranks);
    merged[number[i]].suspect = node.suspect;
  });
  const joined = new Map();
  for (const edge of edges) {
    const key = `${number[edge.from]} ${number[edge.to]}`;
    if (!joined.has(key)) joined.set(key, { from: number[edge.from], to: number[edge.to], texts: [] });
    for (const text of edge.texts) if (!joined.get(key).texts.includes(text)) joined.get(key).texts.push(text);
  }
  merged.forEach((node) => node.ranks.sort((a, b) => a - b));
  return { nodes: merged, edges: [...joined.values()] };
}

/** Strongly connected components (Tarjan, by an explicit stack): those that wait in a circle share one. */
export function components(size, edges) {
  const next = Array.from({ length: size }, () => []);
  for (const { from, to } of edges) next[from].push(to);
  const order = new Int32Array(size).fill(-1), low = new Int32Array(size), part = new Int32Array(size).fill(-1);
  const open = [], walk = [];
  let counter = 0, parts = 0;
  for (let start = 0; start < size; start++) {
    if (order[start] >= 0) continue;
    walk.push([start, 0]);
    while (walk.length > 0) {
      const top = walk[walk.length - 1], at = top[0];
      if (top[1] === 0) {
        order[at] = low[at] = counter++;
        open.push(at);
      }
      if (top[1] < next[at].length) {
        const to = next[at][top[1]++];
        if (order[to] < 0) walk.push([to, 0]);
        else if (part[to] < 0) low[at] = Math.min(low[at], order[to]);
        continue;
      }
      walk.pop();
      if (walk.length > 0) low[walk[walk.length - 1][0]] = Math.min(low[walk[walk.length - 1][0]], low[at]);
      if (low[at] !== order[at]) continue;
      for (let member = -1; member !== at; ) part[(member = open.pop())] = parts;
      parts++;
    }
  }
  return { part, parts };
}

/** Members of a circle in the order of its arrows, as far as they lead. */
function alongEdges(members, edges) {
  const left = new Set(members), order = [];
  for (let at = members[0]; left.size > 0; ) {
    left.delete(at);
    order.push(at);
    at = edges.find((edge) => edge.from === at && left.has(edge.to))?.to ?? left.values().next().value;
  }
  return order;
}

/** Places nodes: components by their longest way to a sink, from right to left; members of a circle on a circle. */
function arrange(nodes, edges) {
  const { part, parts } = components(nodes.length, edges);
  const groups = Array.from({ length: parts }, () => ({ members: [], layer: 0 }));
  nodes.forEach((_, i) => groups[part[i]].members.push(i));
  for (const group of groups) group.members = alongEdges(group.members, edges);
  // Tarjan numbers a component after all that it reaches.
  groups.forEach((group, g) => {
    for (const { from, to } of edges) {
      if (part[from] === g && part[to] !== g) group.layer = Math.max(group.layer, groups[part[to]].layer + 1);
    }
    const n = group.members.length;
    group.radius = n === 1 ? 0 : Math.max(NODE.width * 1.05, (n * (NODE.width + 40)) / (2 * Math.PI));
    group.width = NODE.width + 2 * group.radius;
    group.height = NODE.height + 2 * group.radius * SQUEEZE;
  });
  const layers = [];
  for (const group of groups) (layers[group.layer] ??= []).push(group);
  const height = Math.max(...layers.map((layer) => layer.reduce((sum, group) => sum + group.height + GAP.y, GAP.y)));
  const left = layers.map((layer) => Math.max(...layer.map((group) => group.width)));
  let x = left.reduce((sum, width) => sum + width + GAP.x, 10 - GAP.x);
  const right = x + 10;
  for (const layer of layers) {
    const targets = (group) => edges.filter(({ from, to }) => group.members.includes(from) && nodes[to].y !== undefined).map(({ to }) => nodes[to].y);
    const mean = (list) => (list.length > 0 ? list.reduce((sum, y) => sum + y, 0) / list.length : height / 2);
    layer.sort((a, b) => mean(targets(a)) - mean(targets(b)));
    const width = Math.max(...layer.map((group) => group.width));
    const used = layer.reduce((sum, group) => sum + group.height + GAP.y, -GAP.y);
    let y = (height - used) / 2;
    x -= width;
    for (const group of layer) {
      group.members.forEach((member, i) => {
        const angle = -Math.PI / 2 + (2 * Math.PI * i) / group.members.length;
        nodes[member].x = x + width / 2 + group.radius * Math.cos(angle);
        nodes[member].y = y + group.height / 2 + group.radius * SQUEEZE * Math.sin(angle);
        nodes[member].circle = group.members.length > 1 ? { x: x + width / 2, y: y + group.height / 2 } : undefined;
      });
      y += group.height + GAP.y;
    }
    x -= GAP.x;
  }
  return { width: right, height, part };
}

/** Where a line from a node's middle towards a point leaves its box. */
function border(node, x, y) {
  const dx = x - node.x, dy = y - node.y;
  const scale = Math.min((NODE.width / 2 + 3) / Math.max(Math.abs(dx), 1e-6), (NODE.height / 2 + 3) / Math.max(Math.abs(dy), 1e-6));
  return [node.x + dx * scale, node.y + dy * scale];
}

function drawEdge(edge, nodes, circle, both) {
  let anchor = "middle";
  const from = nodes[edge.from], to = nodes[edge.to];
  const label = edge.texts[0] + (edge.texts.length > 1 ? ` and ${edge.texts.length - 1} more` : "");
  const full = `${ranksPhrase(from.ranks)} wait for ${ranksPhrase(to.ranks)} in ${edge.texts.join("; ")}`;
  let path, x, y;
  if (edge.from === edge.to) {
    x = from.x;
    y = from.y - NODE.height / 2 - 34;
    path = `M ${x - 22} ${from.y - NODE.height / 2} C ${x - 44} ${y}, ${x + 44} ${y}, ${x + 22} ${from.y - NODE.height / 2 - 3}`;
    y += 4;
  } else {
    const bend = both ? 0.16 : 0;
    const mx = (from.x + to.x) / 2 + bend * (to.y - from.y), my = (from.y + to.y) / 2 - bend * (to.x - from.x);
    const [x1, y1] = border(from, mx, my), [x2, y2] = border(to, mx, my);
    path = `M ${x1} ${y1} Q ${mx} ${my} ${x2} ${y2}`;
    x = (x1 + 2 * mx + x2) / 4;
    y = (y1 + 2 * my + y2) / 4;
    if (circle && Math.abs(x - from.circle.x) > 20) {
      anchor = x > from.circle.x ? "start" : "end";
      x += x > from.circle.x ? 12 : -12;
      y += y > from.circle.y ? 18 : -2;
    }
  }
  const short = middleCut(label, LABEL_CHARS_MAX);
  return svg(
    "g",
    { class: `edge ${circle ? "circle" : ""}` },
    svg("title", { text: full }),
    svg("path", { d: path, "marker-end": `url(#${circle ? "arrow-circle" : "arrow"})` }),
    svg("text", { x, y: y - 7, "text-anchor": anchor, text: short }),
  );
}

/** What a node does, in a word: who is waited for and waits for nobody is no suspect where a job is merely slow. */
function nodeText(node, suspect) {
  if (suspect) return suspect.doing || "suspect";
  const many = node.ranks.length > 1 ? `${count(node.ranks.length, "rank")} ` : "";
  if (!node.waits) return `${many}waited for`;
  if (node.circle) return `${many}in the circle`;
  return many ? `${many}wait` : "waits";
}

function drawNode(node, model) {
  const suspect = model.suspects.find((one) => one.rank === node.ranks[0]);
  const detail = nodeText(node, suspect);
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}\u2026` : text);
  return svg(
    "g",
    { class: `node ${node.suspect ? "suspect" : ""}`, transform: `translate(${node.x - NODE.width / 2} ${node.y - NODE.height / 2})` },
    svg("title", { text: `${ranksPhrase(node.ranks, 40)}${suspect?.doing ? `: ${suspect.doing}` : ""}` }),
    svg("rect", { width: NODE.width, height: NODE.height, rx: 8 }),
    svg("text", { x: NODE.width / 2, y: 19, "text-anchor": "middle", class: "name", text: cut(ranksPhrase(node.ranks, 3), 24) }),
    svg("text", { x: NODE.width / 2, y: 35, "text-anchor": "middle", class: "detail", text: cut(detail, 28) }),
  );
}

function arrowHead(id) {
  return svg(
    "marker",
    { id, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 8, markerHeight: 8, orient: "auto" },
    svg("path", { d: "M 0 0 L 10 5 L 0 10 z" }),
  );
}

/** How many ranks have an arrow, of how many, and what becomes of the others: none is left out without a word. */
export function accountText(model, nodes) {
  const drawn = new Set(nodes.flatMap((node) => node.ranks));
  const busy = new Set(model.arrows.flatMap((arrow) => [...arrow.waiting, ...arrow.waits_for]));
  const vague = model.ranks.filter((rank) => busy.has(rank) && !drawn.has(rank));
  const idle = model.ranks.filter((rank) => !busy.has(rank));
  const told = (ranks, one, many) => `${ranks.length.toLocaleString("en-US")}${drawn.size > 0 ? " more" : ""} ${ranks.length === 1 ? "rank" : "ranks"} (${ranksText(ranks)}) ${ranks.length === 1 ? one : many}`;
  const parts = [
    drawn.size > 0 && `${drawn.size.toLocaleString("en-US")} wait for others or are waited for`,
    vague.length > 0 && told(vague, "is in an operation that does not tell whom it waits for", "are in operations that do not tell whom they wait for"),
    idle.length > 0 && told(idle, "waits for nobody", "wait for nobody"),
  ];
  const total = model.ranks.length;
  return `${total.toLocaleString("en-US")} of ${count(total, "rank")}: ${parts.filter(Boolean).join("; ")}.`;
}

function arrowLine(arrow) {
  const whom = arrow.waits_for.length > 0 && ["for ", el("b", { text: ranksText(arrow.waits_for) }), " "];
  return el("li", {}, el("b", { text: ranksText(arrow.waiting) }), arrow.waiting.length === 1 ? " waits " : " wait ", whom, "in ", el("code", { text: waitedIn(arrow.text) }));
}

/** All arrows as sentences; beyond the first ones folded, and left off paper. */
function inWords(model) {
  const lines = model.arrows.map(arrowLine), rest = lines.splice(WAITS_OPEN);
  const words = el("details", { class: "in-words" }, el("summary", { text: "In words" }), el("ul", { class: "waits" }, lines));
  if (rest.length > 0) {
    words.append(
      el("details", { class: "waits-rest" }, el("summary", { text: `and ${rest.length} more` }), el("ul", { class: "waits" }, rest)),
      el("p", { class: "waits-cut", text: `and ${rest.length} more` }),
    );
  }
  const phone = matchMedia(PHONE);
  const unfold = () => (words.open = phone.matches || model.arrows.length <= WAITS_FEW);
  phone.addEventListener("change", unfold);
  unfold();
  return words;
}

/** The picture and the same in words. */
export function waitGraph(model) {
  const all = waitClasses(model);
  const nodes = all.nodes.length <= NODES_MAX ? all.nodes : [];
  const words = inWords(model);
  const account = el("p", { class: "muted note account", text: accountText(model, all.nodes) });
  if (nodes.length === 0) {
    const many = all.nodes.length > 0 && el("p", { class: "muted", text: `${count(all.nodes.length, "node")}: too many to draw.` });
    words.open = true;
    return el("div", { class: "waitgraph" }, many, account, words);
  }
  nodes.forEach((node, i) => (node.waits = all.edges.some((edge) => edge.from === i)));
  const { width, height, part } = arrange(nodes, all.edges);
  const paired = new Set(all.edges.map((edge) => `${edge.from} ${edge.to}`));
  const pad = all.edges.some((edge) => edge.from === edge.to) ? 40 : 0;
  const side = nodes.some((node) => node.circle) ? 90 : 0;
  const picture = svg(
    "svg",
    { viewBox: `${-side} ${-pad} ${width + 2 * side} ${height + pad}`, width: width + 2 * side, height: height + pad, style: { "min-width": `${Math.ceil(SCALE_MIN * (width + 2 * side))}px` }, role: "img", "aria-label": "Wait-for graph; the list below says the same" },
    svg("defs", {}, arrowHead("arrow"), arrowHead("arrow-circle")),
    all.edges.map((edge) => drawEdge(edge, nodes, part[edge.from] === part[edge.to], paired.has(`${edge.to} ${edge.from}`))),
    nodes.map((node) => drawNode(node, model)),
  );
  return el("div", { class: "waitgraph" }, el("div", { class: "picture", tabindex: 0, role: "group", "aria-label": "Wait-for graph" }, picture), account, words);
}
