// Runs before require.js and the widget manager, on pages that hold widgets (book/_ext/offline.py).
(() => {
  "use strict";
  const me = document.currentScript;

  // Offline: modules and icon fonts come from the site's own vendor/ folder.
  if (me.dataset.vendor) {
    const vendor = new URL(me.dataset.vendor, me.src).href;
    window.require = { baseUrl: vendor };
    me.setAttribute("data-jupyter-widgets-cdn", vendor);
  }

  // The theme's Font Awesome replaces icons by drawings, also those that a Play button redraws
  // itself, which then stops answering. Icons that come later stay as the widgets made them.
  const still = () => {
    if (window.FontAwesome) window.FontAwesome.config.observeMutations = false;
  };
  window.FontAwesomeConfig = { ...window.FontAwesomeConfig, observeMutations: false };
  still();
  document.addEventListener("DOMContentLoaded", still);

  // The manager speaks MathJax 2 (Hub.Queue); the page loads MathJax 3. This listener is the first
  // one, so it runs before the manager draws.
  window.addEventListener("load", () => {
    const math = window.MathJax;
    if (!math || math.Hub) return;
    math.Hub = {
      Queue: ([, , element]) => math.startup?.promise.then(() => math.typesetPromise?.([element])),
    };
  });

  // A slider's handle is drawn without a name: take it from the label beside it. Nor do the buttons
  // of a Play have names.
  const name = () => {
    for (const handle of document.querySelectorAll(".noUi-handle:not([aria-label])")) {
      const label = handle.closest(".widget-slider")?.querySelector(".widget-label");
      if (label?.textContent) handle.setAttribute("aria-label", label.textContent);
    }
    for (const play of document.querySelectorAll(".widget-play")) {
      play.querySelectorAll("button").forEach((button, i) => {
        const label = ["play or pause", "stop", "repeat"][i];
        if (!button.hasAttribute("aria-label")) button.setAttribute("aria-label", label);
      });
    }
    document.querySelectorAll('.widget-label[title="null"]').forEach((l) => l.removeAttribute("title"));
  };
  new MutationObserver(name).observe(document, { childList: true, subtree: true });
})();
