"""The other side of the comparison: attacks of the public framework ``breaching`` on our uploads.

``breaching`` (Geiping et al., PyPI, 0.1.2) is not among our requirements; see ``INSTALL``. Its data
loaders and its report need downloads, so its attacker classes get payloads made by hand from an
``Upload``: the same model, the same gradient, the same start. Images are not normalized (mean 0,
standard deviation 1), so its box is [0, 1].

Run as a script, it stores the reference that tests/unit/test_breaching.py compares ours with:

    python benchmarks/breaching_side.py
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from privfl_lite import models, runtime
from privfl_lite.client import share
from privfl_lite.wire import Upload

VERSION = "0.1.2"
INSTALL = (
    f"pip install --no-deps breaching=={VERSION} hydra-core==1.3.8 omegaconf==2.4.0 "
    "antlr4-python3-runtime==4.9.3"
)
TRACE = Path(__file__).parents[1] / "tests" / "data" / "breaching_trace.json"
# name -> (network, its options, breaching's scale of total variation); 0.2 is its default
CASES: dict[str, tuple[str, dict[str, int], float]] = {
    "lenet": ("lenet", {}, 0.0),
    "lenet, total variation": ("lenet", {}, 0.2),
    "convnet": ("convnet", {"width": 4}, 0.0),
    "convnet, total variation": ("convnet", {"width": 4}, 0.2),
}
SIDE, STEPS = 16, 50  # with 50 steps both sides lower the step size after 18, 31 and 43


def load() -> ModuleType | None:
    """The framework, or None where it is not installed. It needs torchvision to import."""
    runtime.torchvision()
    try:
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module("breaching")
    except ImportError:
        return None


def missing() -> str:
    """One sentence for those who do not have it."""
    return f"breaching is not installed, so its side is left out; to have it: {INSTALL}"


def prepare(
    upload: Upload,
    start: Tensor,
    steps: int,
    config: str = "invertinggradients",
    tv: float = 0.0,
    watch: Callable[[Tensor], None] | None = None,
    **changes: object,
) -> Callable[[], tuple[Tensor, list[float]]]:
    """One of its attacks on one upload, ready to run.

    It gives images (B, C, H, W) and the objective of each step. ``start`` (B, C, H, W) replaces its
    random start. ``steps`` is its ``max_iterations``, which also sets where its step size falls.
    ``tv`` is the scale of its total variation, which can only take three channels. ``watch`` sees
    the images at every evaluation. ``changes`` are set in its configuration, with ``__`` for the
    dot.
    """
    breaching = load()
    if breaching is None:
        raise runtime.PrivflError(missing())
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        cfg = breaching.get_attack_config(config)
    omegaconf = importlib.import_module("omegaconf")
    dtype = next(iter(upload.tensors.values())).dtype
    settings = {"optim__max_iterations": steps, "impl__dtype": str(dtype).split(".")[1], **changes}
    if config == "invertinggradients":
        settings["regularization__total_variation__scale"] = tv
    for name, value in settings.items():
        omegaconf.OmegaConf.update(cfg, name.replace("__", "."), value)
    model = copy.deepcopy(upload.model).requires_grad_(True)
    setup = {"dtype": dtype, "device": start.device}
    attacker = breaching.attacks.prepare_attack(model, nn.CrossEntropyLoss(), cfg, setup)
    if watch:
        attacker.objective.register_forward_pre_hook(lambda _, args: watch(args[2].detach()))
    classes = upload.model.num_classes
    about = {"shape": list(upload.model.shape), "classes": classes}
    about |= {"modality": "vision", "task": "classification"}
    payload = {
        "parameters": [p.detach() for p in model.parameters()],
        "buffers": list(model.buffers()),  # sent, so that batch norm is in eval mode
        "metadata": omegaconf.OmegaConf.create(about),
    }
    labels = upload.knows.labels
    shared = {
        "gradients": [upload.tensors[n][0] for n, _ in model.named_parameters()],
        "buffers": None,
        "metadata": {
            "num_data_points": upload.batch,
            "labels": None if labels is None else labels[0],
            "local_hyperparams": None,
        },
    }

    def run() -> tuple[Tensor, list[float]]:
        found, stats = attacker.reconstruct([payload], [shared], {}, initial_data=start)
        return found["data"], stats["Trial_0_Val"]

    return run


def attack(upload: Upload, start: Tensor, steps: int, **more) -> tuple[Tensor, list[float]]:
    """Prepare and run."""
    return prepare(upload, start, steps, **more)()


def case(name: str, dtype: torch.dtype = torch.float64) -> tuple[Upload, Tensor, float]:
    """Upload, start and scale of total variation of one of ``CASES``, in double precision.

    Near the end 1 − cosine is a small difference of numbers near 1, of which single precision keeps
    fewer than five digits. The image is a formula, weights and start come from seeds.
    """
    net, options, tv = CASES[name]
    i, c = torch.arange(SIDE, dtype=dtype), torch.arange(3, dtype=dtype)[:, None, None]
    image = 0.5 + 0.4 * torch.sin(0.5 * i[:, None] + 0.3 * c) * torch.cos(0.4 * i - 0.7 * c)
    model = models.build(net, tuple(image.shape), 10, **options).to(dtype)
    upload = share(model, image[None], torch.tensor([3]), knows=("labels",))
    start = torch.rand(image.shape, generator=runtime.generator(1)).to(dtype)
    return upload, start[None], tv


def main() -> None:
    if load() is None:
        sys.exit(missing())
    torch.set_num_threads(1)
    traces = {}
    for name in CASES:
        upload, start, tv = case(name)
        traces[name] = [float(f"{v:.9g}") for v in attack(upload, start, STEPS, tv=tv)[1]]
    about = {
        "what": "objective of breaching's attack 'invertinggradients' at each step",
        "command": "python benchmarks/breaching_side.py",
        "breaching": VERSION,
        "torch": torch.__version__,
        "precision": "float64",
        "steps": STEPS,
        "cases": {n: {"net": a, **b, "tv_scale": tv} for n, (a, b, tv) in CASES.items()},
    }
    TRACE.parent.mkdir(exist_ok=True)
    TRACE.write_text(json.dumps({**about, "traces": traces}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
