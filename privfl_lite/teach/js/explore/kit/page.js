// The home on a page of the book: every place that the directive left for this explorable
// (book/_ext/explorable.py).

import { mount } from "./mount.js";

export function bring(name, explorable) {
  const begin = () => {
    for (const place of document.querySelectorAll(`[data-explorable="${name}"]:not([data-live])`)) {
      place.dataset.live = "";
      mount(place, explorable, {
        title: place.dataset.title,
        settings: JSON.parse(place.dataset.set || "{}"),
      });
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
}
