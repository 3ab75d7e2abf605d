"""The repairs of the chapter "The red team": before and after, from the study red-team/repairs."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...metrics import clustered
from ...studies import STUDIES
from ...studies.red_team.repairs import ANSWERED, FAMILIES, SEARCHED
from ..figures import COLORS
from ..tables import Spread

Cell = dict[str, Any]
TITLES = {
    "dcs2": "DCS²",
    "fedkl": "FedKL",
    "entangle": "Model Entanglement",
    "loda": "LODA",
    "cloak": "ModelCloak, same scale",
}
ARMS = {"plain": "LODA₁", "deeper layer": "loda3, c = 1", "fresh starts": "LODA₁"}
AGAIN = {"pruned": "+ Prune 0.7", "noise": "+ noise 0.01", "private norm": "private norm"}


def result() -> dict:
    return STUDIES["red-team/repairs"].show()


def find(part: str, family: str, defense: str, who: str = "knows") -> Cell:
    """The one cell with these settings."""
    want = {"part": part, "family": family, "defense": defense}
    want |= {"who": who} if part == "attack" else {}
    (cell,) = (c for c in result()["cells"] if want.items() <= c.items())
    return cell


def repairs() -> list[tuple[str, str, str]]:
    """(family, plain, repaired) of every repair."""
    found = []
    for family, names in FAMILIES.items():
        for name in names:
            if not name.startswith("plain"):
                plain = "plain, sigma 5" if name.endswith("sigma 5") else "plain"
                found.append((family, plain, name))
    return found


def named(cell: Cell, by: str = "") -> Spread:
    """The share named among 100, 95 % interval clustered by network. By pixels or by features,
    whichever names more; LODA's by the features that the encoding keeps."""
    rows, count = cell["networks"], len(cell["networks"][0]["psnr"])
    keys = [f"named_{by}"] if by else ["named_pixels", "named_features"]
    if not by and cell["family"] == "loda":
        keys = ["named_kept"]
    hits = max(([row[k] for row in rows] for k in keys), key=sum)
    of = [count] * len(rows)
    low, high = clustered(hits, of)
    return Spread(sum(hits) / sum(of), low, high)


def informed(family: str, defense: str) -> Cell:
    """The cell of the attacker who knows of the repair; where one also searches, the better one."""
    cells = [find("attack", family, defense)]
    if {"family": family, "defense": defense} == SEARCHED:
        cells.append(find("attack", family, defense, "searches"))
    return max(cells, key=lambda cell: named(cell).value)


def blind(cell: Cell) -> float:
    """The share that the mean training image names, by pixels or by features."""
    rows = [row["blind"] for row in cell["networks"]]
    best = max(sum(r[k] for r in rows) for k in ("named_pixels", "named_features"))
    return best / sum(len(r["psnr"]) for r in rows)


def median(cell: Cell) -> float:
    """The median PSNR over all networks, in dB."""
    each = sorted(v for row in cell["networks"] for v in row["psnr"])
    return (each[(len(each) - 1) // 2] + each[len(each) // 2]) / 2


def lost(family: str, defense: str) -> float:
    """Accuracy lost against no defense, as a share; LODA's in ``loda/training``, on CIFAR-10."""
    if family == "loda":
        cells = STUDIES["loda/training"].show()["cells"]
        arms = {c["arm"]: c for c in cells if c.get("scheme") == "federated"}
        pair = arms["none"]["accuracy"], arms[ARMS[defense]]["accuracy"]
    else:
        pair = tuple(
            find("cost", f, d)["accuracy"] for f, d in (("none", "plain"), (family, defense))
        )
    before, after = (sum(a) / len(a) for a in pair)
    return before - after


def label(family: str, name: str) -> str:
    return f"{TITLES[family].split(',')[0]}: {AGAIN.get(name, name)}".replace("sigma", "σ =")


def arrows() -> Figure:
    """Each repair a row: who is named, and the accuracy lost, from the plain defense to it."""
    rows = repairs()[::-1]
    fig, (left, right) = plt.subplots(1, 2, figsize=(5.4, 5.6), sharey=True, width_ratios=[1.3, 1])
    for i, (family, plain, name) in enumerate(rows):
        before, after = (named(informed(family, d)).value for d in (plain, name))
        _arrow(left, i, 100 * before, 100 * after, COLORS["attack"])
        if name in ANSWERED:
            knew = named(find("attack", family, name, "knew")).value
            left.plot(100 * knew, i, "|", color=COLORS["truth"], ms=11, mew=2)
        _arrow(right, i, 100 * lost(family, plain), 100 * lost(family, name), COLORS["defense"])
    left.set_yticks(range(len(rows)), [label(f, n) for f, _, n in rows], fontsize=9)
    left.set_title("who is named", fontsize=10, loc="left")
    right.set_title("at what price", fontsize=10, loc="left")
    left.set(xlim=(-6, 106), xlabel="named among\n100 (%)")
    right.set(xlabel="accuracy lost\n(points)")
    return fig


def _arrow(ax: Axes, row: int, before: float, after: float, color: str) -> None:
    """From a circle (plain) to a disk (repaired)."""
    ax.plot([before, after], [row, row], color=color, lw=1.5, zorder=1)
    ax.plot(before, row, "o", color="white", mec=color, ms=9, zorder=2)
    ax.plot(after, row, "o", color=color, ms=6, zorder=3)


def table_rows() -> list[dict[str, Any]]:
    """One row for each repair: named before, by who knew, by who knows; PSNR; accuracy; ε."""
    rows = []
    for family, plain, name in repairs():
        cell = informed(family, name)
        knew = find("attack", family, name, "knew") if name in ANSWERED else cell
        row: dict[str, Any] = {"repair": label(family, name)}
        row |= {"plain": named(find("attack", family, plain)).value}
        row |= {"who knew the plain": named(knew).value, "who knows": named(cell)}
        row |= {"PSNR": median(cell), "blind": blind(cell)}
        row |= {"accuracy lost": 100 * (lost(family, name) - lost(family, plain))}
        said = "" if family == "loda" else find("cost", family, name)["epsilon"]
        row |= {"ε": said.split(" ")[2] if said.startswith("ε") else "none"}
        rows.append(row)
    return rows
