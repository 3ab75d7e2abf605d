"""The directive ``{explorable} NAME``: a moving picture in a figure, with the body as its caption.

```{explorable} two-gaussians
:set: mu=1, delta=1e-5
Caption, with {prf:ref}`thm-gaussian-exact`.
```

``:set:`` says where its sliders start. The picture is an ES module of privfl_lite/teach/js/explore,
made into one plain script (privfl_lite/teach/modules.py), so that it also runs on a page that is
opened from a disk. Only pages that have one load it. Without scripts a sentence says what it shows.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from js_assets import SITE
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from privfl_lite import PrivflError
from privfl_lite.teach.explorables import catalog, check_settings, page_script

SCRIPTS = "js/page"  # in _static


def read_settings(text: str) -> dict[str, float]:
    """``mu=1, delta=1e-5`` as numbers."""
    found = {}
    for item in filter(None, map(str.strip, text.split(","))):
        key, _, value = item.partition("=")
        if not re.fullmatch(r"[\d.]+(e[+-]?\d+)?|-[\d.]+", value.strip()):
            raise PrivflError(f"write {item!r} as key=number")
        found[key.strip()] = float(value)
    return found


class Place(nodes.General, nodes.Element):
    """The figure; its children are the caption."""


class Explorable(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict] = {"set": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        try:
            settings = read_settings(self.options.get("set", ""))
            check_settings(name, settings)
        except PrivflError as error:
            raise self.error(str(error)) from error
        self.assert_has_content()
        place = Place(explorable=name, settings=json.dumps(settings))
        count = self.env.new_serialno(f"explorable-{name}")
        place["ids"] = [f"explorable-{name}" + (f"-{count + 1}" if count else "")]
        self.state.nested_parse(self.content, self.content_offset, place)
        return [place]


def enter(self, node: Place) -> None:
    known = catalog()[node["explorable"]]
    mark = f'data-explorable="{node["explorable"]}" data-title="{escape(known["title"])}"'
    self.body.append(
        f'<figure class="pf-explorable" id="{node["ids"][0]}">'
        f"<div {mark} data-set='{node['settings']}'>"
        f"<p><em>A moving picture stands here if scripts are on: {escape(known['about'])}.</em></p>"
        "</div><figcaption>"
    )


def leave(self, node: Place) -> None:
    self.body.append("</figcaption></figure>")


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree) -> None:
    """Only pages that show an explorable load its script."""
    for name in sorted({n["explorable"] for n in doctree.findall(Place)} if doctree else ()):
        app.add_js_file(f"{SCRIPTS}/explore-{name}.js", loading_method="defer")


def write_scripts(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir, SITE, "page")
        folder.mkdir(parents=True, exist_ok=True)
        for name in catalog():
            (folder / f"explore-{name}.js").write_text(page_script(name), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("js_assets")
    app.add_node(Place, html=(enter, leave))
    app.add_directive("explorable", Explorable)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
