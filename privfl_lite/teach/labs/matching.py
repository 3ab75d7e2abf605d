"""Lab 2, matching and its failures: its checks, visible with ``PRACTICE`` or hidden.

Chapter "Matching gradients": DLG's distance, GS's cosine, the failure gallery.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...metrics import psnr
from ..check import TRIALS, Wrong, as_tensor, close, exercise, number, tensor
from .kit import PRACTICE, demand, draws, own
from .matching_cases import (
    SHAPE,
    captured,
    case,
    client,
    digit,
    gradients,
    handout,
    network,
    pruned,
    seen,
)

__all__ = ["client", "demand", "digit", "gradients", "handout", "network", "pruned", "seen"]
ENOUGH = 20  # dB: the digit is there, up to faint noise
Cost = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]


def distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """DLG's cost: the squared distance of two gradients, over all tensors."""
    return torch.stack([(u - v).square().sum() for u, v in zip(a, b, strict=True)]).sum()


def kept_distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """The same over the entries of b that were sent: those that are not zero."""
    return distance([torch.where(v != 0, u, 0.0) for u, v in zip(a, b, strict=True)], b)


def score(found: Tensor, x: Tensor) -> float:
    """PSNR in dB, of an image cut off at 0 and 1."""
    return psnr(found.detach().float().clamp(0, 1), x).item()


def _lists(key: str, trial: int, tensors: int) -> tuple[list[Tensor], list[Tensor]]:
    rng = draws(key, "lists", str(trial))
    shapes = [(3, 4), (4,), (2, 2, 3)][:tensors]
    a, b = ([10.0**i * torch.randn(s, generator=rng) for i, s in enumerate(shapes)] for _ in "ab")
    return a, b


@exercise("One angle between two long vectors, whatever the scale of either side.")
def check_cosine_cost(cosine_cost: Cost, key=PRACTICE, tensors=3) -> None:
    """``cosine_cost(a, b)`` -> 1 − cosine of two lists of tensors, each taken as one vector, ()."""
    for trial in range(TRIALS):
        a, b = _lists(key, trial, tensors)
        found = tensor(own(cosine_cost, "attacks")(a, b), (), "the cost")
        u, v = (torch.cat([t.flatten() for t in side]) for side in (a, b))
        cosine = (u * v).sum() / (u.norm() * v.norm())
        if close(found, 1 - cosine, atol=1e-5):
            continue
        if close(found, cosine, atol=1e-5):
            raise Wrong("this is the cosine itself; a cost must be 0 where the gradients agree")
        if close(found, 1 - (u * v).sum()):
            raise Wrong("the norms are missing: divide the inner product by both of them")
        raise Wrong(
            "this is not 1 − ⟨a, b⟩ / (‖a‖ ‖b‖) over all entries of all tensors; sum products and "
            "squares over all tensors before you divide"
        )


@exercise("A start, a cost, a search: that is gradient matching, and it is yours.")
def check_rebuild(rebuild: Callable[..., Tensor], key=PRACTICE, cut=False, cases=2) -> None:
    """``rebuild(net, sent, y, cost)`` -> the image (1, 1, 14, 14), by lowering the cost.

    ``cut``: the gradients are pruned, and the cost looks at what was sent only.
    """
    scores, left = [], []
    for trial in range(cases):
        net, x, y = case(key, "rebuild", str(cut), str(trial))
        sent, cost = seen(net, x, y), distance
        if cut:
            sent, cost = pruned(sent), kept_distance
        answer = own(rebuild, "attacks")(net, [t.clone() for t in sent], y.clone(), cost)
        found = tensor(answer, SHAPE, "the image", nan="did the search diverge?")
        scores.append(score(found, x))
        again = cost(gradients(net, found.float(), y), sent)
        left.append(float(again.detach() / distance(sent, [0 * t for t in sent])))
    if sum(s >= ENOUGH for s in scores) > cases / 2:
        return
    said = ", ".join(f"{s:.0f}" for s in scores)
    if max(left) > 1e-4:
        raise Wrong(
            f"the images are at {said} dB, and {100 * max(left):.2g} % of the cost of a zero "
            "gradient is left; lower the cost that you were handed, let the search run longer, "
            "start in the middle of [0, 1], or take L-BFGS"
        )
    raise Wrong(f"the images are at {said} dB; most should be over {ENOUGH} dB")


@exercise("An image of the right form. Whether it is the right one, the grader knows.")
def check_form(image: Tensor) -> None:
    found = tensor(image, SHAPE, "the image")
    if found.clamp(0, 1).std() < 0.05:
        raise Wrong("this image is nearly of one gray; a digit has black and white")


@exercise("This is the class's image.")
def check_captured(image: Tensor, key: str, kind="plain") -> None:
    """The image of the "plain" or of the "pruned" client."""
    x = captured(key)[kind == "pruned"][1]
    found = as_tensor(image)
    if not torch.is_tensor(found) or found.numel() != x.numel():
        raise Wrong("this is no image of 14 × 14 pixels")
    reached = score(found.reshape(SHAPE), x)
    if not reached >= ENOUGH:
        raise Wrong(f"the image is at {reached:.0f} dB, and {ENOUGH} dB are asked for")


@exercise("Chosen by the attacker's own cost, the only score that an attacker has.")
def check_pick(pick: Callable[[Tensor], int], key=PRACTICE, diverged=True) -> None:
    """``pick(costs)`` -> index of the restart to keep, from final costs (R,)."""
    for trial in range(TRIALS):
        rng = draws(key, "pick", str(trial))
        costs = torch.rand(6 + trial, generator=rng) + 0.1
        if diverged:
            costs[torch.randint(len(costs), (1,), generator=rng)] = math.nan
        found = int(number(pick(costs.clone()), "the index"))
        right = int(costs.nan_to_num(math.inf).argmin())
        if found == right:
            continue
        if 0 <= found < len(costs) and math.isnan(costs[found]):
            raise Wrong("you chose a start that diverged: argmin takes NaN for the smallest number")
        raise Wrong(f"costs {[round(v, 2) for v in costs.tolist()]}: keep start {right}")


@exercise("What was not sent says nothing, so it costs nothing.")
def check_kept_cost(kept_cost: Cost, key=PRACTICE, cut=True) -> None:
    """``kept_cost(a, b)`` -> squared distance over the entries of b that are not zero, ()."""
    for trial in range(TRIALS):
        a, b = _lists(key, trial, 3)
        b = pruned(b, 0.3) if cut else b
        found = tensor(own(kept_cost, "attacks")(a, b), (), "the cost")
        if close(found, kept_distance(a, b)):
            continue
        if cut and close(found, distance(a, b)):
            raise Wrong("this is the distance over all entries; leave out where b is zero")
        if cut and close(found, kept_distance(b, a)):
            raise Wrong("you leave out where a is zero; b is what was sent")
        raise Wrong("this is not the sum of (a − b)² over the entries where b is not zero")
