"""Attacks: each takes an ``Upload`` and returns a ``Reconstruction``; none sees private data."""

from . import membership
from .base import Reconstruction
from .decode import (
    align_signs,
    assign_by_known,
    coefficients_from_labels,
    conditioning,
    instahide_decode,
    misfit,
    mixup_regression,
    pair_scores,
    sign_search,
    soft_labels,
)
from .generator import Generator, load_generator
from .ggl import GGL
from .grnn import GRNN
from .imprint import Imprint, ImprintReadout
from .labels import infer_label, infer_labels
from .linear import ClosedForm, row_quotients
from .matching import DLG, GS, IDLG, Matching
from .newton import gauss_newton
from .pair import Pair
from .recursive import Recursive

ATTACKS = {
    "closed_form": ClosedForm,
    "recursive": Recursive,
    "pair": Pair,
    "dlg": DLG,
    "idlg": IDLG,
    "gs": GS,
    "grnn": GRNN,
    "ggl": GGL,
}

__all__ = [
    "ATTACKS",
    "DLG",
    "GGL",
    "GRNN",
    "GS",
    "IDLG",
    "ClosedForm",
    "Generator",
    "Imprint",
    "ImprintReadout",
    "Matching",
    "Pair",
    "Reconstruction",
    "Recursive",
    "align_signs",
    "assign_by_known",
    "coefficients_from_labels",
    "conditioning",
    "gauss_newton",
    "infer_label",
    "infer_labels",
    "instahide_decode",
    "load_generator",
    "membership",
    "misfit",
    "mixup_regression",
    "pair_scores",
    "row_quotients",
    "sign_search",
    "soft_labels",
]
