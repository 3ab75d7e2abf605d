// One photograph, seven distortions, one PSNR (def-psnr). Each distortion has one strength, searched
// so that its PSNR is the one asked for; where even the strongest does not reach it, that
// one is shown with its own PSNR. SSIM as in def-ssim.

import { DATA } from "./data/face.js";
import { s } from "./kit/dom.js";
import { number } from "./kit/format.js";
import { decode, show } from "./kit/pixels.js";
import { normals } from "./kit/random.js";

const SIDE = DATA.side;
const N = SIDE * SIDE;
const CLEAN = decode(DATA.image); // three planes
const NOISE = normals(CLEAN.length, 6);
const MEAN = CLEAN.reduce((a, b) => a + b, 0) / CLEAN.length;
const unit = (v) => Math.min(1, Math.max(0, v));

export function mse(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i += 1) sum += (a[i] - b[i]) ** 2;
  return sum / a.length;
}

// A kernel along rows, then along columns, of each plane; borders are repeated.
function smooth(image, kernel) {
  const reach = (kernel.length - 1) / 2;
  const pass = (from, step, other) => {
    const to = new Float64Array(from.length);
    for (let c = 0; c < from.length / N; c += 1)
      for (let a = 0; a < SIDE; a += 1)
        for (let b = 0; b < SIDE; b += 1) {
          let sum = 0;
          for (let k = -reach; k <= reach; k += 1)
            sum +=
              kernel[k + reach] *
              from[c * N + a * other + Math.min(SIDE - 1, Math.max(0, b + k)) * step];
          to[c * N + a * other + b * step] = sum;
        }
    return to;
  };
  return pass(pass(image, 1, SIDE), SIDE, 1);
}

function gaussian(sigma, reach) {
  const raw = Array.from({ length: 2 * reach + 1 }, (_, i) =>
    Math.exp(-((i - reach) ** 2) / (2 * sigma * sigma)),
  );
  const sum = raw.reduce((a, b) => a + b, 0);
  return raw.map((v) => v / sum);
}

const WINDOW = gaussian(1.5, 5);

// Windows of 11 × 11 with Gaussian weights; those across the border are left out.
function windows(image) {
  const side = SIDE - 10;
  const along = (from, out, step, index) => {
    for (let i = 0; i < out.length; i += 1) {
      const at = index(i);
      let sum = 0;
      for (let k = 0; k < 11; k += 1) sum += WINDOW[k] * from[at + k * step];
      out[i] = sum;
    }
    return out;
  };
  const rows = along(
    image,
    new Float64Array(SIDE * side),
    1,
    (i) => Math.floor(i / side) * SIDE + (i % side),
  );
  return along(rows, new Float64Array(side * side), side, (i) => i);
}

function ssimPlane(a, b) {
  const [ma, mb] = [windows(a), windows(b)];
  const squares = windows(a.map((v, i) => v * v + b[i] * b[i]));
  const products = windows(a.map((v, i) => v * b[i]));
  let sum = 0;
  for (let i = 0; i < ma.length; i += 1) {
    const [square, product] = [ma[i] ** 2 + mb[i] ** 2, ma[i] * mb[i]];
    sum +=
      ((2 * product + 1e-4) * (2 * (products[i] - product) + 9e-4)) /
      ((square + 1e-4) * (squares[i] - square + 9e-4));
  }
  return sum / ma.length;
}

export function ssim(a, b) {
  return (
    [0, 1, 2].reduce(
      (sum, c) => sum + ssimPlane(a.slice(c * N, (c + 1) * N), b.slice(c * N, (c + 1) * N)),
      0,
    ) / 3
  );
}

const each = (f) => CLEAN.map((x, i) => f(x, i));

// Each takes a strength in (0, 1], and is farther from the photograph the stronger it is.
export const DISTORTIONS = {
  brighter: (a) => each((x) => unit(x + a)),
  "less contrast": (a) => each((x) => x + a * (MEAN - x)),
  "toward negative": (a) => each((x) => x + a * (1 - 2 * x)),
  "moved sideways": (a) =>
    each((_, i) => {
      const place = Math.min(SIDE - 1, Math.max(0, (i % SIDE) - 14 * a));
      const [row, x] = [i - (i % SIDE), Math.floor(place)];
      const next = Math.min(SIDE - 1, x + 1);
      return CLEAN[row + x] * (1 - place + x) + CLEAN[row + next] * (place - x);
    }),
  noise: (a) => each((x, i) => unit(x + 2 * a * a * NOISE[i])),
  blur: (a) => smooth(CLEAN, gaussian(0.2 + 12 * a * a, Math.ceil(2.6 * (0.2 + 12 * a * a)))),
  "black patch": (a) =>
    each((x, i) => {
      const [dx, dy] = [
        Math.abs((i % SIDE) - 0.46 * SIDE),
        Math.abs((Math.floor(i / SIDE) % SIDE) - 0.42 * SIDE),
      ];
      return x * (1 - unit(0.8 * SIDE * a + 0.5 - Math.max(dx, dy)));
    }),
};

// The strength at which the PSNR is `target`, by the false position (Illinois) in logarithms.
function reach(distort, target) {
  const off = (log) =>
    Math.log(mse(distort(Math.exp(log)), CLEAN) + 1e-12) + (target * Math.LN10) / 10;
  let [low, high] = [Math.log(1e-3), 0];
  let [below, above] = [off(low), off(high)];
  if (above <= 0) return 1;
  let kept = 0; // the end that moved last; if it moves twice, the other one counts half
  for (let n = 0; n < 40; n += 1) {
    const middle = (low * above - high * below) / (above - below);
    const now = off(middle);
    if (Math.abs(now) < 1e-4) return Math.exp(middle);
    if (now > 0) [high, above, below] = [middle, now, kept > 0 ? below / 2 : below];
    else [low, below, above] = [middle, now, kept < 0 ? above / 2 : above];
    kept = now;
  }
  return Math.exp((low + high) / 2);
}

export function compute({ psnr }) {
  return {
    found: Object.entries(DISTORTIONS).map(([name, distort]) => {
      const strength = reach(distort, psnr);
      const image = distort(strength);
      return {
        name,
        strength,
        image,
        psnr: -10 * Math.log10(mse(image, CLEAN)),
        ssim: ssim(image, CLEAN),
      };
    }),
  };
}

const words = (one, asked) =>
  (Math.abs(one.psnr - asked) < 0.05 ? "" : `${one.psnr.toFixed(1)} dB · `) +
  `SSIM ${one.ssim.toFixed(2)}`;

export const explorable = {
  controls: [
    {
      key: "psnr",
      label: "PSNR of every picture",
      min: 7,
      max: 36,
      step: 0.5,
      value: 15,
      format: (v) => `${number(v)} dB`,
    },
  ],
  compute,
  readouts: ({ found }, { psnr }) => {
    const reached = found.filter((f) => Math.abs(f.psnr - psnr) < 0.05).map((f) => f.ssim);
    return [
      ["PSNR", `${number(psnr)} dB`],
      ["MSE = 10<sup>−PSNR/10</sup>", number(10 ** (-psnr / 10))],
      [
        "SSIM, least to most",
        `${number(Math.min(...reached), 2)} to ${number(Math.max(...reached), 2)}`,
      ],
    ];
  },
  say: ({ found }, { psnr }) => {
    const sorted = found
      .filter((f) => Math.abs(f.psnr - psnr) < 0.05)
      .sort((a, b) => a.ssim - b.ssim);
    const out = found.filter((f) => Math.abs(f.psnr - psnr) >= 0.05).map((f) => f.name);
    return `All pictures have a PSNR of ${number(psnr)} dB${out.length ? ` (not: ${out.join(", ")}, which cannot be that far off)` : ""}. SSIM likes “${sorted[sorted.length - 1].name}” best and “${sorted[0].name}” least. Which would you recognize?`;
  },
  draw(stage, { found }, { psnr: asked }) {
    const perRow = stage.narrow ? 3 : 4;
    const size = Math.min(165, (stage.width - 12 * (perRow - 1)) / perRow);
    const all = [{ name: "the photograph", image: CLEAN, psnr: Infinity, ssim: 1 }, ...found];
    const tall = size + 46;
    const [panel] = stage.row([1], Math.ceil(all.length / perRow) * tall);
    all.forEach((one, i) => {
      const x = (i % perRow) * (size + 12);
      const y = Math.floor(i / perRow) * tall;
      show(panel.g, one.image, [SIDE, SIDE, 3], {
        x,
        y: y + 2,
        size,
        tone: i ? "frame" : "attack",
        line: i ? 1 : 3,
      });
      panel.g.append(
        s(
          "text",
          { x, y: y + size + 18, class: stage.narrow ? "pfx-small" : "pfx-title" },
          one.name,
        ),
        s("text", { x, y: y + size + 34, class: "pfx-tick" }, i ? words(one, asked) : "no error"),
      );
    });
  },
};
