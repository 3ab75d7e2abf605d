"""``privfl study``: list, run or show the experiments behind the book's tables."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .. import names
from ..errors import PrivflError, choose
from ..studies import STUDIES
from .options import THREADS, Commands, listed, one_of

if TYPE_CHECKING:
    from ..studies import Study


def add(commands: Commands) -> None:
    profile = ("--profile", one_of("profile", names.PROFILES), "cpu", listed(names.PROFILES))
    p = commands.add(study, profile, THREADS)
    p.add_argument("action", choices=("list", "run", "show", "cell"))
    p.add_argument("--out", metavar="DIR", help="where results are kept (default: results)")
    kind = one_of("study", STUDIES)
    p.add_argument("name", type=kind, nargs="?", metavar="NAME", help=listed(STUDIES))
    setting = "with cell: the settings of one cell, as attack=gs seed=1"
    p.add_argument("settings", nargs="*", metavar="SETTING", help=setting)
    p.add_argument("--seed", type=int, help="with cell: a seed of yours")
    p.add_argument("--keep", action="store_true", help="with cell: keep it among your own results")


def study(args: argparse.Namespace) -> dict | None:
    """List the studies, run one, show its stored result, or compute one cell of it again."""
    if args.action == "list":
        for name, item in STUDIES.items():
            print(f"{name:24} {item.about}")
        return {"studies": list(STUDIES)}
    if args.out:
        os.environ["PRIVFL_RESULTS"] = args.out
    item = STUDIES[choose("study", args.name or "", STUDIES)]
    if args.action == "cell":
        return _cell(item, args)
    if args.settings or args.keep or args.seed is not None:
        raise PrivflError("settings, --seed and --keep go with: privfl study cell NAME")
    result = item.run(args.profile, show=not args.quiet) if args.action == "run" else item.show()
    print(f"{result['about']}\n{result['command']}\n")
    print("\n".join(_table(result["cells"])))
    return result


def _cell(item: Study, args: argparse.Namespace) -> dict:
    """Compute one cell and print its numbers beside the stored ones."""
    from ..studies import one_cell

    pairs = [text.partition("=") for text in args.settings]
    if not all(key and equals for key, equals, _ in pairs):
        raise PrivflError("write the settings of a cell as attack=gs seed=1")
    cell = one_cell.find(item, {key: text for key, _, text in pairs}, args.profile)
    row = one_cell.compute(item, cell, args.profile, args.seed)
    stored = one_cell.stored(item, cell)
    before = one_cell.scores(stored or {}, cell)
    rows = [
        {"score": k, "now": v, "stored": before.get(k, "-")}
        for k, v in one_cell.scores(row, cell).items()
    ]
    print(" ".join(f"{key}={value}" for key, value in cell.items()))
    print("\n".join(_table(rows)))
    kept = one_cell.keep(item, cell, row) if args.keep else None
    return {"study": item.name, "cell": cell, "now": row, "stored": stored, "kept": kept}


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
