"""The doors of a client, and which defense stands at which (Part III, first in modelcloak-fixed).

``draw("update")`` marks one door, for the chapter of a defense that guards it. That the names stand
at the right doors is tested against the package (tests/unit/test_doors.py).
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..figures import COLORS
from .kit import arrow, box, paper, write

DOORS = {  # door -> (what passes through it, defenses that stand there)
    "data": ("images", ("Mixup", "InstaHide", "ATS", "LODA")),
    "model": ("the network", ("PRECODE", "FedKL")),
    "gradient": ("one step's gradient", ("Prune", "Soteria", "DPSGD", "DPGaussian", "DCS2")),
    "update": ("what leaves the client", ("ModelCloak", "Entangle", "POGZFL", "CAFL")),
    "average": ("mean of all clients", ("ModelCloak",)),
}
WRITTEN = {  # as the book writes them
    "DPSGD": "DP-SGD",
    "DPGaussian": "raw noise",
    "DCS2": "DCS²",
    "Entangle": "Entanglement",
    "POGZFL": "POGZ-FL",
    "CAFL": "CA-FL",
}


def draw(marked: str = "") -> Figure:
    """From private images (top) to the server's mean (bottom), one line for each door."""
    fig, ax = paper(12, 12.4)
    box(ax, 0.2, 3.7, 11.6, 8.5, fill="client")
    box(ax, 0.2, 0.2, 11.6, 2.4, fill="server")
    write(ax, 0.5, 11.8, "client", ha="left")
    write(ax, 0.5, 0.55, "server", ha="left")
    write(ax, 2.9, 11.8, "private images", COLORS["attack"])
    heights = (10.2, 8.3, 6.4, 4.5, 1.5)
    for (door, (passes, names)), y in zip(DOORS.items(), heights, strict=True):
        _door(ax, y, door, passes, names, door == marked)
    for top, bottom in zip((11.6, *heights), heights, strict=False):
        start = top if top == 11.6 else top - 0.62
        arrow(ax, (2.9, start), (2.9, bottom + 0.62))
    write(ax, 3.2, 3.14, "the wire: here the attacker listens", COLORS["attack"], ha="left")
    return fig


def _door(ax: Axes, y: float, door: str, passes: str, names: tuple[str, ...], marked: bool) -> None:
    box(ax, 0.6, y - 0.6, 4.6, 1.2, fill="plain")
    ink = COLORS["attack"] if marked else COLORS["defense"]
    write(ax, 2.9, y + 0.22, door, ink, weight="bold")
    write(ax, 2.9, y - 0.27, passes, fontsize=9)
    written = [WRITTEN.get(name, name) for name in names]
    words = ",\n".join(", ".join(written[i : i + 2]) for i in range(0, len(names), 2))
    write(ax, 5.6, y, words, ink, ha="left", weight="bold" if marked else "normal")
