"""How code runs here: device, seeds, progress, errors to act on, and torchvision's import.

One way to do each of these, used by every other module.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import torch
from tqdm import tqdm

from .errors import PrivflError, choose, needs

__all__ = [
    "PrivflError",
    "choose",
    "device",
    "generator",
    "needs",
    "progress",
    "seeded",
    "torchvision",
]


def device() -> torch.device:
    """The device that everything uses: a CUDA GPU where there is one, else the CPU.

    ``PRIVFL_DEVICE`` ("cpu" or "cuda") decides otherwise; chapters set "cpu", for which they are
    written, unless it is set already.
    """
    there = torch.cuda.is_available()
    wanted = os.environ.get("PRIVFL_DEVICE") or ("cuda" if there else "cpu")
    if choose("device in PRIVFL_DEVICE", wanted, ("cpu", "cuda")) == "cuda" and not there:
        raise PrivflError("PRIVFL_DEVICE is cuda, but PyTorch sees no CUDA device here")
    return torch.device(wanted)


def generator(seed: int, *keys: int) -> torch.Generator:
    """A CPU generator for one purpose, named by integers such as (seed, round, client).

    Streams with different keys are independent, and none depends on the order in which others
    are used: that is why the plain and the fast path of FedAvg, and a run that was interrupted
    and resumed, draw the same numbers. Drawing on the CPU gives the same numbers on every device.
    """
    words = [
        len(keys),
        int(seed) % 2**63,
        *map(int, keys),
    ]  # the length, or (0,) would equal (0, 0)
    state = np.random.SeedSequence(words)
    return torch.Generator().manual_seed(int(state.generate_state(1, np.uint64)[0] % 2**63))


@contextmanager
def seeded(seed: int, *keys: int) -> Iterator[None]:
    """Inside, torch's global generators follow a stream named as in ``generator``; then go back.

    For code that takes no generator: the first weights of a layer, a network that draws noise.
    """
    begin = generator(seed, *keys).initial_seed()
    if torch.cuda.is_available():
        with torch.random.fork_rng():
            torch.manual_seed(begin)
            yield
    else:  # without a GPU ``torch.manual_seed`` writes down a stack of calls, a millisecond each
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(begin)
            yield


def progress(items: Iterable, label: str, total: int | None = None, show: bool = True) -> tqdm:
    """A progress bar on standard error for work over two seconds; PRIVFL_PROGRESS=0 hides it."""
    hidden = not show or os.environ.get("PRIVFL_PROGRESS") == "0"
    return tqdm(
        items,
        label,
        total,
        leave=False,
        file=sys.stderr,
        mininterval=0.5,
        delay=2.0,
        disable=hidden,
    )


_kept: list[torch.library.Library] = []


def torchvision() -> ModuleType:
    """Import torchvision, also beside a CPU-only torch that lacks its compiled operators.

    The registry's torchvision wheel is built for CUDA. Without those libraries its import stops at
    the missing operator ``nms``; declaring the two schemas lets data sets, transforms and models
    load. A matched pair of wheels imports at once and never reaches the second half.
    """
    try:
        with needs("book"):
            return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    operators = torch.library.Library("torchvision", "FRAGMENT")
    _kept.append(operators)  # it must live as long as its operators
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    for name in [m for m in sys.modules if m.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    return importlib.import_module("torchvision")
