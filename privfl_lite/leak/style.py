"""The look of a report: one column, both themes, a phone and paper; no font, no script."""

CSS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2a35; --soft: #4a5866; --line: #c9d2da;
  --pale: #f2f5f7; --bad: #9c3a22; --none: #1f5f8b; --link: #0b5394; }
@media (prefers-color-scheme: dark) { :root { --paper: #14191f; --ink: #e6ebf0; --soft: #b4c0cb;
  --line: #3a4652; --pale: #1e262e; --bad: #ff9d82; --none: #8ec7ee; --link: #8ec7ee; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .75rem; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p, li, figcaption { overflow-wrap: anywhere; }
td, th { overflow-wrap: break-word; }
.verdict { border-left: .4rem solid var(--none); background: var(--pale); padding: .75rem 1rem;
  font-size: 1.15rem; margin: 0 0 1rem; }
.verdict.found { border-color: var(--bad); }
.found b, b.found { color: var(--bad); }
.soft { color: var(--soft); }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; margin: 0;
  padding: 0; }
.scroll { overflow-x: auto; }
.scroll:focus-visible, a:focus-visible, summary:focus-visible { outline: .15rem solid var(--link);
  outline-offset: .1rem; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; }
caption { text-align: left; color: var(--soft); padding: .25rem 0; }
caption span { display: block; position: sticky; left: 0; max-width: calc(100vw - 2rem); }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; white-space: nowrap; }
td.says { min-width: 14rem; }
.pictures { display: flex; flex-wrap: wrap; gap: .75rem; list-style: none; margin: .25rem 0;
  padding: 0; }
.pictures figure { margin: 0; width: 6.5rem; }
.pictures img { width: 6.5rem; height: auto; image-rendering: pixelated; display: block;
  border: 1px solid var(--line); }
figcaption { font-size: .8rem; color: var(--soft); }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  font-size: .85rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--pale); padding: .75rem; }
h3 + p { margin: 0 0 .25rem; color: var(--soft); }
@media print { nav { display: none; } main { max-width: none; padding: 0; }
  .scroll { overflow: visible; } figure, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; } }
"""
