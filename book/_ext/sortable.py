"""The script of tables that readers may sort and filter, on pages that have one."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def add_script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree) -> None:
    if doctree is not None and "pf-sortable" in context.get("body", ""):
        app.add_js_file("tables.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
