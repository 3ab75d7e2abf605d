// Pruning a first layer thresholds the image (prop-pruned-layer-thresholds). A real digit, and the
// error signals δ of an untrained network for it (data/signals.js): ∇W = δ xᵀ, pruned at rate p as
// in def-cutting-prune; then the row with the largest |δ|, divided by its bias gradient.

import { DATA } from "./data/signals.js";
import { s } from "./kit/dom.js";
import { number, percent } from "./kit/format.js";
import { decode, show } from "./kit/pixels.js";
import { Plot } from "./kit/plot.js";

const IMAGE = decode(DATA.image);
const LARGEST = Math.max(...DATA.delta.map(Math.abs));
let sizes; // all |δ_i x_j|, sorted

export function threshold(rate) {
  if (!sizes) {
    sizes = new Float64Array(DATA.delta.length * IMAGE.length);
    DATA.delta.forEach((d, i) =>
      IMAGE.forEach((x, j) => (sizes[i * IMAGE.length + j] = Math.abs(d * x))),
    );
    sizes.sort();
  }
  return sizes[Math.ceil(rate * (sizes.length - 1) - 1e-9)];
}

export function compute({ keep }) {
  const tau = threshold(1 - keep);
  const cut = tau / LARGEST;
  const read = IMAGE.map((x) => (x * LARGEST >= tau ? x : 0));
  const mse = IMAGE.reduce((sum, x, j) => sum + (x - read[j]) ** 2, 0) / IMAGE.length;
  const lit = IMAGE.filter((x) => x > 0).length;
  return {
    tau,
    cut,
    read,
    mse,
    psnr: -10 * Math.log10(mse),
    exact: read.filter((x) => x > 0).length,
    lit,
  };
}

function sorted(panel, { cut, exact }) {
  const ordered = [...IMAGE].filter((x) => x > 0).sort((a, b) => b - a);
  const plot = new Plot(panel, {
    title: "Its pixels, brightest first",
    x: { domain: [0, ordered.length], label: "pixels that are not black" },
    y: { domain: [0, 1.04], ticks: [0, 0.25, 0.5, 0.75, 1], label: "brightness" },
  });
  const steps = ordered.flatMap((v, i) => [
    [i, v],
    [i + 1, v],
  ]);
  plot.area(steps.slice(0, 2 * exact), { tone: "attack", base: 0, opacity: 0.3 });
  plot.line(steps, { tone: "ink", width: 2 });
  plot.rule({ y: cut }, { tone: "defense", dash: "7 5" });
  plot.words(ordered.length, Math.max(cut, 0.06), "τ/M", {
    tone: "defense",
    anchor: "end",
    dx: -4,
    dy: -6,
  });
  if (exact > 20) plot.words(exact / 2, 0.1, "read exactly", { tone: "attack", anchor: "middle" });
}

export const explorable = {
  controls: [
    {
      key: "keep",
      label: "entries kept, 1 − p",
      min: 0.0005,
      max: 1,
      scale: "log",
      value: 0.01,
      format: (v) => percent(v, 3),
    },
  ],
  compute,
  readouts: ({ cut, exact, lit, psnr }, { keep }) => [
    ["pruning rate p", percent(1 - keep, 3)],
    ["τ/M", number(cut)],
    ["pixels read exactly", `${exact} of ${lit}`],
    ["PSNR", Number.isFinite(psnr) ? `${number(psnr)} dB` : "exact"],
  ],
  say: ({ cut, exact, lit }, { keep }) =>
    `Of the layer's gradient ${percent(keep, 3)} of the entries are sent. One row still shows every pixel brighter than ${number(cut)}: ${exact} of the ${lit} that are not black, without any error.`,
  draw(stage, { read, ...result }) {
    const size = stage.narrow ? (stage.width - 16) / 2 : Math.min(200, stage.width * 0.26);
    const pair = (panel, shift) => {
      [
        ["private", IMAGE, "frame"],
        ["row ÷ bias", read, "attack"],
      ].forEach(([name, image, tone], i) => {
        const x = shift + i * (size + 16);
        panel.g.append(s("text", { x, y: 14, class: "pfx-title" }, name));
        show(panel.g, image, [DATA.side, DATA.side], { x, y: 26, size, tone, line: 2 });
      });
    };
    if (stage.narrow) {
      pair(stage.row([1], size + 34)[0], 0);
      sorted(stage.row([1], 215)[0], result);
    } else {
      const [left, right] = stage.row([2 * size + 16, stage.width - 2 * size - 34], 270);
      pair(left, 0);
      sorted(right, result);
    }
  },
};
