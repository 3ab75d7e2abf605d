"""Studies: the experiments behind the book's tables, resumable, stored with their settings."""

from importlib import import_module

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
)
_ALL = [import_module(f".{name}", __name__).STUDY for name in MODULES]
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}

__all__ = ["STUDIES", "Study"]
