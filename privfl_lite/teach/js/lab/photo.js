// Pictures from the reader's disk or camera. They are read here and go nowhere else.

const MOST = 30e6; // bytes

/** The largest square in the middle of a picture file, as pixels in [0, 1] of this shape. */
export async function readPhoto(file, [channels, side]) {
  if (file.size > MOST) throw new Error(`This picture is too large: ${Math.round(file.size / 1e6)} MB, and the limit is 30 MB.`);
  let whole;
  try {
    if (file.type && !file.type.startsWith("image/")) throw new Error();
    whole = await createImageBitmap(file);
  } catch {
    throw new Error(`“${file.name || "This file"}” is not a picture that this browser can read.`);
  }
  const { width, height } = whole, size = Math.min(width, height);
  const at = [Math.floor((width - size) / 2), Math.floor((height - size) / 2), size, size];
  const small = await createImageBitmap(whole, ...at, { resizeWidth: side, resizeHeight: side, resizeQuality: "high" });
  whole.close();
  return pixelsOf(small, channels, side);
}

function pixelsOf(bitmap, channels, side) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const ink = canvas.getContext("2d", { willReadFrequently: true });
  ink.fillStyle = "#fff"; // behind what is transparent
  ink.fillRect(0, 0, side, side);
  ink.drawImage(bitmap, 0, 0, side, side);
  const { data } = ink.getImageData(0, 0, side, side), n = side * side;
  const pixels = new Float64Array(channels * n);
  for (let i = 0; i < n; i++) {
    const [r, g, b] = [0, 1, 2].map((c) => data[4 * i + c] / 255);
    if (channels === 1) pixels[i] = 0.299 * r + 0.587 * g + 0.114 * b;
    else [r, g, b].forEach((v, c) => (pixels[c * n + i] = v));
  }
  return pixels;
}
