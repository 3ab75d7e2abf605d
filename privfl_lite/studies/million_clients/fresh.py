"""How much memory a run takes: the peak of a process of its own, which has done nothing else."""

from __future__ import annotations

import resource
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from ... import models
from ...federated import FedAvg
from ...runtime import device
from ...wire import Plan

STATUS = Path("/proc/self/status")


def peak(settings: dict, clients: int, kept: bool) -> int:
    """Bytes by which a round of so many clients raises the peak that a round of ten had left."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_measure, args=(theirs, settings, clients, kept))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _measure(pipe: Connection, settings: dict, clients: int, kept: bool) -> None:
    images, plan = settings["images"], Plan(eta=settings["eta"], batch_size=settings["batch"])
    model = models.build("mlp", (1, 28, 28), 10, hidden=(16,))  # the study's "mlp"
    at = device()
    data = torch.rand(images, *model.shape, device=at), torch.arange(images, device=at) % 10
    FedAvg(model, [data] * 10, 1, plan, show=False).finish()
    many = [data] * clients  # the same images for all: they are no part of a real server
    made = FedAvg(model, many, 1, plan, show=False, keep_uploads=kept)
    before = _most()
    made.finish()
    pipe.send(_most() - before)


def _most() -> int:
    """The largest resident set of this process so far, in bytes.

    On Linux from its own table: what ``getrusage`` says is handed down by its parent.
    """
    if STATUS.exists():
        (line,) = [v for v in STATUS.read_text().splitlines() if v.startswith("VmHWM")]
        return 1024 * int(line.split()[1])
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else 1024 * found
