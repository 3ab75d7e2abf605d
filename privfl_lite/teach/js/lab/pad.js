// The picture of the reader: a grid to paint by mouse, finger or keys, and a place to drop a file.

import { h } from "../explore/kit/dom.js";
import { paint } from "./show.js";

const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const HELP = "Drawing grid. Arrow keys move, space paints, Enter lowers or lifts the pen, Backspace erases.";

export class Pad {
  /** ``onStroke`` is called when pixels have changed, ``say`` tells a screen reader. */
  constructor({ onStroke, say }) {
    Object.assign(this, { onStroke, say, at: [5, 9], down: false, erase: false, last: null });
    this.canvas = h("canvas", { class: "pfl-image pfl-pad", tabindex: 0, role: "application", "aria-label": HELP });
    this.cursor = h("span", { class: "pfl-cursor", hidden: true });
    this.element = h("div", { class: "pfl-frame" }, this.canvas, this.cursor);
    const listen = (name, handler) => this.canvas.addEventListener(name, handler.bind(this));
    listen("pointerdown", this.begin);
    listen("pointermove", this.move);
    for (const name of ["pointerup", "pointercancel"]) listen(name, () => (this.last = null));
    listen("keydown", this.key);
    listen("focus", () => this.place());
    listen("blur", () => (this.cursor.hidden = true));
  }

  /** Show a picture {pixels, shape, drawn}; a stroke on one that was not drawn begins a new one. */
  set(picture) {
    this.picture = picture;
    this.side = picture.shape[1];
    this.at = this.at.map((v) => Math.min(v, this.side - 1));
    this.show();
  }

  show() {
    paint(this.canvas, this.picture.pixels, this.picture.shape);
  }

  where({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    return [((clientY - box.top) / box.height) * this.side - 0.5, ((clientX - box.left) / box.width) * this.side - 0.5];
  }

  begin(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.cursor.hidden = true;
    this.last = this.where(event);
    this.line(this.last, this.last);
  }

  move(event) {
    if (!this.last) return;
    const now = this.where(event);
    this.line(this.last, now);
    this.last = now;
  }

  key(event) {
    const step = KEYS[event.key];
    if (step) this.at = this.at.map((v, i) => Math.min(this.side - 1, Math.max(0, v + step[i])));
    else if (event.key === "Enter") this.down = !this.down;
    else if (event.key !== " " && event.key !== "Backspace") return;
    event.preventDefault();
    const erase = event.key === "Backspace";
    if (erase || event.key === " " || (step && this.down)) this.line(this.at, this.at, erase);
    else if (event.key === "Enter" && this.down) this.line(this.at, this.at);
    this.place();
    const pen = event.key === "Enter" ? `, pen ${this.down ? "down" : "up"}` : "";
    this.say(`row ${this.at[0] + 1}, column ${this.at[1] + 1}${pen}`);
  }

  place() {
    const share = (v) => `${(100 * v) / this.side}%`;
    const [top, left] = this.at.map(share);
    Object.assign(this.cursor.style, { top, left, width: share(1), height: share(1) });
    this.cursor.hidden = false;
    this.cursor.classList.toggle("pfl-down", this.down);
  }

  /** A soft brush along a line, about two pixels wide. */
  line(from, to, erase = this.erase) {
    const { picture, side } = this;
    if (!picture.drawn) {
      picture.pixels.fill(0);
      Object.assign(picture, { drawn: true, name: "your drawing" });
    }
    const planes = picture.shape[0], n = side * side, span = to.map((v, i) => v - from[i]);
    const long = span[0] ** 2 + span[1] ** 2;
    for (let i = 0; i < n; i++) {
      const [r, c] = [Math.floor(i / side), i % side];
      const t = long ? Math.min(1, Math.max(0, ((r - from[0]) * span[0] + (c - from[1]) * span[1]) / long)) : 0;
      const far = Math.hypot(r - from[0] - t * span[0], c - from[1] - t * span[1]);
      const ink = Math.min(1, Math.max(0, 1.9 - far));
      for (let k = i; ink && k < planes * n; k += n) {
        picture.pixels[k] = erase ? Math.min(picture.pixels[k], 1 - ink) : Math.max(picture.pixels[k], ink);
      }
    }
    this.show();
    this.onStroke();
  }
}
