// Random numbers that PyTorch would draw: the page's networks are the package's, to the last bit.

/** PyTorch's generator on a CPU, MT19937 (Matsumoto & Nishimura 1998); a seed of 32 bits. */
export class Random {
  constructor(seed) {
    this.state = new Uint32Array(624);
    this.state[0] = seed;
    for (let i = 1; i < 624; i++) {
      const before = this.state[i - 1] ^ (this.state[i - 1] >>> 30);
      this.state[i] = Math.imul(1812433253, before) + i;
    }
    this.at = 624;
  }

  /** The next 32 bits. */
  bits() {
    const s = this.state;
    if (this.at === 624) {
      for (let i = 0; i < 624; i++) {
        const y = (s[i] & 0x80000000) | (s[(i + 1) % 624] & 0x7fffffff);
        s[i] = s[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      this.at = 0;
    }
    let y = s[this.at++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  /** A number from [0, 1), on the grid of float32 that torch.rand has. */
  uniform() {
    return (this.bits() & 0xffffff) / 0x1000000;
  }

  /** A number from N(0, 1), by Box and Muller. (torch.randn's are others: it draws in blocks.) */
  normal() {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return radius * Math.cos(2 * Math.PI * this.uniform());
  }

  /** An array of n such numbers. */
  uniforms = (n) => Float64Array.from({ length: n }, () => this.uniform());
  normals = (n) => Float64Array.from({ length: n }, () => this.normal());
}
