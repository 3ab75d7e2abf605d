"""PSNR sees the distance from the private image, not the direction (measuring-leakage)."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ..figures import COLORS
from .kit import INK, PAPERS, paper, write

AROUND = {  # angle in degrees -> what lies there, and whether it shows the private image
    150: ("brighter", True),
    90: ("shifted", True),
    30: ("faded", True),
    -30: ("somebody\nelse", False),
    -90: ("noisy", True),
    -150: ("blurred", True),
}


def draw() -> Figure:
    """The private image in the middle, equally wrong ones on a circle, the negative far out."""
    fig, ax = paper(13, 9.6)
    middle, radius = (5.4, 4.8), 2.9
    ax.add_patch(Circle(middle, radius, fc=PAPERS["stone"], ec=INK, lw=1.2, ls="--"))
    ax.plot(*middle, "o", color=INK, ms=9)
    write(ax, middle[0], middle[1] - 0.55, "private")
    for angle, (name, shows) in AROUND.items():
        across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        ink = COLORS["defense" if shows else "attack"]
        ax.plot(middle[0] + radius * across, middle[1] + radius * up, "o", color=ink, ms=9)
        side = {"ha": "left" if across > 0.1 else "right" if across < -0.1 else "center"}
        shift = 0.3 * (across > 0.1) - 0.3 * (across < -0.1)
        lift = 0.55 * (up > 0.9) - 0.55 * (up < -0.9)
        x, y = middle[0] + radius * across + shift, middle[1] + radius * up + lift
        write(ax, x, y, name, ink, **side)
    ax.plot(11.6, 8.3, "o", color=COLORS["defense"], ms=9)
    write(ax, 11.6, 7.7, "negative", COLORS["defense"])
    write(ax, 5.4, 0.45, "one circle, one PSNR")
    return fig
