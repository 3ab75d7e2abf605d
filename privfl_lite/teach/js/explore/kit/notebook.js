// The home in a notebook: anywidget's render (privfl_lite/teach/explorables.py). Settings go both
// ways: a slider is seen in Python as widget.settings, and what Python sets moves the slider.

import { mount } from "./mount.js";

// JupyterLab takes arrow keys for itself, but not from an element that says so.
export function keepKeys(el) {
  el.addEventListener("focusin", ({ target }) =>
    target.setAttribute("data-lm-suppress-shortcuts", "true"),
  );
}

export function renderer(explorable) {
  return ({ model, el }) => {
    keepKeys(el);
    const made = mount(el, explorable, {
      title: model.get("title"),
      settings: model.get("settings"),
      onChange: (settings) => {
        model.set("settings", settings);
        model.save_changes();
      },
    });
    model.set("settings", made.settings);
    model.save_changes();
    const follow = () => {
      if (JSON.stringify(model.get("settings")) !== JSON.stringify(made.settings))
        made.set(model.get("settings"));
    };
    model.on("change:settings", follow);
    return () => {
      model.off("change:settings", follow);
      made.destroy();
    };
  };
}
