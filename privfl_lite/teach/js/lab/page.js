// The home on a page of the book: every place that the directive left (book/_ext/laboratory.py).

import { mount } from "./lab.js";

for (const place of document.querySelectorAll("[data-laboratory]:not([data-live])")) {
  place.dataset.live = "";
  const { small, hash, ...setting } = JSON.parse(place.dataset.laboratory);
  const lab = mount(place, { setting, small, hash, chapters: "./" });
  place.laboratory = lab; // for tests, and for the curious
}
