"""Chapters by number, and the right file behind every button.

``{numref}`chapter-dcs2``` gives "Chapter 15": every page has such a label. The buttons for Colab,
Binder and download lead to ``book/student/<slug>.ipynb``, which is copied into the site. "Suggest
edit" leads to the text that people edit, ``book/src/<slug>.md``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

STUDENT = Path(__file__).resolve().parents[1] / "student"


def label_page(app: Sphinx, doctree: nodes.document) -> None:
    """The label chapter-<slug> at a page's title."""
    section = next(iter(doctree.findall(nodes.section)), None)
    if section is not None:
        docname = app.env.docname
        name = f"chapter-{docname.rpartition('/')[2]}"
        standard = app.env.get_domain("std")
        standard.labels[name] = (docname, section["ids"][0], section[0].astext())
        standard.anonlabels[name] = (docname, section["ids"][0])


def lead_to_student(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    """Let the buttons of a chapter open its student edition."""
    slug = page.rpartition("/")[2]
    if not (STUDENT / f"{slug}.ipynb").is_file():
        return
    for group in context["header_buttons"]:
        for button in group.get("buttons", []):
            if group["label"] == "launch-buttons":
                button["url"] = button["url"].replace(f"{page}.ipynb", f"book/student/{slug}.ipynb")
            elif button["label"] == "download-source-button":
                button["url"] = context["pathto"](f"student/{slug}.ipynb", 1)
                button["tooltip"] = "Download the student notebook"
            elif button["label"] == "source-edit-button":
                button["url"] = button["url"].replace(f"{page}.ipynb", f"book/src/{slug}.md")


def copy_student(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html" and STUDENT.is_dir():
        shutil.copytree(STUDENT, Path(app.outdir, "student"), dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", label_page)
    app.connect("html-page-context", lead_to_student, priority=502)  # the theme's are at 501
    app.connect("build-finished", copy_student)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
