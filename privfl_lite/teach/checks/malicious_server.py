"""Checks for the exercises of "The malicious server": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...runtime import generator
from ..check import TRIALS, Wrong, begun, exercise, mask, number, tensor


def _upload(trial: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients (8, 12) and (8,) of an imprint layer, and the images (3, 12) that stand alone."""
    rng = generator(trial)
    x = torch.rand(3, 12, generator=rng, dtype=torch.float64)
    s = 0.5 + torch.rand(3, generator=rng, dtype=torch.float64)
    s[1] = -s[1]
    rows = torch.tensor([1, 4, 7])  # image j lies in bin rows[j]; the last bin is used
    on = (torch.arange(8)[:, None] <= rows).double()  # (8, 3): every row up to its bin
    return on @ (s[:, None] * x), on @ s, x


@exercise("Three images, in three lines, without optimization.")
def check_read_bins(read_bins: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``read_bins(g_weight, g_bias)`` -> the images (hits, pixels) of occupied bins, in order."""
    for trial in range(TRIALS):
        g_weight, g_bias, x = _upload(trial)
        found = tensor(
            read_bins(g_weight.clone(), g_bias.clone()),
            None,
            "the images",
            nan="empty bins have a zero difference; leave them out before you divide",
        )
        if found.dim() != 2 or found.shape[1] != 12:
            raise Wrong(f"return (hits, 12), one row an image; yours is {tuple(found.shape)}")
        if found.shape == x.shape and torch.allclose(found, x, atol=1e-6):
            continue
        if len(found) == 2 and torch.allclose(found, x[:2], atol=1e-6):
            raise Wrong("the brightest image is missing: below the last row stands a row of zeros")
        if found.shape == x.shape and torch.allclose(found, x.flip(0), atol=1e-6):
            raise Wrong("all three images, but not in the order of their bins, darkest first")
        if len(found) == 8:
            raise Wrong("these are 8 rows, one a bin, but only three bins are occupied")
        near = torch.cdist(x, found).amin(1) < 1e-6
        if near.any():
            raise Wrong(
                f"{int(near.sum())} of 3 images are there, with rows that are none; subtract row "
                "i + 1 from row i in both gradients, and compare rounding dust with the largest"
            )
        raise Wrong(
            "none of the rows is an image; subtract row i + 1 from row i, in the weight and in "
            "the bias gradient, and divide the differences"
        )


@exercise("It holds for any bins, equal or not.")
def check_expected_alone(expected_alone: Callable[[Tensor, int], float]) -> None:
    """``expected_alone(p, B)`` -> mean number of lone images of B in bins of probabilities p."""
    for trial in range(TRIALS):
        rng = generator(trial)
        p = torch.rand(3 + trial, generator=rng, dtype=torch.float64) + 0.1
        p, B = p / p.sum(), 2 + trial
        right = float((B * p * (1 - p) ** (B - 1)).sum())
        found = number(expected_alone(p.clone(), B), "the mean")
        if abs(found - right) < 1e-9:
            continue
        if abs(found - right / B) < 1e-9:
            raise Wrong("this is the share of the batch; how many images is that?")
        if abs(found - float((B * p * (1 - p) ** B).sum())) < 1e-9:
            raise Wrong("count the others: B − 1 of them must be elsewhere, not B")
        if abs(found - B * (1 - 1 / len(p)) ** (B - 1)) < 1e-9:
            raise Wrong("this is right for equal bins only; here they have probabilities p")
        if abs(found - float((1 - (1 - p) ** B).sum())) < 1e-9:
            raise Wrong("this counts bins that are occupied; we want those with exactly one image")
        raise Wrong(
            f"for p = {[round(v, 3) for v in p.tolist()]} and B = {B} it is {right:.4f}, yours is "
            f"{found:.4f}; image n is in bin i with probability p_i, and the others are not"
        )


@exercise("The noise tells its own size, and the threshold follows.")
def check_occupied(occupied: Callable[[Tensor], Tensor]) -> None:
    """``occupied(d)`` -> which bins (k,) hold an image; d has Gaussian noise of unknown size."""
    missed = false = 0
    for trial in range(40):
        rng = generator(trial)
        sigma = 10.0 ** (trial % 5 - 3)
        truth = torch.zeros(400, dtype=torch.bool)
        truth[torch.randperm(400, generator=rng)[:40]] = True
        size = 8 + 92 * torch.rand(400, generator=rng, dtype=torch.float64)
        sign = torch.randint(2, (400,), generator=rng) * 2 - 1
        noise = torch.randn(400, generator=rng, dtype=torch.float64)
        says = "return one True or False for each bin, a boolean tensor of the shape of d"
        found = mask(occupied((truth * sign * size + noise) * sigma), (400,), says)
        missed += int((truth & ~found).sum())
        false += int((~truth & found).sum())
    if false > 40 * 360 * 0.5:
        raise Wrong("nearly every bin counts as occupied; noise is never exactly zero")
    if false > 40 * 2:
        raise Wrong(
            f"{false / 40:.0f} of 360 empty bins pass on average; of hundreds of normal numbers "
            "the largest is over three standard deviations, and their size differs from upload "
            "to upload: measure it where most bins are empty"
        )
    if missed > 40 * 4:
        raise Wrong(
            f"{missed / 40:.0f} of 40 occupied bins are missed on average; the occupied ones make "
            "the plain standard deviation too large (a median does not care), and signals can be "
            "negative"
        )


def _layers(kind: str, trial: int) -> tuple[Tensor, Tensor]:
    """First layer (24, 30) and second (30, 24) of a block of this kind."""
    rng = generator(trial)
    first = torch.randn(24, 30, generator=rng) / 30**0.5
    second = torch.randn(30, 24, generator=rng) / 24**0.5
    scale = 0.2 + torch.rand(24, generator=rng)
    if kind != "honest" and kind != "random rows":
        first = torch.ones(24, 30) / 30 * (scale[:, None] if kind == "scaled" else 1)
    if kind == "equal":
        second = torch.full((30, 24), 1 / 24)
    if kind in ("scaled", "random rows"):
        second = torch.randn(30, 1, generator=rng) * scale.flip(0)
    return first, second


@exercise("It looks at what the attack needs, not at how it was dressed.")
def check_suspicious(suspicious: Callable[[Tensor, Tensor], bool]) -> None:
    """``suspicious(first, second)`` -> whether a block (k, pixels), (pixels, k) can imprint."""
    hints = {
        "honest": "you suspect an ordinary random block",
        "equal": "the plain imprint block passes: equal rows, equal columns",
        "scaled": "a block passes whose rows and columns were each scaled by a factor; parallel "
        "is enough for the attack, so equality is the wrong test",
        "random rows": "a block with ordinary random rows passes; its second layer has parallel "
        "columns, and that is what the attack needs",
    }
    for trial in range(TRIALS):
        for kind, hint in hints.items():
            if bool(begun(suspicious(*_layers(kind, trial)))) != (kind != "honest"):
                raise Wrong(hint)


def _disguised(trial: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Random rows (24, 10) and biases, gradients of a block with equal columns, images (4, 10).

    Drawn again until every image is separated from the others by some pair of units, and no mixture
    switches on just the units of an image (it would pass the test of the rank, too).
    """
    rng = generator(trial)
    while True:
        W = torch.randn(24, 10, generator=rng, dtype=torch.float64)
        b = 0.5 * torch.randn(24, generator=rng, dtype=torch.float64)
        x = torch.rand(4, 10, generator=rng, dtype=torch.float64)
        s = 0.5 + torch.rand(4, generator=rng, dtype=torch.float64)
        s[:2] = -s[:2]
        on = (x @ W.T + b > 0).T  # (24, 4)
        split = (
            (on.int()[:, None] - on.int()).flatten(0, 1).double()
        )  # (576, 4), by a pair of units
        several = split[split.abs().sum(1) > 1] * s
        mixed = (several @ x) / several.sum(1, keepdim=True)
        posing = ((mixed @ W.T + b > 0)[:, None] == on.T).all(2).any()
        if split[split.abs().sum(1) == 1].any(0).all() and not posing:
            return W, b, on.double() @ (s[:, None] * x), on.double() @ s, x


@exercise("No order of the rows was needed: parallel columns give the batch away.")
def check_read_pairs(read_pairs: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> None:
    """``read_pairs(W, b, g_weight, g_bias)`` -> the images of the batch, each once."""
    for trial in range(TRIALS):
        *given, x = _disguised(trial)
        divides = "pairs of units that no image tells apart have a zero difference; leave them out"
        found = tensor(read_pairs(*(t.clone() for t in given)), None, "the images", nan=divides)
        if found.dim() != 2 or found.shape[1] != 10:
            raise Wrong(f"return (hits, 10), one row an image; yours is {tuple(found.shape)}")
        distance = torch.cdist(found, x)
        there, real = distance.amin(0) < 1e-5, distance.amin(1) < 1e-5
        if not there.any():
            raise Wrong(
                "none of the rows is an image; subtract the gradients of two units, in weight and "
                "bias, and divide"
            )
        if not real.all():
            raise Wrong(
                f"{int((~real).sum())} of your {len(found)} rows are mixtures; take a candidate's "
                "share away from the whole gradient: only for a true image the rank falls"
            )
        if not there.all():
            raise Wrong(
                f"{int(there.sum())} of 4 images are there; try all pairs of units, not neighbors "
                "alone, and both signs of the signal"
            )
        if len(found) > 4:
            raise Wrong("each image is there, but some several times; keep one of each")


def _ratio(top: Tensor, rest: Tensor) -> float:
    """The largest √(top / rest) over layers, those without any gradient left out."""
    return float((top / rest).nan_to_num(0.0).clamp(min=0).amax().sqrt())


@exercise("One loud image among quiet ones, in whichever layer it is.")
def check_stands_out(stands_out: Callable[[Tensor], float]) -> None:
    """``stands_out(norms)`` -> D-SNR from norms (layers, B) of the images' gradients."""
    alone = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    for trial in range(TRIALS):
        norms = torch.rand(4, 6 + trial, generator=generator(trial), dtype=torch.float64) + 0.5
        norms[2, trial] = 9.0  # one image, in one layer
        norms[1] = 0  # a layer that nothing moves
        norms[3] *= 40  # loud, but all alike
        power, whole = norms.square(), norms.square().sum(0)
        top, rest = power.amax(1), power.sum(1) - power.amax(1)
        lengths = norms.amax(1) / (norms.sum(1) - norms.amax(1))
        right, found = _ratio(top, rest), float(begun(stands_out(norms.clone())))
        hints = {
            _ratio(top, power.sum(1)): "below stand the *others*: leave the loudest out of the sum",
            right**2: "this is a ratio of squares; take the root",
            float(lengths.nan_to_num().amax()): "gradients of different images add like squares",
            _ratio(whole.amax(), whole.sum() - whole.amax()): "a loud layer hides a quiet one; go "
            "layer by layer",
            float((top / rest).nan_to_num().sqrt().sum() / 3): "one layer is enough for an "
            "attacker: take the largest, not the mean",
        }
        if found != found:
            raise Wrong("a layer that no image moves gives 0/0; leave it out")
        for value, hint in hints.items():
            if abs(found - value) < 1e-9 and abs(value - right) > 1e-9:
                raise Wrong(hint)
        if abs(found - right) > 1e-9:
            raise Wrong(f"for these norms it is {right:.4f}, yours is {found:.4f}")
    if float(begun(stands_out(alone))) != float("inf"):
        raise Wrong("an image that is alone in its layer has infinity")
