// A safetensors file: the length of a JSON head, the head, raw numbers (huggingface/safetensors).

const KINDS = { F32: Float32Array, U8: Uint8Array };

/** {tensors: name -> {shape, data}, about: name -> text} of an ArrayBuffer. */
export function unpack(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const text = new TextDecoder().decode(new Uint8Array(buffer, 8, length));
  const { __metadata__: about = {}, ...entries } = JSON.parse(text);
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(entries)) {
    tensors[name] = { shape, data: new KINDS[dtype](buffer.slice(8 + length + from, 8 + length + to)) };
  }
  return { tensors, about };
}

/** The laboratory's networks, the seeds of their first weights, and pictures, from its pack. */
export function openPack(buffer) {
  const { tensors, about } = unpack(buffer);
  const pictures = Object.entries(tensors).flatMap(([kind, { shape, data }]) => {
    const size = shape[1] * shape[2] * shape[3];
    const labels = JSON.parse(about[`labels:${kind}`]);
    return labels.map((label, i) => {
      const pixels = Float64Array.from(data.subarray(i * size, (i + 1) * size), (v) => v / 255);
      return { kind, label, shape: shape.slice(1), pixels };
    });
  });
  return { pictures, nets: JSON.parse(about.nets), seeds: JSON.parse(about.seeds) };
}
