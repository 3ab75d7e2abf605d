// What the reader can choose, what a link can carry, and what a guess can be.

export const NETS = { lenet: "LeNet (convolutions)", dense: "dense layers" };
export const ACTS = { sigmoid: "sigmoid", tanh: "tanh", relu: "ReLU" };
export const SOLVERS = { lbfgs: "L-BFGS", adam: "signed Adam, cosine" };
export const ATTACKERS = {
  plain: ["plain", "takes the upload at its word"],
  informed: ["informed", "knows which defense was used, as a published protocol tells"],
};
const sigma = { key: "sigma", label: "noise <i>σ</i>", min: 1e-4, max: 1, value: 0.03, scale: "log" };
const rate = (label, value) => ({ key: "rate", label, min: 0, max: 0.99, value, scale: "linear", step: 0.01 });
/** Defenses: title, sliders, one sentence, and the chapter that tells more. */
export const DEFENSES = {
  none: { title: "none", sliders: [], says: "The gradient leaves as it is." },
  noise: { title: "noise", sliders: [sigma], says: "Every number gets Gaussian noise of standard deviation σ.", chapter: "noise-and-epsilon" },
  cloak: {
    title: "clip and noise (ModelCloak)",
    sliders: [
      { key: "clip", label: "clip <i>C</i>", min: 0.1, max: 20, value: 2, scale: "log" },
      { ...sigma, label: "noise multiplier <i>σ</i>", value: 0.005, max: 5 },
    ],
    says: "The gradient is shortened to length C, then noise of standard deviation σC is added.",
    chapter: "modelcloak-fixed",
  },
  prune: { title: "prune", sliders: [rate("share set to zero", 0.9)], says: "Only the largest numbers of each tensor leave.", chapter: "cutting-gradients" },
  sign: { title: "signs only", sliders: [], says: "Of each number only its sign leaves." },
  soteria: { title: "Soteria's mask", sliders: [rate("share of features masked", 0.6)], says: "Columns of the last layer go whose features tell most of the picture.", chapter: "cutting-gradients" },
};
export const MOST = 8; // pictures in a batch
export const NETWORKS = 16; // seeds of first weights in the pack
export const START = { net: "lenet", act: "sigmoid", color: false, batch: 1, defense: "none", attacker: "plain", solver: "lbfgs", seed: 0 };

/** The sliders' start for a defense. */
export const startOf = (defense) => Object.fromEntries(DEFENSES[defense].sliders.map((c) => [c.key, c.value]));

/** A setting from loose texts (a link, a directive): what is unknown or out of range is dropped. */
export function readSetting(given) {
  const found = { ...START };
  const choices = { net: NETS, act: ACTS, defense: DEFENSES, attacker: ATTACKERS, solver: SOLVERS };
  for (const [key, known] of Object.entries(choices)) if (Object.hasOwn(known, given[key] ?? "")) found[key] = given[key];
  if (!given.solver && found.act === "relu") found.solver = "adam";
  found.color = ["1", "true", "color", true].includes(given.color);
  found.batch = whole(given.batch, 1, MOST) ?? 1;
  found.seed = whole(given.seed, 0, NETWORKS - 1) ?? 0;
  found.settings = startOf(found.defense);
  for (const { key, min, max } of DEFENSES[found.defense].sliders) {
    const value = parseFloat(given[key]);
    if (value >= min && value <= max) found.settings[key] = value;
  }
  return found;
}

function whole(text, low, high) {
  const value = Number(text ?? NaN);
  return Number.isInteger(value) && value >= low && value <= high ? value : null;
}

/** Settings only, never a picture: "net=dense&defense=prune&rate=0.9". */
export function writeHash({ settings, ...rest }) {
  const own = Object.entries(rest).filter(([key, value]) => key in START && value !== START[key]);
  const sliders = Object.entries(settings).map(([key, value]) => [key, Number(value.toPrecision(3))]);
  return new URLSearchParams([["lab", "1"], ...own, ...sliders]).toString();
}

export function readHash(hash) {
  const given = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
  return given.lab ? readSetting(given) : null;
}

const FROM = 20; // dB: what we call the picture
export const recognized = (psnr) => psnr.filter((v) => v >= FROM).length;
const ONE = {
  nothing: { title: "Nothing", says: "nothing that you would recognize" },
  hint: { title: "A hint", says: "a hint of it" },
  picture: { title: "The picture", says: "the picture" },
};
const MANY = {
  none: { title: "None of them", says: "none of the pictures" },
  some: { title: "Some of them", says: "some of the pictures" },
  all: { title: "All of them", says: "all pictures" },
};
/** What can be guessed of a batch, worst for the server first; and which of it came true. */
export const guesses = (batch) => Object.values(batch > 1 ? MANY : ONE);
export function outcome(psnr) {
  const found = recognized(psnr);
  if (psnr.length > 1) return found === psnr.length ? MANY.all : found ? MANY.some : MANY.none;
  return found ? ONE.picture : psnr[0] >= FROM - 6 ? ONE.hint : ONE.nothing;
}
