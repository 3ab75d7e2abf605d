"""``privfl compare``: defenses against attacks, a matrix."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from statistics import median
from typing import TYPE_CHECKING

import privfl_lite as pf

from .. import names
from ..errors import PrivflError, choose
from .attack import ATTACKS, TARGET, attack_once, build_attack, simulate
from .options import Commands, png, settings

if TYPE_CHECKING:
    from ..data import Dataset


def add(commands: Commands) -> None:
    p = commands.add(
        compare,
        *TARGET,
        ("--defenses", str, ",".join(names.DEFENSES), "names joined by commas"),
        ("--attacks", str, "recursive,idlg,gs,informed", f"of {', '.join(ATTACKS)}"),
    )
    p.add_argument("--csv", metavar="FILE", help="write the matrix as a table")
    p.add_argument("--png", metavar="FILE", help="draw the matrix of PSNR")
    text = "what is printed: median PSNR, or the share named among 100 candidates by pixels"
    p.add_argument("--score", choices=("psnr", "named"), default="psnr", help=text)
    p.set_defaults(knows=["labels"], images=4, steps=300)  # minutes, not hours


def compare(args: argparse.Namespace) -> dict:
    """Defenses, at their default settings, against attacks: a matrix of PSNR, or of names."""
    if args.png:  # first, because it may be missing
        from ..teach.figures import matrix, style
    images = pf.data.load(args.dataset, args.size)
    defenses, attacks = args.defenses.split(","), args.attacks.split(",")
    for kind, chosen, table in (
        ("defense", defenses, pf.defenses.DEFENSES),
        ("attack", attacks, ("informed", *pf.attacks.ATTACKS)),
    ):
        for name in chosen:
            choose(kind, name.strip(), table)
    for name in attacks:  # settings that fit nothing at all are told now, and not in every cell
        build_attack(args, name.strip(), defenses[0].strip(), strict=False)
    simulate(args, "none", images, pf.attacks.ClosedForm())
    wide = max(len(name) for name in attacks) + 2
    title = "median PSNR, dB" if args.score == "psnr" else "named of 100"
    print(f"{title:16}" + "".join(f"{name:>{wide}}" for name in attacks))
    rows: list[dict] = []
    try:
        for defense in defenses:
            print(f"{defense:16}", end="", flush=True)
            sent: dict = {}  # shared once for equal needs: some defenses search for long
            for name in attacks:
                rows.append(_cell(args, defense, name, images, sent))
                told = rows[-1].get("psnr_median" if args.score == "psnr" else "named")
                form = ".1f" if args.score == "psnr" else ".2f"
                print(f"{'·' if told is None else format(told, form):>{wide}}", end="", flush=True)
            print()
    except KeyboardInterrupt:
        print("\nstopped; the cells above are kept", file=sys.stderr)
    print(f"· does not apply; {args.images} images, {args.model} on {args.dataset}, untrained")
    if args.csv:
        args.outputs["csv"] = _csv(rows)
    if args.png:
        style()
        args.outputs["png"] = png(matrix(rows, defenses, attacks))
    return {**settings(args, images), "table": rows}


def _cell(args: argparse.Namespace, defense: str, name: str, images: Dataset, sent: dict) -> dict:
    row = {"defense": defense, "attack": name}
    try:
        tool = build_attack(args, name, defense, strict=False)
        if tool.needs not in sent:
            sent[tool.needs] = simulate(args, defense, images, tool)
        pool = images.x_train if args.score == "named" else None
        result, _ = attack_once(args, tool, sent[tool.needs], pool)
    except PrivflError as error:
        return {**row, "does_not_apply": str(error)}
    psnr = median(image["psnr"] for image in result["per_image"])
    return {**row, "by": type(tool).__name__, "psnr_median": psnr, **result}


def _csv(rows: list[dict]) -> str:
    scores = ("psnr_median", "named", "seconds")
    columns = ("defense", "attack", "by", "letter", *scores, "does_not_apply")
    file = io.StringIO(newline="")
    table = csv.DictWriter(file, columns, extrasaction="ignore")
    table.writeheader()
    table.writerows(rows)
    return file.getvalue()
