// DCS²: what the true image costs an attacker who matches directions (prop-dcs2-parallel). The
// upload is u = g + κ g̃ in units of ‖g‖, with the concealed gradient g̃ at cosine c.

import { s } from "./kit/dom.js";
import { number } from "./kit/format.js";
import { Plot, curve } from "./kit/plot.js";

export function compute({ kappa, cosine }) {
  const length = Math.sqrt(Math.max(0, 1 + 2 * kappa * cosine + kappa * kappa));
  const cost = length > 1e-12 ? 1 - (1 + kappa * cosine) / length : 1;
  return { length, cost, angle: (Math.acos(Math.min(1, Math.max(-1, 1 - cost))) * 180) / Math.PI };
}

function arrow(from, to, tone, width, dash) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const long = Math.hypot(dx, dy);
  const line = s("line", {
    x1: from[0],
    y1: from[1],
    x2: to[0],
    y2: to[1],
    class: `pfx-line pfx-stroke-${tone}`,
    "stroke-width": width,
    "stroke-dasharray": dash,
  });
  if (long < 8) return [line];
  const [ux, uy] = [dx / long, dy / long];
  const tip = `M${to[0]} ${to[1]}L${to[0] - 11 * ux + 5 * uy} ${to[1] - 11 * uy - 5 * ux}L${to[0] - 11 * ux - 5 * uy} ${to[1] - 11 * uy + 5 * ux}Z`;
  return [line, s("path", { d: tip, class: `pfx-fill-${tone}` })];
}

function vectors(panel, { angle }, { kappa, cosine }) {
  const sine = Math.sqrt(1 - cosine * cosine);
  const ends = {
    g: [1, 0],
    h: [kappa * cosine, kappa * sine],
    u: [1 + kappa * cosine, kappa * sine],
  };
  const xs = [0, ...Object.values(ends).map((v) => v[0])];
  const unit = Math.min(
    (panel.width - 40) / (Math.max(...xs) - Math.min(...xs)),
    (panel.height - 76) / Math.max(kappa * sine, 0.4),
    150,
  );
  const origin = [20 - unit * Math.min(...xs), panel.height - 28];
  const at = ([x, y]) => [origin[0] + unit * x, origin[1] - unit * y];
  const arc = Array.from({ length: 31 }, (_, i) =>
    at([
      0.35 * Math.cos((angle * i * Math.PI) / 5400),
      0.35 * Math.sin((angle * i * Math.PI) / 5400),
    ]),
  );
  panel.g.append(
    s("text", { x: 0, y: 14, class: "pfx-title" }, "Two gradients and their sum"),
    s("path", { d: `M${arc.join("L")}`, class: "pfx-line pfx-stroke-good", "stroke-width": 2 }),
    ...arrow(at(ends.g), at(ends.u), "frame", 1.5, "4 4"),
    ...arrow(at([0, 0]), at(ends.h), "defense", 3),
    ...arrow(at([0, 0]), at(ends.g), "attack", 3),
    ...arrow(at([0, 0]), at(ends.u), "ink", 3),
    s(
      "text",
      { x: at(ends.g)[0], y: origin[1] + 20, class: "pfx-fill-attack", "text-anchor": "end" },
      "g, of the private image",
    ),
    s(
      "text",
      {
        x: at(ends.h)[0],
        y: at(ends.h)[1] - 8,
        class: "pfx-fill-defense",
        "text-anchor": cosine < -0.5 ? "start" : "middle",
      },
      kappa > 0.15 ? "κ g̃, concealed" : "",
    ),
    s(
      "text",
      {
        x: Math.min(at(ends.u)[0], panel.width - 14),
        y: at(ends.u)[1] - (sine * kappa > 0.2 ? 8 : 14),
        class: "pfx-fill-ink",
        "text-anchor": "end",
      },
      "u, sent",
    ),
  );
}

function costs(panel, { cost }, { kappa, cosine }) {
  const plot = new Plot(panel, {
    title: "Cost of the true image, 1 − cos(u, g)",
    x: { domain: [-1, 1], label: "cosine c of g and g̃", ticks: [-1, -0.5, 0, 0.5, 1] },
    y: { domain: [0, 2], ticks: [0, 0.5, 1, 1.5, 2] },
  });
  const at = (k) => curve((c) => compute({ kappa: k, cosine: c }).cost, [-0.9999, 1], 240);
  for (const k of [0.5, 1, 2, 4]) plot.line(at(k), { tone: "frame", width: 1 });
  plot.line(at(kappa), { tone: "good" });
  plot
    .words(0.97, 1.85, `κ = ${number(kappa)}`, { tone: "good", anchor: "end" })
    .words(0.97, 1.85, "gray: 0.5, 1, 2, 4", { tone: "muted", anchor: "end", dy: 17 });
  plot.dot(cosine, cost);
}

export const explorable = {
  controls: [
    {
      key: "kappa",
      label: "length κ of the concealed gradient",
      min: 0,
      max: 4,
      step: 0.05,
      value: 1,
    },
    { key: "cosine", label: "cosine c", min: -1, max: 1, step: 0.01, value: 0.2 },
  ],
  compute,
  readouts: ({ cost, angle }) => [
    ["1 − cos(u, g)", number(cost)],
    ["angle between u and g", `${number(angle)}°`],
  ],
  say: ({ cost, angle }, { cosine }) =>
    cosine > 0.995
      ? "The concealed gradient is parallel to the private one, as Eq. 6 asks: the private image costs nothing, and is a best answer of the attack."
      : `The upload points ${number(angle)}° away from the private image's gradient, so the private image costs ${number(cost)}. The more parallel the two are made, the less it costs.`,
  draw(stage, result, settings) {
    const [left, right] = stage.row([1, 1], 280, { tall: 215 });
    vectors(left, result, settings);
    costs(right, result, settings);
  },
};
