// The two attackers of the laboratory. Both see the wire and nothing else.
//
// ``wire``: {net, sent, count} is what crosses it. The informed attacker also knows which defense was
// used and with which settings, ``wire.defense`` and ``wire.settings``: a published protocol.

import { LBFGS, SignedAdam, objective } from "./match.js";
import { Random } from "./random.js";
import { allRows, closedForm, inferLabels } from "./readoff.js";

/** What knowing the defense changes in the match (the package's attacks/adaptive). */
export const ANSWERS = {
  none: () => ({}),
  noise: ({ sigma }) => ({ distance: "likelihood", std: sigma, tv: 3e3 }), // Denoise
  cloak: ({ clip, sigma }) => ({ distance: "likelihood", std: sigma * clip, clip, tv: 3e3 }),
  prune: () => ({ nonzero: true, tv: 0.1 }), // Unprune
  sign: () => ({ distance: "cosine", tv: 1e-2 }), // only directions were sent
  soteria: () => ({ drop: ["head.weight"] }), // Unmask
};

/** How an attacker compares: plain is iDLG with L-BFGS and Inverting Gradients with signed Adam. */
export function comparison({ defense, settings }, informed, solver) {
  const how = informed ? ANSWERS[defense](settings) : {};
  if (solver !== "adam") return how;
  return { nonzero: how.nonzero, drop: how.drop, distance: "cosine", tv: how.tv ? 1e-2 : 1e-4 };
}

/** The labels behind an upload, from its last layer and from noise images. */
export function readLabels({ net, sent, count }, seed = 1) {
  return inferLabels(net, sent, count, new Random(seed).uniforms(64 * net.pixels));
}

/** A search, one evaluation at a time: yields {images, cost, evaluations, start, note}.
 *
 *  A dense first layer is read off; the informed attacker goes on from there. Otherwise the search
 *  begins at gray with a little noise. A start that ends without a match is followed by another, up
 *  to ``starts``; the one of lowest cost counts, for the attacker has no other measure. */
export function* attack(wire, { informed, solver, steps, starts, seed }) {
  const { net, sent, count } = wire, rng = new Random(seed), size = count * net.pixels;
  const dense = net.layers[0].kind === "dense", labels = readLabels(wire);
  let found = dense && closedForm(net, sent, count);
  if (dense) {
    const note = `${found.used} of ${found.rows} rows used`;
    yield { images: found.images, cost: NaN, evaluations: 0, start: 1, note, labels };
    if (!informed || wire.defense === "none") return;
    if (count === 1) found = { images: allRows(net, sent) };
  }
  const cost = objective(net, { sent, labels }, comparison(wire, informed, solver));
  let best = { cost: Infinity }, before = 0;
  for (let start = 1; start <= (dense ? 1 : starts); start++) {
    const z = dense
      ? found.images.map((v) => Math.min(1, Math.max(0, v)))
      : rng.normals(size).map((v) => 0.5 + 0.1 * v);
    const search = solver === "adam" ? new SignedAdam(cost, z, steps) : new LBFGS(cost, z);
    const first = search.f;
    for (;;) {
      const now = { images: search.z, cost: search.f, evaluations: before + search.evaluations, start, labels };
      if (now.cost <= best.cost) best = now;
      yield start === 1 || now.cost <= best.cost ? now : { ...best, evaluations: now.evaluations, start };
      if (search.done || search.evaluations >= steps || search.f < 1e-9 * first) break;
      search.step();
    }
    before += search.evaluations;
    if (informed || solver === "adam" || search.f < 1e-3 * first) break;
  }
}
