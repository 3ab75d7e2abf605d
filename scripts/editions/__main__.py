"""Make the editions of chapters from their sources.

Example: ``PYTHONPATH=scripts python -m editions dcs2``; without a name, of all chapters.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from . import copies, executed
from .chapter import ROOT, SOURCES, read, slugs
from .myst import EditionError
from .numbers import Index, read_index

BOOK = ROOT / "book"


def load(path: Path) -> dict | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def dump(notebook: dict) -> str:
    """A notebook as text, one line of source a line."""
    cells = [{**c, "source": c["source"].splitlines(keepends=True)} for c in notebook["cells"]]
    return (
        json.dumps({**notebook, "cells": cells}, indent=1, ensure_ascii=False, sort_keys=True)
        + "\n"
    )


def editions(slug: str, index: Index, rerun: bool = False) -> dict[Path, str]:
    """The committed files of a chapter, as they should be."""
    cells = read(SOURCES / f"{slug}.md")
    full = executed.make(slug, cells, load(BOOK / f"{slug}.ipynb"), rerun)
    seconds = full["metadata"]["privfl"]["seconds"]
    student = copies.make(slug, cells, index, seconds, solutions=False)
    return {BOOK / f"{slug}.ipynb": dump(full), BOOK / "student" / f"{slug}.ipynb": dump(student)}


def instructor(slug: str, index: Index) -> dict[Path, str]:
    """The instructor's copy of a chapter, which is not committed."""
    cells = read(SOURCES / f"{slug}.md")
    seconds = (load(BOOK / f"{slug}.ipynb") or {})["metadata"]["privfl"]["seconds"]
    copy = copies.make(slug, cells, index, seconds, solutions=True)
    return {ROOT / "_build" / "instructor" / f"{slug}.ipynb": dump(copy)}


def write(files: dict[Path, str]) -> list[str]:
    """Write what changed; the paths of those files."""
    changed = []
    for path, text in files.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path.relative_to(ROOT).as_posix())
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(prog="editions", description=__doc__)
    parser.add_argument("chapter", nargs="*", help="such as dcs2; default: all")
    parser.add_argument("--rerun", action="store_true", help="execute even if no code changed")
    parser.add_argument("--instructor", action="store_true", help="make the instructor edition")
    given = parser.parse_args()
    try:
        index = read_index()
        for slug in given.chapter or slugs():
            if slug not in slugs():
                raise EditionError(f"there is no source book/src/{slug}.md that _toc.yml names")
            files = (
                instructor(slug, index) if given.instructor else editions(slug, index, given.rerun)
            )
            for name in write(files):
                print(name)
    except EditionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
