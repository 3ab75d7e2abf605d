// Images as numbers in [0, 1] (row by row; `channels` 1 or 3, plane after plane), drawn with square
// pixels. Stored ones are bytes in base64 (explore/data).

import { s } from "./dom.js";

export function decode(text) {
  const bytes = atob(text);
  return Float64Array.from(bytes, (c) => c.charCodeAt(0) / 255);
}

export function picture(values, width, height, channels = 1) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const ink = canvas.getContext("2d");
  const data = ink.createImageData(width, height);
  const n = width * height;
  for (let i = 0; i < n; i += 1) {
    for (let c = 0; c < 3; c += 1)
      data.data[4 * i + c] = Math.round(
        255 * Math.min(1, Math.max(0, values[channels === 3 ? c * n + i : i])),
      );
    data.data[4 * i + 3] = 255;
  }
  ink.putImageData(data, 0, 0);
  return canvas.toDataURL();
}

export function show(
  parent,
  values,
  [width, height, channels = 1],
  { x, y, size, tone = "frame", line = 1 },
) {
  const tall = (size * height) / width;
  parent.append(
    s("image", {
      href: picture(values, width, height, channels),
      x,
      y,
      width: size,
      height: tall,
      class: "pfx-pixels",
      preserveAspectRatio: "none",
    }),
    s("rect", {
      x,
      y,
      width: size,
      height: tall,
      class: `pfx-line pfx-stroke-${tone}`,
      "stroke-width": line,
    }),
  );
}
