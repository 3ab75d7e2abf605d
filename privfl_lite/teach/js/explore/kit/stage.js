// The drawing surface: one SVG as wide as its place, cut in rows of panels. Panels stand side by
// side where there is room and below each other where there is not. Handles can be dragged, and
// moved by arrow keys.

import { s } from "./dom.js";

const NARROW = 560; // pixels
const GAP = 18;
const REACH = 22; // pixels around a handle that answer to a finger

export class Stage {
  constructor(svg) {
    this.svg = svg;
    this.handles = [];
    this.active = -1;
    svg.addEventListener("pointerdown", (event) => this.#down(event));
    svg.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"])
      svg.addEventListener(end, () => (this.active = -1));
    svg.addEventListener("keydown", (event) => this.#key(event));
  }

  // Begin a new picture; `draw` fills it.
  paint(width, draw) {
    const focused = this.svg.contains(document.activeElement)
      ? document.activeElement.dataset.handle
      : undefined;
    this.width = width;
    this.narrow = width < NARROW;
    this.height = 0;
    this.handles = [];
    this.root = s("g");
    draw(this);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    this.svg.setAttribute("role", this.handles.length ? "group" : "img");
    this.svg.replaceChildren(this.root);
    if (focused !== undefined) this.svg.querySelector(`[data-handle="${focused}"]`)?.focus();
  }

  // A row of panels with these relative widths; `tall` is the height of each where they are stacked.
  row(weights, height, { tall = height, gap = GAP } = {}) {
    const total = weights.reduce((a, b) => a + b, 0);
    const room = this.width - gap * (weights.length - 1);
    const top = this.height ? this.height + 10 : 0;
    let x = 0;
    const panels = weights.map((weight, i) => {
      const width = this.narrow ? this.width : (room * weight) / total;
      const y = this.narrow ? top + i * (tall + 10) : top;
      const panel = this.panel(this.narrow ? 0 : x, y, width, this.narrow ? tall : height);
      x += width + gap;
      return panel;
    });
    this.height = top + (this.narrow ? weights.length * (tall + 10) - 10 : height);
    return panels;
  }

  panel(x, y, width, height) {
    const g = s("g", { transform: `translate(${x} ${y})` });
    this.root.append(g);
    return { stage: this, g, x, y, width, height };
  }

  // { x, y } in pixels of the panel; move(x, y) when dragged; step(dx, dy) at an arrow key
  handle(panel, { x, y, label, value, text, move, step, tone = "ink" }) {
    const index = this.handles.length;
    const dot = s(
      "g",
      {
        class: "pfx-handle",
        transform: `translate(${x} ${y})`,
        "data-handle": index,
        tabindex: 0,
        role: "slider",
        "aria-label": label,
        "aria-valuenow": value,
        "aria-valuetext": text,
      },
      s("circle", { r: REACH, class: "pfx-reach" }),
      s("circle", { r: 7, class: `pfx-grip pfx-fill-${tone}` }),
    );
    panel.g.append(dot);
    this.handles.push({ panel, x, y, move, step });
  }

  #at(event) {
    const box = this.svg.getBoundingClientRect();
    const scale = this.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  #down(event) {
    const [px, py] = this.#at(event);
    const far = this.handles.map((h) => Math.hypot(px - h.panel.x - h.x, py - h.panel.y - h.y));
    const nearest = far.indexOf(Math.min(...far));
    if (nearest < 0 || far[nearest] > REACH + 4) return;
    this.active = nearest;
    this.svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  #move(event) {
    const handle = this.handles[this.active];
    if (!handle) return;
    const [px, py] = this.#at(event);
    handle.move(px - handle.panel.x, py - handle.panel.y);
  }

  #key(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[
      event.key
    ];
    const handle = this.handles[event.target.dataset?.handle];
    if (!way || !handle) return;
    event.preventDefault();
    handle.step(...way);
  }
}
