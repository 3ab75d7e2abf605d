"""``privfl plan``: what a federation will cost, before it runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .options import DEFENSE, Commands, one_of, plain, positive

if TYPE_CHECKING:
    from ..planning import Line

SUMS = ("none", "pairs", "graph")


def add(commands: Commands) -> None:
    commands.add(
        plan,
        ("--cohort", positive, 1000, "clients in a round"),
        ("--population", positive, 1_000_000, "clients in all"),
        ("--rounds", positive, 1000, "how many"),
        ("--numbers", positive, None, "of an upload, 32 bits each; else our LeNet's"),
        ("--mbit", float, 10.0, "of a client's link, Mbit/s each way"),
        ("--train", float, None, "seconds that one undefended client trains; else our LeNet's"),
        DEFENSE,
        ("--summing", one_of("secure sum", SUMS), "none", f"a secure sum: {', '.join(SUMS)}"),
        ("--sampling", str, "fixed", "fixed (clients take turns) or poisson"),
        ("--examples", positive, 20, "of each client"),
        ("--batch-size", positive, 10, "local"),
        ("--delta", float, None, "δ of (ε, δ)-DP; else a tenth of one over the population"),
    )


def plan(args: argparse.Namespace) -> dict:
    """What a federation will cost: bytes, seconds, memory and ε, and where each number is from."""
    from ..planning import Federation  # slow
    from ..wire import Plan

    given = {k: v for k, v in plain(args).items() if v is not None and k != "batch_size"}
    made = Federation(**given, plan=Plan(batch_size=args.batch_size))
    lines = made.lines()
    for line in lines:
        print(f"{line.what}: {_said(line)} ({line.how})")
    return {"settings": plain(args), "lines": [line._asdict() for line in lines]}


def _said(line: Line) -> str:
    return "none" if line.value is None else f"{line.value:,.4g} {line.unit}"
