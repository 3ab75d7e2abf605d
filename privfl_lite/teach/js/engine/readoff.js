// What is read off an upload without any search. As in attacks/labels.py and analytic/closed_form.py.

import { forward, softmax } from "./gradient.js";

/** iDLG's rule for one image: the row of the last weight gradient with the smallest sum. */
export function inferLabel(net, sent) {
  const { at, out, fan } = net.layers.at(-1);
  const sums = Array.from({ length: out }, (_, c) => sum(sent.subarray(at + c * fan, at + (c + 1) * fan)));
  return sums.indexOf(Math.min(...sums));
}

/** How often each class stands in a batch, as sorted labels; ``probes`` are noise images.
 *  One image: each row weighed by the usual r. More: B·(p̄ − g) images of each class, rounded. */
export function inferLabels(net, sent, count, probes) {
  const { at, out, fan } = net.layers.at(-1), many = probes.length / net.pixels;
  const values = forward(net, probes, many), r = values.at(-2), p = softmax(values.at(-1), out);
  const bias = sent.subarray(at + out * fan, at + out * fan + out);
  if (count > 1) {
    const usual = (c) => sum(p.filter((_, i) => i % out === c)) / many;
    return apportion(Array.from(bias, (g, c) => count * (usual(c) - g)), count);
  }
  const mean = new Float64Array(fan);
  r.forEach((v, i) => (mean[i % fan] += v / many));
  const seen = Array.from(bias, (g, c) => g + mean.reduce((s, v, i) => s + v * sent[at + c * fan + i], 0));
  const size = r.every((v) => v >= 0) ? seen.map((v) => -v) : seen.map(Math.abs);
  return [size.indexOf(Math.max(...size))];
}

/** Whole numbers near ``share`` that add up to ``total`` (largest remainder), as sorted labels. */
function apportion(share, total) {
  share = share.map((v) => Math.max(v, 0));
  const scale = total / Math.max(sum(share), 1e-12), parts = share.map((v) => v * scale);
  const count = parts.map(Math.floor);
  const order = parts.map((v, c) => [v - count[c], c]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  for (let left = total - sum(count), i = 0; left > 0; left--, i++) count[order[i][1]]++;
  return count.flatMap((n, c) => Array(n).fill(c));
}

/** ∇W_i / ∇b_i for each row i of the first layer: the image, or a mixture of the batch.
 *  Rows whose bias gradient is 0 are NaN. */
export function rowQuotients(net, sent) {
  const { at, out, fan } = net.layers[0], rows = [];
  for (let i = 0; i < out; i++) {
    const b = sent[at + out * fan + i];
    rows.push(sent.subarray(at + i * fan, at + (i + 1) * fan).map((v) => (b === 0 ? NaN : v / b)));
  }
  return rows;
}

/** The closed form: images (B, …) from the rows, and how many rows went into them.
 *  One image: the row with the largest bias gradient. More: rows of lone units, which were active
 *  for one image only, lie in [0, 1] and agree with each other; mixtures hardly ever do. */
export function closedForm(net, sent, count) {
  const { at, out, fan } = net.layers[0], bias = sent.subarray(at + out * fan, at + out * fan + out);
  const fits = count === 1 ? Number.isFinite : (v) => v > -0.01 && v < 1.01;
  const rows = rowQuotients(net, sent)
    .map((row, i) => ({ row, size: Math.abs(bias[i]) }))
    .sort((a, b) => b.size - a.size)
    .map((r) => r.row)
    .filter((row) => row.every(fits));
  const friends = rows.map((a) => rows.map((b) => same(a, b)));
  const order = rows.map((_, i) => i);
  const votes = friends.map((f) => f.filter(Boolean).length);
  if (count > 1) order.sort((a, b) => votes[b] - votes[a] || a - b);
  const taken = [];
  for (const i of order) if (taken.length < count && !taken.some((j) => friends[i][j])) taken.push(i);
  const images = new Float64Array(count * fan).fill(0.5); // gray where none was found
  taken.forEach((i, b) => images.set(rows[i], b * fan));
  const used = rows.filter((_, i) => taken.some((j) => friends[i][j])).length;
  return { images, used, rows: out };
}

/** For one image through noise or gaps: least squares over all rows, a_j = Σ δ_i W_ij / Σ δ_i²,
 *  each pixel from the rows in which it was sent. A pixel that no row sends was too small: 0. */
export function allRows(net, sent) {
  const { at, out, fan } = net.layers[0], image = new Float64Array(fan);
  for (let j = 0; j < fan; j++) {
    let above = 0, below = 0;
    for (let i = 0; i < out; i++) {
      const w = sent[at + i * fan + j], d = sent[at + out * fan + i];
      if (w === 0) continue;
      above += d * w;
      below += d * d;
    }
    image[j] = below ? above / below : 0;
  }
  return image;
}

/** Less than 0.00001 apart, a root mean square over pixels. */
function same(a, b) {
  let square = 0;
  for (let i = 0; i < a.length; i++) square += (a[i] - b[i]) ** 2;
  return Math.sqrt(square / a.length) < 1e-5;
}

const sum = (values) => values.reduce((a, b) => a + b, 0);
