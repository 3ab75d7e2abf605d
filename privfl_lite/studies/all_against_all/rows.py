"""The rows of the table: every defense of the registry at declared settings, and some chains.

A defense and the attacker who knows it are written as the command line writes them; {eta}, {seed},
{center}, {craft} are filled in where they are used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import attacks, defenses
from ...attacks.adaptive.dcs2_matching import ConcealedMatching
from ...attacks.base import Attack
from ...defenses.base import Defense


class Row(NamedTuple):
    """A defense, who answers it, and what that attacker is granted besides labels."""

    text: str
    informed: str
    granted: tuple[str, ...] = ()
    net: str = "lenet"  # that is attacked
    mode: str = "eval"  # of batch norm
    data: tuple[str, ...] = ("mnist", "faces", "photos", "cifar10")  # that it takes
    earlier: str = ""  # an informed attacker that was tried before, on digits


NOISE = ("noise", "clip")
DCS2 = "dcs2:steps={craft},lr={craft_lr}"
ROWS = {
    "none": Row("none", "recursive"),
    "raw noise 0.01": Row("dp_gaussian:sigma=0.01", "denoise", ("noise",)),
    "DP-SGD σ 0.1": Row("dp_sgd:clip=1.0,sigma=0.1", "denoise", NOISE),
    "DP-SGD σ 1": Row("dp_sgd:clip=1.0,sigma=1.0", "denoise", NOISE),
    "Prune 0.9": Row("prune:rate=0.9", "unprune"),
    "Soteria 0.6": Row("soteria:rate=0.6", "unmask"),
    "PRECODE": Row("precode", "before_draw"),
    "ATS": Row("ats", "recursive"),
    "Mixup 4": Row("mixup:k=4", "unmix", ("matrix",), "mlp"),
    "InstaHide 4": Row(
        "instahide:k=4,crypto=False,center={center}", "unflip:center={center}", ("matrix",), "mlp"
    ),
    "POGZ-FL": Row("pogz_fl:eta={eta}", "denoise_unknown"),
    "CA-FL": Row("ca_fl", "measured", ("measurement",)),
    "ModelCloak σ 5": Row("modelcloak:clip=2.0,sigma=5.0", "denoise", NOISE),
    "DCS²": Row(DCS2, "pair", data=("mnist", "photos", "cifar10")),  # pair takes no odd sides
    "Entangle 0.7": Row("entangle:beta=0.7", "unguard", ("guard",)),
    "FedKL": Row("fedkl:seed={seed}", "unlock", mode="train"),
    "LODA₁": Row(
        "loda:layers=loda1,steps={obscure}", "unobscure", ("extractor",), data=("photos", "cifar10")
    ),
    "DP-SGD σ 1 + Prune": Row(
        "dp_sgd:clip=1.0,sigma=1.0+prune:rate=0.9,feedback=True", "denoise:nonzero=True", NOISE
    ),
    "ModelCloak + sum": Row("modelcloak:clip=2.0,sigma=5.0+secure_sum", "denoise", ("noise",)),
    "DCS² + Prune": Row(DCS2 + "+prune:rate=0.7", "joint:nonzero=True", ("mixture",)),
    "FedKL + noise": Row(
        "fedkl:seed={seed}+dp_gaussian:sigma=0.001",
        "lock_matching:distance=cosine,optimizer=adam,box=True,tv=0.0001",
        mode="train",
        earlier="lock_matching",
    ),
}
SUMMED = ("ModelCloak + sum",)  # one upload for all clients of a network
MIXED = ("Mixup 4", "InstaHide 4")  # one upload for each blend of all images of a network


def build(settings: dict, name: str, data: str, eta: float, seed: int, craft: int) -> Defense:
    """The defense of a row; ``craft``: steps of DCS²'s crafting."""
    filled = _filled(settings, data) | {"eta": eta, "seed": seed, "craft": craft}
    return defenses.build(ROWS[name].text.format(**filled))


def answer(settings: dict, name: str, data: str, earlier: bool = False) -> Attack:
    """The attacker who knows the defense of a row."""
    row, steps = ROWS[name], settings["steps"]
    text = (row.earlier if earlier else row.informed).format(**_filled(settings, data))
    kind, _, rest = text.partition(":")
    if kind == "joint":
        return ConcealedMatching(nonzero=rest == "nonzero=True", steps=steps, show=False)
    takes = attacks.ATTACKS[kind].__dataclass_fields__
    given: dict[str, Any] = {"steps": steps, "show": False}
    if kind == "unguard":
        given = {"attack": attacks.IDLG(nonzero=True, **given)}
    return attacks.build(text, **{k: v for k, v in given.items() if k in takes})


def _filled(settings: dict, data: str) -> dict[str, Any]:
    return {
        "center": settings["centers"][data],
        "craft_lr": settings["craft_lr"],
        "obscure": settings["obscure"],
    }
