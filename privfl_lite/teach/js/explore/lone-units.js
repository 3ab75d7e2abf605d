// Lone units: how many units of a layer are on for one image of a batch alone
// (prop-lone-units-expected), q(1 − q)^(B−1) for each.

import { s } from "./kit/dom.js";
import { number } from "./kit/format.js";
import { Plot, curve } from "./kit/plot.js";
import { uniforms } from "./kit/random.js";

const SHOWN = 48; // units in the picture
const MOST = 64; // images
const DRAWN = uniforms(MOST * SHOWN, 5);

export function compute({ batch, width, q }) {
  const expected = width * q * (1 - q) ** (batch - 1);
  const ceiling = (width / batch) * (1 - 1 / batch) ** (batch - 1);
  return { expected, ceiling, best: 1 / batch, share: q * (1 - q) ** (batch - 1) };
}

// Which of the drawn units are on, and for which image alone (−1: none).
export function sample({ batch, width, q }) {
  const count = Math.min(SHOWN, width);
  return Array.from({ length: count }, (_, unit) => {
    const on = Array.from({ length: batch }, (_, image) => DRAWN[unit * MOST + image] < q);
    return { on, lone: on.filter(Boolean).length === 1 ? on.indexOf(true) : -1 };
  });
}

function grid(panel, units, { batch }) {
  const lone = units.filter((u) => u.lone >= 0).length;
  const top = 30;
  const across = (panel.width - 22) / units.length;
  const down = Math.min(26, (panel.height - top - 26) / batch);
  const parts = { muted: "", attack: "" };
  units.forEach((unit, i) =>
    unit.on.forEach((on, n) => {
      if (!on) return;
      const gap = down > 6 ? 1.2 : 0.4;
      parts[unit.lone === n ? "attack" : "muted"] +=
        `M${(22 + i * across + gap / 2).toFixed(2)} ${(top + n * down + gap / 2).toFixed(2)}h${(across - gap).toFixed(2)}v${(down - gap).toFixed(2)}h${(-(across - gap)).toFixed(2)}z`;
    }),
  );
  panel.g.append(
    s(
      "text",
      { x: 0, y: 14, class: "pfx-title" },
      `${units.length} of the units, ${batch} image${batch > 1 ? "s" : ""}`,
    ),
    s("rect", {
      x: 22,
      y: top,
      width: across * units.length,
      height: down * batch,
      class: "pfx-line pfx-stroke-frame",
      "stroke-width": 1,
    }),
    s("path", { d: parts.muted, class: "pfx-fill-muted", "fill-opacity": 0.45 }),
    s("path", { d: parts.attack, class: "pfx-fill-attack" }),
    s(
      "text",
      {
        x: 13,
        y: top + (down * batch) / 2,
        class: "pfx-label",
        "text-anchor": "middle",
        transform: `rotate(-90 13 ${top + (down * batch) / 2})`,
      },
      batch > 3 ? "images" : "",
    ),
    s(
      "text",
      { x: 22, y: top + down * batch + 18 },
      s("tspan", { class: "pfx-fill-muted" }, "gray: on; "),
      s("tspan", { class: "pfx-fill-attack" }, `orange: on for one image alone (${lone})`),
    ),
  );
}

function humps(panel, { expected, ceiling, best }, { batch, width, q }) {
  const high = 1.18 * Math.max(ceiling, 1);
  const plot = new Plot(panel, {
    title: "Lone units of one image",
    x: {
      domain: [0.005, 1],
      log: true,
      ticks: [0.01, 0.1, 1],
      label: "share q of images that switch a unit on",
    },
    y: { domain: [0, high], label: "expected number" },
  });
  const f = (p) => width * p * (1 - p) ** (batch - 1);
  const points = curve(f, [0.005, 0.9999], 200, true);
  plot.area(points, { tone: "attack", opacity: 0.13 }).line(points, { tone: "attack" });
  if (best < 1)
    plot
      .rule({ x: best })
      .words(best, high, "q = 1/B", {
        tone: "muted",
        dx: best > 0.3 ? -6 : 6,
        dy: 14,
        anchor: best > 0.3 ? "end" : "start",
      });
  plot.rule({ y: 1 }, { tone: "good" });
  if (high < 12) plot.words(0.0055, 1, "one would do", { tone: "good", dy: -5 });
  plot.dot(q, expected);
}

export const explorable = {
  controls: [
    { key: "batch", label: "batch size B", min: 1, max: MOST, scale: "log", whole: true, value: 8 },
    {
      key: "width",
      label: "units in the layer",
      min: 8,
      max: 4096,
      scale: "log",
      whole: true,
      value: 256,
    },
    {
      key: "q",
      label: "q, how often a unit is on",
      min: 0.005,
      max: 0.95,
      scale: "log",
      value: 0.5,
    },
  ],
  compute,
  readouts: ({ expected, ceiling, share }) => [
    ["q(1 − q)<sup>B−1</sup>", number(share)],
    ["width · q(1 − q)<sup>B−1</sup>", number(expected)],
    ["at best, q = 1/B", number(ceiling)],
  ],
  say: ({ expected, ceiling }, { batch, width, q }) =>
    `In a batch of ${batch}, a layer of ${number(width, 4)} units, each on for ${number(100 * q, 2)} % of images, has, for each image, ${number(expected)} lone unit${number(expected) === "1" ? "" : "s"} on average${expected < 1 ? `, so at most ${number(100 * expected, 2)} % of images have one` : ""}. No q gives more than ${number(ceiling)}.`,
  draw(stage, result, settings) {
    const [left, right] = stage.row([1, 1], 290, { tall: 225 });
    grid(left, sample(settings), settings);
    humps(right, result, settings);
  },
};
