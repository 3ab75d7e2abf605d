// Clip, then noise, and what an attacker can gain from the upload (thm-reconstruction-bound,
// prop-cloak-regimes). Gradients are arrows, the longest of length G = 2; the clip shortens them to
// C, noise of deviation σC is added, T times.

import { s } from "./kit/dom.js";
import { number, percent } from "./kit/format.js";
import { cdf, quantile } from "./kit/normal.js";
import { Plot, curve, window } from "./kit/plot.js";
import { normals } from "./kit/random.js";
import { epsilonAt } from "./two-gaussians.js";

export const LONGEST = 2;
const DELTA = 1e-5;
const ARROWS = [
  [2, 0.6],
  [0.8, 2.1],
  [1.4, 3.4],
  [0.45, 4.6],
  [1.1, 5.6],
  [0.3, 1.3],
  [1.7, 2.8],
].map(([r, a]) => [r * Math.cos(a), r * Math.sin(a)]);
const CLOUD = normals(240, 3);

export const bound = (kappa, shift) => cdf(quantile(kappa) + shift);

export function compute({ clip, sigma, rounds, kappa }) {
  const shift = (Math.sqrt(rounds) * Math.min(1, LONGEST / clip)) / sigma; // √T R/s
  const most = bound(kappa, shift);
  const eps = epsilonAt(Math.sqrt(rounds) / sigma, DELTA);
  return {
    shift,
    most,
    gain: most / kappa,
    eps,
    byEps: Math.min(1, Math.exp(eps) * kappa + DELTA),
    noise: sigma * clip,
  };
}

function cloud(panel, { noise }, { clip }) {
  const half = Math.max(2.4, clip + 2.3 * noise);
  const top = 26;
  const side = Math.min(panel.width, panel.height - top);
  const mid = [panel.width / 2, top + side / 2];
  const unit = side / 2 / half;
  const at = ([x, y]) => [mid[0] + unit * x, mid[1] - unit * y];
  const short = (v) => v.map((c) => c * Math.min(1, clip / Math.hypot(...v)));
  const line = (v, tone, width, opacity) => {
    const [x, y] = at(v);
    return s("line", {
      x1: mid[0],
      y1: mid[1],
      x2: x,
      y2: y,
      class: `pfx-line pfx-stroke-${tone}`,
      "stroke-width": width,
      "stroke-opacity": opacity,
    });
  };
  const first = short(ARROWS[0]);
  const inside = window(0, top, panel.width, side);
  inside.append(
    s("circle", {
      cx: mid[0],
      cy: mid[1],
      r: unit * clip,
      class: "pfx-area pfx-fill-defense",
      "fill-opacity": 0.12,
    }),
    s("circle", {
      cx: mid[0],
      cy: mid[1],
      r: unit * clip,
      class: "pfx-line pfx-stroke-defense",
      "stroke-width": 2,
    }),
  );
  for (let i = 0; i < CLOUD.length; i += 2) {
    const [x, y] = at([first[0] + noise * CLOUD[i], first[1] + noise * CLOUD[i + 1]]);
    inside.append(
      s("circle", { cx: x, cy: y, r: 2.6, class: "pfx-fill-attack", "fill-opacity": 0.55 }),
    );
  }
  for (const v of ARROWS.slice(1))
    inside.append(line(v, "frame", 1.2), line(short(v), "defense", 2));
  inside.append(line(ARROWS[0], "attack", 1.5, 0.6), line(first, "attack", 3.5));
  panel.g.append(
    s("text", { x: 0, y: 14, class: "pfx-title" }, "Arrows clipped to C, and uploads"),
    inside,
    s("text", { x: 0, y: panel.height - 20, class: "pfx-fill-defense" }, "circle: C"),
    s("text", { x: 0, y: panel.height - 4, class: "pfx-fill-attack" }, "dots: what is sent"),
  );
}

function gains(panel, { most }, settings) {
  const { sigma, kappa } = settings;
  const plot = new Plot(panel, {
    title: "Chance that the attacker succeeds",
    x: { domain: [0.05, 20], log: true, ticks: [0.1, 1, 10], label: "noise multiplier σ" },
    y: { domain: [0, 1.04], ticks: [0, 0.25, 0.5, 0.75, 1] },
  });
  const at = (key) => curve((v) => compute({ ...settings, sigma: v })[key], [0.05, 20], 80, true);
  const points = at("most");
  plot.area(points, { tone: "attack", opacity: 0.13 });
  plot.line(at("byEps"), { tone: "good", dash: "6 5", width: 2 }).line(points, { tone: "attack" });
  plot.rule({ y: kappa }, { tone: "muted" });
  plot.words(0.056, kappa, "blind guess κ", { tone: "muted", dy: kappa > 0.1 ? 15 : -5 });
  plot
    .words(18, 0.95, "ε alone", { tone: "good", anchor: "end" })
    .words(18, 0.95, "the bound", { tone: "attack", anchor: "end", dy: 17 });
  plot.dot(sigma, most);
}

export const explorable = {
  controls: [
    { key: "clip", label: "clip C", min: 0.1, max: 6, scale: "log", value: 1 },
    { key: "sigma", label: "noise σ", min: 0.05, max: 20, scale: "log", value: 0.7 },
    { key: "rounds", label: "releases T", min: 1, max: 1000, scale: "log", whole: true, value: 1 },
    { key: "kappa", label: "blind guess κ", min: 1e-4, max: 0.5, scale: "log", value: 0.01 },
  ],
  compute,
  readouts: ({ most, gain, eps, shift, noise }) => [
    ["noise σC", number(noise)],
    ["√T R/s", number(shift)],
    ["success, at most", percent(most, 3)],
    ["gain over blind", `× ${number(gain)}`],
    ["ε at δ = 10⁻⁵", number(eps)],
  ],
  say: ({ most, noise }, { clip, kappa, rounds }) =>
    `${clip >= LONGEST ? "The clip is longer than every gradient: it shortens nothing, and only the noise grows with it." : "The clip shortens the long arrows, and the noise is σC: a smaller C shrinks both."} With noise of ${number(noise)} in each entry, ${rounds > 1 ? `${number(rounds, 4)} releases lift` : "one release lifts"} a blind guess of ${percent(kappa)} to at most ${percent(most, 3)}.`,
  draw(stage, result, settings) {
    const [left, right] = stage.row([0.85, 1], 300, { tall: 225 });
    cloud(left, result, settings);
    gains(right, result, settings);
  },
};
