// ε over rounds, as the package's accountant has it (Rényi DP, Poisson sampling): the least over
// orders. Whole orders have a closed form (Mironov et al. 2019, Eq. 5). Those between come from a
// table that the package computed (data/epsilon.js), cubic between its points in logarithms; how far
// that is off is measured there. Without sampling ε is exact (prop-gaussian-rounds), and basic
// composition (prop-basic-composition) gives T releases T ε, each at δ/T.

import { DATA } from "./data/epsilon.js";
import { number, percent } from "./kit/format.js";
import { Plot, curve } from "./kit/plot.js";
import { epsilonAt } from "./two-gaussians.js";

const DELTA = DATA.delta;
const MOST = 10000;
let logs;

function stored() {
  if (!logs) {
    const bytes = atob(DATA.logs);
    logs = Float64Array.from({ length: bytes.length / 2 }, (_, i) => {
      const code = bytes.charCodeAt(2 * i) + 256 * bytes.charCodeAt(2 * i + 1);
      return DATA.low + (code / 65535) * (DATA.high - DATA.low);
    });
  }
  return logs;
}

// Four neighbors on an axis and their weights in the cubic through them.
function near([low, high, points], value) {
  const place = (Math.log(value / low) / Math.log(high / low)) * (points - 1);
  const first = Math.min(Math.max(Math.floor(place) - 1, 0), points - 4);
  const [a, b, c, d] = [0, 1, 2, 3].map((k) => place - first - k);
  return { first, weights: [(-b * c * d) / 6, (a * c * d) / 2, (-a * b * d) / 2, (a * b * c) / 6] };
}

const FACTORIALS = [0]; // their logarithms
for (let n = 1; n < 64; n += 1) FACTORIALS.push(FACTORIALS[n - 1] + Math.log(n));

// Rényi DP of one release at the whole orders 2 to 63, and what (ε, δ) has on top (prop-rdp, 3).
let last = {};
export function wholeOrders(sigma, rate, delta = DELTA) {
  if (last.sigma === sigma && last.rate === rate && last.delta === delta) return last.orders;
  const orders = [];
  for (let a = 2; a < 64; a += 1) {
    const logs = [];
    for (let k = rate === 1 ? a : 0; k <= a; k += 1) {
      const others = k === a ? 0 : (a - k) * Math.log1p(-rate);
      logs.push(
        FACTORIALS[a] -
          FACTORIALS[k] -
          FACTORIALS[a - k] +
          k * Math.log(rate) +
          others +
          (k * (k - 1)) / (2 * sigma * sigma),
      );
    }
    const most = Math.max(...logs);
    const rdp = (most + Math.log(logs.reduce((sum, v) => sum + Math.exp(v - most), 0))) / (a - 1);
    orders.push([rdp, (-Math.log(delta) - Math.log(a)) / (a - 1) + Math.log1p(-1 / a)]);
  }
  last = { sigma, rate, delta, orders };
  return orders;
}

export function sampled(sigma, rate, rounds) {
  const found = Math.min(...wholeOrders(sigma, rate).map(([rdp, top]) => rounds * rdp + top));
  return Math.max(0, Math.min(found, between(sigma, rate, rounds)));
}

function between(sigma, rate, rounds) {
  const table = stored();
  const [s, q, t] = [sigma, rate, rounds].map((value, i) => near(DATA.axes[i], value));
  const [, nq, nt] = DATA.axes.map((axis) => axis[2]);
  let sum = 0;
  for (let i = 0; i < 4; i += 1)
    for (let j = 0; j < 4; j += 1)
      for (let k = 0; k < 4; k += 1) {
        sum +=
          s.weights[i] *
          q.weights[j] *
          t.weights[k] *
          table[((s.first + i) * nq + q.first + j) * nt + t.first + k];
      }
  return Math.exp(sum);
}

export const everyone = (sigma, rounds) => epsilonAt(Math.sqrt(rounds) / sigma, DELTA);
export const basic = (sigma, rounds) => rounds * epsilonAt(1 / sigma, DELTA / rounds);

export function compute({ sigma, rate, rounds }) {
  return {
    sampled: sampled(sigma, rate, rounds),
    everyone: everyone(sigma, rounds),
    basic: basic(sigma, rounds),
    worst: DATA.worst,
    usual: DATA.usual,
  };
}

const HEIGHT = { domain: [0.05, 1e5], log: true, ticks: [0.1, 1, 10, 100, 1e3, 1e4, 1e5] };

function overRounds(panel, result, { sigma, rate, rounds }) {
  const across = { domain: [1, MOST], log: true, ticks: [1, 10, 100, 1000, 10000] };
  const plot = new Plot(panel, {
    title: "ε as rounds go by",
    left: 66,
    x: { ...across, label: "rounds T" },
    y: { ...HEIGHT, label: "ε at δ = 10⁻⁵" },
  });
  const along = (f) => curve(f, across.domain, 60, true);
  plot.area(
    [
      [1, 1],
      [MOST, 1],
    ],
    { tone: "good", base: 0.05, opacity: 0.12 },
  );
  plot.line(
    along((t) => basic(sigma, t)),
    { tone: "muted", dash: "2 5", width: 2 },
  );
  plot.line(
    along((t) => everyone(sigma, t)),
    { tone: "defense", dash: "7 5", width: 2 },
  );
  plot.line(
    along((t) => sampled(sigma, rate, t)),
    { tone: "attack" },
  );
  plot.dot(rounds, result.sampled, { tone: "attack" });
  ["adding up", "everyone, exactly", "a sample q"].forEach((text, i) => {
    plot.words(1.2, 1e5, text, { tone: ["muted", "defense", "attack"][i], dy: 14 + 17 * i });
  });
  plot.words(MOST, 0.062, "ε < 1", { tone: "good", anchor: "end", dx: -6, dy: -2 });
}

function overSigma(panel, result, { sigma, rate, rounds }) {
  const across = { domain: [0.5, 16], log: true, ticks: [0.5, 1, 2, 4, 8, 16] };
  const plot = new Plot(panel, {
    title: "ε bought with noise",
    left: 50,
    x: { ...across, label: "noise multiplier σ" },
    y: HEIGHT,
  });
  plot.area(
    [
      [0.5, 1],
      [16, 1],
    ],
    { tone: "good", base: 0.05, opacity: 0.12 },
  );
  plot.line(
    curve((v) => everyone(v, rounds), across.domain, 50, true),
    { tone: "defense", dash: "7 5", width: 2 },
  );
  plot.line(
    curve((v) => sampled(v, rate, rounds), across.domain, 110, true),
    { tone: "attack" },
  );
  plot.dot(sigma, result.sampled, { tone: "attack" });
}

export const explorable = {
  controls: [
    { key: "sigma", label: "noise multiplier σ", min: 0.5, max: 16, scale: "log", value: 1 },
    {
      key: "rate",
      label: "share q drawn",
      min: DATA.axes[1][0],
      max: 1,
      scale: "log",
      value: 0.1,
      format: (v) => percent(v),
    },
    { key: "rounds", label: "rounds T", min: 1, max: MOST, scale: "log", whole: true, value: 100 },
  ],
  compute,
  readouts: (r) => [
    ["ε, a sample q each round", number(r.sampled)],
    ["ε, everyone, exactly", number(r.everyone)],
    ["ε, adding up T times", number(r.basic)],
    ["interpolation, at most off by", percent(r.worst)],
  ],
  say: (r, { sigma, rate, rounds }) =>
    `After ${number(rounds, 5)} round${rounds > 1 ? "s" : ""} with σ = ${number(sigma)} and ${percent(rate)} drawn in each, the accountant gives ε = ${number(r.sampled)} at δ = 10⁻⁵; if everyone takes part it is ${number(r.everyone)}.`,
  draw(stage, result, settings) {
    const [left, right] = stage.row([1.1, 1], 300, { tall: 215 });
    overRounds(left, result, settings);
    overSigma(right, result, settings);
  },
};
