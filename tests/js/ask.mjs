// Answers questions about the engine, for tests/unit/test_engine.py: JSON in, JSON out.
//
//   node ask.mjs < questions.json
//
// A question is {"do": name, …}; the answers are a list in the same order.

import { readFileSync } from "node:fs";

const home = new URL("../../privfl_lite/teach/js/", import.meta.url);
const [nets, grad, defend, readoff, match, score, pack, random] = await Promise.all(
  ["nets", "gradient", "defend", "readoff", "match", "score", "pack", "random"].map(
    (name) => import(new URL(`engine/${name}.js`, home)),
  ),
);
const file = readFileSync(new URL("assets/laboratory.safetensors", home));
const { nets: specs, seeds, pictures } = pack.openPack(
  file.buffer.slice(file.byteOffset, file.byteOffset + file.length),
);
const numbers = (list) => Float64Array.from(list);
const made = new Map();

function net({ name, act, seed }) {
  const key = [name, act, seed].join();
  if (!made.has(key)) {
    const weights = nets.drawWeights(specs[name], act, seeds[seed]);
    made.set(key, nets.makeNet(specs[name], act, weights));
  }
  return made.get(key);
}

/** A search from a given start; the best point after ``steps`` evaluations. */
function search({ x, sent, labels, how, solver, steps, ...of }) {
  const cost = match.objective(net(of), { sent: numbers(sent), labels }, how);
  const z = numbers(x);
  const run = solver === "adam" ? new match.SignedAdam(cost, z, steps) : new match.LBFGS(cost, z);
  const began = performance.now();
  while (!run.done && run.evaluations < steps) run.step();
  return { x: [...run.z], f: run.f, evaluations: run.evaluations, ms: performance.now() - began };
}

const ANSWERS = {
  weights: (q) => [...net(q).weights],
  gradient: ({ x, y, ...of }) => {
    const { loss, g } = grad.gradient(net(of), numbers(x), y);
    return { loss, g: [...g] };
  },
  objective: ({ x, sent, labels, how, ...of }) => {
    const { f, g } = match.objective(net(of), { sent: numbers(sent), labels }, how)(numbers(x));
    return { f, g: [...g] };
  },
  defend: ({ g, x, kind, settings, noise, ...of }) =>
    [...defend.DEFENSES[kind](net(of), numbers(g), settings, noise && numbers(noise), numbers(x))],
  label: ({ sent, ...of }) => readoff.inferLabel(net(of), numbers(sent)),
  labels: ({ sent, count, probes, ...of }) =>
    readoff.inferLabels(net(of), numbers(sent), count, numbers(probes)),
  quotients: ({ sent, ...of }) => readoff.rowQuotients(net(of), numbers(sent)).map((r) => [...r]),
  closed: ({ sent, count, ...of }) => {
    const { images, used } = readoff.closedForm(net(of), numbers(sent), count);
    return { images: [...images], used };
  },
  rows: ({ sent, ...of }) => [...readoff.allRows(net(of), numbers(sent))],
  score: ({ found, x, count }) => score.score(numbers(found), numbers(x), count),
  normals: ({ seed, count }) => [...new random.Random(seed).normals(count)],
  pictures: () => pictures.map(({ kind, label, shape }) => ({ kind, label, shape })),
  search,
};

const questions = JSON.parse(readFileSync(0, "utf8"));
const answers = questions.map(({ do: name, ...rest }) => ANSWERS[name](rest));
process.stdout.write(JSON.stringify(answers));
