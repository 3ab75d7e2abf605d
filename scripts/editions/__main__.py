"""Make the editions of chapters from their sources.

Example: ``PYTHONPATH=scripts python -m editions dcs2``; without a name, of all chapters.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

from . import copies, executed, full
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
    ran = executed.make(slug, cells, load(BOOK / f"{slug}.ipynb"), rerun)
    seconds = ran["metadata"]["privfl"]["seconds"]
    student = copies.make(slug, cells, index, seconds, "student")
    return {BOOK / f"{slug}.ipynb": dump(ran), BOOK / "student" / f"{slug}.ipynb": dump(student)}


def built(slug: str, index: Index, edition: str) -> dict[Path, str]:
    """The "instructor" or the "full" copy of a chapter, which are not committed."""
    cells = read(SOURCES / f"{slug}.md")
    if not (ran := load(BOOK / f"{slug}.ipynb")):
        raise EditionError(f"book/{slug}.ipynb is not there yet: make chapters CHAPTER={slug}")
    if edition == "full":
        copy = full.make(slug, cells, index, ran)
    else:
        seconds = ran["metadata"]["privfl"]["seconds"]
        copy = copies.make(slug, cells, index, seconds, edition)
    copy["metadata"]["privfl"] = {"digest": digest(copy)}
    return {ROOT / "_build" / edition / f"{slug}.ipynb": dump(copy)}


def digest(notebook: dict) -> str:
    """Of all that a person may have changed in the cells of a notebook."""
    sources = ["".join(cell["source"]) for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]


def spare(files: dict[Path, str]) -> dict[Path, str]:
    """Without the copies in _build whose cells somebody changed; says which are kept."""
    free = {}
    for path, text in files.items():
        old = load(path)
        if old and old["metadata"].get("privfl", {}).get("digest") != digest(old):
            print(f"{path}: kept, because its cells were changed; move it away to have it anew")
        else:
            free[path] = text
    return free


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
    parser.add_argument("--edition", choices=["instructor", "full"], help="make this one in _build")
    given = parser.parse_args()
    try:
        index = read_index()
        for slug in given.chapter or slugs():
            if slug not in slugs():
                raise EditionError(f"there is no source book/src/{slug}.md that _toc.yml names")
            files = (
                spare(built(slug, index, given.edition))
                if given.edition
                else editions(slug, index, given.rerun)
            )
            for name in write(files):
                print(name)
    except EditionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
