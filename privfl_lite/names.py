"""The names that commands take, for help and for quick answers to a wrong one.

The tables themselves stand beside the code that they name (``attacks.ATTACKS`` and so on), and
importing them takes PyTorch, a second or more. tests/unit/test_cli.py compares them with these.
"""

DATASETS = (
    *("mnist", "faces", "photos", "mnist-full", "fashion", "cifar10", "cifar100", "svhn", "lfw"),
    *("celeba", "tinyimagenet"),
)
MODELS = (
    *("lenet", "lenet4", "lenet5", "mlp", "cloak", "convnet", "resnet20", "resnet32", "resnet18"),
    *("resnet34", "vgg16"),
)
ATTACKS = (
    *("closed_form", "recursive", "spear", "components", "dlg", "idlg", "gs"),
    *("epochs", "grnn", "ggl", "learned", "imprint", "fishing"),
    *("denoise", "denoise_unknown", "unprune", "unmask", "before_draw", "unmix", "unflip"),
    *("measured", "pair", "pair_pruned", "unguard", "unguard_rows", "unlock"),
    *("lock_matching", "unobscure"),
)
DEFENSES = (
    *("none", "dp_gaussian", "dp_sgd", "prune", "soteria", "precode", "ats", "pogz_fl", "ca_fl"),
    *("mixup", "instahide", "modelcloak", "adaptive_cloak", "dcs2", "entangle", "fedkl", "loda"),
    *("secure_sum", "rounded"),
)
ASSETS = ("mnist", "cifar10", "lpips")  # what `privfl fetch` can take
PROFILES = ("cpu", "gpu")  # of a study
FACTS = (  # what ``knows=`` can grant; fields of wire.Facts
    *("labels", "noise", "clip", "key", "lock", "coefficients", "guard", "lambda_g", "concealed"),
    *("mixture", "shares", "policy", "matrix", "c", "extractor", "measurement", "eps"),
)
