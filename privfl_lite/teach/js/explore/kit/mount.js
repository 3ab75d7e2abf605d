// Puts an explorable into an element. An explorable is an object with
//   controls            sliders, see controls.js
//   compute(settings)   pure: settings -> the numbers of the formula (compared with Python in tests)
//   readouts(r, s)      [[name as HTML, text], …], shown under the picture
//   say(r, s)           one or two sentences on what the picture shows now; read out as it changes
//   draw(stage, r, s, change)   the picture; change({ key: value }) from a dragged handle
//   hidden              settings that have no slider (their start), for handles

import { clamp, shown, slider, tickOf, valueAt } from "./controls.js";
import { h, s } from "./dom.js";
import { Stage } from "./stage.js";
import { dress } from "./style.js";

const PAUSE = 500; // ms without a move, after which a screen reader is told

export function starts(explorable, given = {}) {
  const found = { ...structuredClone(explorable.hidden ?? {}) };
  for (const c of explorable.controls) {
    found[c.key] = clamp(Number(given[c.key] ?? c.value), c.min, c.max);
    if (c.values) found[c.key] = valueAt(c, tickOf(c, found[c.key]));
  }
  for (const key of Object.keys(explorable.hidden ?? {})) if (key in given) found[key] = given[key];
  return found;
}

export function mount(el, explorable, { title, settings: given = {}, onChange } = {}) {
  dress(el);
  let settings = starts(explorable, given);
  const svg = s("svg", { class: "pfx-stage" });
  const stage = new Stage(svg);
  const readouts = h("div", { class: "pfx-readouts", role: "list" }); // no <dl>: every host styles it
  const say = h("p", { class: "pfx-say" });
  const live = h("p", {
    role: "status",
    style: "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);margin:0",
  });
  const reset = h("button", { type: "button" }, "Reset");
  const sliders = Object.fromEntries(
    explorable.controls.map((c) => [
      c.key,
      slider(c, settings[c.key], (key, value) => change({ [key]: value })),
    ]),
  );
  const count = explorable.controls.filter((c) => !c.wide).length;
  const columns = `--pfx-columns:${count > 3 ? 2 : count};--pfx-few:${count === 4 ? 2 : 1}`;
  const controls = h(
    "div",
    { class: "pfx-controls", style: columns },
    ...Object.values(sliders).map((one) => one.element),
  );
  const root = h(
    "div",
    { class: "pfx", role: "group", "aria-label": title },
    h("p", { class: "pfx-head" }, h("b", {}, title ?? ""), reset),
    svg,
    controls,
    readouts,
    say,
    live,
  );
  let asked = 0;
  let told = 0;

  function render() {
    asked = 0;
    const width = Math.floor(svg.clientWidth);
    if (!width) return; // not to be seen yet
    const result = explorable.compute(settings);
    stage.paint(width, () => explorable.draw(stage, result, settings, changeNow));
    root.classList.toggle("pfx-narrow", stage.narrow);
    svg.setAttribute("aria-label", explorable.say(result, settings));
    readouts.replaceChildren(
      ...explorable.readouts(result, settings).map(([name, text]) => {
        const what = h("span", { class: "pfx-what" });
        what.innerHTML = name;
        return h("div", { class: "pfx-readout", role: "listitem" }, what, h("b", {}, text));
      }),
    );
    say.textContent = explorable.say(result, settings);
  }

  function soon() {
    if (!asked) asked = requestAnimationFrame(render);
  }

  function change(some, quietly = false) {
    settings = explorable.tidy
      ? explorable.tidy({ ...settings, ...some }, some)
      : { ...settings, ...some };
    for (const c of explorable.controls) sliders[c.key].show(settings[c.key]);
    soon();
    if (quietly) return;
    onChange?.({ ...settings });
    clearTimeout(told);
    told = setTimeout(() => (live.textContent = say.textContent), PAUSE);
  }

  // From a handle, which knows its place from the last picture: draw before it can move again.
  function changeNow(some) {
    change(some);
    cancelAnimationFrame(asked);
    render();
  }

  reset.addEventListener("click", () => change(starts(explorable, given)));
  el.replaceChildren(root);
  const watch = new ResizeObserver(soon);
  watch.observe(svg);
  soon();
  return {
    element: root,
    get settings() {
      return { ...settings };
    },
    set: (some) => change(some, true),
    values: () => explorable.controls.map((c) => [c.key, shown(c, settings[c.key])]),
    destroy: () => watch.disconnect(),
  };
}
