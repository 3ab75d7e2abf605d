"""What a reader can take along: the student notebooks as one file, the book as a PDF, and slides.

``{take}`notebooks```, ``{take}`pdf``` and ``{take}`slides``` are links. The notebooks are packed at
each build. The PDF is printed from the finished site (`make pdf`), and slides are made by
`make slides` (slides_link.py); where there are none, the link is the command that makes them, so
that no link leads nowhere.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from docutils import nodes
from slides_link import LIST, decks
from sphinx.application import Sphinx

BOOK = Path(__file__).resolve().parents[1]
STUDENT = BOOK / "student"
PDF, ZIP = "privfl_lite.pdf", "student/privfl_lite-notebooks.zip"
LICENSES = ("LICENSE", "LICENSE-text")
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that packing the same files gives the same bytes


class Take(nodes.Inline, nodes.Element):
    """A link to one of them; resolved when a page is written."""


def take(name, rawtext, text, lineno, inliner, options=None, content=None):
    if text not in ("notebooks", "pdf", "slides"):
        return [], [inliner.reporter.error(f"there is no {text!r} to take along", line=lineno)]
    return [Take("", what=text)], []


def printed(app: Sphinx) -> Path:
    """Where `make pdf` leaves the book: beside the site."""
    return Path(app.outdir).parent / PDF


def link(app: Sphinx, page: str, what: str) -> list[nodes.Node]:
    up = "../" * page.count("/")
    if what == "notebooks":
        count = len(list(STUDENT.glob("*.ipynb")))
        words = f"all {count} notebooks in one file"
        return [nodes.reference("", words, internal=True, refuri=up + ZIP)]
    if what == "slides":
        if count := len(decks(app)):
            words = f"slides for {count} lecture{'s' * (count > 1)}"
            return [nodes.reference("", words, internal=True, refuri=up + LIST)]
        return [
            nodes.Text("slides, which "),
            nodes.literal("", "make slides"),
            nodes.Text(" makes"),
        ]
    if not printed(app).is_file():
        return [
            nodes.Text("as a PDF, which "),
            nodes.literal("", "make pdf"),
            nodes.Text(" prints"),
        ]
    size = printed(app).stat().st_size / 1e6
    return [nodes.reference("", f"as a PDF, {size:.0f} MB", internal=True, refuri=up + PDF)]


def resolve(app: Sphinx, doctree: nodes.document, page: str) -> None:
    for node in list(doctree.findall(Take)):
        node.replace_self(link(app, page, node["what"]))


def outdated(app: Sphinx, env, added: set, changed: set, removed: set) -> list[str]:
    """The first page is read again when a PDF has come or gone."""
    now = printed(app).stat().st_mtime if printed(app).is_file() else 0
    before, env.printed_book = getattr(env, "printed_book", now), now
    return [app.config.root_doc] if before != now and app.config.root_doc in env.all_docs else []


def pack(folder: Path, target: Path) -> None:
    """All student notebooks, and the licenses, in a folder of their own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    licenses = [BOOK.parent / name for name in LICENSES]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (*sorted(folder.glob("*.ipynb")), *filter(Path.is_file, licenses)):
            entry = zipfile.ZipInfo(f"privfl_lite/{path.name}", LONG_AGO)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def bring(app: Sphinx, error: Exception | None) -> None:
    """Put both into the site."""
    if error is not None or app.builder.format != "html":
        return
    if STUDENT.is_dir():
        pack(STUDENT, Path(app.outdir, ZIP))
    copy = Path(app.outdir, PDF)
    if printed(app).is_file():
        copy.write_bytes(printed(app).read_bytes())
    else:
        copy.unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Take)
    app.add_role("take", take)
    app.connect("doctree-resolved", resolve)
    app.connect("env-get-outdated", outdated)
    app.connect("build-finished", bring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
