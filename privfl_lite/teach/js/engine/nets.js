// Networks as data: a list of layers (exported by privfl_lite/teach/export.py) and their weights.
//
// All weights stand in one Float64Array, in the order of PyTorch's named_parameters(). A layer that
// has weights says where: ``at`` (weights, then ``out`` biases). Images are (B, C, H, W), flat.

import { Random } from "./random.js";

/** φ and its first two derivatives, written in terms of a = φ(z). */
export const ACTIVATIONS = {
  sigmoid: {
    value: (z) => 1 / (1 + Math.exp(-z)),
    slope: (a) => a * (1 - a),
    bend: (a) => a * (1 - a) * (1 - 2 * a),
  },
  tanh: { value: Math.tanh, slope: (a) => 1 - a * a, bend: (a) => -2 * a * (1 - a * a) },
  relu: { value: (z) => (z > 0 ? z : 0), slope: (a) => (a > 0 ? 1 : 0), bend: () => 0 },
};

/** The weights that ``pf.models.build`` draws: torch draws each as U(−bound, bound) in float32.
 *  ``seed`` is the generator's own, of which torch uses 32 bits (the pack's ``seeds``). */
export function drawWeights(spec, act, seed) {
  const rng = new Random(seed);
  for (let i = 0; i < spec.skip; i++) rng.bits(); // numbers that build draws and then replaces
  const weights = new Float64Array(spec.tensors.reduce((n, t) => n + t.size, 0));
  let at = 0;
  for (const { size, bound: own } of spec.tensors) {
    const bound = spec.init[act] ?? own;
    const low = Math.fround(-bound), width = Math.fround(Math.fround(bound) - low);
    for (let i = 0; i < size; i++) weights[at++] = Math.fround(rng.uniform() * width + low);
  }
  return weights;
}

/** A network: ``spec`` with shapes, its activation by name, its weights. */
export function makeNet(spec, act, weights) {
  let at = 0;
  const tensors = spec.tensors.map((t) => ({ ...t, at: (at += t.size) - t.size }));
  const start = Object.fromEntries(tensors.map((t) => [t.name, t.at]));
  const layers = spec.layers.map((l) => ({ ...l, at: start[`${l.name}.weight`] ?? -1 }));
  const pixels = spec.shape.reduce((a, b) => a * b, 1);
  return { ...spec, act: ACTIVATIONS[act], layers, tensors, pixels, weights };
}

// --- linear layers: a ↦ Wa, its transpose, and the gradient of W. Each adds to ``out``. ---

let scratch = new Float64Array(0);
const columns = (n) => (scratch.length >= n ? scratch : (scratch = new Float64Array(n)));

/** Calls visit(k, n, pixel) for each weight k, place n and the input pixel that they join. */
function eachPatch(l, visit) {
  const { kernel, stride, pad, side, places } = l;
  for (let c = 0, k = 0; c < l.channels; c++)
    for (let i = 0; i < kernel; i++)
      for (let j = 0; j < kernel; j++, k++)
        for (let p = 0, n = 0; p < places; p++) {
          const row = p * stride + i - pad;
          for (let q = 0; q < places; q++, n++) {
            const column = q * stride + j - pad;
            if (row >= 0 && row < side && column >= 0 && column < side)
              visit(k, n, (c * side + row) * side + column);
          }
        }
}

/** The pixel under weight k at place n, or −1 outside the image; made once for a layer's shape. */
const tables = new Map();
function patches(l) {
  const key = [l.channels, l.kernel, l.stride, l.pad, l.side].join();
  if (!tables.has(key)) {
    const table = new Int32Array(l.fan * l.places ** 2).fill(-1);
    eachPatch(l, (k, n, pixel) => (table[k * l.places ** 2 + n] = pixel));
    tables.set(key, table);
  }
  return tables.get(key);
}

/** out (B, l.size) += W a, for a (B, l.inputs). */
export function apply(l, w, a, out, count) {
  for (let b = 0; b < count; b++) {
    const from = b * l.inputs, to = b * l.size;
    if (l.kind === "dense") {
      for (let o = 0, k = l.at; o < l.out; o++) {
        let sum = 0;
        for (let i = 0; i < l.fan; i++, k++) sum += w[k] * a[from + i];
        out[to + o] += sum;
      }
      continue;
    }
    const table = patches(l), n = l.places ** 2, cols = columns(table.length);
    for (let k = 0; k < table.length; k++) cols[k] = table[k] < 0 ? 0 : a[from + table[k]];
    for (let o = 0; o < l.out; o++) multiplyRows(w, l.at + o * l.fan, 1, cols, l.fan, n, out, to + o * n);
  }
}

/** out (B, l.inputs) += Wᵀ d, for d (B, l.size). */
export function transpose(l, w, d, out, count) {
  for (let b = 0; b < count; b++) {
    const from = b * l.size, to = b * l.inputs;
    if (l.kind === "dense") {
      for (let o = 0, k = l.at; o < l.out; o++) {
        const s = d[from + o];
        for (let i = 0; i < l.fan; i++, k++) out[to + i] += s * w[k];
      }
      continue;
    }
    const table = patches(l), n = l.places ** 2, cols = columns(table.length).fill(0, 0, table.length);
    const rows = d.subarray(from, from + l.size);
    for (let k = 0; k < l.fan; k++) multiplyRows(w, l.at + k, l.fan, rows, l.out, n, cols, k * n);
    for (let k = 0; k < table.length; k++) if (table[k] >= 0) out[to + table[k]] += cols[k];
  }
}

/** g += the gradient of W for error signals d (B, l.size) and inputs a (B, l.inputs). */
export function outer(l, d, a, g, count) {
  for (let b = 0; b < count; b++) {
    const from = b * l.inputs, to = b * l.size;
    if (l.kind === "dense") {
      for (let o = 0, k = l.at; o < l.out; o++) {
        const s = d[to + o];
        for (let i = 0; i < l.fan; i++, k++) g[k] += s * a[from + i];
      }
      continue;
    }
    const table = patches(l), n = l.places ** 2, cols = columns(table.length);
    for (let k = 0; k < table.length; k++) cols[k] = table[k] < 0 ? 0 : a[from + table[k]];
    for (let o = 0; o < l.out; o++)
      for (let k = 0; k < l.fan; k++) {
        let sum = 0;
        for (let i = 0, p = to + o * n, q = k * n; i < n; i++, p++, q++) sum += d[p] * cols[q];
        g[l.at + o * l.fan + k] += sum;
      }
  }
}

/** out[at … at+n) += Σ_k w[first + k·step] · rows[k], four rows at a time: the inner loop of all. */
function multiplyRows(w, first, step, rows, count, n, out, at) {
  let k = 0;
  for (; k + 4 <= count; k += 4) {
    const i = first + k * step, p = k * n;
    const a = w[i], b = w[i + step], c = w[i + 2 * step], d = w[i + 3 * step];
    for (let j = 0; j < n; j++)
      out[at + j] += a * rows[p + j] + b * rows[p + n + j] + c * rows[p + 2 * n + j] + d * rows[p + 3 * n + j];
  }
  for (; k < count; k++)
    for (let j = 0, s = w[first + k * step]; j < n; j++) out[at + j] += s * rows[k * n + j];
}

/** out += the biases in w, each at all places of its channel. */
export function addBias(l, w, out, count) {
  const n = l.size / l.out, at = l.at + l.out * l.fan;
  for (let i = 0; i < count * l.size; i++) out[i] += w[at + Math.floor((i % l.size) / n)];
}

/** g += the gradient of the biases. */
export function sumBias(l, d, g, count) {
  const n = l.size / l.out, at = l.at + l.out * l.fan;
  for (let i = 0; i < count * l.size; i++) g[at + Math.floor((i % l.size) / n)] += d[i];
}
