// The plan of a federation (privfl_lite/planning.py): bytes are counted, seconds follow laws that were
// fitted to measurements of one core (data/plan.js), a graph of masks is prop-million-neighbors. ε is
// exact without sampling (prop-gaussian-rounds); for a random cohort it is the least over whole Rényi
// orders, so at or above what the package's accountant says.

import { DATA } from "./data/plan.js";
import { wholeOrders } from "./epsilon-rounds.js";
import { number } from "./kit/format.js";
import { Plot, curve } from "./kit/plot.js";
import { epsilonAt } from "./two-gaussians.js";

const { laws, defenses, key, bits, float, tensors, sure, corrupt, lost } = DATA;
const COHORTS = [10, 1e6];

export function neighbors(n) {
  const gap = (1 - corrupt - lost) / 2;
  const sharing = (Math.log(4 * n) + sure * Math.LN2) / (2 * gap * gap);
  const apart = (Math.log(2 * n) + sure * Math.LN2) / -Math.log(corrupt + lost);
  return Math.min(n - 1, 2 * Math.ceil(Math.max(sharing / 2, apart)));
}

// One client's part of a secure sum, and the server's, as `Summing` counts them.
function summed(kind, n, numbers) {
  const graph = kind === "graph" ? neighbors(n) : n - 1;
  const others = graph < n - 1 ? graph : n - 1;
  const least = graph < n - 1 ? others / 2 : Math.max(2, Math.ceil((2 / 3) * n));
  const size = numbers + 1;
  return {
    others,
    up: key * (2 + 3 * others) + Math.floor((size * bits) / 8),
    down: key * 3 * others,
    client:
      others * laws.agreement +
      (others + 1) * size * laws.mask_number +
      2 * (others + 1) * (least - 1) * laws.share_term,
    server: n * (least * laws.recover_share + size * laws.recover_number),
  };
}

function spent(place, { sigma, population, rounds }, n) {
  const delta = 0.1 / population;
  const turns = Math.ceil((rounds * n) / population);
  if (place === "step") return epsilonAt((2 * Math.sqrt(turns)) / sigma, delta);
  if (place === "sums") return epsilonAt((2 * Math.sqrt(turns / n)) / sigma, delta);
  if (place !== "mean") return NaN;
  if (n === population) return epsilonAt(Math.sqrt(rounds) / sigma, delta);
  const orders = wholeOrders(sigma, n / population, delta);
  return Math.max(0, Math.min(...orders.map(([rdp, top]) => rounds * rdp + top)));
}

export function plan(settings, cohort) {
  const { numbers, mbit, population, choice } = settings;
  const n = Math.min(cohort, population);
  const defense = defenses[choice];
  const sum = defense.summing === "none" ? null : summed(defense.summing, n, numbers);
  const down = float * numbers + (sum ? sum.down : 0);
  const up = sum ? sum.up : Math.round(float * numbers * defense.bytes);
  return {
    up,
    down,
    others: sum ? sum.others : 0,
    link: (8e-6 * (down + up)) / mbit,
    client: laws.client * defense.time + (sum ? sum.client : 0),
    server: laws.round + n * (numbers * laws.add_number + tensors * laws.add_tensor) + (sum ? sum.server : 0),
    epsilon: spent(defense.place, settings, n),
  };
}

export function compute(settings) {
  const n = Math.min(settings.cohort, settings.population);
  const found = plan(settings, n);
  const { place } = defenses[settings.choice];
  return {
    ...found,
    server_in: n * found.up,
    total: settings.rounds * n * (found.up + found.down),
    memory: 3 * float * settings.numbers,
    kept: (2 + n) * float * settings.numbers,
    noise: { mean: settings.sigma / n, sums: settings.sigma / Math.sqrt(n) }[place] ?? NaN,
  };
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
export function bytes(value) {
  const step = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log10(value + 0.5) / 3)));
  return `${number(value / 1000 ** step)} ${UNITS[step]}`;
}

export function duration(value) {
  if (value < 1) return `${number(1000 * value)} ms`;
  if (value < 120) return `${number(value)} s`;
  if (value < 7200) return `${number(value / 60)} min`;
  return value < 172800 ? `${number(value / 3600)} h` : `${number(value / 86400)} days`;
}

// Solid where it was measured, dashed beyond.
function drawn(plot, settings, pick, end, tone) {
  const most = Math.min(COHORTS[1], settings.population);
  const edge = Math.min(end, most);
  const line = (a, b) =>
    curve((n) => pick(plan(settings, Math.max(3, Math.round(n)))), [a, b], 60, true);
  plot.line(line(COHORTS[0], edge), { tone });
  if (most > edge) plot.line(line(edge, most), { tone, dash: "6 5", width: 2 });
}

const WAYS = [
  ["link", "a client's link", "defense"],
  ["client", "a client computes", "attack"],
  ["server", "the server computes", "good"],
];

function times(panel, result, settings) {
  const plot = new Plot(panel, {
    title: "Seconds of a round",
    left: 62,
    x: { domain: COHORTS, log: true, label: "clients in a round K" },
    y: { domain: [1e-5, 1e9], log: true, ticks: [1e-4, 0.01, 1, 100, 1e4, 1e6, 1e8] },
  });
  const n = Math.min(settings.cohort, settings.population);
  const sums = defenses[settings.choice].summing !== "none";
  WAYS.forEach(([name, text, tone], i) => {
    const end = name === "link" ? COHORTS[1] : sums ? laws.sums : laws.largest;
    drawn(plot, settings, (p) => Math.max(p[name], 1e-5), end, tone);
    plot.dot(n, Math.min(1e9, Math.max(1e-5, result[name])), { tone });
    plot.words(12, 1e9, text, { tone, dy: 14 + 17 * i });
  });
}

function losses(panel, result, settings) {
  const plot = new Plot(panel, {
    title: "ε after all rounds",
    left: 56,
    x: { domain: COHORTS, log: true, label: "clients in a round K" },
    y: { domain: [0.01, 1e4], log: true, ticks: [0.01, 0.1, 1, 10, 100, 1000, 1e4] },
  });
  const n = Math.min(settings.cohort, settings.population);
  const { why } = defenses[settings.choice];
  if (why) {
    plot.words(15, 10, "no ε:", { tone: "attack" });
    plot.words(15, 10, why, { tone: "attack", dy: 18 });
    return;
  }
  const inside = (p) => Math.min(1e5, Math.max(0.005, p.epsilon));
  drawn(plot, settings, inside, COHORTS[1], "defense");
  const shown = Math.min(1e4, Math.max(0.01, result.epsilon));
  plot.dot(n, shown, { tone: "defense" });
}

const big = (v) => Number(v.toPrecision(4)).toLocaleString("en-US");

export const explorable = {
  controls: [
    { key: "cohort", label: "clients in a round K", min: 10, max: 1e6, scale: "log", whole: true, value: 1000, format: big },
    { key: "population", label: "clients in all N", min: 1000, max: 1e8, scale: "log", whole: true, value: 1e6, format: big },
    { key: "rounds", label: "rounds T", min: 1, max: 10000, scale: "log", whole: true, value: 1000 },
    { key: "numbers", label: "numbers in an upload d", min: 1000, max: 1e9, scale: "log", whole: true, value: 1e6, format: big },
    { key: "mbit", label: "link, Mbit/s", min: 0.1, max: 1000, scale: "log", value: 10 },
    { key: "sigma", label: "noise multiplier σ", min: 0.3, max: 100, scale: "log", value: 1 },
    { key: "choice", label: "defense", min: 0, max: defenses.length - 1, whole: true, value: defenses.findIndex((d) => d.place === "mean"), format: (v) => defenses[v].name },
  ],
  compute,
  readouts: (r) => [
    ["up, one client, one round", bytes(r.up)],
    ["down", bytes(r.down)],
    ["into the server, one round", bytes(r.server_in)],
    ["both ways, all rounds", bytes(r.total)],
    ["a client's link", duration(r.link)],
    ["a client computes", duration(r.client)],
    ["the server computes", duration(r.server)],
    ["its memory, if it adds as they come", bytes(r.memory)],
    ["if it keeps uploads", bytes(r.kept)],
    ["ε", Number.isNaN(r.epsilon) ? "none" : number(r.epsilon)],
    ["noise on the mean", Number.isNaN(r.noise) ? "–" : `${number(r.noise)} C`],
  ],
  say(r, { cohort, population, choice }) {
    const { name, why, unit, against } = defenses[choice];
    const n = Math.min(cohort, population);
    const promise = why
      ? `no ε, because ${why}`
      : `ε = ${number(r.epsilon)} per ${unit} against ${against}, at δ = ${number(0.1 / population)}`;
    return `${big(n)} of ${big(population)} clients in a round, ${name}: ${bytes(r.up)} up from each, ${bytes(r.server_in)} into the server per round, ${duration(r.client)} of computing and ${duration(r.link)} on the link for a client; ${promise}.`;
  },
  draw(stage, result, settings) {
    const [left, right] = stage.row([1.2, 1], 300, { tall: 230 });
    times(left, result, settings);
    losses(right, result, settings);
  },
};
