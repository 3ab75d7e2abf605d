// One labeled slider for each setting. A control is
//   { key, label, min, max, value, scale: "linear" | "log", step, whole, values, wide, format }
// and takes only `values`, from min to max, if it has some; `wide` gives it a row of its own.
// The range input counts ticks from 0, so that a key press is one step on every scale.

import { h } from "./dom.js";
import { number } from "./format.js";

const TICKS = 200; // of a slider without a step

export function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

export function ticks(control) {
  if (control.values) return control.values.length - 1;
  if (control.step) return Math.round((control.max - control.min) / control.step);
  return control.whole ? Math.min(TICKS, control.max - control.min) : TICKS;
}

export function valueAt(control, tick) {
  if (control.values) return control.values[tick];
  const share = tick / ticks(control);
  const { min, max } = control;
  const raw = control.scale === "log" ? min * (max / min) ** share : min + share * (max - min);
  return control.whole ? Math.round(raw) : Number(raw.toPrecision(12));
}

export function tickOf(control, value) {
  const { min, max, values } = control;
  if (values) {
    const far = values.map((v) => Math.abs(v - value));
    return far.indexOf(Math.min(...far));
  }
  const v = clamp(value, min, max);
  const share =
    control.scale === "log" ? Math.log(v / min) / Math.log(max / min) : (v - min) / (max - min);
  return Math.round(share * ticks(control));
}

export function shown(control, value) {
  return control.format ? control.format(value) : number(value);
}

// The next tick whose value differs: whole numbers on a log scale share ticks at its lower end.
function moved(control, from, to) {
  const way = Math.sign(to - from);
  let tick = to;
  while (
    way &&
    valueAt(control, tick) === valueAt(control, from) &&
    tick > 0 &&
    tick < ticks(control)
  )
    tick += way;
  return tick;
}

export function slider(control, value, onInput) {
  const input = h("input", { type: "range", min: 0, max: ticks(control), step: 1 });
  const output = h("span", { class: "pfx-value" }); // no <output>: the label would name it
  const name = h("span", { class: "pfx-name" });
  name.innerHTML = control.label;
  const element = h(
    "label",
    { class: control.wide ? "pfx-control pfx-wide" : "pfx-control" },
    h("span", { class: "pfx-row" }, name, output),
    input,
  );
  input.dataset.key = control.key;
  let tick = 0;

  function show(now) {
    tick = tickOf(control, now);
    input.value = tick;
    output.textContent = shown(control, now);
    input.setAttribute("aria-valuetext", shown(control, now));
    input.style.setProperty("--pfx-share", `${(100 * tick) / ticks(control)}%`);
  }

  input.addEventListener("input", () => {
    tick = moved(control, tick, Number(input.value));
    onInput(control.key, valueAt(control, tick));
  });
  show(value);
  return { element, show };
}
