// Numbers as pictures: images, the x-ray of an upload, and the two curves of a search.

import { s } from "../explore/kit/dom.js";

/** Draw pixels in [0, 1] of this shape on a canvas, one canvas pixel each. */
export function paint(canvas, pixels, [channels, height, width]) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const ink = canvas.getContext("2d"), image = ink.createImageData(width, height), n = width * height;
  for (let i = 0; i < n; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = 255 * pixels[channels === 3 ? c * n + i : i]; // clamps
    image.data[4 * i + 3] = 255;
  }
  ink.putImageData(image, 0, 0);
}

/** Several images side by side in a square: their pixels and the shape of the whole. */
export function mosaic(images, count, [channels, height, width]) {
  const across = Math.ceil(Math.sqrt(count)), down = Math.ceil(count / across);
  const shape = [channels, down * (height + 1) - 1, across * (width + 1) - 1];
  const pixels = new Float32Array(channels * shape[1] * shape[2]).fill(0.5);
  for (let i = 0; i < images.length; i++) {
    const column = i % width, row = Math.floor(i / width) % height, plane = Math.floor(i / (width * height));
    const b = Math.floor(plane / channels), y = Math.floor(b / across) * (height + 1) + row;
    pixels[((plane % channels) * shape[1] + y) * shape[2] + (b % across) * (width + 1) + column] = images[i];
  }
  return { pixels, shape };
}

/** Blue is negative, orange positive; the smaller, the paler (Okabe and Ito's colors). */
function signed(data, at, value) {
  const below = value < 0;
  data[4 * at] = below ? 0 : 213;
  data[4 * at + 1] = below ? 114 : 94;
  data[4 * at + 2] = below ? 178 : 0;
  data[4 * at + 3] = 255 * Math.sqrt(Math.abs(value)); // clamps
}

/** The size that 98 % of the sent entries (or of 4,000 of them) do not pass. */
function scaleOf(part) {
  const step = Math.max(1, Math.floor(part.length / 4000)), sizes = [];
  for (let i = 0; i < part.length; i += step) if (part[i] !== 0) sizes.push(Math.abs(part[i]));
  sizes.sort((a, b) => a - b);
  return sizes[Math.floor(0.98 * (sizes.length - 1))] || 1;
}

/** All numbers of an upload, tensor after tensor, row by row in a square. Behind a dense first layer
 *  its rows instead, each folded to the shape of the picture: what they show needs no search. */
export function xray(canvas, sent, { tensors }, [channels, height, width]) {
  const first = tensors[0], rows = first.shape.length === 2 && first.shape[1] === channels * height * width;
  const across = rows ? Math.ceil(Math.sqrt(first.shape[0])) : 0;
  const side = rows ? across * (width + 1) - 1 : Math.ceil(Math.sqrt(sent.length));
  Object.assign(canvas, { width: side, height: side });
  const ink = canvas.getContext("2d"), image = ink.createImageData(side, side);
  if (rows) {
    const scale = scaleOf(sent.subarray(0, first.size)), n = height * width;
    for (let i = 0; i < first.size; i++) {
      const unit = Math.floor(i / first.shape[1]), pixel = (i % first.shape[1]) % n;
      if (i % first.shape[1] >= n) continue; // of three colors the first stands for all
      const x = (unit % across) * (width + 1) + (pixel % width);
      const y = Math.floor(unit / across) * (height + 1) + Math.floor(pixel / width);
      signed(image.data, y * side + x, sent[i] / scale);
    }
  } else {
    for (const { at, size } of tensors) {
      const scale = scaleOf(sent.subarray(at, at + size));
      for (let i = at; i < at + size; i++) signed(image.data, i, sent[i] / scale);
    }
  }
  ink.putImageData(image, 0, 0);
}

const W = 320, H = 96;

/** Two curves over the evaluations: the attacker's cost (log) and, for those who know x, PSNR. */
export class Curves {
  constructor() {
    this.cost = s("polyline", { class: "pfx-line pfx-stroke-attack", "stroke-width": 2 });
    this.psnr = s("polyline", { class: "pfx-line pfx-stroke-defense", "stroke-width": 2, "stroke-dasharray": "5 3" });
    const floor = s("line", { class: "pfx-axis", x1: 0, x2: W, y1: H - 0.75, y2: H - 0.75 });
    this.element = s("svg", { class: "pfl-curves", viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", "aria-hidden": "true" }, floor, this.cost, this.psnr);
    this.clear();
  }

  clear() {
    this.points = [];
    this.draw();
  }

  add(evaluations, cost, psnr) {
    this.points.push([evaluations, cost, psnr]);
    this.draw();
  }

  draw() {
    const last = this.points.at(-1)?.[0] || 1;
    const lines = [(p) => Math.log10(p[1]), (p) => Math.min(p[2], 60)].map((value, which) => {
      const known = this.points.filter((p) => Number.isFinite(value(p)));
      const values = known.map(value), low = which ? 0 : Math.min(...values), high = which ? 60 : Math.max(...values);
      const y = (v) => 4 + (H - 8) * (1 - (v - low) / (high - low || 1));
      return known.map((p, i) => `${((W * p[0]) / last).toFixed(1)},${y(values[i]).toFixed(1)}`).join(" ");
    });
    this.cost.setAttribute("points", lines[0]);
    this.psnr.setAttribute("points", lines[1]);
  }
}
