"""Attacks: each takes an ``Upload`` and returns a ``Reconstruction``; none sees private data."""

from typing import Any

from ..checking import checked
from ..values import Text
from ..written import read
from . import membership
from .adaptive import (
    BeforeDraw,
    Denoise,
    DenoiseUnknown,
    Measured,
    Unflip,
    Unmask,
    Unmix,
    Unobscure,
    Unprune,
)
from .adaptive.dcs2_algebra import Pair
from .adaptive.dcs2_pruned import PairPruned
from .adaptive.entanglement import Unguard, UnguardRows
from .adaptive.fedkl_matching import LockMatching, read_key
from .adaptive.fedkl_recursion import Unlock
from .adaptive.instahide import (
    align_signs,
    conditioning,
    instahide_decode,
    misfit,
    mixup_regression,
    sign_search,
)
from .adaptive.instahide_matrix import (
    assign_by_known,
    coefficients_from_labels,
    pair_scores,
    soft_labels,
)
from .adaptive.loda_decoder import Decoder, train_decoder
from .analytic.closed_form import ClosedForm, row_quotients
from .analytic.components import Components
from .analytic.gauss_newton import gauss_newton
from .analytic.recursive import Recursive
from .analytic.spear import Spear
from .base import Attack, Reconstruction
from .generative.generator import Generator, load_generator
from .generative.ggl import GGL
from .generative.grnn import GRNN
from .generative.learned import LearnedInversion
from .informed import INFORMED, answer, informed
from .labels import infer_label, infer_labels
from .malicious.fishing import FishingReadout, feature_of, fish, fished, restored
from .malicious.imprint import Imprint, ImprintReadout
from .malicious.sums import remainder, silenced, spoken
from .matching.epochs import Epochs
from .matching.search import DLG, GS, IDLG, Matching

ATTACKS: dict[str, type[Attack]] = {
    "closed_form": ClosedForm,
    "recursive": Recursive,
    "spear": Spear,
    "components": Components,
    "dlg": DLG,
    "idlg": IDLG,
    "gs": GS,
    "epochs": Epochs,
    "grnn": GRNN,
    "ggl": GGL,
    "learned": LearnedInversion,
    "imprint": ImprintReadout,
    "fishing": FishingReadout,
    # who knows the defense
    "denoise": Denoise,
    "denoise_unknown": DenoiseUnknown,
    "unprune": Unprune,
    "unmask": Unmask,
    "before_draw": BeforeDraw,
    "unmix": Unmix,
    "unflip": Unflip,
    "measured": Measured,
    "pair": Pair,
    "pair_pruned": PairPruned,
    "unguard": Unguard,
    "unguard_rows": UnguardRows,
    "unlock": Unlock,
    "lock_matching": LockMatching,
    "unobscure": Unobscure,
}


@checked
def build(text: Text, **given: Any) -> Any:
    """``"idlg:nonzero=True,tv=0.1"`` -> ``IDLG(nonzero=True, tv=0.1)``; `given`: more of them."""
    return read("attack", ATTACKS, text, **given)


__all__ = [
    "ATTACKS",
    "DLG",
    "GGL",
    "GRNN",
    "GS",
    "IDLG",
    "INFORMED",
    "Attack",
    "BeforeDraw",
    "ClosedForm",
    "Components",
    "Decoder",
    "Denoise",
    "DenoiseUnknown",
    "Epochs",
    "FishingReadout",
    "Generator",
    "Imprint",
    "ImprintReadout",
    "LearnedInversion",
    "LockMatching",
    "Matching",
    "Measured",
    "Pair",
    "PairPruned",
    "Reconstruction",
    "Recursive",
    "Spear",
    "Unflip",
    "Unguard",
    "UnguardRows",
    "Unlock",
    "Unmask",
    "Unmix",
    "Unobscure",
    "Unprune",
    "align_signs",
    "answer",
    "assign_by_known",
    "build",
    "coefficients_from_labels",
    "conditioning",
    "feature_of",
    "fish",
    "fished",
    "gauss_newton",
    "infer_label",
    "infer_labels",
    "informed",
    "instahide_decode",
    "load_generator",
    "membership",
    "misfit",
    "mixup_regression",
    "pair_scores",
    "read_key",
    "remainder",
    "restored",
    "row_quotients",
    "sign_search",
    "silenced",
    "soft_labels",
    "spoken",
    "train_decoder",
]
