"""Was this image in the training set? Scores, and the attacks that make them."""

from .scores import (
    ELEMENTS,
    HALVINGS,
    NOISE,
    Boundary,
    LabelOracle,
    boundary_scores,
    gap_scores,
    likelihood_scores,
    loss_scores,
)

__all__ = [
    "ELEMENTS",
    "HALVINGS",
    "NOISE",
    "Boundary",
    "LabelOracle",
    "boundary_scores",
    "gap_scores",
    "likelihood_scores",
    "loss_scores",
]
