"""Attacks: each takes an ``Upload`` and returns a ``Reconstruction``; none sees private data."""

from .base import Reconstruction
from .labels import infer_label, infer_labels
from .linear import ClosedForm, row_quotients
from .matching import DLG, GS, IDLG, Matching

ATTACKS = {"closed_form": ClosedForm, "dlg": DLG, "idlg": IDLG, "gs": GS}

__all__ = [
    "ATTACKS",
    "DLG",
    "GS",
    "IDLG",
    "ClosedForm",
    "Matching",
    "Reconstruction",
    "infer_label",
    "infer_labels",
    "row_quotients",
]
