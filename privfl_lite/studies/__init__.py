"""Studies: the experiments behind the book's tables, resumable, stored with their settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Study

MODULES = (
    "attack_table",
    "baselines",
    "cutting",
    "dcs2_attack",
    "dcs2_photos",
    "dcs2_training",
    "entangle_attack",
    "entangle_training",
    "extractor",
    "failure_gallery",
    "fedkl_attack",
    "fedkl_training",
    "first_look",
    "generative_priors",
    "generator",
    "hiding",
    "imprint_bins",
    "loda_attack",
    "loda_training",
    "measuring_leakage",
    "membership",
    "modelcloak_attack",
    "modelcloak_dynamic",
    "modelcloak_epsilon",
    "modelcloak_training",
    "noise",
    "precode",
    "recursive_trained",
)


class _Studies(Mapping[str, "Study"]):
    """Name -> study. The study ``dcs2-attack`` is ``STUDY`` of ``dcs2_attack``, imported on use."""

    def __getitem__(self, name: str) -> Study:
        if name not in self:
            raise KeyError(name)
        return import_module(f".{name.replace('-', '_')}", __name__).STUDY

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)

    def __iter__(self) -> Iterator[str]:
        return (module.replace("_", "-") for module in MODULES)

    def __len__(self) -> int:
        return len(MODULES)


STUDIES = _Studies()
__all__ = ["STUDIES", "Study"]


def __getattr__(name: str) -> object:
    if name == "Study":
        return import_module(".base", __name__).Study
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
