"""Attacks: each takes an ``Upload`` and returns a ``Reconstruction``; none sees private data."""

from . import membership
from .base import Reconstruction
from .imprint import Imprint, ImprintReadout
from .labels import infer_label, infer_labels
from .linear import ClosedForm, row_quotients
from .matching import DLG, GS, IDLG, Matching
from .recursive import Recursive

ATTACKS = {
    "closed_form": ClosedForm,
    "recursive": Recursive,
    "dlg": DLG,
    "idlg": IDLG,
    "gs": GS,
}

__all__ = [
    "ATTACKS",
    "DLG",
    "GS",
    "IDLG",
    "ClosedForm",
    "Imprint",
    "ImprintReadout",
    "Matching",
    "Reconstruction",
    "Recursive",
    "infer_label",
    "infer_labels",
    "membership",
    "row_quotients",
]
