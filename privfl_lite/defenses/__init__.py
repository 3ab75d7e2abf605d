"""Defenses, one small class each; ``build`` reads the command line's ``name:key=value+name``."""

from __future__ import annotations

from ..checking import checked
from ..values import Text
from ..written import read
from .adaptive_cloak import AdaptiveCloak
from .ats import ATS
from .base import Chain, Context, Defense, Memory
from .cafl import CAFL
from .dcs2 import DCS2
from .dp_gaussian import DPGaussian
from .dp_sgd import DPSGD
from .entangle import Entangle
from .fedkl import FedKL
from .keep_statistics import KeepStatistics
from .loda import LODA
from .mixing import InstaHide, Mixup
from .modelcloak import ModelCloak
from .pogz import POGZFL
from .precode import PRECODE
from .prune import Prune
from .rounded import Rounded
from .secure_sum import SecureSum, masked_uploads, sum_of
from .soteria import Soteria

DEFENSES: dict[str, type[Defense]] = {
    "none": Defense,
    "dp_gaussian": DPGaussian,
    "dp_sgd": DPSGD,
    "prune": Prune,
    "soteria": Soteria,
    "precode": PRECODE,
    "ats": ATS,
    "pogz_fl": POGZFL,
    "ca_fl": CAFL,
    "mixup": Mixup,
    "instahide": InstaHide,
    "modelcloak": ModelCloak,
    "adaptive_cloak": AdaptiveCloak,
    "dcs2": DCS2,
    "entangle": Entangle,
    "fedkl": FedKL,
    "loda": LODA,
    "secure_sum": SecureSum,
    "rounded": Rounded,
}


@checked
def build(text: Text) -> Defense:
    """``"prune:rate=0.7+dp_gaussian:sigma=0.1"`` -> ``Prune(rate=0.7) + DPGaussian(sigma=0.1)``."""
    made = [read("defense", DEFENSES, part.strip()) for part in text.split("+")]
    return made[0] if len(made) == 1 else sum(made[1:], made[0])


__all__ = [
    "ATS",
    "CAFL",
    "DCS2",
    "DEFENSES",
    "DPSGD",
    "LODA",
    "POGZFL",
    "PRECODE",
    "AdaptiveCloak",
    "Chain",
    "Context",
    "DPGaussian",
    "Defense",
    "Entangle",
    "FedKL",
    "InstaHide",
    "KeepStatistics",
    "Memory",
    "Mixup",
    "ModelCloak",
    "Prune",
    "Rounded",
    "SecureSum",
    "Soteria",
    "build",
    "masked_uploads",
    "sum_of",
]
