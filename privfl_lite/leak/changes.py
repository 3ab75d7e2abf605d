"""What would change the verdict: for this upload, measured where that is cheap, never advice.

Batch and steps are tried on random images that go through the same network; clip and noise on the
upload itself, by the attacker that found something. Each sentence says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from ..attacks import Attack, build
from ..gradients import norm
from ..metrics import as_image, psnr
from ..metrics.judge import matching
from ..privacy import analytic_gaussian_epsilon
from ..runtime import PrivflError, generator
from ..wire import Upload
from .attackers import ALGEBRA, PROPOSALS, UNMIXING
from .record import Attempt
from .recursion import probed, too_long
from .scores import SHARP, percent

QUICK = 5.0  # seconds within which an attacker must have ended to be asked again
MANY = 8
GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # noise multipliers
PIXELS = 3e8  # weights × images that a trial may cost


def changes(upload: Upload, attempts: Sequence[Attempt], seed: int) -> Iterator[str]:
    """One sentence after the other."""
    hits = [a for a in attempts if a.outcome == "found" and a.attack in (*ALGEBRA, *UNMIXING)]
    quick = [a for a in hits if a.seconds <= QUICK]
    if hits:
        names = [a.attack for a in (quick or hits)]
        yield from _batch(upload, names, seed)
        yield from _steps(upload, names, seed)
        if quick:
            yield _noise(upload, quick, seed)
        return
    refused = [a for a in attempts if a.outcome == "does not apply" and a.attack in ALGEBRA]
    yield from _one_image(upload, [a.attack for a in refused], seed)
    searched = [a for a in attempts if a.ran and a.evaluations > 1]
    if searched:
        most = max(searched, key=lambda a: a.evaluations)
        yield (
            f"Time: the longest search, {most.attack}, had {most.evaluations} evaluations in "
            f"{most.seconds:.0f} s and still missed {percent(min(most.misfit))} of the upload's "
            "length; an attacker has days."
        )


def _batch(upload: Upload, names: list[str], seed: int) -> Iterator[str]:
    """Eight times as many images, from one client or behind a secure sum of eight."""
    many = MANY * upload.batch
    if upload.nbytes / 4 * many > PIXELS:
        return
    said = "; ".join(f"{n} {_tried(upload, n, seed, many, 1)}" for n in names)
    yield f"Batch: with {many} images behind the upload, {said}."
    yield (
        f"Secure sum: of {MANY} clients like this one, a server that keeps to the protocol holds "
        f"one upload over {many} images, so the line above is about that, too."
    )


def _steps(upload: Upload, names: list[str], seed: int) -> Iterator[str]:
    more = 5 * upload.local_steps
    if upload.nbytes / 4 * more * upload.batch > PIXELS:
        return
    said = "; ".join(f"{n} {_tried(upload, n, seed, upload.batch, more)}" for n in names)
    yield f"Steps: with {more} local steps in place of {upload.local_steps}, {said}."


def _one_image(upload: Upload, names: list[str], seed: int) -> Iterator[str]:
    """Who refused this upload, and would read one image after one step."""
    if upload.batch == upload.local_steps == 1:
        return
    for name in names:
        said = _tried(upload, name, seed, 1, 1)
        if not said.startswith("does not apply"):
            yield f"The other way: with one image and one step, {name} {said}."


def _tried(upload: Upload, name: str, seed: int, batch: int, steps: int) -> str:
    """What an attacker does with random images behind an upload of this network."""
    try:
        sent, (x, _) = probed(upload, seed, batch, steps)
        if name == "recursive" and (why := too_long(sent, QUICK)):
            return f"was not asked: {why}"
        found = _short(build(name)).run(sent, seed=seed)
    except PrivflError as error:
        return f"does not apply ({error})"
    sharp = int((psnr(_ordered(found.images, x), x) >= SHARP).sum())
    return f"brings back {sharp} of {batch} random images at {SHARP:g} dB or more"


def _noise(upload: Upload, quick: Sequence[Attempt], seed: int) -> str:
    """The least noise of a grid, on the upload clipped to its own length, in which all quick
    attackers lose what they found without; and the ε of one such round.
    """
    length, reached = float(norm(upload.tensors).max()), {}
    left, before = list(quick), ""
    for sigma in GRID:
        reached = {a.attack: _best_with_noise(upload, a, sigma * length, seed) for a in left}
        left = [a for a in left if reached[a.attack] >= SHARP]
        name = max(reached, key=lambda n: reached[n])
        if not left:
            break
        before = f" (it still has {reached[name]:.1f} dB at {sigma:g})"
    start = (
        f"Clip and noise: clipped to C = {length:.3g}, its own length, and with N(0, ({sigma:g} "
        f"C)²) on every number, {name} comes to {reached[name]:.1f} dB of what it finds without"
    )
    if left:
        return f"{start}, the most noise that was tried."
    eps = analytic_gaussian_epsilon(sigma / 2, 1e-5)
    return (
        f"{start}{before}. Of one round with that noise ε = {eps:.3g} (δ = 1e-05, per client, "
        "replace); attackers who know the noise, and searches, may do better."
    )


def _best_with_noise(upload: Upload, hit: Attempt, std: float, seed: int) -> float:
    assert hit.images is not None
    rng = generator(seed, 4)
    noisy = {
        n: t + std * torch.randn(t.shape, generator=rng).to(t) for n, t in upload.tensors.items()
    }
    try:
        found = _short(build(hit.attack)).run(replace(upload, tensors=noisy), seed=seed)
    except PrivflError:
        return 0.0
    truth = as_image(hit.images)
    return float(psnr(_ordered(found.images.cpu(), truth, upload.batch), truth).max())


def _short(tool: Attack) -> Attack:
    """The attacker without a progress bar, and with little work."""
    own: dict[str, Any] = {"show": False, "proposals": PROPOSALS}
    return replace(tool, **{f.name: own[f.name] for f in fields(tool) if f.name in own})


def _ordered(found: Tensor, x: Tensor, batch: int | None = None) -> Tensor:
    return as_image(found).to(x)[matching(found.to(x), x, batch or len(x))]
