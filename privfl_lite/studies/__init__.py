"""Studies: the experiments behind the book's tables, resumable, stored with their settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Study

NAMES = (
    "all-against-all/table",
    "changing-the-model/precode",
    "cutting-gradients/attack",
    "dcs2/attack",
    "dcs2/photos",
    "dcs2/training",
    "entanglement/attack",
    "entanglement/training",
    "fedkl/attack",
    "fedkl/training",
    "first-answers/baselines",
    "generative-priors/attack",
    "generative-priors/generator",
    "generative-priors/learned",
    "hiding-the-input/attack",
    "loda/attack",
    "loda/extractor",
    "loda/training",
    "malicious-server/bins",
    "malicious-server/fishing",
    "matching-gradients/failures",
    "matching-gradients/first-look",
    "matching-gradients/table",
    "measuring-leakage/lpips",
    "membership/attack",
    "million-clients/measured",
    "modelcloak-dynamic/training",
    "modelcloak-fixed/attack",
    "modelcloak-fixed/epsilon",
    "modelcloak-fixed/training",
    "proof-bound-audit/axis",
    "proof-bound-audit/mechanisms",
    "proof-bound-audit/second",
    "reach/map",
    "reach/spear",
    "red-team/age",
    "red-team/axes",
    "red-team/repairs",
    "through-the-layers/trained",
    "what-epsilon-buys/attack",
    "your-own-run/causes",
    "your-own-run/photograph",
)


class _Studies(Mapping[str, "Study"]):
    """Name -> study. The study ``dcs2/attack`` is ``STUDY`` of ``dcs2.attack``, imported on use.

    The first half of a name is that of the chapter which shows it.
    """

    def __getitem__(self, name: str) -> Study:
        if name not in self:
            raise KeyError(name)
        module = name.replace("-", "_").replace("/", ".")
        return import_module(f".{module}", __name__).STUDY

    def __contains__(self, name: object) -> bool:
        return name in NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


STUDIES = _Studies()
__all__ = ["STUDIES", "Study"]


def __getattr__(name: str) -> object:
    if name == "Study":
        return import_module(".base", __name__).Study
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
