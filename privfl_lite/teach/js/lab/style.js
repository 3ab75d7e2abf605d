// The laboratory's look, on top of explore/kit/style.js and its colors.

export const CSS = `
.pfl { max-width: none; margin: 0 0 24px; padding: 0; border: 0; background: transparent; }
.pfl [hidden] { display: none !important; }
.pfl p { margin: 0; line-height: 1.45; }
.pfl-panes { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 14px; }
.pfl-pane {
  display: flex; flex-direction: column; gap: 8px; min-width: 0; padding: 10px 12px 12px;
  background: var(--pfx-paper); border: 1px solid var(--pfx-border); border-top: 4px solid var(--pfl-role); border-radius: 8px;
}
.pfl-client { --pfl-role: var(--pfx-defense); }
.pfl-wire { --pfl-role: var(--pfx-warm); }
.pfl-server { --pfl-role: var(--pfx-attack); }
.pfl-head { display: flex; flex-wrap: wrap; gap: 0 8px; justify-content: space-between; align-items: baseline; }
.pfl-head span { color: var(--pfx-muted); font-size: 13.5px; }
.pfl-frame { position: relative; width: 100%; aspect-ratio: 1; border: 1px solid var(--pfx-frame); border-radius: 4px; overflow: hidden; }
.pfl-image { display: block; width: 100%; height: 100%; object-fit: contain; image-rendering: pixelated; }
.pfl-pad { cursor: crosshair; touch-action: none; }
.pfl-pad:focus-visible { outline-offset: -3px; }
.pfl-cursor { position: absolute; pointer-events: none; box-shadow: 0 0 0 1.5px #ffffff, 0 0 0 3.5px var(--pfx-focus); }
.pfl-cursor.pfl-down { box-shadow: 0 0 0 1.5px #ffffff, 0 0 0 5px var(--pfx-attack); }
.pfl-xray { image-rendering: auto; }
.pfl-ask {
  position: absolute; inset: 0; display: flex; flex-direction: column; align-items: center; justify-content: center;
  color: var(--pfx-muted); font-size: 14px;
}
.pfl .pfl-ask span { font-size: 64px; line-height: 1; color: var(--pfx-muted); font-family: Georgia, serif; }
.pfl-note, .pfl-says, .pfl-promise { color: var(--pfx-muted); font-size: 13.5px; font-variant-numeric: tabular-nums; }
.pfl ul.pfl-tensors { list-style: none; margin: 0; padding: 6px 0 0; border-top: 1px solid var(--pfx-grid); font-size: 12.5px; color: var(--pfx-muted); }
.pfl .pfl-tensors li { display: flex; flex-wrap: wrap; gap: 0 8px; justify-content: space-between; margin: 0; line-height: 1.5; }
.pfl-tensors span { margin-left: auto; }
.pfl .pfl-tensors code { padding: 0; font-size: 12px; color: var(--pfx-ink); background: none; border: 0; }
.pfl-small .pfl-tensors { display: none; }
.pfl-thumbs { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 6px; }
.pfx .pfl-thumb { min-height: 0; min-width: 0; padding: 0; aspect-ratio: 1; border-radius: 4px; overflow: hidden; line-height: 0; background: transparent; }
.pfl-thumb canvas { width: 100%; height: 100%; image-rendering: pixelated; }
.pfx .pfl-thumb[aria-pressed="true"] { border: 2px solid var(--pfx-focus); }
.pfl-row { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; }
.pfl-button { position: relative; display: inline-flex; align-items: center; font-size: 13.5px; min-height: 30px; padding: 2px 12px; margin: 0; cursor: pointer; border-radius: 15px; color: var(--pfx-ink); background: var(--pfx-paper); border: 1px solid var(--pfx-frame); }
.pfl-button:hover { border-color: var(--pfx-ink); }
.pfl-button:focus-within { outline: 3px solid var(--pfx-focus); outline-offset: 2px; }
.pfl-file { position: absolute; inset: 0; width: 100%; opacity: 0; cursor: pointer; font-size: 0; }
.pfx button[aria-pressed="true"]:not(.pfl-thumb) { color: var(--pfx-paper); background: var(--pfx-ink); border-color: var(--pfx-ink); }
.pfx button:disabled { opacity: 0.45; cursor: default; }
.pfl-controls { margin-top: 14px; padding: 12px 14px; background: var(--pfx-paper); border: 1px solid var(--pfx-border); border-radius: 8px; }
.pfl-fields { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 8px 14px; }
.pfl-field { display: flex; flex-direction: column; gap: 2px; margin: 0; font-size: 13.5px; color: var(--pfx-muted); }
.pfl-pane .pfl-field { flex-direction: row; align-items: center; gap: 8px; }
.pfl-field select { font: inherit; font-size: 14.5px; min-width: 0; min-height: 32px; padding: 2px 6px; color: var(--pfx-ink); background-color: var(--pfx-paper); border: 1px solid var(--pfx-frame); border-radius: 6px; }
.pfl-sliders { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 4px 14px; margin: 10px 0 4px; }
.pfl-guess { display: flex; flex-direction: column; gap: 8px; }
.pfl-guess button { min-height: 38px; border-radius: 19px; font-size: 14.5px; border: 1.5px solid var(--pfl-role); }
.pfl-guess button:hover { color: var(--pfx-paper); background: var(--pfl-role); }
.pfl .pfl-result:empty { display: none; }
.pfl .pfl-chart, .pfl .pfl-chart figcaption { margin: 0; padding: 0; }
.pfl-curves { display: block; width: 100%; height: 64px; }
.pfl-curves :is(polyline, line) { vector-effect: non-scaling-stroke; }
.pfl .pfl-chart figcaption { display: flex; flex-wrap: wrap; gap: 0 12px; font-size: 13px; color: var(--pfx-muted); }
.pfl-cost { color: var(--pfx-attack); }
.pfl-psnr { color: var(--pfx-defense); }
.pfl-actions { margin-top: 12px; }
.pfl .pfl-promise { margin-top: 10px; }
.pfl .pfl-error:empty { display: none; }
.pfl-error { color: var(--pfx-attack); font-size: 14px; }
.pfl-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.pfl-cover { display: none; }
.pfl-server-only .pfl-client > :not(.pfl-head, .pfl-cover), .pfl-server-only :is(.pfl-psnr, .pfl-result) { display: none; }
.pfl-server-only .pfl-curves .pfx-stroke-defense { display: none; }
.pfl-server-only .pfl-cover {
  display: flex; align-items: center; justify-content: center; width: 100%; aspect-ratio: 1; padding: 20px; text-align: center; border-radius: 4px; border: 1px dashed var(--pfx-frame);
  color: var(--pfx-muted); background: repeating-linear-gradient(45deg, transparent 0 9px, var(--pfx-grid) 9px 10px);
}
@media (max-width: 700px) {
  .pfl-panes { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 10px; }
  .pfl-client { grid-column: 1 / -1; }
  .pfl-small .pfl-client .pfl-frame { width: 220px; margin: 0 auto; }
  .pfl-fields { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .pfl-sliders { grid-template-columns: minmax(0, 1fr); }
  .pfl-client .pfl-thumbs { grid-template-columns: repeat(8, minmax(0, 1fr)); }
  .pfl-wire .pfl-head span, .pfl-server .pfl-head span { display: none; }
}
`;
