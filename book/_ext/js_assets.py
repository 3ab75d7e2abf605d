"""The ES modules of privfl_lite/teach/js, copied as they are to ``_static/js`` of the built site.

An extension that needs them calls ``app.setup_extension("js_assets")``: they are copied once,
however many ask.
"""

from __future__ import annotations

import posixpath
import shutil
from pathlib import Path

from sphinx.application import Sphinx

import privfl_lite

SOURCE = Path(privfl_lite.__file__).parent / "teach" / "js"
SITE = "_static/js"  # of the built site


def address(page: str, file: str) -> str:
    """The relative address of a file of ``js/``, seen from a page ("book/loda")."""
    return posixpath.relpath(f"{SITE}/{file}", posixpath.dirname(page) or ".")


def copy(app: Sphinx, error: Exception | None) -> None:
    """Copy the folder, so that what was deleted there is gone here too."""
    if error is None and app.builder.format == "html":
        shutil.rmtree(Path(app.outdir, SITE), ignore_errors=True)
        shutil.copytree(SOURCE, Path(app.outdir, SITE))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", copy, priority=400)  # before those who add files to it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
