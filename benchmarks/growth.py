"""How time and memory grow with images, resolution, parameters and clients; and their plots.

Each point is a process of its own: CPU milliseconds of a step (or of a client), and the most memory
that the process held. breaching takes images one by one: over images, its time is that of one image
times their number, and it is not measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import privfl_lite as pf

from .attacks import COLOR, DIGIT, gs
from .effort import Effort
from .federated import fedavg
from .measure import Pair, Record, apart, rounded, seconds

PLOT = Path(__file__).with_name("growth.svg")


def over_images(n: int) -> tuple[Pair, int]:
    return gs("lenet", DIGIT, n, 10), n


def over_side(s: int) -> tuple[Pair, int]:
    return gs("lenet", (3, s, s), 1, 20), s


def over_width(w: int) -> tuple[Pair, int]:
    return gs("convnet", COLOR, 1, 4, width=w), pf.models.build(
        "convnet", COLOR, 10, width=w
    ).num_parameters


def over_clients(n: int) -> tuple[Pair, int]:
    return fedavg("lenet5", n), n


@dataclass(frozen=True)
class Curve:
    """``work(setting)`` gives the pair to run and its place on the axis."""

    axis: str
    peer: str
    of: str  # what the time is of
    work: Callable[[int], tuple[Pair, int]]
    settings: tuple[int, ...]
    alone: bool = False  # only ours


CURVES = {
    "images": Curve(
        "images at once (LeNet, 28 × 28)",
        "breaching",
        "image and step of GS",
        over_images,
        (1, 2, 4, 8, 16, 32, 64),
        alone=True,
    ),
    "resolution": Curve(
        "side of the image in pixels (LeNet)",
        "breaching",
        "step of GS",
        over_side,
        (16, 32, 64, 96),
    ),
    "parameters": Curve(
        "parameters (ConvNet, width 8 to 64)",
        "breaching",
        "step of GS",
        over_width,
        (8, 16, 32, 64),
    ),
    "clients": Curve(
        "clients (FedAvg, lenet5, 50 images each)",
        "hand loop",
        "client of a round",
        over_clients,
        (10, 30, 100, 300, 1000),
    ),
}


def point(name: str, setting: int, side: str) -> tuple[int, float] | None:
    """Place on the axis and seconds of a unit of work; None if this side is not installed."""
    pair, x = CURVES[name].work(setting)
    run = getattr(pair, side)
    if run is None:
        return None
    if setting < 100:
        run()  # warm up; in many clients it weighs nothing
    return x, seconds(run) / pair.units


def measured(name: str, effort: Effort) -> Record:
    """One curve: for each side the points, with milliseconds and MB."""
    curve, record = CURVES[name], {}
    for side in ("ours",) if curve.alone else ("ours", "peer"):
        points = []
        for setting in curve.settings[: effort.growth]:
            found, mb = apart(point, name, setting, side)
            if found:
                points.append({"x": found[0], "ms": rounded(1e3 * found[1]), "mb": mb})
        if points:
            record[side] = points
    return record


def plot(growth: dict[str, Record], path: Path = PLOT) -> None:
    """Time above, memory below, both axes logarithmic."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    settings = {"svg.hashsalt": "privfl_lite", "font.size": 9}  # the same run, the same file
    with plt.rc_context(settings):
        figure, axes = plt.subplots(2, len(CURVES), figsize=(14, 6), layout="constrained")
        for column, (name, curve) in zip(axes.T, CURVES.items(), strict=True):
            for side, points in growth.get(name, {}).items():
                label = "ours" if side == "ours" else curve.peer
                style = {"color": "#0072b2", "marker": "o"}
                if side == "peer":
                    style = {"color": "#d55e00", "marker": "s", "linestyle": "--"}
                xs = [p["x"] for p in points]
                for axis, key in zip(column, ("ms", "mb"), strict=True):
                    axis.loglog(xs, [max(1e-3, p[key]) for p in points], label=label, **style)
            column[0].set_ylabel(f"ms of CPU a {curve.of}")
            column[1].set_ylabel("peak MB of the process")
            column[1].set_xlabel(curve.axis)
            if growth.get(name):
                column[0].legend()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
