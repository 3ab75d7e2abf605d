// The laboratory: the reader's picture, the upload of it, and a server that rebuilds it, live.

import { h } from "../explore/kit/dom.js";
import { number } from "../explore/kit/format.js";
import { dress } from "../explore/kit/style.js";
import { openPack } from "../engine/pack.js";
import { Pad } from "./pad.js";
import { readPhoto } from "./photo.js";
import { guesses, NETWORKS, outcome, readHash, readSetting, recognized, startOf, writeHash } from "./settings.js";
import { Curves, mosaic, paint, xray } from "./show.js";
import { CSS } from "./style.js";
import { build, button, defenseSliders, sentence, tensorList, thumb } from "./view.js";

const SHAPES = { gray: [1, 28, 28], color: [3, 32, 32] };
const EVALUATIONS = { gray: { lbfgs: 400, adam: 600 }, color: { lbfgs: 600, adam: 800 } }; // of one start
const PAUSE = 250; // ms without a change, after which a search begins anew

/** The engine's thread and the pack beside these files; in a bundle (teach/modules.py) both are
 *  addresses inside it, and the thread's script has no imports: from a disk it must be a plain one. */
export function startWorker() {
  const script = new URL("../engine/worker.js", import.meta.url);
  return new Worker(script, script.protocol === "blob:" ? {} : { type: "module" });
}
export const fetchPack = async () => (await fetch(new URL("../assets/laboratory.safetensors", import.meta.url))).arrayBuffer();

/** Put a laboratory into ``el``. Options: ``setting`` (as settings.js reads it), ``small``, ``hash``
 *  (read and write the page's link), ``chapters`` (address of the chapters), ``onImage``.
 *  The result has ``image`` {data: Float32Array, shape}, ``label``, ``setting``, ``onImage``, ``destroy``. */
export function mount(el, options = {}) {
  return new Laboratory(el, options);
}

class Laboratory {
  constructor(el, { setting = {}, small = false, hash = false, chapters = "", onImage = null }) {
    Object.assign(this, { el, small, hash, chapters, onImage, guess: null, job: 0, tally: [0, 0], active: 0 });
    this.setting = (hash && readHash(location.hash)) || readSetting(setting);
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
    dress(el);
    const handlers = ["file", "erase", "clear", "label", "choose", "stop", "again", "network", "view", "share"];
    const on = Object.fromEntries(handlers.map((name) => [name, (...given) => this[`on_${name}`](...given)]));
    this.pad = new Pad({ onStroke: () => this.pictureChanged(), say: (text) => this.say(text) });
    this.curves = new Curves();
    this.view = build(on, this.pad, this.curves);
    const v = this.view, all = chapters ? [h("a", { href: `${chapters}laboratory.html` }, "Defenses, networks, batches: the laboratory")] : [];
    const rest = small ? [h("div", { class: "pfl-row pfl-actions" }, v.stop, v.again, ...all)] : [v.actions, v.controls];
    el.classList.add("pfx", "pfl", ...(small ? ["pfl-small"] : []));
    el.replaceChildren(h("style", {}, CSS), v.panes, ...rest, v.promise, v.live);
    this.drop();
    this.ready = this.open().catch((error) => this.fail(`The laboratory could not start: ${error.message}`));
    if (hash) addEventListener("hashchange", (this.follow = () => this.goTo(readHash(location.hash))));
  }

  async open() {
    const buffer = await fetchPack();
    this.pack = openPack(buffer);
    const of = (kinds) => this.pack.pictures.filter((p) => kinds.includes(p.kind)).map(named);
    const gray = of(["digits", "faces"]);
    this.ours = { gray: [...gray.slice(0, 4), ...gray.slice(8, 12)], color: of(["photos"]) };
    this.batches = { gray: gray.map(copy), color: this.ours.color.map(copy) };
    this.worker = startWorker();
    this.worker.onmessage = ({ data }) => this[`got_${data.type}`](data);
    this.worker.onerror = (event) => this.fail(`The laboratory stopped: ${event.message || "its thread did not start"}.`);
    this.worker.postMessage({ type: "open", pack: buffer });
    this.showSetting();
  }

  // --- the picture ---

  get kind() {
    return this.setting.color ? "color" : "gray";
  }
  get batch() {
    return this.batches[this.kind].slice(0, this.setting.batch);
  }
  get picture() {
    return this.batch[this.active];
  }
  get image() {
    return this.pack && { data: Float32Array.from(this.picture.pixels), shape: this.picture.shape };
  }
  get label() {
    return this.pack && this.picture.label;
  }

  pictureChanged(announce = "") {
    this.showBatch();
    this.preview();
    if (this.guess) this.later();
    if (announce) this.say(announce);
    this.onImage?.(this.image, this.label);
  }

  put(pixels, name, label) {
    Object.assign(this.picture, { pixels: Float64Array.from(pixels), name, drawn: false }, label === undefined ? {} : { label });
    this.pad.set(this.picture);
    this.view.label.input.value = this.picture.label;
    this.fail("");
    this.pictureChanged(`${name} is on the grid`);
  }

  drop() {
    const over = (event) => event.preventDefault();
    for (const name of ["dragover", "dragenter"]) this.pad.element.addEventListener(name, over);
    this.pad.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.on_file(event.dataTransfer.files[0]);
    });
  }

  async on_file(file) {
    if (!file) return;
    try {
      const color = this.setting.color || !this.small; // a photograph has colors
      const pixels = await readPhoto(file, SHAPES[color ? "color" : "gray"]);
      if (color !== this.setting.color) this.choose("color", color);
      this.put(pixels, "your picture");
    } catch (error) {
      this.fail(error.message);
    }
    this.view.file.value = "";
  }

  on_clear() {
    this.put(new Float64Array(this.picture.pixels.length), "an empty grid");
    this.picture.drawn = true;
  }

  on_erase() {
    this.pad.erase = !this.pad.erase;
    this.view.erase.setAttribute("aria-pressed", this.pad.erase);
  }

  on_label(label) {
    this.picture.label = Number(label);
    this.pictureChanged();
  }

  // --- settings ---

  on_choose(key, value) {
    this.choose(key, value);
  }

  choose(key, value) {
    this.setting[key] = value;
    if (key === "defense") this.setting.settings = startOf(value);
    if (key === "act") this.setting.solver = value === "relu" ? "adam" : "lbfgs"; // kinks stop L-BFGS
    this.goTo(this.setting);
  }

  /** Take a setting: what was guessed of another one no longer counts. */
  goTo(setting) {
    if (!setting || !this.pack) return;
    this.setting = setting;
    this.guess = null;
    this.halt();
    this.active = Math.min(this.active, setting.batch - 1);
    this.showSetting();
  }

  on_network() {
    this.setting.seed = (this.setting.seed + 1) % NETWORKS;
    this.say(`network ${this.setting.seed + 1} of ${NETWORKS}`);
    this.restart();
  }

  slid(key, value) {
    this.setting.settings[key] = value;
    this.restart();
  }

  /** After a change that asks for no new guess. */
  restart() {
    this.preview();
    if (this.guess) this.later();
  }

  on_share() {
    const link = new URL(location.href);
    link.hash = writeHash(this.setting);
    history.replaceState(null, "", link);
    const told = (text) => this.say((this.view.share.textContent = text));
    navigator.clipboard?.writeText(link.href).then(() => told("Copied, settings only"), () => told("It is in the address bar"));
    setTimeout(() => (this.view.share.textContent = "Copy link to this setting"), 3000);
  }

  on_view() {
    const hidden = this.el.classList.toggle("pfl-server-only");
    this.view.view.setAttribute("aria-pressed", hidden);
    if (this.last) this.showProgress(this.last, true);
    this.say(hidden ? "Only what the server sees is shown" : "Your picture is shown again");
  }

  // --- the search ---

  on_guess(guess) {
    this.guess = guess;
    this.counted = false;
    this.run();
  }
  on_again() {
    this.setting.start = (this.setting.start ?? 0) + 1;
    this.run();
  }
  on_stop() {
    this.halt();
    this.say("stopped");
    this.showState(false);
    if (this.last) this.showProgress(this.last, true);
  }

  halt() {
    clearTimeout(this.timer);
    this.id = 0; // what the old job still says is not heard
    this.worker?.postMessage({ type: "stop" });
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), PAUSE);
  }

  /** Show the upload of the picture as it is; one at a time, the newest next. */
  preview() {
    if (this.asked) return void (this.again = true);
    this.asked = true;
    this.send(null);
  }

  run() {
    this.halt();
    this.curves.clear();
    this.last = null;
    const { solver, attacker, start = 0 } = this.setting;
    this.say("the server searches");
    this.heard = performance.now();
    this.showState(true);
    this.send({ solver, informed: attacker === "informed", steps: EVALUATIONS[this.kind][solver], starts: 2, seed: 1 + start });
  }

  send(attack) {
    const { net, act, seed, defense, settings, start = 0 } = this.setting, size = this.picture.pixels.length;
    const x = new Float64Array(size * this.batch.length);
    this.batch.forEach((p, b) => x.set(p.pixels, b * size));
    const setting = { net: `${net}-${this.kind}`, act, seed, defense, settings, noiseSeed: 7 + start };
    this.id = this.job += 1;
    this.worker.postMessage({ type: "run", id: this.id, attack, x, labels: this.batch.map((p) => p.label), setting });
  }

  got_ready() {}

  got_upload({ sent, about }) {
    this.asked = false;
    xray(this.view.xray, sent, about, SHAPES[this.kind]);
    this.showWire(about);
    if (this.again) {
      this.again = false;
      if (!this.running) this.preview();
    }
  }

  got_progress(data) {
    if (data.id === this.id) this.showProgress(data, false);
  }

  got_done(data) {
    if (data.id !== this.id) return;
    this.showState(false);
    this.showProgress(data, true);
    if (!this.counted) this.tally = [this.tally[0] + (outcome(data.psnr) === this.guess), this.tally[1] + 1];
    this.counted = true;
    this.showResult(data);
  }

  // --- what is shown ---

  showSetting() {
    const { view: v, setting } = this;
    for (const key of ["net", "act", "defense", "attacker", "solver"]) v[key].input.value = setting[key];
    v.color.input.value = this.kind;
    v.solver.input.disabled = setting.net === "dense" && setting.attacker === "plain";
    v.count.show(setting.batch);
    v.sliders.replaceChildren(v.count.element, ...defenseSliders(setting.defense, setting.settings, (k, value) => this.slid(k, value)));
    v.says.replaceChildren(...sentence(setting, this.chapters));
    v.ours.replaceChildren(...this.ours[this.kind].map((p) => thumb(p, () => this.put(p.pixels, p.name, p.label))));
    v.question.textContent = `Your guess: what can ${setting.attacker === "informed" ? "a server that knows the defense" : "the server"} rebuild?`;
    v.guess.replaceChildren(v.question, ...guesses(setting.batch).map((g) => button(g.title, () => this.on_guess(g))));
    this.pad.set(this.picture);
    v.label.input.value = this.picture.label;
    this.last = null;
    this.curves.clear();
    this.showBatch();
    this.showState(false);
    v.result.textContent = v.score.textContent = "";
    this.preview();
  }

  showBatch() {
    const { view: v } = this, pick = (i) => () => this.turnTo(i);
    v.batch.hidden = this.setting.batch === 1;
    v.batch.replaceChildren(...(v.batch.hidden ? [] : this.batch.map((p, i) => thumb(p, pick(i), i === this.active))));
  }

  turnTo(i) {
    this.active = i;
    this.pad.set(this.picture);
    this.view.label.input.value = this.picture.label;
    this.showBatch();
    this.view.batch.children[i].focus();
  }

  showWire({ tensors, numbers, nonzero, length, count, labels }) {
    const sent = nonzero < numbers ? `${number(nonzero, 7)} of ${number(numbers, 7)} numbers` : `${number(numbers, 7)} numbers`;
    const read = `${count > 1 ? "labels" : "label"} read off: ${labels.join(", ")}`;
    this.view.wire.textContent = `${sent}, length ${number(length)}; ${read}`;
    this.view.tensors.replaceChildren(...tensorList(tensors));
    const what = this.setting.net === "dense" ? "rows of the first layer’s gradient" : "all numbers of the upload";
    this.view.xray.setAttribute("aria-label", `X-ray of the upload: ${what}, blue negative, orange positive. ${sent}.`);
  }

  /** Whether a search runs, and whether its answer may be seen. */
  showState(running) {
    const { view: v, guess } = this;
    this.running = running;
    v.ask.hidden = Boolean(guess);
    v.rebuilt.hidden = !guess;
    v.guess.hidden = Boolean(guess);
    v.stop.disabled = !running;
    v.again.disabled = !guess;
    v.curves.hidden = true;
    if (running) v.result.textContent = "";
  }

  showProgress(data, always) {
    const now = performance.now(), rare = this.reduced.matches ? 700 : 0;
    if (!always && this.last && now - this.shown < rare) return;
    this.shown = now;
    const fresh = this.last !== data, blind = this.el.classList.contains("pfl-server-only");
    this.last = data;
    const { pixels, shape } = mosaic(data.images, this.setting.batch, SHAPES[this.kind]);
    paint(this.view.rebuilt, pixels, shape);
    if (fresh && Number.isFinite(data.cost)) this.curves.add(data.evaluations, data.cost, worst(data));
    const how = data.evaluations ? `${number(data.evaluations, 5)} evaluations, cost ${number(data.cost)}` : `read off: ${data.note}`;
    const dB = data.psnr.map(decibels).join(", ");
    this.view.score.textContent = blind ? how : `${dB} dB; ${how}`;
    this.view.rebuilt.setAttribute("aria-label", blind ? "What the server has rebuilt." : `What the server has rebuilt: ${dB} decibels.`);
    this.view.curves.hidden = !Number.isFinite(data.cost);
    if (!always && now - this.heard > 3000) {
      this.heard = now;
      this.say(blind ? how : `${dB} decibels after ${data.evaluations} evaluations`);
    }
  }

  showResult(data) {
    const blind = this.el.classList.contains("pfl-server-only"), got = outcome(data.psnr);
    const right = got === this.guess ? "You guessed so." : `You guessed: ${this.guess.says}.`;
    const { psnr, ms } = data, all = psnr.length, tally = `Right so far: ${this.tally.join(" of ")}.`;
    const has = all > 1 ? `${recognized(psnr)} of ${all} pictures at 20 dB or more, the worst at` : `${got.says}:`;
    const text = `The server has ${has} ${decibels(worst(data))} dB after ${(ms / 1000).toFixed(1)} s. ${right} ${tally}`;
    this.view.result.textContent = text;
    this.say(blind ? "the search has ended" : text);
  }

  say(text) {
    this.view.live.textContent = text;
  }

  fail(text) {
    this.view.error.textContent = text;
  }

  destroy() {
    this.halt();
    this.worker?.terminate();
    removeEventListener("hashchange", this.follow);
    this.el.replaceChildren();
  }
}

const decibels = (psnr) => (psnr > 99 ? "over 99" : psnr.toFixed(1));
const worst = ({ psnr }) => Math.min(...psnr);
const copy = (p) => ({ ...p, pixels: p.pixels.slice() });

/** A picture of the pack with a private label, 0 to 9, and a name to call it by. */
function named({ kind, label, ...rest }, i) {
  const name = kind === "digits" ? `digit ${label}` : label;
  return { ...rest, name, label: kind === "digits" ? Number(label) : i % 10, drawn: false };
}
