// The normal distribution to double precision: density, Φ, log Φ and Φ⁻¹.
// erfc: below 3 the series of positive terms of erf, above 3 the continued fraction of Laplace.

export const pdf = (x) => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);

function erfSeries(x) {
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum) && n < 200; n += 1) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

// exp(x²) erfc(x) for x ≥ 2: x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …))), from the far end
function erfcScaled(x) {
  let tail = x;
  for (let n = x < 3 ? 70 : x < 5 ? 32 : 16; n >= 1; n -= 1) tail = x + n / 2 / tail;
  return 1 / (Math.sqrt(Math.PI) * tail);
}

export function cdf(x) {
  const z = x / Math.SQRT2;
  if (z < -2) return 0.5 * Math.exp(-z * z) * erfcScaled(-z);
  if (z > 2) return 1 - 0.5 * Math.exp(-z * z) * erfcScaled(z);
  return 0.5 * (1 + erfSeries(z));
}

export function logCdf(x) {
  const z = x / Math.SQRT2;
  return z < -2 ? -z * z + Math.log(0.5 * erfcScaled(-z)) : Math.log(cdf(x));
}

// Φ⁻¹ by bisection on log Φ (the lower half; the upper one is its mirror), then two Newton steps
export function quantile(p) {
  if (p <= 0 || p >= 1) return p <= 0 ? -Infinity : Infinity;
  if (p > 0.5) return -quantile(1 - p);
  let low = -40;
  let high = 0;
  for (let n = 0; n < 40; n += 1) {
    const middle = (low + high) / 2;
    if (logCdf(middle) < Math.log(p)) low = middle;
    else high = middle;
  }
  let x = (low + high) / 2;
  for (let n = 0; n < 2; n += 1) x -= (cdf(x) - p) / pdf(x);
  return x;
}
