// The guard's β: how much of an upload is the guard's (prop-ent-ratio), and what weight the guard
// gets in the mean of all (prop-ent-guard-weight), with equal weights 1/(K + 1).

import { s } from "./kit/dom.js";
import { number, percent } from "./kit/format.js";
import { Plot, curve } from "./kit/plot.js";
import { uniforms } from "./kit/random.js";

const UNITS = 60;
const MOST = 20;
const SCORES = uniforms(UNITS * MOST, 11);

export const term = (a) => 0.4 / (1 + Math.exp(-a)) - 0.3; // h(A), Eq. 10

export function compute({ beta, size, clients }) {
  const mu = 1 - beta + term(size);
  const share = Math.min(1, Math.max(0, mu));
  const own = 1 / (clients + 1);
  return { h: term(size), mu, share, omega: own + (1 - own) * share, alone: own };
}

// For each client the units (of UNITS) that it fills with the guard's entries.
export function masks({ clients }, share) {
  const count = Math.round(share * UNITS);
  return Array.from({ length: clients }, (_, k) => {
    const scores = [...SCORES.slice(k * UNITS, (k + 1) * UNITS)];
    const order = scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]);
    const mask = new Array(UNITS).fill(false);
    for (const unit of order.slice(0, count)) mask[unit] = true;
    return mask;
  });
}

function shares(panel, { mu }, { beta, size }) {
  const plot = new Plot(panel, {
    title: "Share of units replaced, μ",
    x: { domain: [0, 6], label: "A, the mean of |Δ/w|" },
    y: { domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1] },
  });
  const clip = (v) => Math.min(1, Math.max(0, v));
  const band = [
    [0, clip(1.1 - beta)],
    [6, clip(1.1 - beta)],
  ];
  plot.area(band, { tone: "defense", base: clip(0.9 - beta), opacity: 0.14 });
  plot.rule({ y: clip(1 - beta) });
  plot.words(5.95, clip(1 - beta), "1 − β", {
    tone: "muted",
    anchor: "end",
    dy: beta > 0.9 ? -5 : 15,
  });
  plot.line(
    curve((a) => clip(1 - beta + term(a)), [0, 6]),
    { tone: "defense" },
  );
  plot.dot(size, clip(mu));
}

function table(panel, { omega }, rows, { clients }) {
  const top = 30;
  const bars = 62;
  const across = (panel.width - 2) / UNITS;
  const down = Math.min(16, (panel.height - top - bars - 22) / (clients + 1));
  const paths = { defense: "", frame: "" };
  [new Array(UNITS).fill(true), ...rows].forEach((row, k) =>
    row.forEach((guard, i) => {
      const gap = down > 5 ? 1 : 0.3;
      paths[guard ? "defense" : "frame"] +=
        `M${(1 + i * across + gap / 2).toFixed(2)} ${(top + k * down + gap / 2).toFixed(2)}h${(across - gap).toFixed(2)}v${(down - gap).toFixed(2)}h${(gap - across).toFixed(2)}z`;
    }),
  );
  const base = panel.height - 18;
  let weights = "";
  for (let i = 0; i < UNITS; i += 1) {
    const weight = (1 + rows.filter((row) => row[i]).length) / (clients + 1);
    weights += `M${(1 + i * across + 0.5).toFixed(2)} ${base}v${(-bars * weight).toFixed(2)}h${(across - 1).toFixed(2)}v${(bars * weight).toFixed(2)}z`;
  }
  const level = base - bars * omega;
  panel.g.append(
    s(
      "text",
      { x: 0, y: 14, class: "pfx-title" },
      `Guard (top row) and ${clients} client${clients > 1 ? "s" : ""}, ${UNITS} units`,
    ),
    s("path", { d: paths.frame, class: "pfx-fill-frame", "fill-opacity": 0.35 }),
    s("path", { d: paths.defense, class: "pfx-fill-defense" }),
    s("path", { d: weights, class: "pfx-fill-attack", "fill-opacity": 0.45 }),
    s("line", { x1: 0, x2: panel.width, y1: base, y2: base, class: "pfx-axis" }),
    s("line", {
      x1: 0,
      x2: panel.width,
      y1: level,
      y2: level,
      class: "pfx-line pfx-stroke-attack",
      "stroke-width": 2,
      "stroke-dasharray": "6 5",
    }),
    s(
      "text",
      { x: 0, y: base + 15, class: "pfx-fill-attack" },
      `the guard's weight Ω in the mean; on average ${number(omega, 2)}`,
    ),
  );
}

export const explorable = {
  controls: [
    { key: "beta", label: "β", min: 0, max: 1, step: 0.01, value: 0.7 },
    { key: "size", label: "A, size of the update", min: 0, max: 6, step: 0.05, value: 0.2 },
    { key: "clients", label: "private clients", min: 1, max: MOST, whole: true, value: 9 },
  ],
  compute,
  readouts: ({ h, mu, omega, alone }) => [
    ["h(A), Eq. 10", number(h)],
    ["μ = 1 − β + h(A)", number(mu)],
    ["Ω = ω₀ + (1 − ω₀)μ", number(omega)],
    ["ω₀ without defense", number(alone)],
  ],
  say: ({ h, share, omega, alone }, { beta }) =>
    `With β = ${number(beta)} each client replaces ${percent(share)} of its units${h < 0 ? ", fewer than 1 − β because its update is small" : ""}. In the mean of all, the guard's weight rises from ${percent(alone)} to ${percent(omega)}.`,
  draw(stage, result, settings) {
    const [left, right] = stage.row([0.85, 1.15], 290, { tall: 225 });
    shares(left, result, settings);
    table(right, result, masks(settings, result.share), settings);
  },
};
