// Numbers that look random and are the same on every machine (mulberry32), so that a picture keeps
// its dots while a slider moves.

export function uniforms(count, seed = 1) {
  let a = seed >>> 0;
  return Float64Array.from({ length: count }, () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  });
}

export function normals(count, seed = 1) {
  const u = uniforms(2 * count, seed);
  return Float64Array.from({ length: count }, (_, i) => {
    return Math.sqrt(-2 * Math.log(1 - u[2 * i])) * Math.cos(2 * Math.PI * u[2 * i + 1]);
  });
}
