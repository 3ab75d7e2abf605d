"""``python -m labs [SLUG …]``: labs in ``_build/labs``, for the class of PRIVFL_CLASS_SECRET."""

from __future__ import annotations

import argparse
import sys

from privfl_lite.teach import classroom

from .build import build
from .source import questions, slugs


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="labs", description=__doc__)
    parser.add_argument("slug", nargs="*", choices=[[], *slugs()], help="by default all")
    secret = classroom.secret()
    if secret == classroom.PUBLIC:
        print("No secret is set, so anybody can make these files: make labs SECRET=…")
    for slug in parser.parse_args(argv).slug or slugs():
        folder = build(slug, secret)
        asked = questions(slug)
        graded = sum(q.points for q in asked if not q.written)
        written = sum(q.points for q in asked if q.written)
        print(f"{folder}: {graded:g} points by tests, {written:g} by people")
    return 0


if __name__ == "__main__":
    sys.exit(main())
