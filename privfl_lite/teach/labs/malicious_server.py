"""Lab 3, the malicious server and a client's check: its checks, visible or hidden.

Chapter "The malicious server": imprint blocks, prop-expected-alone, D-SNR.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Normal

from ..check import TRIALS, Wrong, begun, close, exercise, number, tensor
from .kit import PRACTICE, demand, draws, own
from .malicious_server_cases import (
    BINS,
    KINDS,
    SIDE,
    bin_of,
    block,
    captured,
    digits,
    handout,
    upload,
)

__all__ = ["bin_of", "demand", "digits", "handout"]  # and the checks


@exercise("Evenly filled bins, if brightness is normal.")
def check_edges(edges: Callable[[float, float, int], Tensor], key=PRACTICE, most=30) -> None:
    """``edges(mean, std, bins)`` -> rising (bins,), the first below all images."""
    for trial in range(TRIALS):
        rng = draws(key, "edges", str(trial))
        mean, std = 0.1 + torch.rand(2, generator=rng).double() / 4
        bins = 2 if most == 2 else int(torch.randint(3, most, (1,), generator=rng))
        found = tensor(
            own(edges, "attacks")(float(mean), float(std), bins),
            (bins,),
            "the edges",
            nan="the quantile of 0 is −∞; put the first edge below all images by hand",
        )
        if found[0] > mean - 6 * std:
            raise Wrong("the first edge must lie below all images: six standard deviations or more")
        right = Normal(mean, std).icdf(torch.arange(1, bins).double() / bins)
        if close(found[1:], right, atol=1e-4):
            continue
        if not (found.diff() > 0).all():
            raise Wrong("edges must rise")
        if bins > 3 and close(found[1:].diff().diff(), torch.zeros(bins - 3), atol=1e-4):
            raise Wrong("equal steps fill the middle bins most; take the quantiles i / bins")
        raise Wrong(
            f"for {bins} bins of N({mean:.2f}, {std:.2f}²) the second edge is {right[0]:.4f}, "
            f"yours is {found[1]:.4f}"
        )


@exercise("Images out of a sum of many, without any search.")
def check_read_bins(
    read_bins: Callable[[Tensor, Tensor], Tensor], key=PRACTICE, crowded=False
) -> None:
    """``read_bins(g_weight, g_bias)`` -> the images (hits, pixels) of occupied bins, in order."""
    for trial in range(TRIALS):
        rng = draws(key, "read_bins", str(trial))
        g_weight, g_bias, x = upload(rng, 5 + 2 * trial, crowded)
        found = tensor(
            own(read_bins, "attacks")(g_weight.clone(), g_bias.clone()),
            None,
            "the images",
            nan="empty bins have a zero difference; leave them out before you divide",
        )
        if found.dim() != 2 or found.shape[1] != 12:
            raise Wrong(f"return (hits, 12), one row per image; yours is {tuple(found.shape)}")
        if found.shape == x.shape and torch.allclose(found, x, atol=1e-6):
            continue
        if found.shape == x[:-1].shape and torch.allclose(found, x[:-1], atol=1e-6):
            raise Wrong("the brightest image is missing: below the last row stands a row of zeros")
        if len(found) > len(x):
            raise Wrong(
                f"{len(found)} rows, but {len(x)} bins are occupied; in empty bins stands rounding "
                "dust, so compare with the largest difference"
            )
        raise Wrong(
            "these are not the images; subtract row i + 1 from row i in both gradients, and divide "
            "the differences"
        )


@exercise("Images of the right form. Whether they are the right ones, the grader knows.")
def check_form(images: Tensor) -> None:
    found = tensor(images, None, "the images")
    if found.dim() != 2 or found.shape[1] != SIDE**2 or len(found) > BINS:
        raise Wrong(f"the images have shape (k, {SIDE**2}), but yours {tuple(found.shape)}")


@exercise("These are the class's images.")
def check_images(images: Tensor, key: str) -> None:
    found, (given, right) = tensor(images, None, "the images"), captured(key)
    most = int((given["bias"].diff(append=torch.zeros(1)).abs() > 1e-4).sum())
    if found.dim() != 2 or found.shape[1] != SIDE**2 or len(found) > most:
        raise Wrong(f"{most} bins are occupied")
    if not (torch.cdist(found, right.double(), p=torch.inf) < 1e-3).any(0).all():
        raise Wrong("an image is missing that is alone in its bin")


@exercise("It holds for any bins, equal or not.")
def check_expected_alone(
    expected_alone: Callable[[Tensor, int], float], key=PRACTICE, equal=False
) -> None:
    """``expected_alone(p, B)`` -> mean number of lone images of B in bins of probabilities p."""
    for trial in range(TRIALS):
        rng = draws(key, "expected_alone", str(trial))
        p = torch.rand(3 + 4 * trial, generator=rng, dtype=torch.float64) + 0.1
        p, B = torch.ones_like(p) / len(p) if equal else p / p.sum(), 2 + 3 * trial
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
        raise Wrong(
            f"for B = {B} and p = {[round(v, 3) for v in p.tolist()]} it is {right:.4f}, yours is "
            f"{found:.4f}; an image is in bin i with probability p_i, and the others are not"
        )


@exercise("That many rows, for so many clients. A layer of a large network has them.")
def check_bins_needed(bins_needed: Callable[[int, float], int], key=PRACTICE) -> None:
    """``bins_needed(B, share)`` -> fewest equal bins that leave this share alone."""
    for trial in range(2 * TRIALS):
        rng = draws(key, "bins_needed", str(trial))
        B = 1 if trial == 0 else int(torch.randint(2, 500, (1,), generator=rng))
        share = float(0.2 + 0.75 * torch.rand(1, generator=rng))
        right = 1 if B == 1 else math.ceil(1 / (1 - share ** (1 / (B - 1))) - 1e-9)
        found = number(bins_needed(B, share), "the number of bins")
        if found == right:
            continue
        if B == 1:
            raise Wrong("a batch of one needs one bin")
        if abs(found - right) < 1.5:
            raise Wrong(f"almost: for B = {B} and {share:.3f} it is {right}; round up")
        raise Wrong(f"for B = {B} and {share:.3f} it is {right}; solve (1 − 1/n)^(B − 1) ≥ share")


@exercise("It looks at what the attack needs, not at how it was dressed.")
def check_suspicious(
    suspicious: Callable[[Tensor, Tensor], bool], key=PRACTICE, kinds=KINDS
) -> None:
    """``suspicious(first, second)`` -> whether a block (k, pixels), (pixels, k) can imprint."""
    hints = {
        "honest": "you suspect an honest block; its columns are a little alike, as after training",
        "equal": "the plain imprint block passes: equal rows, equal columns",
        "scaled": "a block passes whose rows and columns were each scaled by a factor; parallel "
        "is enough for the attack",
        "random rows": "a block with ordinary random rows passes; its second layer has parallel "
        "columns, and that is what the attack needs",
    }
    for trial in range(TRIALS):
        for kind in ("honest", *kinds):
            given = block(kind, draws(key, "suspicious", kind, str(trial)))
            if bool(begun(own(suspicious, "client_checks")(*given))) != (kind != "honest"):
                raise Wrong(hints[kind])


@exercise("Infinity for one that is alone, and one number for the whole network.")
def check_d_snr(d_snr: Callable[[Tensor], float], key=PRACTICE, alone=True) -> None:
    """``d_snr(norms)`` -> the largest D-SNR of a layer, from gradient norms (layers, B)."""
    for trial in range(TRIALS):
        rng = draws(key, "d_snr", str(trial))
        norms = torch.rand(2 + trial, 3 + 2 * trial, generator=rng, dtype=torch.float64) + 0.1
        if alone and trial % 2:
            norms[1, 1:] = 0
        power = norms.square()
        most = power.amax(1)
        right = float((most / (power.sum(1) - most).clamp(min=0)).sqrt().max())
        answer = begun(own(d_snr, "client_checks")(norms.clone()))
        try:
            found = float(answer)
        except (TypeError, ValueError, RuntimeError):
            raise Wrong(f"the D-SNR is one number, not a {type(answer).__name__}") from None
        if found == right or abs(found - right) < 1e-6 * right:
            continue
        if math.isinf(right):
            raise Wrong(
                f"one image is alone in a layer, which gives infinity; yours is {found:.3g}"
            )
        raise Wrong(
            f"it is {right:.4f}, yours is {found:.4f}; for each layer the largest norm is divided "
            "by the root of the sum of the squares of the others, and the largest layer counts"
        )
