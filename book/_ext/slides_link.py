"""Slides of the chapters: copied into the site if `make slides` made them, and linked from them.

The link stands behind what a chapter needs and leads to, at its top. Where there is no deck there
is no link.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

FOLDER = "slides"  # of the site, and beside it
LIST = f"{FOLDER}/index.html"
MINUTES = re.compile(r'data-minutes="([\d.]+)"')


def decks(app: Sphinx) -> dict[str, Path]:
    """Slug -> deck, of those that `make slides` left beside the site; none without their list."""
    folder = Path(app.outdir).parent / FOLDER
    found = {path.stem: path for path in sorted(folder.glob("*.html"))}
    return found if found.pop("index", None) else {}


def minutes(deck: Path) -> int:
    """How long a deck takes."""
    return round(sum(map(float, MINUTES.findall(deck.read_text(encoding="utf-8")))))


def link(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Name the slides of a chapter at its top."""
    deck = decks(app).get(page.removeprefix("book/"))
    needs = next((p for p in doctree.findall(nodes.paragraph) if is_needs(p)), None)
    if not deck or needs is None:
        return
    address = "../" * page.count("/") + f"{FOLDER}/{deck.name}"
    words = f"for a lecture of {minutes(deck)} minutes"
    needs += nodes.Text(" ")
    needs += nodes.strong("", "Slides")
    needs += nodes.Text(" ")
    needs += nodes.reference("", words, internal=True, refuri=address)
    needs += nodes.Text(".")


def is_needs(paragraph: nodes.paragraph) -> bool:
    first = next((part for part in paragraph.children if part.astext()), None)  # MyST puts "" first
    return isinstance(first, nodes.strong) and first.astext() == "You need"


def outdated(app: Sphinx, env, added: set, changed: set, removed: set) -> list[str]:
    """Pages whose deck has come, gone or changed are read again, and with them the first page."""
    now = {slug: path.stat().st_mtime for slug, path in decks(app).items()}
    before, env.slide_decks = getattr(env, "slide_decks", now), now
    new = {f"book/{slug}" for slug, _ in now.items() ^ before.items()}
    return sorted((new | {app.config.root_doc} if new else new) & set(env.all_docs))


def bring(app: Sphinx, error: Exception | None) -> None:
    """Put the decks into the site, or take old ones out."""
    if error is not None or app.builder.format != "html":
        return
    target = Path(app.outdir, FOLDER)
    shutil.rmtree(target, ignore_errors=True)
    if found := decks(app):
        target.mkdir()
        for path in (*found.values(), *(next(iter(found.values())).parent.glob("index.html"))):
            shutil.copy(path, target)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", link)
    app.connect("env-get-outdated", outdated)
    app.connect("build-finished", bring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
