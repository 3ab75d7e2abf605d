"""Studies: the experiments behind the book's tables, resumable, stored with their settings."""

from . import (
    attack_table,
    baselines,
    cutting,
    failure_gallery,
    first_look,
    generative_priors,
    generator,
    hiding,
    imprint_bins,
    measuring_leakage,
    membership,
    modelcloak_epsilon,
    noise,
    precode,
)
from .base import RESULTS, Study

_ALL = (
    attack_table,
    baselines,
    cutting,
    failure_gallery,
    first_look,
    generative_priors,
    generator,
    hiding,
    imprint_bins,
    measuring_leakage,
    membership,
    modelcloak_epsilon,
    noise,
    precode,
)
STUDIES: dict[str, Study] = {m.STUDY.name: m.STUDY for m in _ALL}

__all__ = ["RESULTS", "STUDIES", "Study"]
