// The gradient that a client sends, and how it changes with the image.

import { addBias, apply, outer, sumBias, transpose } from "./nets.js";

/** What enters each layer, and the logits last: (B, …) arrays. */
export function forward(net, x, count) {
  const values = [x];
  for (const l of net.layers) {
    const a = values.at(-1);
    if (l.kind === "act") values.push(a.map(net.act.value));
    else {
      const z = new Float64Array(count * l.size);
      apply(l, net.weights, a, z, count);
      addBias(l, net.weights, z, count);
      values.push(z);
    }
  }
  return values;
}

/** Softmax of each row of logits (B, classes). */
export function softmax(z, classes) {
  const p = new Float64Array(z.length);
  for (let b = 0; b < z.length; b += classes) {
    const top = Math.max(...z.subarray(b, b + classes));
    let sum = 0;
    for (let c = b; c < b + classes; c++) sum += p[c] = Math.exp(z[c] - top);
    for (let c = b; c < b + classes; c++) p[c] /= sum;
  }
  return p;
}

/** Mean cross-entropy of images x (B, …) with labels y, and its gradient g in all weights.
 *  The rest of the result is the tape that ``mixed`` reads: values, and error signals behind them. */
export function gradient(net, x, y) {
  const count = y.length, values = forward(net, x, count), n = net.classes;
  const p = softmax(values.at(-1), n), g = new Float64Array(net.weights.length);
  let d = p.map((v) => v / count), loss = 0; // the error signal of the logits: (p − onehot) / B
  for (let b = 0; b < count; b++) {
    d[b * n + y[b]] -= 1 / count;
    loss -= Math.log(p[b * n + y[b]]) / count;
  }
  const signals = [d];
  for (let i = net.layers.length - 1; i >= 0; i--) {
    const l = net.layers[i], a = values[i];
    if (l.kind === "act") {
      const out = values[i + 1];
      d = d.map((v, j) => v * net.act.slope(out[j]));
    } else {
      outer(l, d, a, g, count);
      sumBias(l, d, g, count);
      const below = new Float64Array(a.length);
      transpose(l, net.weights, d, below, count);
      d = below;
    }
    signals.unshift(d);
  }
  return { loss, g, p, values, signals };
}

/** ∂/∂x ⟨g(x), v⟩, exactly, for a fixed v as long as the weights.
 *
 *  It is also d/dε ∂loss/∂x at weights θ + εv, so the tape is played once more with a dual part, the
 *  derivative in ε, beside each value (``dot``): forward, through the softmax, and back. */
export function mixed(net, { p, values, signals }, v) {
  const count = p.length / net.classes, dots = [new Float64Array(values[0].length)];
  net.layers.forEach((l, i) => {
    const dot = dots[i], out = values[i + 1];
    if (l.kind === "act") return dots.push(dot.map((u, j) => u * net.act.slope(out[j])));
    const next = new Float64Array(out.length);
    apply(l, v, values[i], next, count); // (W + εV)(a + εȧ): Va …
    addBias(l, v, next, count);
    if (i) apply(l, net.weights, dot, next, count); // … + Wȧ
    dots.push(next);
  });
  let dot = softmaxDot(p, dots.at(-1), net.classes, count);
  for (let i = net.layers.length - 1; i >= 0; i--) {
    const l = net.layers[i], out = values[i + 1];
    if (l.kind === "act") {
      const { slope, bend } = net.act, above = signals[i + 1], u = dots[i];
      dot = dot.map((w, j) => w * slope(out[j]) + above[j] * bend(out[j]) * u[j]);
    } else {
      const below = new Float64Array(values[i].length);
      transpose(l, v, signals[i + 1], below, count);
      transpose(l, net.weights, dot, below, count);
      dot = below;
    }
  }
  return dot;
}

/** The dual part of (p − onehot) / B: softmax's Jacobian times that of the logits. */
function softmaxDot(p, dot, classes, count) {
  return p.map((v, i) => {
    const b = i - (i % classes);
    let mean = 0;
    for (let c = 0; c < classes; c++) mean += p[b + c] * dot[b + c];
    return (v * (dot[i] - mean)) / count;
  });
}
