"""Make the decks of chapters in ``_build/slides``.

Example: ``PYTHONPATH=scripts python -m slides dcs2``; without a name, of all chapters.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from editions.chapter import ROOT
from editions.myst import EditionError
from editions.numbers import read_index

from .deck import listing, page
from .pick import deck, find

TARGET = ROOT / "_build" / "slides"


def make(slugs: list[str], target: Path) -> int:
    """Write the decks; how many there are."""
    index = read_index()
    made = [deck(slug, index) for slug in find(slugs, index)]
    target.mkdir(parents=True, exist_ok=True)
    for one in made:
        (target / f"{one.slug}.html").write_text(page(one), encoding="utf-8")
    if not slugs:
        for old in target.glob("*.html"):
            if old.stem not in [one.slug for one in made]:
                old.unlink()
        (target / "index.html").write_text(listing(made), encoding="utf-8")
    return len(made)


def main() -> int:
    parser = argparse.ArgumentParser(prog="slides", description=__doc__)
    parser.add_argument("chapter", nargs="*", help="such as dcs2; default: all")
    parser.add_argument("--to", type=Path, default=TARGET, help="the folder to write to")
    given = parser.parse_args()
    try:
        count = make(given.chapter, given.to)
    except EditionError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{count} decks in {given.to.resolve().as_uri()}; `make book` links to them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
