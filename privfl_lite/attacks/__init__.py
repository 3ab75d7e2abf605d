"""Attacks: each takes an ``Upload`` and returns a ``Reconstruction``; none sees private data."""

from typing import Any

from ..written import read
from . import membership, obscured
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
from .decoder import Decoder, train_decoder
from .generator import Generator, load_generator
from .ggl import GGL
from .grnn import GRNN
from .guard import Unguard, UnguardRows
from .imprint import Imprint, ImprintReadout
from .labels import infer_label, infer_labels
from .linear import ClosedForm, row_quotients
from .lock import LockMatching, read_key
from .matching import DLG, GS, IDLG, Matching
from .newton import gauss_newton
from .pair import Pair
from .recursive import Recursive
from .unlock import Unlock

ATTACKS = {
    "closed_form": ClosedForm,
    "recursive": Recursive,
    "unlock": Unlock,
    "lock_matching": LockMatching,
    "pair": Pair,
    "dlg": DLG,
    "idlg": IDLG,
    "gs": GS,
    "grnn": GRNN,
    "ggl": GGL,
}


def build(text: str, **given: Any) -> Any:
    """``"idlg:nonzero=True,tv=0.1"`` -> ``IDLG(nonzero=True, tv=0.1)``; `given`: more of them."""
    return read("attack", ATTACKS, text, **given)


__all__ = [
    "ATTACKS",
    "DLG",
    "GGL",
    "GRNN",
    "GS",
    "IDLG",
    "ClosedForm",
    "Decoder",
    "Generator",
    "Imprint",
    "ImprintReadout",
    "LockMatching",
    "Matching",
    "Pair",
    "Reconstruction",
    "Recursive",
    "Unguard",
    "UnguardRows",
    "Unlock",
    "align_signs",
    "assign_by_known",
    "build",
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
    "obscured",
    "pair_scores",
    "read_key",
    "row_quotients",
    "sign_search",
    "soft_labels",
    "train_decoder",
]
