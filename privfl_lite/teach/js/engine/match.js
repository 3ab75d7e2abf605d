// Gradient matching: images whose gradient looks like the upload. As in attacks/matching.

import { length } from "./defend.js";
import { gradient, mixed } from "./gradient.js";

/** The cost of images x (B, …) and its gradient: x -> {f, g}.
 *
 *  ``wire``: {sent, labels}. ``how``, as the fields of the package's ``Matching``:
 *  distance   "l2", "cosine", or "likelihood": l2 / 2σ², with the noise's ``std``
 *  tv         weight of the mean absolute difference of neighboring pixels
 *  nonzero    compare only entries that were sent: a zero means "not said"
 *  drop       leave the tensors out whose names begin so
 *  clip       imitate a clip to this length before comparing */
export function objective(net, { sent, labels }, how) {
  const { distance = "l2", tv = 0, nonzero = false, drop = [], clip = 0, std = 1 } = how;
  const counts = new Float64Array(sent.length).fill(distance === "likelihood" ? 0.5 / std ** 2 : 1);
  for (const { name, at, size } of net.tensors)
    if (drop.some((start) => name.startsWith(start))) counts.fill(0, at, at + size);
  if (nonzero) sent.forEach((v, i) => (counts[i] *= v === 0 ? 0 : 1));
  const compare = distance === "cosine" ? cosine : squares;

  return (x) => {
    const tape = gradient(net, x, labels), long = clip ? length(tape.g) : 0;
    const a = long > clip ? tape.g.map((v) => (v * clip) / long) : tape.g;
    let { f, v } = compare(a, sent, counts);
    if (long > clip) v = throughClip(v, tape.g, long, clip);
    const g = mixed(net, tape, v);
    if (tv) f += tv * variation(x, net.shape, g, tv);
    return { f, g };
  };
}

/** Σ counts·(a − b)², and v = ∂f/∂a. */
function squares(a, b, counts) {
  let f = 0;
  const v = a.map((u, i) => {
    const gap = u - b[i];
    f += counts[i] * gap * gap;
    return 2 * counts[i] * gap;
  });
  return { f, v };
}

/** 1 − the cosine of the angle between a and b, and v = ∂f/∂a. */
function cosine(a, b, counts) {
  let dot = 0, aa = 0, bb = 0;
  for (let i = 0; i < a.length; i++) {
    dot += counts[i] * a[i] * b[i];
    aa += counts[i] * a[i] * a[i];
    bb += counts[i] * b[i] * b[i];
  }
  const both = Math.sqrt(Math.max(aa * bb, 1e-30));
  const v = a.map((u, i) => (counts[i] * ((dot / aa) * u - b[i])) / both);
  return { f: 1 - dot / both, v };
}

/** ∂f/∂g from v = ∂f/∂a, where a = g · clip/‖g‖. */
function throughClip(v, g, long, clip) {
  const along = v.reduce((sum, u, i) => sum + u * g[i], 0) / long ** 2;
  return v.map((u, i) => (clip / long) * (u - along * g[i]));
}

/** Mean absolute difference of neighbors, down and right; adds ``weight`` times its slope to g. */
export function variation(x, [, height, width], g, weight) {
  const planes = x.length / (height * width);
  const down = planes * (height - 1) * width, right = planes * height * (width - 1);
  let total = 0;
  for (let i = 0; i < x.length; i++) {
    const column = i % width, row = Math.floor(i / width) % height;
    for (const [next, inside, pairs] of [[i + width, row < height - 1, down], [i + 1, column < width - 1, right]]) {
      if (!inside) continue;
      const gap = x[next] - x[i], slope = (weight * Math.sign(gap)) / pairs;
      total += Math.abs(gap) / pairs;
      g[next] += slope;
      g[i] -= slope;
    }
  }
  return total;
}

const dot = (a, b) => {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
};

/** Limited-memory BFGS (Liu & Nocedal 1989) with the line search of Lewis & Overton (2013).
 *
 *  step() is one evaluation of the cost; ``z``, ``f`` are the best point so far, ``done`` says that no
 *  step along the gradient lowers the cost any more. As attacks/solvers.py, for one problem. */
export class LBFGS {
  constructor(cost, z, memory = 100) {
    Object.assign(this, { cost, z, memory, pairs: [], done: false, evaluations: 1 });
    ({ f: this.f, g: this.g } = cost(z));
    this.downhill();
    this.done = !Number.isFinite(this.f) || !this.g.every(Number.isFinite);
  }

  downhill() {
    const size = this.g.reduce((sum, v) => sum + Math.abs(v), 0);
    this.d = this.g.map((v) => -v);
    this.search(Math.min(1, 1 / size)); // short: nothing is known of the curvature yet
  }

  search(t) {
    Object.assign(this, { t, low: 0, high: Infinity });
  }

  step() {
    const { z, d, t, g } = this, trial = z.map((v, i) => v + t * d[i]);
    const now = this.cost(trial), slope = dot(g, d);
    this.evaluations++;
    const falls = now.f <= this.f + 1e-4 * t * slope && now.g.every(Number.isFinite);
    if (falls && dot(now.g, d) >= 0.9 * slope) return this.accept(trial, now);
    if (falls) this.low = t;
    else this.high = t;
    this.t = this.high === Infinity ? 2 * this.low : (this.low + this.high) / 2;
    if (this.high - this.low >= 1e-7 * this.high) return;
    this.done = !this.pairs.length; // once more along the gradient, then close
    this.pairs = [];
    this.downhill();
  }

  accept(trial, { f, g }) {
    const s = trial.map((v, i) => v - this.z[i]), y = g.map((v, i) => v - this.g[i]);
    this.pairs.push({ s, y, curvature: dot(s, y) });
    if (this.pairs.length > this.memory) this.pairs.shift();
    Object.assign(this, { z: trial, f, g, d: this.direction(g) });
    this.search(1);
  }

  /** −Hg by the two loops. */
  direction(g) {
    const q = g.map((v) => -v), alphas = [];
    const add = (scale, v) => { for (let i = 0; i < q.length; i++) q[i] += scale * v[i]; };
    for (const { s, y, curvature } of [...this.pairs].reverse()) {
      const alpha = dot(s, q) / curvature;
      alphas.unshift(alpha);
      add(-alpha, y);
    }
    const { y, curvature } = this.pairs.at(-1), scale = curvature / dot(y, y);
    for (let i = 0; i < q.length; i++) q[i] *= scale;
    this.pairs.forEach(({ s, y, curvature }, i) => add(alphas[i] - dot(y, q) / curvature, s));
    return q;
  }
}

/** Signed Adam in the box [0, 1], its rate cut to a tenth after 3/8, 5/8 and 7/8 of the steps
 *  (Geiping et al. 2020). ``z``, ``f`` are the best point so far. */
export class SignedAdam {
  constructor(cost, z, steps, rate = 0.1) {
    Object.assign(this, { cost, steps, rate, z, f: Infinity, evaluations: 0, done: false });
    this.at = z.slice();
    this.mean = new Float64Array(z.length);
    this.square = new Float64Array(z.length);
    this.drops = [3, 5, 7].map((k) => Math.floor((steps * k) / 8));
  }

  step() {
    const { f, g } = this.cost(this.at), { mean, square } = this, n = this.evaluations++;
    if (f < this.f) Object.assign(this, { f, z: this.at });
    for (const drop of this.drops) if (drop === n) this.rate *= 0.1;
    const bias = 1 - 0.9 ** (n + 1), width = Math.sqrt(1 - 0.999 ** (n + 1));
    this.at = this.at.map((v, i) => {
      const sign = Math.sign(g[i]) || 0;
      mean[i] += 0.1 * (sign - mean[i]);
      square[i] = 0.999 * square[i] + 0.001 * sign * sign;
      const next = v - ((this.rate / bias) * mean[i]) / (Math.sqrt(square[i]) / width + 1e-8);
      return Math.min(1, Math.max(0, next));
    });
    this.done = this.evaluations >= this.steps;
  }
}
