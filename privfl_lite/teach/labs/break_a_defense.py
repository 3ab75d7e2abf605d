"""Lab 5, break one of the five defenses: its checks, with ``PRACTICE`` or a class's key.

Chapter "Model Entanglement": prop-ent-mask; the last layer gives the rest away.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..check import TRIALS, Wrong, as_tensor, close, exercise, mask, number, tensor
from .break_a_defense_cases import (
    PIXELS,
    captured,
    entangled,
    first_layer,
    handout,
    network,
    upload,
)
from .kit import PRACTICE, demand, draws, own, unpack
from .read_off_cases import digits

__all__ = ["PRACTICE", "demand", "handout", "unpack"]  # and the checks


def psnr(found: Tensor, truth: Tensor) -> float:
    """In dB, for pixels in [0, 1]; capped at 150."""
    error = float((as_tensor(found).double() - truth).square().mean())
    return float(-10 * torch.tensor(max(error, 1e-15)).log10())


def trial(
    read: Callable[..., Tensor], beta: float, units: int, number_of: int = 0, key: str = PRACTICE
) -> float:
    """PSNR of ``read(sent, W, b)`` on one fresh entangled upload, for your own experiments."""
    net, sent, _, x, _ = upload(draws(key, "trial", str(number_of)), units, beta)
    return psnr(read(sent, *first_layer(net)), x)


@exercise("Rows that disagree about a pixel cannot all speak of one picture.")
def check_foreign(foreign: Callable[[Tensor, Tensor], Tensor], key=PRACTICE, rounded=True) -> None:
    """``foreign(g_weight, g_bias)`` -> which columns are not of the same picture, (in,) bool."""
    for k in range(TRIALS):
        rng = draws(key, "foreign", str(k))
        _, sent, columns, _, _ = upload(rng, 20 + k, 0.9 - 0.15 * k)
        weight, bias = sent["weight"], sent["bias"]
        if rounded:  # what travels has 32 bits
            weight, bias = weight.float().double(), bias.float().double()
        said = mask(
            own(foreign, "attacks", "defenses")(weight.clone(), bias.clone()),
            (PIXELS,),
            f"return {PIXELS} truth values, one for each column",
        )
        if torch.equal(as_tensor(said).bool(), columns):
            continue
        if torch.equal(as_tensor(said).bool(), ~columns):
            raise Wrong("these are the client's own columns; we ask for the guard's")
        if rounded and as_tensor(said).bool().all():
            raise Wrong("every column disagrees a little: quotients of 32-bit numbers are rounded")
        missed = int((as_tensor(said).bool() != columns).sum())
        raise Wrong(f"{missed} of {PIXELS} columns are wrong; compare g_weight[i, j] / g_bias[i]")


@exercise("The form is right. Whether these are the class's columns, the grader knows.")
def check_columns_form(columns: Tensor) -> None:
    mask(columns, (PIXELS,), f"return {PIXELS} truth values")


@exercise("These columns are the guard's, and only these.")
def check_columns(columns: Tensor, key: str) -> None:
    said = mask(columns, (PIXELS,), f"return {PIXELS} truth values")
    if not torch.equal(as_tensor(said).bool(), captured(key)[1]):
        raise Wrong("these are not the guard's columns in the class's upload")


@exercise("What the last layer was given, and so what the first one returned.")
def check_hidden(hidden: Callable[[Tensor, Tensor], Tensor], key=PRACTICE) -> None:
    """``hidden(head_weight, head_bias)`` -> u (units,), the first layer before its sigmoid."""
    for k in range(TRIALS):
        rng = draws(key, "hidden", str(k))
        net, sent, _, x, _ = upload(rng, 12 + 7 * k)
        right = net[0](x).detach()
        found = tensor(
            own(hidden, "attacks")(sent["head_weight"].clone(), sent["head_bias"].clone()),
            tuple(right.shape),
            "u",
            nan="a sigmoid is undone by log(a / (1 − a))",
        )
        if close(found, right, atol=1e-6):
            continue
        if close(found, right.sigmoid(), atol=1e-6):
            raise Wrong("this is a, behind the sigmoid; undo the sigmoid")
        raise Wrong("a is a row of the last weight gradient over that row's bias gradient")


@exercise("Own columns by a division, the others by the equations of the next layer.")
def check_read(
    read: Callable[[dict[str, Tensor], Tensor, Tensor], Tensor], key=PRACTICE, few=True
) -> None:
    """``read(sent, W, b)`` -> the picture (pixels,); there are more units than foreign columns."""
    for k in range(TRIALS):
        rng = draws(key, "read", str(k))
        beta = 0.75 - 0.1 * k if few else 0.75
        net, sent, columns, x, _ = upload(rng, int((1 - beta) * PIXELS) + 12, beta)
        weight, bias = first_layer(net)
        answer = own(read, "attacks", "defenses")(dict(sent), weight.clone(), bias.clone())
        found = tensor(answer, (PIXELS,), "the picture")
        if psnr(found, x) > 60:
            continue
        own_part, rest = (psnr(found[c], x[c]) for c in (~columns, columns))
        if own_part < 60:
            raise Wrong(f"even the client's own columns are off ({own_part:.0f} dB): divide first")
        raise Wrong(
            f"the client's own columns are right, the others have {rest:.0f} dB: solve "
            "W[:, F] x[F] = u − b − W[:, O] x[O] by least squares"
        )


@exercise("It has the form of a picture. Whether it is the class's, the grader knows.")
def check_picture_form(picture: Tensor) -> None:
    found = tensor(picture, (PIXELS,), "the picture")
    if found.min() < -0.01 or found.max() > 1.01:
        raise Wrong("pixels lie in [0, 1]; some of yours do not")


@exercise("This is the picture behind the class's upload.")
def check_picture(picture: Tensor, key: str) -> None:
    if psnr(tensor(picture, (PIXELS,), "the picture"), captured(key)[2]) < 40:
        raise Wrong("this is not the private picture")


@exercise("Unknown pixels against equations: that is when it ends.")
def check_ends(ends: Callable[[float, int], bool], key=PRACTICE) -> None:
    """``ends(beta, units)``: whether a layer of so many units no longer determines the picture."""
    for k in range(3 * TRIALS):
        rng = draws(key, "ends", str(k))
        units = int(torch.randint(8, 196, (1,), generator=rng))
        beta = round(0.05 + 0.9 * float(torch.rand(1, generator=rng)), 2)
        unknown = round((1 - beta) * PIXELS)
        units = unknown if k % 3 == 0 else units  # just enough
        said = ends(beta, units)
        if not isinstance(said, bool | int) and not hasattr(said, "item"):
            raise Wrong("return True or False")
        if bool(said) == (unknown > units):
            continue
        raise Wrong(
            f"with β = {beta:g} there are {unknown} unknown pixels, and {units} units give "
            f"{units} equations"
        )


@exercise("The right one first, or how many come before it.")
def check_place(place: Callable[[Tensor, Tensor, Tensor], int], key=PRACTICE) -> None:
    """``place(found, truth, strangers)`` -> 1 if no stranger is nearer to found, else later."""
    for k in range(2 * TRIALS):
        rng = draws(key, "place", str(k))
        pictures = digits(rng, 30)[0].double()
        truth, strangers = pictures[0], pictures[1:]
        noise = torch.randn(PIXELS, generator=rng).double()
        found = truth + (0.05 + 0.25 * (k % 3)) * noise
        nearer = (strangers - found).square().sum(1) < (truth - found).square().sum()
        right = 1 + int(nearer.sum())
        said = int(number(place(found.clone(), truth.clone(), strangers.clone()), "the place"))
        if said == right:
            continue
        if said == right - 1:
            raise Wrong("places are counted from 1")
        raise Wrong(f"{right - 1} strangers are nearer, so it is place {right}, not {said}")


def plain(sent: dict[str, Tensor]) -> Tensor:
    """What the attack of lab 1 makes of an upload: its strongest row, divided by its bias."""
    strongest = sent["bias"].abs().argmax()
    return sent["weight"][strongest] / sent["bias"][strongest]


def practice(number_of: int = 0) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
    """An entangled upload whose picture you know: what is sent, W, b, and the picture."""
    net, sent, _, x, _ = upload(draws(PRACTICE, "practice", str(number_of)))
    return sent, *first_layer(net), x


__all__ += ["entangled", "network", "plain", "practice", "trial"]
