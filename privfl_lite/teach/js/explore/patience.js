// Subtract, average, uncover (prop-red-again): what a server that hears the same digit in T rounds
// has of it, if what hides it stays or is drawn anew. Left to right: an unknown secret, subtracted
// with the two maps of ex-red-again (A₁ = 2, A₂ = 5); Gaussian noise of size σ, averaged (equal
// maps); entries that are sent with probability r, collected.

import { DATA } from "./data/digits.js";
import { s } from "./kit/dom.js";
import { number, percent } from "./kit/format.js";
import { decode, show } from "./kit/pixels.js";
import { Plot } from "./kit/plot.js";
import { normals, uniforms } from "./kit/random.js";

const IMAGE = decode(DATA.images[1]);
const SIDE = DATA.side;
const MOST = 64; // rounds
export const SCALE = 20; // of the unknown secret in the picture; any size gives the same
export const MAPS = [2, 5];
const SECRETS = normals(2 * IMAGE.length, 31);
const NOISE = normals(MOST * IMAGE.length, 32);
const SENT = uniforms(MOST * IMAGE.length, 33);

const at = (draws, round, j) => draws[round * IMAGE.length + j];

// The difference of the first two rounds over 3; of one round, what it shows over 2.
export function subtracted({ rounds, fresh }) {
  const [a, b] = MAPS;
  const secret = (t, j) => SCALE * at(SECRETS, fresh ? t : 0, j);
  return IMAGE.map((x, j) =>
    rounds > 1
      ? (b * x + secret(1, j) - (a * x + secret(0, j))) / (b - a)
      : (a * x + secret(0, j)) / a,
  );
}

export function averaged({ rounds, sigma, fresh }) {
  return IMAGE.map((x, j) => {
    let sum = 0;
    for (let t = 0; t < rounds; t += 1) sum += x + sigma * at(NOISE, fresh ? t : 0, j);
    return sum / rounds;
  });
}

export function seen({ rounds, share, fresh }) {
  return Array.from(IMAGE, (_, j) => {
    for (let t = 0; t < (fresh ? rounds : 1); t += 1) if (at(SENT, t, j) < share) return true;
    return false;
  });
}

export function compute({ rounds, sigma, share, fresh }) {
  const heard = fresh ? rounds : 1; // rounds that count for noise and mask
  const noise = sigma / Math.sqrt(heard);
  return {
    exact: !fresh && rounds > 1, // 1 and 2
    noise, // 3: the standard deviation of each pixel of the average
    psnr: -20 * Math.log10(noise),
    unseen: (1 - share) ** heard, // 4
  };
}

// --- pictures ---

function pictures(stage, { noise, unseen }, settings) {
  const visible = seen(settings);
  const found = [
    ["private", "ink", IMAGE, "the digit"],
    [
      settings.rounds > 1 ? "y₂ − y₁, over 3" : "y₁, over 2",
      "accent",
      subtracted(settings),
      "unknown secret",
    ],
    ["average", "attack", averaged(settings), `${settings.fresh ? "σ/√T" : "σ"} = ${number(noise)}`],
    ["collected", "defense", IMAGE.map((x, j) => (visible[j] ? x : 0)), `unseen ${percent(unseen)}`],
  ];
  const columns = stage.narrow ? 2 : 4;
  const gap = 16;
  const size = Math.min(150, (stage.width - gap * (columns - 1)) / columns);
  for (let first = 0; first < found.length; first += columns) {
    const panel = stage.panel(0, stage.height, stage.width, size + 52);
    stage.height += size + 52;
    found.slice(first, first + columns).forEach(([name, tone, image, below], i) => {
      const x = i * Math.max(size + gap, (stage.width + gap) / columns);
      panel.g.append(s("text", { x, y: 14, class: "pfx-title" }, name));
      show(panel.g, image, [SIDE, SIDE], { x, y: 22, size, tone, line: 2 });
      if (name === "collected") holes(panel.g, visible, x, size);
      panel.g.append(s("text", { x, y: size + 40, class: `pfx-fill-${tone}` }, below));
    });
  }
}

function holes(g, visible, x, size) {
  const side = size / SIDE;
  let path = "";
  visible.forEach((is, j) => {
    if (is) return;
    const [row, column] = [Math.floor(j / SIDE), j % SIDE];
    path += `M${(x + column * side).toFixed(2)} ${(22 + row * side).toFixed(2)}h${side.toFixed(2)}v${side.toFixed(2)}h${(-side).toFixed(2)}z`;
  });
  g.append(s("path", { d: path, class: "pfx-fill-defense" }));
}

function left(panel, result, settings) {
  const plot = new Plot(panel, {
    title: "Still hidden after T rounds (one round: 1)",
    x: { domain: [1, MOST], log: true, ticks: [1, 2, 4, 8, 16, 32, 64], label: "rounds T" },
    y: { domain: [0, 1.04], ticks: [0, 0.25, 0.5, 0.75, 1] },
  });
  const rounds = Array.from({ length: MOST }, (_, i) => i + 1);
  const hidden = (change) => rounds.map((t) => [t, change({ ...settings, rounds: t })]);
  const one = compute({ ...settings, rounds: 1 });
  const lines = {
    accent: (w) => (compute(w).exact ? 0 : 1),
    attack: (w) => compute(w).noise / one.noise,
    defense: (w) => (one.unseen ? compute(w).unseen / one.unseen : 0),
  };
  for (const [tone, f] of Object.entries(lines)) {
    const dash = { accent: "9 5", defense: "3 5" }[tone];
    plot.line(hidden(f), { tone, width: tone === "accent" ? 3.5 : 2.5, dash });
    plot.dot(settings.rounds, f(settings), { tone });
  }
  const words = [
    ["accent", "– –  the unknown secret"],
    ["attack", `––  the noise, ${settings.fresh ? "σ/√T" : "σ"}`],
    ["defense", `· · ·  the unseen entries, ${settings.fresh ? "(1 − r)ᵀ" : "1 − r"}`],
  ];
  const [x, y] = [plot.box.right - 6, plot.box.top];
  words.forEach(([tone, text], i) =>
    plot.words(x, y + 22 + 17 * i, text, { tone, anchor: "end", raw: true }),
  );
}

export const explorable = {
  controls: [
    { key: "rounds", label: "rounds T", min: 1, max: MOST, scale: "log", whole: true, value: 4 },
    { key: "sigma", label: "σ of one round", min: 0.02, max: 5, scale: "log", value: 0.6 },
    { key: "share", label: "r, share sent", min: 0.02, max: 0.98, step: 0.01, value: 0.3 },
    {
      key: "fresh",
      label: "what hides it",
      values: [0, 1],
      min: 0,
      max: 1,
      value: 1,
      format: (v) => (v ? "anew" : "stays"),
    },
  ],
  compute,
  readouts: ({ exact, noise, psnr, unseen }, { rounds, fresh }) => [
    ["subtract", exact ? "exact" : "every digit fits"],
    [fresh ? "average: σ/√T" : "average: σ", number(noise)],
    ["PSNR of the average", `${number(psnr)} dB`],
    [fresh ? `unseen: (1 − r)<sup>${rounds}</sup>` : "unseen: 1 − r", percent(unseen)],
  ],
  say: ({ exact, noise, unseen }, { rounds, fresh }) =>
    `${rounds === 1 ? "One round" : `${rounds} rounds`}, and what hides the digit ${fresh ? "is drawn anew in each" : "stays"}. ` +
    `${exact ? "An unknown secret is subtracted, and the digit is exact, whatever the secret was" : "Behind an unknown secret every digit fits"}; ` +
    `noise on the average is ${number(noise)} of the range from black to white; ${percent(unseen)} of the entries were never sent.`,
  draw(stage, result, settings) {
    pictures(stage, result, settings);
    left(stage.row([1], 230)[0], result, settings);
  },
};
