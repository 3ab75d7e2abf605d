"""Figures of the chapter "At a million clients": measured points on the lines of the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...laws import cells, ratios, seconds
from ...planning import LENET, Federation
from ...privacy import account, epsilon
from ...studies import STUDIES
from ...studies.all_against_all.rows import ROWS, build
from ..figures import COLORS
from ..tables import Spread

MILLION = 10**6
SIZES = [int(n) for n in np.logspace(1, 6, 41)]
Pick = Callable[[Federation], float]


def line(ax: Axes, pick: Pick, end: int, color: str, label: str, **settings: Any) -> None:
    """A number of the plan against the cohort: solid as far as it was measured, dashed beyond."""
    ys = [pick(Federation(n, max(n, MILLION), **settings)) for n in SIZES]
    near = [(n, y) for n, y in zip(SIZES, ys, strict=True) if n <= end]
    far = [(n, y) for n, y in zip(SIZES, ys, strict=True) if n >= end]
    style: dict[str, Any] = {"color": COLORS[color], "lw": 2}
    if near:
        ax.plot(*zip(*near, strict=True), label=label, **style)
    ax.plot(*zip(*far, strict=True), ls="--", label=None if near else label, **style)


def dots(ax: Axes, found: list[tuple[int, float]], color: str, hollow: bool = False) -> None:
    """What was measured."""
    face = "white" if hollow else COLORS[color]
    ax.plot(*zip(*found, strict=True), "o", ms=7, mfc=face, mec=COLORS[color], mew=1.6, zorder=5)


def logs(ax: Axes, ylabel: str) -> None:
    ax.set(xscale="log", yscale="log", ylabel=ylabel, xlim=(7, 1.4e6))
    ax.set_xticks([10, 100, 1000, 10**4, 10**5, 10**6])


def hook() -> Figure:
    """Bytes into the server and seconds of a client, for one round of the study's LeNet."""
    fig, (top, low) = plt.subplots(2, 1, figsize=(4.8, 6.2))
    for sums, color, label in SUMS:
        end = {"none": 10**4, "pairs": 1000, "graph": 0}[sums]
        line(top, lambda f: f.cohort * f.bytes_up, end, color, label, summing=sums)
        line(low, lambda f: f.seconds_client, min(end, 1000), color, label, summing=sums)
    dots(top, [(c["clients"], c["bytes_up"]) for c in cells("run", net="lenet")], "defense")
    scale = [(c["clients"], c["bytes_up"] * LENET / c["numbers"]) for c in cells("run", net="mlp")]
    dots(top, scale[-1:], "defense", hollow=True)
    bare = [(c["clients"], c["seconds_client"]) for c in cells("run", net="lenet")]
    dots(low, bare, "defense")
    dots(low, masked(), "attack")
    logs(top, "bytes into the server")
    logs(low, "seconds of one client")
    low.set_xlabel("clients in a round")
    top.legend(fontsize=10, loc="upper left")
    return fig


SUMS = [("none", "defense", "no masks"), ("pairs", "attack", "masks in pairs"),
        ("graph", "good", "a graph of masks")]  # fmt: skip


def masked() -> list[tuple[int, float]]:
    """Seconds of a client that trains, masks and cuts its shares, where all three were measured."""
    masks = {c["clients"]: c["seconds_client"] for c in cells("masks", numbers=LENET)}
    bare = seconds()["client"]
    return [
        (c["clients"], bare + masks[c["clients"]] + c["seconds_client"]) for c in cells("shares")
    ]


def memory() -> Figure:
    """Peak of a server that adds as uploads come, and of one that keeps them; measured."""
    fig, ax = plt.subplots(figsize=(4.8, 3.6))
    numbers = cells("run", net="mlp")[0]["numbers"]
    for kept, color, label in ((True, "attack", "keeps every upload"),
                               (False, "defense", "adds as they come")):  # fmt: skip
        found = cells("memory", kept=kept)
        dots(ax, [(c["clients"], c["time_peak_bytes"]) for c in found], color)
        pick: Pick = (lambda f: f.memory_kept) if kept else (lambda f: f.memory)
        line(ax, pick, 0, color, label, numbers=numbers)
    logs(ax, "bytes")
    ax.set_xlabel("clients in a round")
    ax.legend(fontsize=10, loc="upper left")
    return fig


def levels() -> Figure:
    """ε against the cohort at a fixed noise on the model, by the accountant."""
    fig, ax = plt.subplots(figsize=(4.8, 3.6))
    for s, color in ((3e-4, "attack"), (1e-4, "defense"), (3e-5, "good")):
        sizes = [n for n in SIZES if s * n >= 0.35 and n < MILLION][:36]
        spent = [epsilon(min(s * n, 1e4), n / MILLION, 1000, 0.1 / MILLION) for n in sizes]
        ax.plot(sizes, spent, lw=2, color=COLORS[color], label=f"{s:.5f} C")
        ax.axvline(1 / s, color=COLORS[color], ls=":", lw=1)
    ax.set(xscale="log", yscale="log", xlabel="clients in a round", ylabel="ε", xlim=(7, 1.4e6))
    ax.set_xticks([10, 100, 1000, 10**4, 10**5, 10**6])
    ax.legend(fontsize=10, title="noise on the mean")
    return fig


def measured() -> list[dict[str, Any]]:
    """Seconds as they were measured, with their range and the machine's load, beside the law."""
    law, rows = seconds(), []
    for cell in cells("run"):
        law_here = law["client"] if cell["net"] == "lenet" else None
        rows.append(_row("a client trains", cell, "seconds_client", law_here))
    for cell in cells("mean"):
        each = cell["numbers"] * law["add_number"] + cell["tensors"] * law["add_tensor"]
        found = law["round"] + cell["clients"] * each
        rows.append(_row("the server adds", cell, "seconds_server", found))
    for cell in cells("masks"):
        size = (cell["numbers"] + 1) * law["mask_number"]
        found = (cell["clients"] - 1) * law["agreement"] + cell["clients"] * size
        rows.append(_row("a client masks", cell, "seconds_client", found))
    for cell in cells("shares"):
        plan = Federation(cell["clients"], cell["clients"], summing="pairs").masks
        assert plan is not None
        found = 2 * cell["clients"] * (plan.threshold - 1) * law["share_term"]
        rows.append(_row("a client cuts shares", cell, "seconds_client", found))
    for cell in cells("unmask"):
        plan = Federation(
            cell["clients"], cell["clients"], numbers=cell["numbers"], summing="pairs"
        ).masks
        assert plan is not None
        found = plan.seconds_server(cell["clients"])
        rows.append(_row("the server unmasks", cell, "seconds_server", found))
    return rows


def _row(what: str, cell: dict[str, Any], key: str, law: float | None) -> dict[str, Any]:
    each = cell[f"{key}_each"]
    return {
        "what": what,
        "clients": cell["clients"],
        "numbers": cell.get("numbers"),
        "median": Spread(1000 * cell[key], 1000 * min(each), 1000 * max(each)),
        "law": None if law is None else 1000 * law,
        "load": cell["time_load"],
    }


def defenses(cohort: int = 1000, rounds: int = 1000) -> list[dict[str, Any]]:
    """What each defense adds: ratios as measured, ε of this plan or why there is none."""
    settings = STUDIES["all-against-all/table"].show()["settings"]
    plan, found = Federation(cohort, MILLION, rounds), []
    for name, row in ROWS.items():
        if name == "none":
            continue
        made = build(settings, name, row.data[0], 0.1, 0, settings["craft"])
        spent = account(made, plan.training, 0.1 / MILLION)
        cost = ratios(settings["rows"][name])
        sums = next((e for e in spent.also if e.against == "sums" and e.value), None)
        text = (spent.reason.partition(": ")[2] or spent.reason).partition(", so")[0]
        why = f"per {spent.unit}" if spent.value is not None else f"none: {text}"
        why += f"; sums {sums.value:.2g}" if sums else ""
        found.append({"defense": name, "up": cost.bytes * plan.bytes_up / 1000,
                      "time": cost.time, "ε": spent.value, "unit, or why none": why})  # fmt: skip
    return found
