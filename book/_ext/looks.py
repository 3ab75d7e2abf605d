"""Looks of boxes: "Threat model" gets a class of its own (book.css), hints open on a click.

A proof with ``:class: dropdown`` opens on a click, too. What opens needs a title to click on and an
id that no other box has; sphinx-proof gives no title, and every proof the id "proof".

``{page-only}`` holds what only the page shows: no notebook has it. Its option ``:class:`` names a
style.
"""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.application import Sphinx


class PageOnly(Directive):
    has_content = True
    option_spec = {"class": directives.class_option}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        box = nodes.container(classes=self.options.get("class", []))
        self.state.nested_parse(self.content, self.content_offset, box)
        return [box]


def name_boxes(app: Sphinx, doctree: nodes.document) -> None:
    for hint in doctree.findall(nodes.hint):
        hint["classes"].append("dropdown")
    for box in doctree.findall(nodes.admonition):
        title = next(iter(box.findall(nodes.title)), None)
        if title is not None and title.astext().strip().lower().startswith("threat model"):
            box["classes"].append("threat-model")
        if {"proof", "dropdown"} <= set(box["classes"]):
            fold_proof(box)


def fold_proof(box: nodes.admonition) -> None:
    """Its first word, "Proof.", becomes its title."""
    word = next(iter(box.findall(nodes.Text)))
    word.parent.replace(word, nodes.Text(str(word).removeprefix("Proof. ")))
    box.insert(0, nodes.title("", "Proof"))
    box["ids"] = []
    box["classes"].append("folded-proof")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("page-only", PageOnly)
    app.connect("doctree-read", name_boxes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
