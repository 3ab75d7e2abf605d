"""Attackers who know the defense that they face; one file for each kind of defense they answer."""

from .cafl import Measured
from .loda import Unobscure
from .mixing import Unflip, Unmix
from .noise import Denoise, DenoiseUnknown
from .precode import BeforeDraw
from .prune import Unprune
from .soteria import Unmask

__all__ = [
    "BeforeDraw",
    "Denoise",
    "DenoiseUnknown",
    "Measured",
    "Unflip",
    "Unmask",
    "Unmix",
    "Unobscure",
    "Unprune",
]
