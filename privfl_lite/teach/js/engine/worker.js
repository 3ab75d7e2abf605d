// The laboratory's second thread: a client that computes and defends, a server that attacks, and a
// judge who knows the truth. Messages in: open, run, stop. Out: ready, upload, progress, done.

import { attack, readLabels } from "./attack.js";
import { DEFENSES, length } from "./defend.js";
import { gradient } from "./gradient.js";
import { drawWeights, makeNet } from "./nets.js";
import { openPack } from "./pack.js";
import { Random } from "./random.js";
import { score } from "./score.js";

const SLICE = 40; // ms of search between two looks at the messages
let pack, current; // current: the job that runs
const nets = new Map();

function netOf({ net, act, seed }) {
  const key = [net, act, seed].join();
  const spec = pack.nets[net];
  if (!nets.has(key)) nets.set(key, makeNet(spec, act, drawWeights(spec, act, pack.seeds[seed])));
  return nets.get(key);
}

/** The client: its gradient, through the defense. The noise depends on the noise seed alone. */
function upload({ x, labels, setting }) {
  const net = netOf(setting), { g } = gradient(net, x, labels);
  const { defense, settings, noiseSeed } = setting;
  const noise = ["noise", "cloak"].includes(defense) ? new Random(noiseSeed).normals(g.length) : null;
  const sent = DEFENSES[defense](net, g, settings, noise, x);
  return { net, sent, count: labels.length, defense, settings };
}

/** What the page may show of the wire. */
function describe({ net, sent, count }) {
  let nonzero = 0;
  for (const v of sent) nonzero += v !== 0;
  const tensors = net.tensors.map(({ name, shape, at, size }) => ({ name, shape, at, size }));
  return { tensors, numbers: sent.length, nonzero, length: length(sent), count };
}

async function run(job) {
  current = job;
  const wire = upload(job), sent = Float32Array.from(wire.sent);
  postMessage({ type: "upload", id: job.id, sent, about: { ...describe(wire), labels: readLabels(wire) } }, [sent.buffer]);
  if (!job.attack) return;
  const search = attack(wire, job.attack), began = performance.now();
  let now = null, over = false;
  while (!over) {
    for (const until = performance.now() + SLICE; performance.now() < until && !over; ) {
      const { value, done } = search.next();
      over = done;
      now = value ?? now;
    }
    if (current !== job) return;
    report(job, now, began, over);
    await new Promise((resolve) => setTimeout(resolve));
    if (current !== job) return;
  }
}

/** The judge scores what the attacker has; the attacker is not told. */
function report({ id, x }, { images, ...now }, began, over) {
  const { psnr, order } = score(images, x, now.labels.length), n = x.length / order.length;
  const shown = new Float32Array(x.length);
  order.forEach((a, b) => shown.set(images.subarray(a * n, (a + 1) * n), b * n));
  const ms = performance.now() - began;
  postMessage({ type: over ? "done" : "progress", id, ...now, psnr, ms, images: shown }, [shown.buffer]);
}

self.onmessage = ({ data }) => {
  if (data.type === "open") {
    pack = openPack(data.pack);
    postMessage({ type: "ready" });
  } else if (data.type === "run") run(data);
  else current = null;
};
