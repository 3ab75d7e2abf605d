"""``privfl study``: list, run or show the experiments behind the book's tables."""

from __future__ import annotations

import argparse
import os

from .. import names
from ..errors import choose
from ..studies import STUDIES
from .options import THREADS, Commands, listed, one_of


def add(commands: Commands) -> None:
    profile = ("--profile", one_of("profile", names.PROFILES), "cpu", listed(names.PROFILES))
    p = commands.add(study, profile, THREADS)
    p.add_argument("action", choices=("list", "run", "show"))
    p.add_argument("--out", metavar="DIR", help="where results are kept (default: results)")
    kind = one_of("study", STUDIES)
    p.add_argument("name", type=kind, nargs="?", metavar="NAME", help=listed(STUDIES))


def study(args: argparse.Namespace) -> dict | None:
    """List the studies, run one, or show the stored result of one."""
    if args.action == "list":
        for name, item in STUDIES.items():
            print(f"{name:24} {item.about}")
        return {"studies": list(STUDIES)}
    if args.out:
        os.environ["PRIVFL_RESULTS"] = args.out
    item = STUDIES[choose("study", args.name or "", STUDIES)]
    result = item.run(args.profile, show=not args.quiet) if args.action == "run" else item.show()
    print(f"{result['about']}\n{result['command']}\n")
    print("\n".join(_table(result["cells"])))
    return result


def _table(cells: list[dict]) -> list[str]:
    """Cells as lines of text: what is a number or a short text, and the mean of lists of numbers.

    Cells of one kind, with the same keys, stand under one head; pictures and nested results are
    left to ``--json``.
    """

    def short(value: object) -> str | None:
        if isinstance(value, list) and value and all(isinstance(v, int | float) for v in value):
            return f"{sum(value) / len(value):.4g} (mean of {len(value)})"
        if isinstance(value, float):
            return f"{value:.4g}"
        whole = isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= 40)
        return str(value) if whole else None

    lines: list[str] = []
    head: tuple[str, ...] = ()
    rows = [{k: s for k, v in cell.items() if (s := short(v)) is not None} for cell in cells]
    for row in sorted(rows, key=lambda row: list(rows[0]) != list(row)):
        if tuple(row) != head:
            head = tuple(row)
            alike = [r for r in rows if tuple(r) == head]
            wide = [max(len(k), *(len(r[k]) for r in alike)) for k in head]
            lines += [*[""] * bool(lines), "  ".join(map(str.ljust, head, wide)).rstrip()]
        lines.append("  ".join(map(str.ljust, row.values(), wide)).rstrip())
    return lines
