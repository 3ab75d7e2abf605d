// The measured map of the chapter reach beside its theory: the numbers that are missing
// (prop-reach-count, prop-too-few-equations) and SPEAR's proposals (prop-reach-proposals). What is
// measured comes from the stored study (data/reach.js, made by scripts/explore_data.py); a place
// that has not been measured is said to be so, and nothing is filled in between.

import { DATA } from "./data/reach.js";
import { s } from "./kit/dom.js";
import { number } from "./kit/format.js";
import { Plot } from "./kit/plot.js";

const NAMES = { mnist: "digits", faces: "faces", photos: "photographs", cifar10: "CIFAR-10" };
const LOOKS = {
  exact: ["attack", 0.5],
  recognizable: ["warm", 0.36],
  some: ["warm", 0.13],
  "no better than chance": ["frame", 0.24],
};
const CELLS = DATA.places.map((place) =>
  place.cells.map((row) => Object.fromEntries(DATA.row.map((key, i) => [key, row[i] ?? null]))),
);
const all = (axis) => [...new Set(CELLS.flat().map((c) => c[axis]))].sort((a, b) => a - b);
const [BATCHES, STEPS, AGES] = ["batch", "steps", "age"].map(all);
const MOST = BATCHES[BATCHES.length - 1];
const nameOf = ({ net, data }) => `${net}, ${NAMES[data] ?? data}`;
const steps = (n) => `${n} step${n === 1 ? "" : "s"}`;
const images = (n) => `${n} image${n === 1 ? "" : "s"}`;
// Halves to the even number, as on the chapter's map.
const rounded = (v) => (v % 1 === 0.5 ? 2 * Math.round(v / 2) : Math.round(v));
const age = (n) => (n ? `${n} round${n === 1 ? "" : "s"}` : "untrained");

// --- measured ---

const AXES = [
  ["batch", (c) => Math.log2(c.batch), "batch"],
  ["steps", (c) => Math.log2(c.steps), "number of steps"],
  ["age", (c) => Math.log2(1 + c.age), "age"],
];

// The measured cell that differs in as few axes as can be, then the nearest by ratio.
export function nearest(where) {
  const away = CELLS[where.place].map((cell) => {
    const moved = AXES.filter(([key]) => cell[key] !== where[key]);
    const far = moved.reduce((sum, [, f]) => sum + Math.abs(f(cell) - f(where)), 0);
    return { cell, moved: moved.map(([, , word]) => word), far };
  });
  return away.reduce((a, b) =>
    b.moved.length < a.moved.length || (b.moved.length === a.moved.length && b.far < a.far) ? b : a,
  );
}

// --- counted ---

const UNITS = DATA.places.map(({ on, pictures, units }) => {
  if (!on) return null;
  const bytes = Uint8Array.from(atob(on), (c) => c.charCodeAt(0));
  const bit = (i) => (bytes[i >> 3] >> (7 - (i & 7))) & 1;
  return Array.from({ length: pictures }, (_, n) =>
    Array.from({ length: units }, (_, u) => bit(n * units + u)),
  );
});

// Units that are on for one of the first pictures, and how many of these are off for each; null
// where units have no zeros, or where fewer pictures are stored.
export function off(place, batch) {
  const some = UNITS[place]?.slice(0, batch);
  if (!some || some.length < batch) return null;
  const live = [...some[0].keys()].filter((u) => some.some((on) => on[u]));
  return { live: live.length, off: some.map((on) => live.filter((u) => !on[u]).length) };
}

// p of prop-reach-proposals, 1: all of `draws` different units are off.
export function chance(live, zeros, draws) {
  let p = 1;
  for (let i = 0; i < draws; i += 1) p *= Math.max(0, zeros - i) / (live - i);
  return p;
}

// 2: ∫ 1 − Π (1 − exp(−p t)) dt, by the trapezoid rule in log t, which falls off at both ends.
export function collect(chances) {
  const least = Math.min(...chances);
  if (!(least > 0)) return Infinity;
  let sum = 0;
  for (let u = -40; u <= 6; u += 0.02) {
    const t = Math.exp(u) / least;
    let log = 0;
    for (const p of chances) log += Math.log(-Math.expm1(-p * t));
    sum += -Math.expm1(log) * t;
  }
  return 0.02 * sum;
}

const kept = new Map();
export function proposals(place, batch) {
  const key = `${place} ${batch}`;
  if (!kept.has(key)) {
    const found = off(place, batch);
    kept.set(key, found && collect(found.off.map((z) => chance(found.live, z, batch - 1))));
  }
  return kept.get(key);
}

// The first layer, if it is dense (prop-reach-count), and the whole upload (prop-too-few-equations).
export function count(place, batch) {
  const { pixels, sent, units } = DATA.places[place];
  const found = { unknown: batch * pixels, sent, largest: Math.floor(sent / pixels) };
  if (!units) return found;
  const equations = batch * (units + pixels + 1 - batch);
  const zeros = off(place, batch)?.off.reduce((a, b) => a + b, 0) ?? 0;
  return { ...found, layer: batch * (units + pixels), equations, short: batch * (batch - 1), zeros };
}

export function compute(where) {
  const near = nearest(where);
  return {
    here: near.moved.length ? null : near.cell,
    near: near.cell,
    moved: near.moved,
    count: count(where.place, where.batch),
    proposals: proposals(where.place, where.batch),
  };
}

// --- pictures ---

function box(g, x, y, width, height, cell) {
  const [tone, opacity] = LOOKS[cell.level] ?? ["frame", 0];
  const at = { x, y, width, height, rx: 3 };
  g.append(s("rect", { ...at, class: `pfx-fill-${tone}`, "fill-opacity": opacity }));
  const strong = cell.level === "exact";
  g.append(
    s("rect", {
      ...at,
      class: `pfx-line pfx-stroke-${strong ? "attack" : "frame"}`,
      "stroke-width": strong ? 1.5 : 0.5,
    }),
  );
  const text = cell.attack ? rounded(100 * cell.share) : "none";
  const middle = { x: x + width / 2, y: y + height / 2 + 4.5, "text-anchor": "middle" };
  g.append(s("text", cell.attack ? middle : { ...middle, class: "pfx-small" }, text));
}

function legend(g, top, width) {
  let [x, y] = [2, top];
  const short = { "no better than chance": "chance" };
  for (const [level, [tone, opacity]] of Object.entries(LOOKS)) {
    const word = short[level] ?? level;
    if (x + 19 + 7.5 * word.length > width) [x, y] = [2, y + 18];
    g.append(
      s("rect", { x, y: y - 11, width: 14, height: 13, class: `pfx-fill-${tone}`, "fill-opacity": opacity }),
      s("text", { x: x + 19, y }, word),
    );
    x += 32 + 6.2 * word.length;
  }
}

function map(panel, { here, near }, where) {
  const { g, width } = panel;
  const left = 46;
  const top = 28;
  const across = (width - left) / BATCHES.length;
  const down = Math.min(38, (panel.height - top - 64) / AGES.length);
  const bottom = top + down * AGES.length;
  const row = (a) => top + (AGES.length - 1 - AGES.indexOf(a)) * down;
  g.append(s("text", { x: 0, y: 14, class: "pfx-title" }, `Percent named, ${steps(where.steps)}`));
  const around = { y: (top + bottom) / 2, class: "pfx-label", "text-anchor": "middle" };
  g.append(s("text", { ...around, x: 13, transform: `rotate(-90 13 ${around.y})` }, "rounds of training"));
  const name = { class: "pfx-tick", "text-anchor": "end" };
  for (const a of AGES) g.append(s("text", { ...name, x: left - 5, y: row(a) + down / 2 + 4 }, a));
  const slot = { width: across - 3, height: down - 3, rx: 3, class: "pfx-line pfx-stroke-frame" };
  BATCHES.forEach((b, i) => {
    const x = left + i * across;
    g.append(
      s("text", { x: x + across / 2, y: bottom + 14, class: "pfx-tick", "text-anchor": "middle" }, b),
    );
    for (const a of AGES) {
      const cell = CELLS[where.place].find(
        (c) => c.batch === b && c.age === a && c.steps === where.steps,
      );
      if (cell) box(g, x, row(a), across - 3, down - 3, cell);
      else g.append(s("rect", { ...slot, x, y: row(a), "stroke-width": 0.7, "stroke-dasharray": "2 4" }));
    }
  });
  const middle = { x: (left + width) / 2, "text-anchor": "middle" };
  g.append(s("text", { ...middle, y: bottom + 31, class: "pfx-label" }, "images in a batch"));
  legend(g, bottom + 52, width);
  const place = (c) => {
    const next = Math.max(1, BATCHES.findIndex((b) => b >= c.batch));
    const [a, b] = [BATCHES[next - 1], BATCHES[next]];
    return left + (next - 1 + Math.log(c.batch / a) / Math.log(b / a)) * across;
  };
  const ring = (c, tone, dash) =>
    g.append(
      s("rect", {
        x: place(c) - 1.5,
        y: row(c.age) - 1.5,
        width: across,
        height: down,
        rx: 5,
        class: `pfx-line pfx-stroke-${tone}`,
        "stroke-width": 3,
        "stroke-dasharray": dash,
      }),
    );
  if (!here && near.steps === where.steps) ring(near, "accent", "5 4");
  ring(where, "ink");
}

const COUNTS = Array.from({ length: MOST }, (_, i) => i + 1);
const log = (values) => 10 ** Math.ceil(Math.log10(Math.max(...values.filter(Number.isFinite))));
const axis = {
  domain: [1, MOST],
  log: true,
  ticks: BATCHES.filter((b, i) => i % 2 === 1 || BATCHES.length < 7),
  label: "images in a batch",
};

function layer(panel, where) {
  const found = COUNTS.map((b) => count(where.place, b));
  const last = found[MOST - 1];
  const plot = new Plot(panel, {
    title: "First layer: what is missing",
    left: 46, // room for 10,000
    x: axis,
    y: { domain: [1, log([last.short, last.zeros])], log: true },
  });
  const line = (key, tone) => {
    const points = found.map((c, i) => [i + 1, c[key]]).filter(([, v]) => v > 0);
    plot.line(points, { tone });
    return points;
  };
  line("short", "defense");
  const zeros = line("zeros", "attack");
  const { left, right, top, bottom } = plot.box;
  const below = { tone: "defense", anchor: "end", raw: true };
  plot.words(right - 3, bottom - 9, "short: B(B − 1)", below);
  const there = zeros.length ? "zeros of ReLU" : "zeros: none";
  plot.words(left + 5, top + 14, there, { tone: "attack", raw: true });
  const now = count(where.place, where.batch);
  if (now.short) plot.dot(where.batch, now.short, { tone: "defense" });
  if (now.zeros) plot.dot(where.batch, now.zeros, { tone: "attack" });
}

function upload(panel, where) {
  const now = count(where.place, where.batch);
  const { pixels } = DATA.places[where.place];
  const plot = new Plot(panel, {
    title: "Numbers sent, pixels unknown",
    left: 46, // room for 10,000
    x: axis,
    y: { domain: [100, log([now.sent, MOST * pixels])], log: true },
  });
  plot.line(COUNTS.map((b) => [b, b * pixels]), { tone: "defense" });
  plot.rule({ y: now.sent }, { tone: "attack", dash: "7 5" });
  plot.words(1.1, now.sent, "sent", { tone: "attack", dy: -7 });
  const below = { tone: "defense", anchor: "end", raw: true };
  plot.words(plot.box.right - 3, plot.box.bottom - 9, "unknown: B pictures", below);
  plot.dot(where.batch, now.unknown, { tone: "defense" });
}

function work(panel, where) {
  const every = COUNTS.map((b) => [b, proposals(where.place, b)]);
  const known = every.filter(([, v]) => Number.isFinite(v) && v !== null);
  const plot = new Plot(panel, {
    title: "SPEAR: proposals expected",
    left: 46, // room for 10,000
    x: axis,
    y: { domain: [1, log([...known.map(([, v]) => v), DATA.proposals])], log: true },
  });
  plot.line(known, { tone: "attack" });
  plot.rule({ y: DATA.proposals }, { tone: "muted" });
  plot.words(1.1, DATA.proposals, "tried on this map", { tone: "muted", dy: -6 });
  const now = proposals(where.place, where.batch);
  if (now) plot.dot(where.batch, now);
}

// --- words ---

const tenth = (share) => `${number(100 * share, 3)} %`;
const interval = ({ low, high }) => `${number(100 * low, 2)} to ${number(100 * high, 2)} %`;

function told(cell) {
  if (!cell.attack) return "every attacker refuses";
  const part = cell.level === "exact" ? ` and has ${tenth(cell.exact)} to under one gray level` : "";
  return `the best attacker, ${cell.attack}, names ${tenth(cell.share)} of ${images(cell.images)} (95 % interval ${interval(cell)})${part}. On the map: ${cell.level}`;
}

function theory({ count: c, proposals: wanted }, { place, batch }) {
  const whole = `By count, ${images(c.largest)} at most can be determined by an upload of ${number(c.sent, 6)} numbers without a prior`;
  if (!c.layer) return `${whole}.`;
  if (batch === 1) return "Behind one image nothing is missing: each row that answers, divided by its bias, is the image.";
  const missing = `The first layer falls short by ${number(c.short)} numbers`;
  if (!UNITS[place]) return `${missing}, and its units have no zeros that would supply them.`;
  if (wanted === null) return `${missing}.`;
  return `${missing}; SPEAR looks for them among the zeros, with ${number(wanted)} proposals on average while the network is untrained.`;
}

export const explorable = {
  controls: [
    {
      key: "place",
      label: "network and pictures",
      min: 0,
      max: DATA.places.length - 1,
      whole: true,
      wide: true,
      value: 0,
      format: (v) => nameOf(DATA.places[v]),
    },
    { key: "batch", label: "batch", min: 1, max: MOST, scale: "log", whole: true, value: 8 },
    { key: "steps", label: "local steps", values: STEPS, value: 1, format: String },
    { key: "age", label: "rounds of training", values: AGES, value: 0, format: String },
  ].map((c) => (c.values ? { ...c, min: c.values[0], max: c.values[c.values.length - 1] } : c)),
  compute,
  readouts: ({ here, count: c, proposals: wanted }, where) => [
    [
      `named: B = ${where.batch}, ${steps(where.steps)}, ${age(where.age)}`,
      here ? (here.attack ? `${tenth(here.share)} (${here.level})` : "all refuse") : "not measured",
    ],
    ["95 % interval", here?.attack ? interval(here) : "–"],
    [
      c.layer ? "first layer: unknowns − equations" : "pixels unknown, numbers sent",
      c.layer
        ? `${number(c.layer, 6)} − ${number(c.equations, 6)} = ${number(c.short, 4)}`
        : `${number(c.unknown, 6)}, ${number(c.sent, 6)}`,
    ],
    ["SPEAR's expected proposals", wanted === null ? "does not apply" : number(wanted)],
  ],
  say(result, where) {
    const { here, near, moved } = result;
    const at = (c) => `${images(c.batch)}, ${steps(c.steps)}, ${age(c.age)}`;
    const who = nameOf(DATA.places[where.place]);
    const measured = here
      ? `${who}, ${at(where)}: ${told(here)}.`
      : `${who}, ${at(where)}: not measured. The nearest measured cell has another ${moved.join(" and ")} (${at(near)}); there ${told(near)}.`;
    return `${measured} ${theory(result, where)}`;
  },
  draw(stage, result, where) {
    const { count: c } = result;
    const kinds = c.layer ? (UNITS[where.place] ? [layer, work] : [layer]) : [upload];
    const weights = [1.35, ...kinds.map(() => 1)];
    const [left, ...others] = stage.narrow
      ? [...stage.row([1], 290), ...kinds.flatMap(() => stage.row([1], 205))]
      : stage.row(weights, 300);
    map(left, result, where);
    others.forEach((panel, i) => kinds[i](panel, where));
  },
};
