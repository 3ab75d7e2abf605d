// LODA's c: where the encoding goes (prop-loda-unbounded, prop-loda-negative). Left, an image of two
// pixels with linear features: F(x') = (x' − x*)ᵀ (GᵀG − cI) (x' − x*) over the box, GᵀG with the
// eigenvalues 0.4 and 1.6, turned by an angle. Right, a digit whose pixels have features of their
// own, GᵀG diagonal with entries between 0.4 and 1.6: pixel by pixel the same formula.

import { DATA } from "./data/signals.js";
import { s } from "./kit/dom.js";
import { number, percent } from "./kit/format.js";
import { decode, show } from "./kit/pixels.js";
import { Plot } from "./kit/plot.js";
import { uniforms } from "./kit/random.js";

export const EIGENVALUES = [0.4, 1.6];
const DIGIT = decode(DATA.image);
const OWN = uniforms(DIGIT.length, 2).map(
  (u) => EIGENVALUES[0] + u * (EIGENVALUES[1] - EIGENVALUES[0]),
);

export function form(angle, c) {
  const [co, si] = [Math.cos((angle * Math.PI) / 180), Math.sin((angle * Math.PI) / 180)];
  const [a, b] = EIGENVALUES;
  return {
    xx: a * co * co + b * si * si - c,
    xy: (a - b) * co * si,
    yy: a * si * si + b * co * co - c,
  };
}

export const value = ({ xx, xy, yy }, dx, dy) => xx * dx * dx + 2 * xy * dx * dy + yy * dy * dy;

// All least points of a quadratic form over the box: inside, on a wall, or in a corner.
export function encoding({ c, angle, x1, x2 }) {
  const m = form(angle, c);
  const found = c < EIGENVALUES[0] ? [[x1, x2]] : [];
  for (const wall of [0, 1]) {
    const dx = wall - x1;
    const dy = wall - x2;
    if (m.yy > 0) found.push([wall, x2 - (m.xy * dx) / m.yy]);
    if (m.xx > 0) found.push([x1 - (m.xy * dy) / m.xx, wall]);
    found.push([wall, 0], [wall, 1]);
  }
  const inside = found
    .filter((p) => p.every((v) => v >= 0 && v <= 1))
    .map(([x, y]) => ({ x, y, f: value(m, x - x1, y - x2) }));
  const least = Math.min(...inside.map((p) => p.f));
  return { least, points: inside.filter((p) => p.f < least + 1e-9) };
}

// Pixel by pixel: c below its λ leaves it, above sends it to the far wall.
export function encodeDigit(c) {
  return DIGIT.map((x, i) => (c < OWN[i] ? x : x < 0.5 ? 1 : 0));
}

export function compute(settings) {
  const { least, points } = encoding(settings);
  const share = OWN.filter((l) => l <= settings.c).length / OWN.length;
  return {
    least,
    x: points[0].x,
    y: points[0].y,
    points,
    share,
    distance: Math.hypot(points[0].x - settings.x1, points[0].y - settings.x2),
  };
}

// Level lines of a quadratic form are conics around x*: r(θ) = √(level / m(θ)).
function contours(plot, m, x1, x2) {
  for (const level of [0.03, 0.12, 0.27, 0.5, 0.8, -0.03, -0.12, -0.27, -0.5, -0.8, -1.3, -2]) {
    let part = [];
    const flush = () => {
      if (part.length > 1) plot.line(part, { tone: level > 0 ? "good" : "defense", width: 1 });
      part = [];
    };
    for (let i = 0; i <= 240; i += 1) {
      const [co, si] = [Math.cos((i * Math.PI) / 120), Math.sin((i * Math.PI) / 120)];
      const r = Math.sqrt(level / value(m, co, si));
      if (r < 4) part.push([x1 + r * co, x2 + r * si]);
      else flush();
    }
    flush();
  }
}

function box(panel, { points }, { c, angle, x1, x2 }, change) {
  const axis = { domain: [-0.06, 1.06], ticks: [0, 0.5, 1], bare: true };
  const plot = new Plot(panel, {
    title: "Two pixels: F over the box",
    x: { ...axis, label: "pixel 1" },
    y: { ...axis, label: "pixel 2" },
  });
  contours(plot, form(angle, c), x1, x2);
  plot.line(
    [
      [0, 0],
      [1, 0],
      [1, 1],
      [0, 1],
      [0, 0],
    ],
    { tone: "frame", width: 2 },
  );
  for (const p of points) {
    plot
      .line(
        [
          [x1, x2],
          [p.x, p.y],
        ],
        { tone: "attack", dash: "5 5", width: 2 },
      )
      .dot(p.x, p.y, { tone: "attack", r: 8 });
  }
  plot.words(x1, x2, "private x*", {
    dx: x1 > 0.6 ? -12 : 12,
    dy: x2 > 0.85 ? 18 : -10,
    anchor: x1 > 0.6 ? "end" : "start",
  });
  const hold = (v) => Math.min(1, Math.max(0, v));
  panel.stage.handle(panel, {
    x: plot.x(x1),
    y: plot.y(x2),
    label: "private image, two pixels",
    value: x1,
    text: `${number(x1)}, ${number(x2)}`,
    move: (x, y) => change({ x1: hold(plot.x.invert(x)), x2: hold(plot.y.invert(y)) }),
    step: (dx, dy) => change({ x1: hold(x1 + 0.02 * dx), x2: hold(x2 + 0.02 * dy) }),
  });
}

function digit(panel, { share }, { c }) {
  const size = Math.min((panel.width - 14) / 2, panel.height - 60);
  [
    ["private", DIGIT, "ink"],
    ["encoding", encodeDigit(c), "attack"],
  ].forEach(([name, image, tone], i) => {
    const x = i * (size + 14);
    panel.g.append(s("text", { x, y: 14, class: "pfx-title" }, name));
    show(panel.g, image, [DATA.side, DATA.side], { x, y: 26, size, tone, line: 2 });
  });
  panel.g.append(
    s(
      "text",
      { x: 0, y: 46 + size, class: "pfx-label" },
      `${percent(share)} of the pixels are at their far wall`,
    ),
  );
}

export const explorable = {
  controls: [
    { key: "c", label: "c", min: 0, max: 2.5, step: 0.02, value: 0.9 },
    {
      key: "angle",
      label: "angle",
      min: 0,
      max: 90,
      step: 1,
      value: 25,
      format: (v) => `${Math.round(v)}°`,
    },
    { key: "x1", label: "private pixel 1", min: 0, max: 1, step: 0.01, value: 0.35 },
    { key: "x2", label: "private pixel 2", min: 0, max: 1, step: 0.01, value: 0.6 },
  ],
  compute,
  readouts: ({ least, points, distance }) => [
    ["eigenvalues of GᵀG", EIGENVALUES.join(" and ")],
    ["encoding x′", points.map((p) => `(${number(p.x)}, ${number(p.y)})`).join(" or ")],
    ["F(x′)", number(least)],
    ["‖x′ − x*‖", number(distance)],
  ],
  say: (_, { c }) => {
    if (c < EIGENVALUES[0])
      return "c is below both eigenvalues: the private image itself is the only minimum. Nothing is hidden.";
    if (c <= EIGENVALUES[1])
      return "c lies between the eigenvalues: along one direction F falls without end, and only the wall of the box stops the encoding. Pixels with weaker features are at their far wall.";
    return "c is above every eigenvalue: the encoding is a corner of the box. The digit has become its black-and-white negative, which anyone can read.";
  },
  draw(stage, result, settings, change) {
    const [left, right] = stage.row([1, 1.1], 310, { tall: 235 });
    box(left, result, settings, change);
    digit(right, result, settings);
  },
};
