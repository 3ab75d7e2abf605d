"""The directive ``{laboratory}``: attack a picture in the page (privfl_lite/teach/js/lab).

```{laboratory}
:defense: prune
:attacker: informed
:small:
```

Options say where its settings start: ``net`` (lenet, dense), ``act`` (sigmoid, tanh, relu),
``color``, ``batch``, ``defense`` with its own (``sigma``, ``clip``, ``rate``), ``attacker``,
``solver``, ``seed``. ``small`` leaves the controls out; ``hash`` lets the page's link carry
settings. Only pages that have one load it: as ES modules from a server, as one plain script from a
disk, where browsers refuse modules.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from js_assets import SITE, address
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from privfl_lite.teach.modules import bundle

ENTRY = "lab/page.js"
SCRIPT = "page/laboratory.js"  # ENTRY and all that it imports, as one plain script
WITHOUT = (
    "A laboratory stands here if scripts are on: draw a digit or drop a picture, see the gradient"
    " that would leave your device, and watch a server rebuild the picture from it."
)
LOADER = """<script>(() => {{
  if (window.privflLaboratory) return;
  window.privflLaboratory = true;
  const disk = location.protocol === "file:", script = document.createElement("script");
  if (!disk) script.type = "module";
  script.src = new URL(disk ? "{script}" : "{entry}", document.baseURI).href;
  const add = () => document.head.append(script);
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", add);
  else add();
}})();</script>"""


def known(*names: str):
    return lambda text: directives.choice(text, names)


class Laboratory(SphinxDirective):
    option_spec: ClassVar[dict] = {
        "net": known("lenet", "dense"),
        "act": known("sigmoid", "tanh", "relu"),
        "color": directives.flag,
        "batch": lambda text: known(*"12345678")(text),
        "defense": known("none", "noise", "cloak", "prune", "sign", "soteria"),
        "sigma": float,
        "clip": float,
        "rate": float,
        "attacker": known("plain", "informed"),
        "solver": known("lbfgs", "adam"),
        "seed": directives.nonnegative_int,
        "small": directives.flag,
        "hash": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        given = {k: True if v is None else v for k, v in self.options.items()}
        return [nodes.raw("", place(self.env.docname, given), format="html")]


def place(page: str, given: dict[str, object]) -> str:
    """What stands in the page: settings, a sentence for readers without scripts, the loader."""
    loader = LOADER.format(script=address(page, SCRIPT), entry=address(page, ENTRY))
    return (
        f'<div class="pf-laboratory" data-laboratory="{escape(json.dumps(given))}">'
        f"<p><em>{WITHOUT}</em></p></div>{loader}"
    )


def write_script(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        file = Path(app.outdir, SITE, SCRIPT)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(bundle('import * as page from "./lab/page.js";'), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("js_assets")
    app.add_directive("laboratory", Laboratory)
    app.connect("build-finished", write_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
