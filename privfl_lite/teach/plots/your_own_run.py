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


SHOWN = 4  # the photograph of the first picture


def reports() -> list[dict[str, Any]]:
    """The stored reports of resnet18, by photograph and evaluations."""
    cells = STUDIES["your-own-run/photograph"].show()["cells"]
    return sorted(cells, key=lambda c: (c["image"], c["evaluations"]))


def attempt(told: dict[str, Any], attack: str) -> dict[str, Any]:
    """What one search of a report brought back."""
    return next(a for a in told["attempts"] if a["attack"] == attack)


def one_color(told: dict[str, Any]) -> float:
    """The PSNR of the best picture of one color: its mean, which no attacker knows."""
    truth = unpack_color(told["truth"])
    spread = (truth - truth.mean((-2, -1), keepdim=True)).square().mean()
    return float(-10 * spread.log10())


def hook() -> Figure:
    """One photograph, and what GS made of its gradient with few and with more evaluations."""
    told = [c for c in reports() if c["image"] == SHOWN][1:]
    fig, axes = plt.subplots(1, 1 + len(told), figsize=(5.0, 2.0))
    show_image(axes[0], unpack_color(told[0]["truth"]), "private\n")
    for ax, cell in zip(axes[1:], told, strict=True):
        gs = attempt(cell, "gs")
        title = f"{cell['evaluations']} evaluations\n{gs['psnr'][0]:.1f} dB, {gs['outcome']}"
        show_image(ax, unpack_color(gs["found"]), title, COLORS["attack"])
    return fig


def searched(attack: str = "gs") -> list[dict[str, Any]]:
    """A row for each photograph: a search's PSNR by evaluations, and what the last report says."""
    rows: list[dict[str, Any]] = []
    for image in dict.fromkeys(c["image"] for c in reports()):
        cells = [c for c in reports() if c["image"] == image]
        tries = {c["evaluations"]: attempt(c, attack) for c in cells}
        scores = {f"after {n}": a["psnr"][0] for n, a in tries.items()}
        last = tries[max(tries)]["outcome"]
        flat = {"one color": one_color(cells[0])}
        rows.append({"photograph": str(image + 1), **scores, **flat, "the last report says": last})
    return rows


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
