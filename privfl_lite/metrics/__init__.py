"""How much of the private image an attacker has: scores, their units, and their spread.

Images are float tensors (B, C, H, W) in [0, 1]; a score of images is a float tensor (B,), one
value per image (chapter: measuring leakage). Papers use the same names for other units, so numbers
of theirs compare with ours only after a conversion:

| paper | name there | what it is | here |
|---|---|---|---|
| ModelCloak | MSE | L2 norm of the difference; success is <= 1.4 | ``l2`` |
| FedKL | MSE, PSNR | RMSE on 0-255; 10 log10(255^2 / RMSE) | ``fedkl_mse``, ``fedkl_psnr`` |
| Inverting Gradients, Soteria | MSE, PSNR | of images normalized by mean and std | 1 to 12 dB off |
| DCS² | PSNR, SSIM | after a clamp to [0, 1] | ``compare`` |
| LODA | LPIPS-VGG | of normalized images, not of [-1, 1] | no equivalent |
"""

from .identification import Identification, identify
from .images import affine_fit, assign, compare, fedkl_mse, fedkl_psnr, l2, mse, psnr, ssim, summary
from .pairs import as_image
from .perceptual import lpips
from .statistics import (
    auc,
    auc_interval,
    bootstrap_interval,
    clustered,
    spread,
    success_rate,
    tpr_at_fpr,
    tpr_interval,
    wilson,
)

__all__ = [
    "Identification",
    "affine_fit",
    "as_image",
    "assign",
    "auc",
    "auc_interval",
    "bootstrap_interval",
    "clustered",
    "compare",
    "fedkl_mse",
    "fedkl_psnr",
    "identify",
    "l2",
    "lpips",
    "mse",
    "psnr",
    "spread",
    "ssim",
    "success_rate",
    "summary",
    "tpr_at_fpr",
    "tpr_interval",
    "wilson",
]
