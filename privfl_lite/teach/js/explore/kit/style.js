// The look, once a document: the book's own colors where they are defined, else (JupyterLab, Colab)
// the same ones written out. Text colors stand at 4.5 : 1 or more on the paper of their theme;
// tests/book/test_explorables.py computes it.

const LIGHT = `
  --pfx-paper: #ffffff; --pfx-ink: #1f2a35; --pfx-muted: #51606d; --pfx-frame: #8a98a5;
  --pfx-grid: #e3e9ee; --pfx-border: #c9d3db; --pfx-focus: #9c3a22;
  --pfx-attack: #b84a00; --pfx-defense: #0068a3; --pfx-good: #00734f; --pfx-accent: #a3457c; --pfx-warm: #8a5a00;`;
const DARK = `
  --pfx-paper: #161e26; --pfx-ink: #d6dfe7; --pfx-muted: #a3b2bf; --pfx-frame: #6f7f8d;
  --pfx-grid: #27323d; --pfx-border: #3b4a58; --pfx-focus: #f0a58f;
  --pfx-attack: #f5935a; --pfx-defense: #6cb6ea; --pfx-good: #4fc79b; --pfx-accent: #e39ac4; --pfx-warm: #e6b450;`;
const DARK_PAGES = [
  'html[data-theme="dark"]',
  'body[data-jp-theme-light="false"]',
  'html[theme="dark"]',
];
const TONES = ["ink", "muted", "frame", "attack", "defense", "good", "accent", "warm", "paper"];

export const CSS = `
.pfx {${LIGHT}
}
${DARK_PAGES.map((page) => `${page} .pfx`).join(", ")} {${DARK}
}
.pfx {
  box-sizing: border-box; max-width: 860px; margin: 0; padding: 14px 16px 12px;
  color: var(--pfx-ink); background: var(--pfx-paper); border: 1px solid var(--pfx-border);
  border-radius: 10px; font-family: inherit; font-size: 15px; line-height: 1.45; text-align: left;
}
.pfx *, .pfx *::before { box-sizing: border-box; }
.pfx-head { display: flex; gap: 4px 12px; align-items: baseline; justify-content: space-between; margin: 0 0 8px; }
.pfx-head b { font-size: 16px; }
.pfx button {
  font: inherit; font-size: 13.5px; min-height: 30px; padding: 2px 12px; cursor: pointer; border-radius: 15px;
  color: var(--pfx-ink); background: var(--pfx-paper); border: 1px solid var(--pfx-frame);
}
.pfx button:hover { border-color: var(--pfx-ink); }
.pfx :focus-visible { outline: 3px solid var(--pfx-focus); outline-offset: 2px; }
.pfx-stage { display: block; width: 100%; overflow: hidden; touch-action: manipulation; user-select: none; -webkit-user-select: none; }
.pfx-controls { display: grid; grid-template-columns: repeat(var(--pfx-columns), minmax(0, 1fr)); gap: 4px 24px; margin: 8px 0 0; }
.pfx-narrow .pfx-controls { grid-template-columns: repeat(var(--pfx-few), minmax(0, 1fr)); }
.pfx-control { display: block; margin: 0; cursor: pointer; }
.pfx-wide { grid-column: 1 / -1; }
.pfx-row { display: flex; justify-content: space-between; gap: 10px; align-items: baseline; }
.pfx-name { color: var(--pfx-ink); }
.pfx-value { font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; }
.pfx input[type="range"] {
  -webkit-appearance: none; appearance: none; display: block; width: 100%; height: 30px; margin: 0; padding: 0;
  background: transparent; cursor: pointer;
}
.pfx input[type="range"]::-webkit-slider-runnable-track {
  height: 6px; border-radius: 3px;
  background: linear-gradient(to right, var(--pfx-defense) var(--pfx-share), var(--pfx-border) var(--pfx-share));
}
.pfx input[type="range"]::-moz-range-track { height: 6px; border-radius: 3px; background: var(--pfx-border); }
.pfx input[type="range"]::-moz-range-progress { height: 6px; border-radius: 3px; background: var(--pfx-defense); }
.pfx input[type="range"]::-webkit-slider-thumb {
  -webkit-appearance: none; width: 20px; height: 20px; margin-top: -7px; border-radius: 50%;
  background: var(--pfx-defense); border: 3px solid var(--pfx-paper); box-shadow: 0 0 0 1.5px var(--pfx-defense);
}
.pfx input[type="range"]::-moz-range-thumb {
  width: 15px; height: 15px; border-radius: 50%; background: var(--pfx-defense); border: 3px solid var(--pfx-paper);
}
.pfx-readouts { display: flex; flex-wrap: wrap; gap: 4px 26px; margin: 8px 0 0; padding: 8px 0 0; border-top: 1px solid var(--pfx-grid); }
.pfx-readout { display: flex; flex-direction: column; margin: 0; min-width: 0; }
.pfx-what { font-size: 13.5px; color: var(--pfx-muted); }
.pfx-readout b { font-weight: 600; font-size: 17px; font-variant-numeric: tabular-nums; }
.pfx .pfx-say { margin: 6px 0 0; min-height: 2.9em; color: var(--pfx-ink); line-height: 1.45; }
.pfx-axis { stroke: var(--pfx-frame); stroke-width: 1.5; }
.pfx-grid { stroke: var(--pfx-grid); stroke-width: 1; }
.pfx-line { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.pfx-area { stroke: none; }
.pfx-dot { stroke: var(--pfx-paper); stroke-width: 2; }
.pfx-stage text { font-size: 13px; font-family: inherit; fill: var(--pfx-ink); }
.pfx-stage text.pfx-tick { font-size: 12px; fill: var(--pfx-muted); font-variant-numeric: tabular-nums; }
.pfx-stage text.pfx-label { fill: var(--pfx-muted); }
.pfx-stage text.pfx-words { paint-order: stroke; stroke: var(--pfx-paper); stroke-width: 5px; stroke-linejoin: round; }
.pfx-stage text.pfx-title { font-weight: 600; }
.pfx-stage text.pfx-small { font-size: 12px; }
.pfx-pixels { image-rendering: pixelated; }
.pfx-reach { fill: transparent; cursor: grab; touch-action: none; }
.pfx-grip { stroke: var(--pfx-paper); stroke-width: 2.5; pointer-events: none; }
.pfx-handle:focus { outline: none; }
.pfx-handle:focus-visible .pfx-grip { stroke: var(--pfx-focus); stroke-width: 3.5; r: 9px; }
${TONES.map((tone) => `.pfx-stage .pfx-fill-${tone} { fill: var(--pfx-${tone}); } .pfx-stroke-${tone} { stroke: var(--pfx-${tone}); }`).join("\n")}
@media (max-width: 600px) { .pfx { padding: 10px 10px 8px; } .pfx .pfx-say { min-height: 4.4em; } }
@media (prefers-reduced-motion: reduce) { .pfx * { transition: none; animation: none; } }
@media print { .pfx-controls, .pfx button { display: none; } }
`;

export function dress(root) {
  const home = root.getRootNode().head ?? root.ownerDocument.head;
  if (home.querySelector("style[data-pfx]")) return;
  const sheet = root.ownerDocument.createElement("style");
  sheet.dataset.pfx = "";
  sheet.textContent = CSS;
  home.append(sheet);
}
