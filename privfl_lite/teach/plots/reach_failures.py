"""Where the algebra of the chapter "How far does it reach?" fails: one knob turned at a time."""

from __future__ import annotations

from functools import cache
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor

from ... import metrics, models
from ...attacks import Components, Spear
from ...attacks.base import Attack
from ...client import share
from ...data import load
from ...defenses import DPGaussian
from ...runtime import PrivflError
from ..figures import COLORS, show_image

KNOBS: dict[str, dict[str, Any]] = {  # what is other than in the first
    "batch 4,\nReLU": {},
    "batch 4,\nsigmoid": {"act": "sigmoid"},
    "a digit\ntwice": {"twice": True},
    "noise\nσ = 1e-4": {"sigma": 1e-4},
    "batch 32,\nReLU": {"batch": 32},
}
READERS: dict[str, Attack] = {
    "SPEAR": Spear(proposals=4096, show=False),
    "components": Components(),
}


@cache
def tried(reader: str, knob: str) -> tuple[Tensor, float] | None:
    """What is found for the first digit of a batch, and the share over 20 dB; None if refused."""
    turned, digits = KNOBS[knob], load("mnist")
    x, y = digits.sample(turned.get("batch", 4), split="test", seed=1000)
    if "twice" in turned:
        x[1], y[1] = x[0], y[0]
    net = models.build("mlp", digits, hidden=(256,), act=turned.get("act", "relu"))
    noise = DPGaussian(turned["sigma"]) if "sigma" in turned else None
    try:
        found = READERS[reader].run(share(net, x, y, noise)).images
    except PrivflError:
        return None
    order = metrics.assign(found, x)
    psnr = metrics.compare(found[order], x)["psnr"]
    return found[order[0]], float((psnr >= 20).float().mean())


def gallery() -> Figure:
    """A row for each reader, a column for each knob; under each picture the share over 20 dB."""
    digits = load("mnist").sample(4, split="test", seed=1000)[0]
    fig, axes = plt.subplots(2, 1 + len(KNOBS), figsize=(6.0, 3.1))
    for axs, reader in zip(axes, READERS, strict=True):
        show_image(axs[0], digits[0], "private\n" if reader == "SPEAR" else "")
        axs[0].set_ylabel(reader, fontsize=10)
        for ax, knob in zip(axs[1:], KNOBS, strict=True):
            found = tried(reader, knob)
            if found is None:
                ax.set(xticks=[], yticks=[], title=knob if reader == "SPEAR" else "")
                ax.set_box_aspect(1)
                ax.spines[:].set_visible(False)
                ax.title.set_fontsize(10)
                ax.text(0.5, 0.5, "refuses", ha="center", va="center", fontsize=10)
                continue
            picture, share_found = found
            show_image(ax, picture.clamp(0, 1), knob if reader == "SPEAR" else "")
            ax.title.set_fontsize(10)
            ink = COLORS["attack"] if share_found >= 0.5 else "black"
            ax.set_xlabel(f"{share_found:.0%}", fontsize=10, color=ink)
    return fig


def said() -> dict[str, dict[str, float | None]]:
    """The shares of the gallery, by reader and knob; None where it refuses."""
    shares: dict[str, dict[str, float | None]] = {}
    for reader in READERS:
        every = {knob.replace("\n", " "): tried(reader, knob) for knob in KNOBS}
        shares[reader] = {knob: found and found[1] for knob, found in every.items()}
    return shares
