"""Was this image in the training set? Scores, and the attacks that make them."""

from .boundary import ELEMENTS, HALVINGS, NOISE, Boundary, boundary_scores
from .scores import LabelOracle, gap_scores, likelihood_scores, loss_scores

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
