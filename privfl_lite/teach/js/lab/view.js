// The page's elements, without any behavior: lab.js gives it to them.

import { slider } from "../explore/kit/controls.js";
import { h } from "../explore/kit/dom.js";
import { paint } from "./show.js";
import { ACTS, ATTACKERS, DEFENSES, MOST, NETS, SOLVERS } from "./settings.js";

/** A labeled drop-down; ``onChange`` gets the chosen key. */
function select(name, choices, onChange) {
  const options = Object.entries(choices).map(([value, title]) => h("option", { value }, title.title ?? title));
  const input = h("select", { name: name.toLowerCase() }, options);
  input.addEventListener("change", () => onChange(input.value));
  return { element: h("label", { class: "pfl-field" }, h("span", {}, name), input), input };
}

export function button(title, onClick, attributes = {}) {
  const made = h("button", { type: "button", ...attributes }, title);
  made.addEventListener("click", onClick);
  return made;
}

function pane(kind, title, about, ...children) {
  const head = h("p", { class: "pfl-head" }, h("strong", {}, title), h("span", {}, about));
  return h("section", { class: `pfl-pane pfl-${kind}`, "aria-label": title }, head, ...children);
}

/** A small picture that is a button. */
export function thumb({ pixels, shape, name }, onClick, pressed) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  paint(canvas, pixels, shape);
  const attributes = { type: "button", class: "pfl-thumb", "aria-label": name, title: name };
  if (pressed !== undefined) attributes["aria-pressed"] = pressed;
  const made = h("button", attributes, canvas);
  made.addEventListener("click", onClick);
  return made;
}

/** All parts by name. ``on`` holds the handlers; ``pad`` is the reader's grid. */
export function build(on, pad, curves) {
  const v = { pad: pad.element };
  v.batch = h("div", { class: "pfl-thumbs", role: "group", "aria-label": "Pictures in the batch" });
  v.ours = h("div", { class: "pfl-thumbs", role: "group", "aria-label": "Or take one of ours" });
  v.file = h("input", { type: "file", accept: "image/*", class: "pfl-file" });
  v.file.addEventListener("change", () => on.file(v.file.files[0]));
  const choose = h("label", { class: "pfl-button" }, "Choose or photograph", v.file);
  v.erase = button("Eraser", on.erase, { "aria-pressed": "false" });
  v.tools = h("div", { class: "pfl-row" }, button("Clear", on.clear), v.erase, choose);
  v.error = h("p", { class: "pfl-error", role: "alert" });
  v.label = select("Its label", Object.fromEntries([..."0123456789"].map((c) => [c, c])), on.label);
  v.cover = h("p", { class: "pfl-cover" }, "The picture and its label stay on the device.");

  v.xray = h("canvas", { class: "pfl-image pfl-xray", role: "img" });
  v.wire = h("p", { class: "pfl-note" });
  v.tensors = h("ul", { class: "pfl-tensors", "aria-label": "Tensors in the upload" });
  v.rebuilt = h("canvas", { class: "pfl-image", role: "img" });
  v.ask = h("p", { class: "pfl-ask" }, h("span", { "aria-hidden": "true" }, "?"), "Guess below.");
  v.score = h("p", { class: "pfl-note" });
  v.question = h("p", { class: "pfl-question", id: `pfl-question-${(count += 1)}` });
  v.guess = h("div", { class: "pfl-guess", role: "group", "aria-labelledby": v.question.id });
  v.result = h("p", { class: "pfl-result" });
  v.curves = h("figure", { class: "pfl-chart", hidden: true }, curves.element, h("figcaption", {}, h("span", { class: "pfl-cost" }, "— cost, log"), h("span", { class: "pfl-psnr" }, "- - PSNR, 0 to 60 dB")));
  v.panes = h(
    "div",
    { class: "pfl-panes" },
    pane("client", "Your device", "draw or drop", v.pad, v.cover, v.batch, v.tools, v.ours, v.label.element, v.error),
    pane("wire", "The wire", "all that leaves", h("div", { class: "pfl-frame" }, v.xray), v.wire, v.tensors),
    pane("server", "The server", "what it rebuilds", h("div", { class: "pfl-frame" }, v.rebuilt, v.ask), v.guess, v.curves, v.score, v.result),
  );

  v.color = select("Picture", { gray: "gray, 28 × 28", color: "color, 32 × 32" }, (c) => on.choose("color", c === "color"));
  v.net = select("Network", NETS, (c) => on.choose("net", c));
  v.act = select("Activation", ACTS, (c) => on.choose("act", c));
  v.defense = select("Defense", DEFENSES, (c) => on.choose("defense", c));
  v.solver = select("Search", SOLVERS, (c) => on.choose("solver", c));
  v.attacker = select("Attacker", { plain: "plain", informed: "informed" }, (c) => on.choose("attacker", c));
  v.count = slider({ key: "batch", label: "pictures in the batch", min: 1, max: MOST, step: 1, scale: "linear", whole: true }, 1, (_, n) => on.choose("batch", n));
  v.sliders = h("div", { class: "pfl-sliders" });
  v.says = h("p", { class: "pfl-says" });
  v.controls = h(
    "div",
    { class: "pfl-controls" },
    h("div", { class: "pfl-fields" }, [v.color, v.net, v.act, v.defense, v.attacker, v.solver].map((f) => f.element)),
    v.sliders,
    v.says,
  );

  v.stop = button("Stop", on.stop);
  v.again = button("Restart", on.again);
  v.network = button("Another network", on.network);
  v.view = button("Server’s view", on.view, { "aria-pressed": "false" });
  v.share = button("Copy link to this setting", on.share);
  v.actions = h("div", { class: "pfl-row pfl-actions" }, v.stop, v.again, v.network, v.view, v.share);
  v.live = h("p", { role: "status", class: "pfl-hidden" });
  v.promise = h("p", { class: "pfl-promise" }, "Everything happens in this page: no picture leaves it, nothing is stored, no request is made.");
  return v;
}
let count = 0;

/** The upload's tensors by name and shape, as the server lists them. */
export function tensorList(tensors) {
  return tensors.map(({ name, shape }) => h("li", {}, h("code", {}, name), h("span", {}, shape.join("×"))));
}

/** Sliders for the settings of a defense. */
export function defenseSliders(defense, settings, onInput) {
  return DEFENSES[defense].sliders.map((control) => {
    const made = slider(control, settings[control.key], (key, value) => {
      made.show(value);
      onInput(key, value);
    });
    return made.element;
  });
}

/** One or two sentences on who sends what and who attacks. */
export function sentence({ defense, attacker }, chapters) {
  const { says, chapter } = DEFENSES[defense];
  const more = chapter && chapters ? [" (", h("a", { href: `${chapters}${chapter}.html` }, "chapter"), ")"] : [];
  const who = ATTACKERS[attacker];
  return [says, ...more, ` The ${who[0]} attacker ${who[1]}.`];
}
