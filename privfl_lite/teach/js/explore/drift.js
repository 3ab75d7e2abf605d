// Several local steps on a quadratic valley, and how far the update drifts from the gradient
// (prop-drift-bound, cor-direction-survives). Curvatures L = 1 and 1/ratio, start (1, 1): step j is
// θ_j = (1 − ηλ)^j θ_0 in each direction, so everything is in closed form. For ηL ≤ 1 the gradients
// only shrink: G = ‖g‖, and ρ = ηL (s − 1)/2.

import { number } from "./kit/format.js";
import { s } from "./kit/dom.js";
import { Plot } from "./kit/plot.js";

const MOST = 40;

export function compute({ rate, steps, ratio }) {
  const curvatures = [1, 1 / ratio];
  const g = curvatures; // at θ = (1, 1)
  const delta = curvatures.map((l) => (1 - rate * l) ** steps - 1);
  const miss =
    Math.hypot(...delta.map((d, i) => d + rate * steps * g[i])) / (rate * steps * Math.hypot(...g));
  const dot = -delta[0] * g[0] - delta[1] * g[1];
  const rho = (rate * (steps - 1)) / 2;
  return {
    delta,
    miss,
    rho,
    cosine: Math.min(1, dot / (Math.hypot(...delta) * Math.hypot(...g))),
    least: rho < 1 ? Math.sqrt(1 - rho * rho) : -1, // the bound says nothing from ρ = 1 on
  };
}

function valley(panel, { delta }, { rate, steps, ratio }) {
  const plot = new Plot(panel, {
    title: "The client's steps",
    x: { domain: [-0.75, 1.35], label: "weight 1 (steep)" },
    y: { domain: [-0.35, 1.25], label: "weight 2 (flat)" },
  });
  for (const level of [0.02, 0.1, 0.25, 0.5, 0.9]) {
    plot.line(
      Array.from({ length: 121 }, (_, i) => {
        const a = (i * Math.PI) / 60;
        return [Math.sqrt(level) * Math.cos(a), Math.sqrt(level * ratio) * Math.sin(a)];
      }),
      { tone: "frame", width: 1 },
    );
  }
  const at = (j) => [(1 - rate) ** j, (1 - rate / ratio) ** j];
  const straight = [
    [1, 1],
    [1 - rate * steps, 1 - (rate * steps) / ratio],
  ];
  plot.line(straight, { tone: "defense", dash: "7 5" });
  const path = Array.from({ length: steps + 1 }, (_, j) => at(j));
  plot.line(path, { tone: "attack" });
  for (const [x, y] of path) plot.dot(x, y, { tone: "attack", r: 4 });
  plot.dot(1, 1, { tone: "ink" });
  plot.dot(1 + delta[0], 1 + delta[1], { tone: "attack", r: 7 });
  plot.words(1, 1, "start", { dx: 6, dy: -8 });
  plot.words(-0.73, -0.33, "− ηs g: one long step", { tone: "defense", dy: -19 });
  plot.words(-0.73, -0.33, "Δ: s short steps", { tone: "attack", dy: -3 });
  plot.inside.append(s("circle", { cx: plot.x(0), cy: plot.y(0), r: 3, class: "pfx-fill-muted" }));
}

function ratios(panel, result, settings) {
  const all = Array.from({ length: MOST }, (_, i) => compute({ ...settings, steps: i + 1 }));
  const series = (f) => all.map((r, i) => [i + 1, f(r)]);
  const plot = new Plot(panel, {
    title: "Against the number of steps",
    x: { domain: [1, MOST], label: "local steps s", ticks: [1, 10, 20, 30, 40] },
    y: { domain: [0, 1.08], ticks: [0, 0.25, 0.5, 0.75, 1] },
  });
  plot.line(
    series((r) => r.cosine),
    { tone: "good" },
  );
  plot.line(
    series((r) => (r.least < 0 ? NaN : r.least)),
    { tone: "good", dash: "6 5", width: 2 },
  );
  plot.line(
    series((r) => r.miss),
    { tone: "attack" },
  );
  plot.line(
    series((r) => r.rho),
    { tone: "attack", dash: "6 5", width: 2 },
  );
  plot
    .dot(settings.steps, result.cosine, { tone: "good" })
    .dot(settings.steps, result.miss, { tone: "attack" });
  ["cosine", "miss", "dashed: the bounds"].forEach((text, i) => {
    plot.words(39.5, 0.45, text, {
      tone: ["good", "attack", "muted"][i],
      anchor: "end",
      dy: 17 * i,
    });
  });
}

export const explorable = {
  controls: [
    { key: "rate", label: "rate ηL", min: 0.005, max: 0.5, scale: "log", value: 0.15 },
    { key: "steps", label: "local steps s", min: 1, max: MOST, whole: true, value: 8 },
    { key: "ratio", label: "steep ÷ flat", min: 1, max: 30, scale: "log", value: 6 },
  ],
  compute,
  readouts: ({ miss, rho, cosine, least }) => [
    ["ρ = ηL(s − 1)/2", number(rho)],
    ["‖Δ + ηs g‖ / ηs‖g‖, at most ρ", number(miss)],
    ["cosine of Δ and −g", number(cosine, 4)],
    ["at least √(1 − ρ²)", least < 0 ? "says nothing" : number(least, 4)],
  ],
  say: ({ miss, rho, cosine, least }, { steps }) =>
    `After ${steps} local step${steps > 1 ? "s" : ""} the update divided by ηs misses the gradient by ${number(100 * miss, 2)} % of its length; the bound allows ${number(100 * rho, 2)} %. Its cosine with the gradient is ${number(cosine, 4)}${least < 0 ? ", where the bound has nothing left to say." : "."}`,
  draw(stage, result, settings) {
    const [left, right] = stage.row([1, 1], 300, { tall: 225 });
    valley(left, result, settings);
    ratios(right, result, settings);
  },
};
