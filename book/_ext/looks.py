"""Looks of boxes: "Threat model" gets a class of its own (book.css), hints open on a click."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx


def name_boxes(app: Sphinx, doctree: nodes.document) -> None:
    for hint in doctree.findall(nodes.hint):
        hint["classes"].append("dropdown")
    for box in doctree.findall(nodes.admonition):
        title = next(iter(box.findall(nodes.title)), None)
        if title is not None and title.astext().strip().lower().startswith("threat model"):
            box["classes"].append("threat-model")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", name_boxes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
