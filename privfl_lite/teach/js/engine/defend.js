// Defenses at the wire: what leaves in place of the gradient. As in privfl_lite/defenses.

import { forward } from "./gradient.js";
import { transpose } from "./nets.js";

/** kind -> the upload for gradient g. ``noise`` holds a number from N(0, 1) for each entry. */
export const DEFENSES = {
  none: (net, g) => g.slice(),
  /** DPGaussian: g + N(0, σ²), without a clip. */
  noise: (net, g, { sigma }, noise) => g.map((v, i) => v + sigma * noise[i]),
  /** ModelCloak, fixed: clipped to length C, then N(0, (σC)²) (Eq. 3–5). */
  cloak: (net, g, { clip, sigma }, noise) =>
    shorten(g, clip).map((v, i) => v + sigma * clip * noise[i]),
  /** Prune: in each tensor only the largest entries leave, a share of 1 − rate. */
  prune: (net, g, { rate }) => {
    const sent = g.slice();
    for (const { at, size } of net.tensors) {
      const part = sent.subarray(at, at + size), keep = largest(part, rate);
      for (let i = 0; i < size; i++) part[i] *= keep[i];
    }
    return sent;
  },
  /** One bit an entry: its sign (signSGD, Bernstein et al. 2018). */
  sign: (net, g) => g.map(Math.sign),
  /** Soteria: columns of the last layer's weight gradient go whose features tell most of x. */
  soteria: (net, g, { rate }, noise, x) => {
    const sent = g.slice(), keep = largest(soteriaScores(net, x), rate), head = net.layers.at(-1);
    for (let o = 0, k = head.at; o < head.out; o++)
      for (let i = 0; i < head.fan; i++, k++) sent[k] *= keep[i];
    return sent;
  },
};

export const length = (g) => Math.sqrt(g.reduce((sum, v) => sum + v * v, 0));

/** g, shortened to ``bound`` where it is longer. */
export function shorten(g, bound) {
  const scale = Math.min(1, bound / Math.max(length(g), 1e-30));
  return g.map((v) => v * scale);
}

/** 1 for entries that pruning at ``rate`` keeps: those not below the rate quantile of sizes. */
export function largest(values, rate) {
  const sizes = Float64Array.from(values, Math.abs).sort();
  const threshold = sizes[Math.ceil(rate * (sizes.length - 1))];
  return Float64Array.from(values, (v) => (Math.abs(v) >= threshold ? 1 : 0));
}

/** Soteria's score of each feature r_i, as released: Σ over the batch of ‖∂r_i/∂x‖ / (r_i + 0.1).
 *  One pass back for each feature, so it is kept for the last images that were asked for. */
export function soteriaScores(net, x) {
  if (kept.net === net && kept.x?.length === x.length && kept.x.every((v, i) => v === x[i]))
    return kept.scores;
  const features = net.layers.at(-1).fan, scores = new Float64Array(features);
  for (let b = 0; b < x.length; b += net.pixels) {
    const values = forward(net, x.subarray(b, b + net.pixels), 1);
    for (let i = 0; i < features; i++)
      scores[i] += length(slopes(net, values, i)) / (values.at(-2)[i] + 0.1);
  }
  kept = { net, x: x.slice(), scores };
  return scores;
}
let kept = {};

/** ∂r_i/∂x of one image, whose values forward() gave. */
function slopes(net, values, i) {
  let d = new Float64Array(values.at(-2).length);
  d[i] = 1;
  for (let k = net.layers.length - 2; k >= 0; k--) {
    const l = net.layers[k];
    if (l.kind === "act") {
      const out = values[k + 1];
      d = d.map((v, j) => (v ? v * net.act.slope(out[j]) : 0));
    } else {
      const below = new Float64Array(values[k].length);
      transpose(l, net.weights, d, below, 1);
      d = below;
    }
  }
  return d;
}
