"""Figures of the chapter "Your own run", from its stored studies."""

from __future__ import annotations

import statistics
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from ...pictures import unpack, unpack_color
from ...runtime import choose
from ...studies import STUDIES
from ..figures import COLORS, show_image

CAUSES = (
    "update taken for a gradient",
    "several steps taken for one",
    "momentum left out",
    "batch norm in the other mode",
    "labels in another order",
    "a mean of clients taken for one",
)


SEARCHES = {"idlg": "L-BFGS", "gs": "GS"}


def report() -> dict[str, Any]:
    """The stored report of resnet18 with the most evaluations."""
    cells = STUDIES["your-own-run/photograph"].show()["cells"]
    return max(cells, key=lambda c: c["evaluations"])


def hook() -> Figure:
    """The private photograph, and what each search made of its gradient."""
    told = report()
    ran = [a for a in told["attempts"] if a["found"]]
    fig, axes = plt.subplots(1, 1 + len(ran), figsize=(5.0, 2.0))
    show_image(axes[0], unpack_color(told["truth"]), "private")
    for ax, a in zip(axes[1:], ran, strict=True):
        title = f"{SEARCHES[a['attack']]}\n{a['psnr'][0]:.1f} dB"
        show_image(ax, unpack_color(a["found"]), title, COLORS["attack"])
    return fig


def searched() -> list[str]:
    """What each search of the stored reports brought back, a line each, small budgets first."""
    cells = STUDIES["your-own-run/photograph"].show()["cells"]
    return [
        f"{SEARCHES[a['attack']]}, {cell['evaluations']} evaluations: {a['outcome']}, "
        f"{a['psnr'][0]:.1f} dB"
        for cell in sorted(cells, key=lambda c: c["evaluations"])
        for a in cell["attempts"]
        if a["found"]
    ]


def stored(name: str) -> dict[str, Any]:
    """The stored cell of one cause."""
    choose("cause", name, CAUSES)
    cells = STUDIES["your-own-run/causes"].show()["cells"]
    return next(c for c in cells if c["cause"] == name)


def before_after(cause: str) -> Figure:
    """The private digit, what was found as it was read at first, and as it was made."""
    cell = stored(cause)
    fig, axes = plt.subplots(1, 3, figsize=(5.0, 2.2))
    titles = {"truth": "private", "before": "read wrongly", "after": "read as made"}
    for ax, (key, title) in zip(axes, titles.items(), strict=True):
        score = f"\n{cell[f'psnr_{key}'][0]:.1f} dB" if key != "truth" else "\n"
        ink = "black" if key == "truth" else COLORS["attack"]
        show_image(ax, unpack(cell["pictures"][key]), title + score, ink)
    return fig


def words(cause: str) -> str:
    """What ``before_after`` shows, for who does not see it."""
    cell = stored(cause)
    before, after = (cell[f"psnr_{k}"][0] for k in ("before", "after"))
    return (
        f"{cause}: the private digit; what the search found as the upload was read at first, "
        f"{before:.1f} dB; and as it was made, {after:.1f} dB"
    )


def rows() -> list[dict[str, Any]]:
    """The table of causes: medians over the networks, before and after the cure."""
    return [
        {
            "cause": name,
            "before": statistics.median(cell["psnr_before"]),
            "after": statistics.median(cell["psnr_after"]),
            "networks": len(cell["psnr_after"]),
        }
        for name in CAUSES
        for cell in [stored(name)]
    ]
