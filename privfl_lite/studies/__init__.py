"""Studies: the experiments behind the book's tables, resumable, stored with their settings."""

from . import first_look, generator, modelcloak_epsilon
from .base import RESULTS, Study

STUDIES: dict[str, Study] = {
    m.STUDY.name: m.STUDY for m in (first_look, generator, modelcloak_epsilon)
}

__all__ = ["RESULTS", "STUDIES", "Study"]
