"""Looks: "Threat model" gets a class of its own (book.css), hints open on a click.

A proof with ``:class: dropdown`` opens on a click, too. What opens needs a title to click on and an
id that no other box has; sphinx-proof gives no title, and every proof the id "proof".

A comma stays on the line of the formula before it: browsers would break the line between the two.

``{page-only}`` holds what only the page shows: no notebook has it. Its option ``:class:`` names a
style.
"""

from __future__ import annotations

import re

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.application import Sphinx

MARKS = re.compile(r"[.,;:!?%)\]’”'\"]+")


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


def keep_marks(app: Sphinx, doctree: nodes.document) -> None:
    for formula in list(doctree.findall(nodes.math)):
        after = formula.next_node(descend=False, siblings=True)
        if isinstance(after, nodes.Text) and (marks := MARKS.match(after)):
            parent, rest = formula.parent, nodes.Text(after[marks.end() :])
            place = parent.index(formula)
            kept = nodes.inline("", "", formula, nodes.Text(marks[0]), classes=["pf-keep"])
            parent[place : place + 2] = [kept, rest]


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
    app.connect("doctree-read", keep_marks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
