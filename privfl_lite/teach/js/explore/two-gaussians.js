// Two Gaussians, their ratio, the ROC curve and ε (thm-gaussian-exact, lem-gaussian-test,
// prop-dp-bounds-roc). μ is the distance of the means in standard deviations, 1/σ for one release.

import { number, percent } from "./kit/format.js";
import { cdf, logCdf, pdf, quantile } from "./kit/normal.js";
import { Plot, curve } from "./kit/plot.js";

// The smallest δ at ε of one Gaussian release with multiplier 1/μ (Balle and Wang 2018).
export function deltaAt(mu, eps) {
  const half = mu / 2;
  const shift = eps / mu;
  return Math.max(0, cdf(half - shift) - Math.exp(eps + logCdf(-half - shift)));
}

// Its inverse: the ε at which δ is reached, 0 if δ(0) is below it already.
export function epsilonAt(mu, delta) {
  if (deltaAt(mu, 0) <= delta) return 0;
  let low = 0;
  let high = (mu * mu) / 2 + mu * Math.max(0, -quantile(delta));
  for (let n = 0; n < 50; n += 1) {
    const middle = (low + high) / 2;
    if (deltaAt(mu, middle) > delta) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

// What (ε, δ) allows at this false positive rate: the lower of the two lines.
export const allowed = (eps, delta, fpr) =>
  Math.min(1, Math.exp(eps) * fpr + delta, 1 - (1 - delta - fpr) * Math.exp(-eps));

export function compute({ mu, delta, threshold }) {
  const eps = epsilonAt(mu, delta);
  return {
    eps,
    fpr: cdf(-threshold),
    tpr: cdf(mu - threshold),
    ratio: mu * threshold - (mu * mu) / 2, // log of the ratio of the densities at the threshold
    auc: cdf(mu / Math.SQRT2),
    advantage: 2 * cdf(mu / 2) - 1,
    edge: eps / mu + mu / 2, // where the log ratio is ε
  };
}

function densities(panel, { edge, eps, ratio }, { mu, threshold }, change) {
  const across = [-3.5, 7.5];
  const plot = new Plot(panel, {
    title: "One upload, two laws",
    x: { domain: across, label: "score of the upload, in noise deviations" },
    y: { domain: [0, 0.56], hidden: true },
  });
  const out = (x) => pdf(x);
  const inn = (x) => pdf(x - mu);
  plot.area(curve(inn, [threshold, across[1]]), { tone: "attack", opacity: 0.2 });
  plot.area(curve(out, [threshold, across[1]]), { tone: "defense", opacity: 0.45 });
  plot.line(curve(out, across), { tone: "defense" }).line(curve(inn, across), { tone: "attack" });
  plot.words(-0.75, 0.34, "you are out", { tone: "defense", anchor: "end", dx: -2 });
  plot.words(mu + 0.75, 0.34, "you are in", { tone: "attack", dx: 2 });
  if (edge < across[1]) {
    const left = edge > 3;
    plot.rule({ x: edge }, { tone: "good" });
    plot.words(edge, 0.25, `ratio = eᵋ = ${number(Math.exp(eps))}`, {
      tone: "good",
      dx: left ? -6 : 6,
      anchor: left ? "end" : "start",
    });
  }
  plot.rule({ x: threshold }, { tone: "ink", dash: "none" });
  const left = threshold > 4;
  plot.words(threshold, 0.5, `ratio here ${number(Math.exp(ratio))}`, {
    dx: left ? -14 : 14,
    dy: 4,
    anchor: left ? "end" : "start",
  });
  panel.stage.handle(panel, {
    x: plot.x(threshold),
    y: plot.y(0.5),
    label: "threshold of the test",
    value: threshold,
    text: number(threshold),
    move: (x) => change({ threshold: plot.x.invert(x) }),
    step: (dx, dy) => change({ threshold: threshold + 0.1 * (dx + dy) }),
  });
}

function curves(panel, { eps, fpr, tpr }, { mu, delta }) {
  const low = 1e-7;
  const rates = {
    domain: [low, 1],
    log: true,
    ticks: panel.width < 330 ? [1e-6, 1e-4, 1e-2, 1] : [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1],
  };
  const plot = new Plot(panel, {
    title: "Every threshold at once (ROC)",
    x: { ...rates, label: "false alarms (FPR)" },
    y: { ...rates, ticks: [1e-6, 1e-4, 1e-2, 1], label: "caught (TPR)" },
  });
  const bound = curve((t) => allowed(eps, delta, t), [low, 1], 200, true);
  plot.area(bound, { tone: "good", base: low, opacity: 0.12 });
  plot.line(
    [
      [low, low],
      [1, 1],
    ],
    { tone: "muted", dash: "2 5", width: 1.5 },
  );
  plot.line(bound, { tone: "good", dash: "7 5", width: 2 });
  plot.line(
    curve((z) => z, [-6, 6 + mu], 240).map(([z]) => [cdf(-z), cdf(mu - z)]),
    { tone: "attack" },
  );
  ["a coin", "the best attack", "allowed by (ε, δ)"].forEach((text, i) => {
    plot.words(0.6, low, text, {
      tone: ["muted", "attack", "good"][i],
      anchor: "end",
      dy: -7 - 17 * i,
    });
  });
  if (fpr >= low && tpr >= low) plot.dot(fpr, tpr, { tone: "ink" });
}

export const explorable = {
  controls: [
    { key: "mu", label: "distance μ = 1/σ", min: 0.05, max: 4, step: 0.05, value: 1 },
    { key: "delta", label: "δ", min: 1e-8, max: 0.1, scale: "log", value: 1e-5 },
    { key: "threshold", label: "threshold", min: -3, max: 7, step: 0.05, value: 1.5 },
  ],
  tidy: (s) => ({ ...s, threshold: Math.min(7, Math.max(-3, s.threshold)) }),
  compute,
  readouts: ({ eps, fpr, tpr, auc, advantage }, { delta }) => [
    ["ε(μ, δ)", number(eps)],
    ["FPR", percent(fpr)],
    ["TPR", percent(tpr)],
    ["e<sup>ε</sup> FPR + δ", number(Math.min(1, Math.exp(eps) * fpr + delta))],
    ["AUC = Φ(μ/√2)", number(auc)],
    ["best TPR − FPR", number(advantage)],
  ],
  say: ({ eps, fpr, tpr }, { mu, delta }) =>
    `With noise σ = ${number(1 / mu)} times the sensitivity, one release is (${number(eps)}, ${number(delta)})-private. This threshold accuses ${percent(fpr)} of those who were out and catches ${percent(tpr)} of those who were in.`,
  draw(stage, result, settings, change) {
    const [left, right] = stage.row([1.15, 1], 300, { tall: 215 });
    densities(left, result, settings, change);
    curves(right, result, settings);
  },
};
