"""Draw the book's logo: a pixel digit whose right side dissolves into gradient arrows.

    python scripts/draw_logo.py

writes book/_assets/logo.svg (digit and arrows) and favicon.svg (the digit alone).
"""

from __future__ import annotations

import math
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[1] / "book" / "_assets"
DEEP, PALE, RUST = "#2f6f9f", "#6aa9cf", "#c8553d"  # readable on white and on black
SEVEN = (  # 7 columns by 9 rows
    "#######",
    "#######",
    "     ##",
    "    ## ",
    "    ## ",
    "   ##  ",
    "   ##  ",
    "  ##   ",
    "  ##   ",
)
CELL = 12


def pixel(x: float, y: float, size: float, color: str, opacity: float = 1.0) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{size:.1f}" height="{size:.1f}" rx="1.5" '
        f'fill="{color}" opacity="{opacity:.2f}"/>'
    )


def arrow(x: float, y: float, angle: float, length: float) -> str:
    """An arrow from (x, y); its head is two short strokes."""
    tip = x + length * math.cos(angle), y + length * math.sin(angle)
    strokes = [f"M{x:.1f} {y:.1f}L{tip[0]:.1f} {tip[1]:.1f}"]
    for turn in (2.5, -2.5):
        end = tip[0] + 4.5 * math.cos(angle + turn), tip[1] + 4.5 * math.sin(angle + turn)
        strokes.append(f"M{tip[0]:.1f} {tip[1]:.1f}L{end[0]:.1f} {end[1]:.1f}")
    return (
        f'<path d="{"".join(strokes)}" stroke="{RUST}" stroke-width="2.2" '
        'stroke-linecap="round" fill="none"/>'
    )


def svg(width: float, height: float, shapes: list[str], title: str) -> str:
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">\n'
        f"<title>{title}</title>\n{body}\n</svg>\n"
    )


def digit(left: float, top: float) -> list[str]:
    return [
        pixel(left + CELL * c, top + CELL * r, CELL - 1.5, DEEP if c < 5 else PALE)
        for r, row in enumerate(SEVEN)
        for c, mark in enumerate(row)
        if mark == "#"
    ]


def logo() -> str:
    """The digit at the left; pixels fade to the right and become arrows."""
    shapes = digit(6, 6)
    for step in range(1, 4):  # dissolving pixels, smaller and fainter with distance
        for r in range(9):
            if (r * 7 + step * 5) % 3 == 0:
                size = CELL * (1 - 0.18 * step)
                shapes.append(
                    pixel(6 + CELL * (6.6 + step), 6 + CELL * r, size, PALE, 0.8 - 0.16 * step)
                )
    for column in range(4):
        for r in range(5):
            angle = -0.35 + 0.45 * math.sin(2.6 * r + 0.9 * column)
            shapes.append(arrow(136 + 21 * column, 14 + 2 * CELL * r, angle, 13))
    return svg(222, 120, shapes, "A pixel digit that dissolves into gradient arrows")


def favicon() -> str:
    return svg(120, 120, digit(18, 6), "privfl_lite")


if __name__ == "__main__":
    ASSETS.mkdir(parents=True, exist_ok=True)
    (ASSETS / "logo.svg").write_text(logo(), encoding="utf-8")
    (ASSETS / "favicon.svg").write_text(favicon(), encoding="utf-8")
