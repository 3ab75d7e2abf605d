// The imprint's staircase: row i of the crafted layer sums all images brighter than edge i, so the
// difference of two rows holds the images between two edges (prop-bin-difference), as a mixture with
// the weights of their signals (prop-bin-quotient). How many images are alone: prop-lone-count, with
// the brightness of 5,000 digits (data/digits.js).

import { DATA } from "./data/digits.js";
import { s } from "./kit/dom.js";
import { number } from "./kit/format.js";
import { decode, show } from "./kit/pixels.js";
import { Plot } from "./kit/plot.js";
import { uniforms } from "./kit/random.js";

const IMAGES = DATA.images.map(decode);
const BRIGHT = IMAGES.map((x) => x.reduce((a, b) => a + b, 0) / x.length);
const SIGNALS = uniforms(IMAGES.length, 9).map((u) => 0.6 + 0.8 * u);
const LEVELS = DATA.brightness; // at 0, 1, … 100 %
const [LOW, HIGH] = [LEVELS[0], LEVELS[100]];
const ROOM = [0, 0.32];

const level = (p) => {
  const i = Math.min(99, Math.floor(100 * p));
  return LEVELS[i] + (100 * p - i) * (LEVELS[i + 1] - LEVELS[i]);
};

// The share of digits that are at most this bright.
export function below(h) {
  if (h <= LOW) return 0;
  if (h >= HIGH) return 1;
  const i = LEVELS.findIndex((v) => v > h) - 1;
  return (i + (h - LEVELS[i]) / (LEVELS[i + 1] - LEVELS[i])) / 100;
}

// Edges between equally spaced (spread 0) and equally likely (spread 1).
export function edgesOf(bins, spread) {
  return Array.from(
    { length: bins },
    (_, i) => (1 - spread) * (LOW + (i / bins) * (HIGH - LOW)) + spread * level(i / bins),
  );
}

export function expected(edges, batch) {
  const at = [...edges.map(below), 1];
  return edges.reduce(
    (sum, _, i) => sum + batch * (at[i + 1] - at[i]) * (1 - at[i + 1] + at[i]) ** (batch - 1),
    0,
  );
}

export function compute({ batch, bins, spread, edges }) {
  const used = edges ?? edgesOf(bins, spread);
  const inside = used.map((edge, i) => {
    return [...Array(batch).keys()].filter(
      (n) => BRIGHT[n] > edge && BRIGHT[n] <= (used[i + 1] ?? Infinity),
    );
  });
  return {
    edges: used,
    inside,
    lone: inside.filter((who) => who.length === 1).length,
    expected: expected(used, batch),
    equal: batch * (1 - 1 / bins) ** (batch - 1),
  };
}

// What the server divides out of a bin: D_i / d_i.
export function quotient(who) {
  const sum = who.reduce((a, n) => a + SIGNALS[n], 0);
  return IMAGES[0].map((_, j) => who.reduce((a, n) => a + (SIGNALS[n] * IMAGES[n][j]) / sum, 0));
}

function stairs(panel, { edges, inside }, { batch }, change) {
  const order = [...Array(batch).keys()].sort((a, b) => BRIGHT[a] - BRIGHT[b]);
  const total = order.reduce((a, n) => a + SIGNALS[n], 0);
  const plot = new Plot(panel, {
    title: "Bias gradient of a row (drag the edges)",
    x: { domain: ROOM, label: "edge, and mean pixel of an image" },
    y: { domain: [0, total * 1.25], label: "sum of signals" },
  });
  const points = [[ROOM[0], total]];
  let left = total;
  for (const n of order) {
    points.push([BRIGHT[n], left], [BRIGHT[n], (left -= SIGNALS[n])]);
  }
  points.push([ROOM[1], left]);
  edges.forEach((edge, i) => {
    if (inside[i].length !== 1) return;
    const end = Math.min(edges[i + 1] ?? ROOM[1], ROOM[1]);
    plot.area(
      [
        [edge, total * 1.25],
        [end, total * 1.25],
      ],
      { tone: "attack", base: 0, opacity: 0.16 },
    );
  });
  plot.line(points, { tone: "defense" });
  for (const edge of edges) plot.rule({ x: edge }, { tone: "ink", dash: "3 4" });
  const lone = new Set(inside.filter((who) => who.length === 1).flat());
  for (const n of order) plot.dot(BRIGHT[n], 0, { tone: lone.has(n) ? "attack" : "muted", r: 5 });
  edges.forEach((edge, i) => {
    const put = (v) => {
      const low = i ? edges[i - 1] + 1e-4 : ROOM[0];
      const high = i < edges.length - 1 ? edges[i + 1] - 1e-4 : ROOM[1];
      change({ edges: edges.map((e, k) => (k === i ? Math.min(high, Math.max(low, v)) : e)) });
    };
    panel.stage.handle(panel, {
      x: plot.x(edge),
      y: plot.box.top + 6,
      label: `edge ${i + 1} of ${edges.length}`,
      value: edge,
      text: number(edge),
      move: (x) => put(plot.x.invert(x)),
      step: (dx, dy) => put(edge + 0.002 * (dx + dy)),
    });
  });
}

function bins(panel, inside, perRow, size) {
  panel.g.append(
    s("text", { x: 0, y: 14, class: "pfx-title" }, "What the server reads in each bin"),
  );
  inside.forEach((who, i) => {
    const x = (i % perRow) * (size + 8);
    const y = 24 + Math.floor(i / perRow) * (size + 24);
    const lone = who.length === 1;
    if (who.length)
      show(panel.g, quotient(who), [DATA.side, DATA.side], {
        x,
        y,
        size,
        tone: lone ? "attack" : "frame",
        line: lone ? 3 : 1,
      });
    else
      panel.g.append(
        s("rect", {
          x,
          y,
          width: size,
          height: size,
          class: "pfx-line pfx-stroke-frame",
          "stroke-dasharray": "3 4",
        }),
      );
    const words = who.length > 1 ? `${who.length} mixed` : lone ? "alone" : "empty";
    panel.g.append(
      s(
        "text",
        {
          x: x + size / 2,
          y: y + size + 14,
          class: `pfx-small pfx-fill-${lone ? "attack" : "muted"}`,
          "text-anchor": "middle",
        },
        words,
      ),
    );
  });
}

export const explorable = {
  controls: [
    {
      key: "batch",
      label: "images in the batch, B",
      min: 2,
      max: IMAGES.length,
      whole: true,
      value: 8,
    },
    { key: "bins", label: "bins k", min: 2, max: 16, whole: true, value: 8 },
    {
      key: "spread",
      label: "edges",
      min: 0,
      max: 1,
      step: 0.02,
      value: 0,
      format: (v) => (v === 0 ? "equal steps" : v === 1 ? "quantiles" : percentText(v)),
    },
  ],
  hidden: { edges: null },
  tidy: (now, some) =>
    "edges" in some || !("bins" in some || "spread" in some) ? now : { ...now, edges: null },
  compute,
  readouts: ({ lone, expected: mean, equal }, { batch }) => [
    ["alone in this batch", `${lone} of ${batch}`],
    ["E L = Σ B pᵢ(1 − pᵢ)<sup>B−1</sup>", number(mean)],
    ["quantiles: B(1 − 1/k)<sup>B−1</sup>", number(equal)],
  ],
  say: ({ lone, expected: mean }, { batch, bins: k }) =>
    `${lone} of the ${batch} images ${lone === 1 ? "is" : "are"} alone between two edges, and the server reads ${lone === 1 ? "it" : "them"} exactly. Over all batches, these ${k} edges catch ${number(mean)} of ${batch} on average.`,
  draw(stage, result, settings, change) {
    stairs(stage.row([1], stage.narrow ? 215 : 240)[0], result, settings, change);
    const count = result.inside.length;
    const perRow = stage.narrow ? Math.min(count, 6) : Math.min(count, 10);
    const size = Math.min(72, (stage.width - 8 * (perRow - 1) - 4) / perRow);
    const rows = Math.ceil(count / perRow);
    bins(stage.row([1], 24 + rows * (size + 24))[0], result.inside, perRow, size);
  },
};

function percentText(share) {
  return `${Math.round(100 * share)} % there`;
}
