"""Draw the house: the rooms of the package, and the walk of one image through them.

    python scripts/draw_house.py

writes book/_assets/house.svg. It is as wide as a phone, so that its text is read there too.
"""

from __future__ import annotations

from draw_logo import ASSETS, DEEP, PALE, RUST, svg

INK, EARTH, PAPER, CLIENT, SERVER, STONE = (
    "#1f2a35",
    "#9c3a22",
    "#ffffff",
    "#e1edf5",
    "#fbf1ee",
    "#f2f5f7",
)
FONT = "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\""
LEFT, RIGHT, WIDE, HIGH, GAP = 30, 218, 138, 46, 16  # of a room: x of both wings, and sizes
TOP, LOW = 132, 442  # y of the first room of a wing; of the metrics

CLIENTS = (
    ("data", "private images"),
    ("models", "Net, build, wrap"),
    ("gradients", "one step, or many"),
    ("defenses", "act at their doors"),
    ("client", "trains, shares"),
)
SERVERS = {  # by row
    0: ("privacy", "counts ε"),
    1: ("federated", "averages, repeats"),
    4: ("attacks", "see an Upload only"),
}


def text(x: float, y: float, words: str, size: float = 13, color: str = INK, more: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{color}" text-anchor="middle" '
        f"{FONT} {more}>{words}</text>"
    )


def box(x: float, y: float, width: float, height: float, fill: str, edge: str = DEEP) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
        f'fill="{fill}" stroke="{edge}" stroke-width="1.5"/>'
    )


def path(points: list[tuple[float, float]], color: str, dashed: bool = False) -> str:
    """Straight lines through the points, with an arrow's head at the last one."""
    line = "L".join(f"{x:g} {y:g}" for x, y in points)
    (x0, y0), (x, y) = points[-2:]
    right, down = (x > x0) - (x < x0), (y > y0) - (y < y0)
    wings = [(x - 6 * right + 4 * s * down, y - 6 * down + 4 * s * right) for s in (1, -1)]
    head = "".join(f"M{x:g} {y:g}L{a:g} {b:g}" for a, b in wings)
    dash = ' stroke-dasharray="4 4"' if dashed else ""
    return (
        f'<path d="M{line}" stroke="{color}" stroke-width="2" fill="none"{dash}/>'
        f'<path d="{head}" stroke="{color}" stroke-width="2" stroke-linecap="round"/>'
    )


def room(x: float, y: float, name: str, does: str, fill: str, edge: str) -> list[str]:
    middle = x + WIDE / 2
    return [
        box(x, y, WIDE, HIGH, fill, edge),
        text(middle, y + 19, name, 14, more='font-weight="600"'),
        text(middle, y + 36, does, 12),
    ]


def roof() -> list[str]:
    edge = f'stroke="{DEEP}" stroke-width="2"'
    return [
        f'<path d="M62 12H318L374 82H6Z" fill="{STONE}" {edge}/>',
        text(190, 42, "leak · studies · teach · commands · cli", 14, more='font-weight="600"'),
        text(190, 62, "reports, tables, pages and the command line", 12),
    ]


def walls() -> list[str]:
    frame = f'fill="none" stroke="{DEEP}" stroke-width="2"'
    turned = 'font-weight="600" letter-spacing="1" transform="rotate(-90 193 270)"'
    return [
        f'<rect x="16" y="82" width="348" height="418" {frame}/>',
        text(LEFT + WIDE / 2, 108, "with the clients", 13, DEEP),
        text(RIGHT + WIDE / 2, 108, "at the server", 13, EARTH),
        box(181, 90, 24, 340, EARTH, EARTH),
        text(193, 274.5, "WIRE: Upload, Facts", 13, PAPER, turned),
        box(16, 500, 348, 34, STONE),
        text(190, 521, "runtime · errors · assets · stored", 12.5),
    ]


def wings() -> list[str]:
    shapes = []
    step = HIGH + GAP
    for i, (name, does) in enumerate(CLIENTS):
        shapes += room(LEFT, TOP + i * step, name, does, CLIENT, DEEP)
        if i:
            x = LEFT + WIDE / 2
            shapes.append(path([(x, TOP + i * step - GAP + 1), (x, TOP + i * step - 2)], DEEP))
    for i, (name, does) in SERVERS.items():
        shapes += room(RIGHT, TOP + i * step, name, does, SERVER, RUST)
    return shapes


def walk() -> list[str]:
    """An upload goes right through the wire, new weights go left; then the score."""
    step, half = HIGH + GAP, HIGH / 2
    back, out = TOP + step + half, TOP + 4 * step + half
    right, end = RIGHT + WIDE / 2, LEFT + WIDE
    truth = [(LEFT, TOP + half), (23, TOP + half), (23, LOW + half), (LEFT - 2, LOW + half)]
    return [
        path([(end + 1, out), (179, out)], RUST),
        path([(206, out), (RIGHT - 2, out)], RUST),
        path([(206, out - 18), (211, out - 18), (211, back + 10), (RIGHT - 2, back + 10)], RUST),
        path([(RIGHT - 1, back - 10), (207, back - 10)], DEEP),
        path([(180, back - 10), (end + 2, back - 10)], DEEP),
        text(right + 4, TOP + 2.2 * step + 8, "The attacker is the", 12, EARTH),
        text(right + 4, TOP + 2.2 * step + 25, "server, or whoever", 12, EARTH),
        text(right + 4, TOP + 2.2 * step + 42, "reads the wire.", 12, EARTH),
        box(LEFT, LOW, RIGHT + WIDE - LEFT, HIGH, PAPER, PALE),
        text(193, LOW + 19, "metrics", 14, more='font-weight="600"'),
        text(193, LOW + 36, "what was found beside the truth", 12),
        path([(right, TOP + 4 * step + HIGH + 1), (right, LOW - 2)], RUST),
        path(truth, DEEP, dashed=True),
    ]


def house() -> str:
    ground = f'<rect width="380" height="544" fill="{PAPER}"/>'
    title = "The rooms of the package, as a house that an image walks through"
    return svg(380, 544, [ground, *roof(), *walls(), *wings(), *walk()], title)


if __name__ == "__main__":
    (ASSETS / "house.svg").write_text(house(), encoding="utf-8")
