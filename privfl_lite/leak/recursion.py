"""How far the way back through the layers leads for one image, and what that would cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..attacks import Recursive
from ..client import share
from ..runtime import PrivflError, generator
from ..wire import Upload
from .structure import seen_shapes

PACE = 3e9  # multiplications a second that algebra in double precision does, on one slow core
PATIENCE = 10.0  # seconds that counting may take


def recursion(upload: Upload, seed: int) -> dict[str, Any]:
    """Rank counts of the recursion by layer: on the upload itself where it is one image's
    gradient, else on a random image that went through the same network.
    """
    own = upload.batch == 1 and upload.local_steps == 1
    told: dict[str, Any] = {"on": "this upload" if own else "one random image", "steps": {}}
    try:
        if why := too_long(upload, PATIENCE):
            return told | {"says": why}
        found = Recursive().run(upload[:1] if own else probe(upload, seed), seed=seed)
    except PrivflError as error:
        return told | {"says": str(error)}
    steps = found.details["steps"][0]
    told["steps"] = {s.layer: s._asdict() for s in steps}
    left = {s.layer: s.unknowns - s.by_gradient - s.by_output for s in steps}
    short = [f"{name} ({n:,} open)" for name, n in left.items() if n > 0]
    if short:
        says = f"leads back to the image with directions left open at {', '.join(short)}"
    else:
        says = "leads back to the image: every layer's equations have the rank"
    return told | {"says": says}


def probe(upload: Upload, seed: int, batch: int = 1, steps: int = 1) -> Upload:
    """What a client with random images would have sent: of this network, these tensors and mode."""
    return probed(upload, seed, batch, steps)[0]


def probed(
    upload: Upload, seed: int, batch: int = 1, steps: int = 1
) -> tuple[Upload, tuple[torch.Tensor, torch.Tensor]]:
    """The same, with the images and labels behind it."""
    rng, net = generator(seed, 3), upload.model
    x = torch.rand(batch, *net.shape, generator=rng)
    y = torch.randint(net.num_classes, (batch,), generator=rng)
    plan = upload.plan
    if plan is not None or steps > 1:
        from ..wire import Plan

        plan = replace(plan or Plan(mode=upload.mode), steps=steps, batch_size=batch, epochs=1)
    sent = share(net, x, y, plan=plan, mode=upload.mode, seed=seed)
    kept = {n: t for n, t in sent.tensors.items() if n in upload.tensors}
    return replace(sent, tensors=kept), (x, y)


def too_long(upload: Upload, seconds: float) -> str | None:
    """A sentence where the recursion would take longer, estimated from sizes; else None."""
    upload.model.chain()  # one sentence where the network is none
    shapes, work = seen_shapes(upload.model), 0.0
    for name, m in upload.model.named_modules():
        if isinstance(m, nn.Conv2d) and name in shapes:
            work += _work(m, *shapes[name])
    if work / PACE <= seconds:
        return None
    return f"the recursion's equations would take about {work / PACE:,.0f} s here"


def _work(m: nn.Conv2d, given: torch.Size, out: torch.Size) -> float:
    """Multiplications: of the kernel's equations, and of what the output fixes besides."""
    pixels, k = given[1:].numel(), m.weight[0, 0].numel()
    rows = m.out_channels * k
    free = given[0] * max(0, pixels - rows)
    return 10.0 * rows * pixels * min(rows, pixels) + free**2 * (out.numel() + 10.0 * free)
