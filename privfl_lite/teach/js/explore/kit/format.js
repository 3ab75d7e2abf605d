// Numbers as a reader expects them: three digits, thousands apart, small ones as powers of ten.

const SUPER = {
  "-": "⁻",
  0: "⁰",
  1: "¹",
  2: "²",
  3: "³",
  4: "⁴",
  5: "⁵",
  6: "⁶",
  7: "⁷",
  8: "⁸",
  9: "⁹",
};

export function power(exponent) {
  return `10${String(exponent).replace(/./g, (c) => SUPER[c])}`;
}

export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "–";
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) {
    const exponent = Math.floor(Math.log10(size) + 1e-9);
    const front = (value / 10 ** exponent).toFixed(1).replace(/\.0$/, "").replace("-", "−");
    return front === "1" ? power(exponent) : `${front}·${power(exponent)}`;
  }
  if (size >= 1e6) {
    const exponent = Math.floor(Math.log10(size) + 1e-9);
    return `${(value / 10 ** exponent).toFixed(1).replace("-", "−")}·${power(exponent)}`;
  }
  const whole = size < 1 ? 0 : Math.floor(Math.log10(size)) + 1;
  const text = value.toFixed(
    Math.max(0, Math.min(6, digits - Math.max(whole, size < 0.1 ? -1 : 0))),
  );
  const [front, back] = text.split(".");
  const grouped = front.replace(/\B(?=(\d{3})+$)/g, ",").replace("-", "−");
  return back && Number(back)
    ? `${grouped}.${back.replace(/0+$/, "")}`
    : grouped.replace(/^−0$/, "0");
}

export function percent(share, digits = 2) {
  const value = 100 * share;
  if (value > 99 && value < 100) return value > 99.99 ? ">99.99 %" : `${value.toFixed(2)} %`;
  return `${number(value, digits)} %`;
}
