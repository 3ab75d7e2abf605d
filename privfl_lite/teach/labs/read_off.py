"""Lab 1, read off a gradient: its checks, visible with ``PRACTICE`` and hidden with a class's key.

Chapter "Why gradients leak": prop-linear-layer-leaks, prop-lone-active-unit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..check import TRIALS, Wrong, as_tensor, close, exercise, number, tensor
from .kit import PRACTICE, demand, draws, own, unpack
from .read_off_cases import BATCH, SIDE, captured, digits, handout, lone, mixed, network

__all__ = ["PRACTICE", "demand", "digits", "handout", "network", "unpack"]  # and the checks


@exercise("One row, one division, and the input of the layer is yours.")
def check_read_off(read_off: Callable[[Tensor, Tensor], Tensor], key=PRACTICE, dust=True) -> None:
    """``read_off(g_weight, g_bias)`` -> the input (in,) of a layer behind one example."""
    for trial in range(TRIALS):
        rng = draws(key, "read_off", str(trial))
        pixels, units = 8 + 3 * trial, 5 + trial
        x, delta = torch.rand(pixels, generator=rng), torch.randn(units, generator=rng)
        delta = torch.where(delta.abs() < 0.1, torch.tensor(0.5), delta)
        delta[torch.randperm(units, generator=rng)[:2]] = 0  # units that are off
        delta[delta.nonzero()[0]] = 1e-7 if dust else 0.3  # of those that are on, the first
        g_weight = torch.outer(delta, x)
        if dust:
            g_weight += 1e-8 * torch.randn(g_weight.shape, generator=rng)
        found = tensor(
            own(read_off, "attacks")(g_weight, delta.clone()),
            (pixels,),
            "the input",
            nan="some units are off and their bias gradient is zero, so choose a row first",
        )
        if close(found, x.double(), atol=1e-5):
            continue
        scale = (found @ x.double()) / x.double().square().sum()
        if close(found, scale * x.double(), atol=1e-4):
            raise Wrong(
                f"your answer is the input times {scale:.3g}; divide the row of the weight "
                "gradient by the same entry of the bias gradient"
            )
        raise Wrong(
            "your answer is near the input at best; a row whose bias gradient is tiny is mostly "
            "rounding, so take one that is large, or all rows together"
        )


@exercise("It has the form of an image in [0, 1]. Whether it is the right one, the grader knows.")
def check_form(image: Tensor) -> None:
    """The stolen digit, (196,) or (14, 14)."""
    found = as_tensor(image)
    shape = (SIDE, SIDE) if torch.is_tensor(found) and found.dim() == 2 else (SIDE**2,)
    found = tensor(image, shape, "the image")
    if found.min() < -0.01 or found.max() > 1.01:
        raise Wrong("pixels lie in [0, 1]; yours do not, so it is not divided by the right number")
    if found.std() < 0.05:
        raise Wrong("this image is nearly of one gray; a digit has black and white")


@exercise("This is the class's image.")
def check_stolen(image: Tensor, key: str) -> None:
    found = as_tensor(image)
    if not torch.is_tensor(found) or not close(found.flatten(), captured(key)[1][0][0], atol=1e-3):
        raise Wrong("this is not the image behind the gradient")


@exercise("This is the class's digit.")
def check_digit(digit: int, key: str) -> None:
    if number(digit, "the digit") != int(captured(key)[1][1]):
        raise Wrong("this is not the digit behind the gradient")


@exercise("Exact whenever the mean prediction is known.")
def check_label_counts(
    label_counts: Callable[[Tensor, Tensor, int], Tensor], key=PRACTICE, dust=True
) -> None:
    """``label_counts(g_bias, p_mean, B)`` -> how often each class is in the batch (classes,)."""
    for trial in range(2 * TRIALS):
        rng = draws(key, "label_counts", str(trial))
        B, m = 3 + 4 * trial, 4 + trial % 5
        right = torch.bincount(torch.randint(m, (B,), generator=rng), minlength=m).double()
        p = torch.randn(B, m, generator=rng, dtype=torch.float64).softmax(1).mean(0)
        off = torch.full((m,), 2e-6)  # rounding, which makes counts a little too large
        if dust:
            off[::2] *= -1  # or too small
        g = p - (right + off) / B
        found = tensor(own(label_counts, "attacks")(g.clone(), p.clone(), B), (m,), "the counts")
        if torch.equal(found, right):
            continue
        if close(found, -right) or close(found, -right / B):
            raise Wrong("the sign is turned round: ∇b = p̄ − counts / B")
        if close(found * B, right):
            raise Wrong("these are shares of the batch, not counts")
        if close(found, (-B * g).round().clamp(min=0)):
            raise Wrong("the mean prediction p̄ is missing: ∇b = p̄ − counts / B")
        if (found - right).abs().max() <= 1:
            raise Wrong("almost: counts are whole numbers, and 2.9999998 is 3, so round")
        raise Wrong("these are not the counts; solve ∇b = p̄ − counts / B for them")


@exercise("Six labels in order. Whether they are the right ones, the grader knows.")
def check_labels_form(labels: list[int]) -> None:
    found = tensor(labels, (BATCH,), "the labels")
    if not torch.equal(found, found.round().clamp(0, 9)):
        raise Wrong("labels are whole numbers from 0 to 9")
    if not torch.equal(found, found.sort()[0]):
        raise Wrong("put them in increasing order, each as often as it occurs")


@exercise("These are the labels of the class's batch.")
def check_labels(labels: list[int], key: str) -> None:
    if not close(tensor(labels, (BATCH,), "the labels"), captured(key)[2][1].sort()[0].double()):
        raise Wrong("these are not the labels of the batch")


@exercise("Only what repeats is an image; the rest is a mixture, or cannot be told.")
def check_repeated(
    repeated: Callable[[Tensor, Tensor], Tensor], key=PRACTICE, some=(1, 2, 3)
) -> None:
    """``repeated(g_weight, g_bias)`` -> (k, in): each image that two rows or more show, once."""
    for trial, count in enumerate(some * 2):
        g_weight, g_bias, right = mixed(draws(key, "repeated", str(trial)), count)
        found = tensor(
            own(repeated, "attacks")(g_weight.clone(), g_bias.clone()),
            None,
            "the images",
            nan="some bias gradients are zero (units that are off); drop these rows first",
        )
        if found.dim() != 2 or found.shape[1] != right.shape[1]:
            raise Wrong(f"return (k, {right.shape[1]}), one row per image, also if k = {count}")
        near = torch.cdist(found, right.double(), p=torch.inf) < 1e-3  # (found, right)
        if not near.any(1).all():
            raise Wrong("one of your images is shown by one row only, or is a mixture in [0, 1]")
        if not near.any(0).all():
            raise Wrong("an image is missing; rows agree only up to rounding, so allow 0.0001")
        if len(found) > len(right):
            raise Wrong("an image stands there more than once; skip rows that you already have")


@exercise("Images in [0, 1], each once. Whether they are the right ones, the grader knows.")
def check_images_form(images: Tensor) -> None:
    found = tensor(images, None, "the images")
    if found.dim() != 2 or found.shape[1] != SIDE**2:
        raise Wrong(f"the images have shape (k, {SIDE**2}), but yours {tuple(found.shape)}")
    if found.min() < -0.01 or found.max() > 1.01:
        raise Wrong("one of them leaves [0, 1], so it is no image")


@exercise("These are the class's images.")
def check_images(images: Tensor, key: str) -> None:
    found, right = tensor(images, None, "the images"), captured(key)[2][0].double()
    if found.shape != right.shape:
        raise Wrong(f"{len(right)} images are shown by two rows or more")
    if not (torch.cdist(found, right, p=torch.inf) < 1e-3).any(0).all():
        raise Wrong("these are not the images of the batch")


@exercise("A sum over who is alone, and once is not enough.")
def check_expected_read(expected_read: Callable[[int, int, float], float], key=PRACTICE) -> None:
    """``expected_read(n, B, q)`` -> share of images with two lone units or more of n."""
    for trial in range(2 * TRIALS):
        rng = draws(key, "expected_read", str(trial))
        n, B = (int(torch.randint(low, 40, (1,), generator=rng)) for low in (20, 1))
        q = float(0.05 + 0.9 * torch.rand(1, generator=rng))
        p = q * (1 - q) ** (B - 1)
        right = 1 - (1 - p) ** n - n * p * (1 - p) ** (n - 1)
        found = number(expected_read(n, B, q), "the share")
        if abs(found - right) < 1e-9:
            continue
        if abs(found - (1 - (1 - p) ** n)) < 1e-9:
            raise Wrong("this is one lone unit or more; a reader needs two that agree")
        if abs(found - B * right) < 1e-9:
            raise Wrong("this is the number of images; we want the share of the batch")
        p = q * (1 - q) ** B
        if abs(found - (1 - (1 - p) ** n - n * p * (1 - p) ** (n - 1))) < 1e-9:
            raise Wrong("count the others: B − 1 of them must be off, not B")
        raise Wrong(
            f"for n = {n}, B = {B} and q = {q:.2f} it is {right:.4f}, yours is {found:.4f}; the "
            "number of units that are on for one image alone is binomial"
        )


@exercise("You count what is on the wire, before anybody reads it.")
def check_lone_share(lone_share: Callable[[nn.Sequential, Tensor], float], key=PRACTICE) -> None:
    """``lone_share(net, x)`` -> share of images x (B, in) with two lone units or more in net."""
    for trial, B in enumerate((1, 2, 3, 5, 8)):
        rng = draws(key, "lone_share", str(trial))
        net, x = network(rng, SIDE**2, 24), digits(rng, B)[0]
        right = float((lone(net, x) > 1).double().mean())
        found = number(lone_share(net, x), "the share")
        if abs(found - right) < 1e-6:
            continue
        if abs(found - float((lone(net, x) > 0).double().mean())) < 1e-6:
            raise Wrong("one lone unit is not enough; count images that have two or more")
        raise Wrong(
            f"for a batch of {B} it is {right:.3f}, yours is {found:.3f}; a unit is on where "
            "net[0](x) > 0, and alone where that holds for exactly one image"
        )
