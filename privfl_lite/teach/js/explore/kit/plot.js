// A plot in a panel: axes with ticks and labels, lines, areas, dots and words in data coordinates.

import { s } from "./dom.js";
import { number, power } from "./format.js";

const LEFT = 40;
const BOTTOM = 40;
const TOP = 22;
const RIGHT = 12;

function scale({ domain: [a, b], log }, from, to) {
  const f = log ? Math.log : (v) => v;
  const map = (v) => from + ((f(v) - f(a)) / (f(b) - f(a))) * (to - from);
  map.invert = (p) => {
    const t = f(a) + ((p - from) / (to - from)) * (f(b) - f(a));
    return log ? Math.exp(t) : t;
  };
  return map;
}

function steps([a, b], count) {
  const rough = (b - a) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((m) => m >= rough * 0.999);
  const found = [];
  for (let v = Math.ceil(a / step - 1e-9) * step; v <= b + step * 1e-9; v += step)
    found.push(Number(v.toPrecision(10)));
  return found;
}

function decades([a, b], count) {
  const low = Math.ceil(Math.log10(a) - 1e-9);
  const high = Math.floor(Math.log10(b) + 1e-9);
  const every = Math.max(1, Math.ceil((high - low) / count));
  const found = [];
  for (let e = low; e <= high; e += every) found.push(10 ** e);
  return found;
}

function tickText(axis, value) {
  if (axis.format) return axis.format(value);
  if (axis.log && (value < 1e-2 || value > 1e4)) return power(Math.round(Math.log10(value)));
  return number(value, 4);
}

// A part of the picture that shows nothing beyond its frame, in the coordinates around it.
export function window(x, y, width, height) {
  return s("svg", { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` });
}

export class Plot {
  constructor(panel, { x, y, title, left = y.label ? LEFT + 16 : LEFT }) {
    this.panel = panel;
    const box = {
      left: y.hidden ? RIGHT : left,
      right: panel.width - RIGHT,
      top: title ? TOP + 6 : 10,
      bottom: panel.height - (x.label ? BOTTOM : 22),
    };
    this.box = box;
    this.x = scale(x, box.left, box.right);
    this.y = scale(y, box.bottom, box.top);
    this.g = s("g");
    panel.g.append(this.g);
    if (title) this.words(0, 14, title, { class: "pfx-title", raw: true });
    this.#across(x);
    if (!y.hidden) this.#up(y);
    this.inside = window(box.left, box.top - 1, box.right - box.left, box.bottom - box.top + 2);
    this.g.append(this.inside);
  }

  #across(axis) {
    const { left, right, top, bottom } = this.box;
    this.g.append(s("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "pfx-axis" }));
    const marks =
      axis.ticks ??
      (axis.log
        ? decades(axis.domain, (right - left) / 45)
        : steps(axis.domain, (right - left) / 62));
    for (const value of marks) {
      const x = this.x(value);
      if (!axis.bare)
        this.g.append(s("line", { x1: x, x2: x, y1: top, y2: bottom, class: "pfx-grid" }));
      const text = tickText(axis, value);
      const end = x + 3.6 * text.length > right + RIGHT; // the last one stays in the picture
      this.g.append(
        s(
          "text",
          {
            x: end ? right + RIGHT : x,
            y: bottom + 16,
            class: "pfx-tick",
            "text-anchor": end ? "end" : "middle",
          },
          text,
        ),
      );
    }
    if (axis.label)
      this.g.append(
        s(
          "text",
          { x: (left + right) / 2, y: bottom + 34, class: "pfx-label", "text-anchor": "middle" },
          axis.label,
        ),
      );
  }

  #up(axis) {
    const { left, right, top, bottom } = this.box;
    const marks =
      axis.ticks ??
      (axis.log
        ? decades(axis.domain, (bottom - top) / 26)
        : steps(axis.domain, (bottom - top) / 38));
    for (const value of marks) {
      const y = this.y(value);
      this.g.append(s("line", { x1: left, x2: right, y1: y, y2: y, class: "pfx-grid" }));
      this.g.append(
        s(
          "text",
          { x: left - 6, y: y + 4, class: "pfx-tick", "text-anchor": "end" },
          tickText(axis, value),
        ),
      );
    }
    if (axis.label) {
      const x = 13;
      const y = (top + bottom) / 2;
      this.g.append(
        s(
          "text",
          { x, y, class: "pfx-label", "text-anchor": "middle", transform: `rotate(-90 ${x} ${y})` },
          axis.label,
        ),
      );
    }
  }

  path(points) {
    return points
      .filter(([, y]) => Number.isFinite(y))
      .map(([x, y], i) => `${i ? "L" : "M"}${this.x(x).toFixed(2)} ${this.y(y).toFixed(2)}`)
      .join("");
  }

  line(points, { tone = "ink", dash, width = 2.5 } = {}) {
    this.inside.append(
      s("path", {
        d: this.path(points),
        class: `pfx-line pfx-stroke-${tone}`,
        "stroke-width": width,
        "stroke-dasharray": dash,
      }),
    );
    return this;
  }

  // Between the points and the level y = `base`.
  area(points, { tone, base, opacity = 0.2 } = {}) {
    if (!points.length) return this;
    const floor = base ?? this.y.invert(this.box.bottom);
    const closed = [[points[0][0], floor], ...points, [points[points.length - 1][0], floor]];
    this.inside.append(
      s("path", {
        d: `${this.path(closed)}Z`,
        class: `pfx-area pfx-fill-${tone}`,
        "fill-opacity": opacity,
      }),
    );
    return this;
  }

  dot(x, y, { tone = "ink", r = 6 } = {}) {
    this.g.append(
      s("circle", { cx: this.x(x), cy: this.y(y), r, class: `pfx-dot pfx-fill-${tone}` }),
    );
    return this;
  }

  rule({ x, y }, { tone = "muted", dash = "4 4" } = {}) {
    const { left, right, top, bottom } = this.box;
    const at =
      x === undefined
        ? { x1: left, x2: right, y1: this.y(y), y2: this.y(y) }
        : { x1: this.x(x), x2: this.x(x), y1: top, y2: bottom };
    this.inside.append(
      s("line", {
        ...at,
        class: `pfx-line pfx-stroke-${tone}`,
        "stroke-width": 1.5,
        "stroke-dasharray": dash,
      }),
    );
    return this;
  }

  // Words at data coordinates (raw: at pixels of the panel), kept inside the panel.
  words(
    x,
    y,
    text,
    { tone = "ink", anchor = "start", dx = 0, dy = 0, raw = false, class: name = "pfx-words" } = {},
  ) {
    const px = (raw ? x : this.x(x)) + dx;
    const py = (raw ? y : this.y(y)) + dy;
    this.g.append(
      s("text", { x: px, y: py, class: `${name} pfx-fill-${tone}`, "text-anchor": anchor }, text),
    );
    return this;
  }
}

export function curve(f, [a, b], count = 160, log = false) {
  return Array.from({ length: count + 1 }, (_, i) => {
    const x = log ? a * (b / a) ** (i / count) : a + ((b - a) * i) / count;
    return [x, f(x)];
  });
}
