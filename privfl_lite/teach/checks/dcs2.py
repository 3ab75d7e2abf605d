"""Checks for the exercises of "DCS²": right, or what to look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...attacks.adaptive.dcs2_matching import candidate_labels
from ...defenses.dcs2 import project
from ...runtime import generator
from ..check import TRIALS, Wrong, as_tensor, begun, exercise, pair, tensor


@exercise("One constraint, one multiplier, two inner products.")
def check_nearest(nearest: Callable[[Tensor, Tensor], Tensor]) -> None:
    """``nearest(g, g_c)`` -> of all vectors with ⟨g, ·⟩ ≥ 0 the nearest to g_c; all are (d,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        g, noise = (torch.randn(7, generator=rng, dtype=torch.float64) for _ in range(2))
        for g_c in (noise + 3 * g, noise - 3 * g, -0.3 * g + 0.01 * noise):
            answer = tensor(nearest(g.clone(), g_c.clone()), None, "the nearest vector")
            if answer.dim() == 0:
                raise Wrong("this is v*; return the vector g_c + v* g")
            answer = tensor(answer, (7,), "the nearest vector")
            right = project({"w": g[None]}, {"w": g_c[None]})[0]["w"][0]
            if torch.allclose(answer, right, atol=1e-8):
                continue
            inner, square = g @ g_c, g @ g
            for hint, wrong in {
                "here ⟨g, g_c⟩ < 0, and g_c came back unchanged": g_c,
                "a vector that does not oppose g stays as it is; let v* be at least 0": (
                    g_c - inner / square * g
                ),
                "divide by the squared length of g, not by its length": g_c
                + (-inner / square.sqrt()).clamp(min=0) * g,
                "divide by the squared length of g": g_c + (-inner).clamp(min=0) * g,
                "v* is larger where g_c opposes g more; mind the sign": g_c
                + (inner / square).clamp(min=0) * g,
                "this is the margin ½ of the released code; Eq. 11 has none": g_c
                + (-inner / square).clamp(min=0.5) * g,
                "move along g, not along g_c": g_c + (-inner / square).clamp(min=0) * g_c,
            }.items():
                if torch.allclose(answer, wrong, atol=1e-8):
                    raise Wrong(hint)
            raise Wrong("add max(0, −⟨g, g_c⟩/‖g‖²) times g to g_c")


@exercise("With these labels the upload is a gradient like any other.")
def check_mixture(mixture: Callable[[Tensor, Tensor, float, int], Tensor]) -> None:
    """``mixture(y_s, y_c, lambda_g, classes)`` -> labels (U, 2, classes) of x_s and of x̃."""
    for trial in range(TRIALS):
        rng = generator(trial)
        y_s, y_c = (torch.randint(6, (5,), generator=rng) for _ in range(2))
        y_c[0] = (y_s[0] + 1) % 6
        answer = as_tensor(begun(mixture(y_s.clone(), y_c.clone(), 0.7, 6)))
        if torch.is_tensor(answer) and answer.shape == (5, 6):
            raise Wrong("this is one label an upload; x_s and x̃ have one each, so (U, 2, classes)")
        answer = tensor(answer, (5, 2, 6), "the labels")

        def labels(share: float, y_s: Tensor = y_s, y_c: Tensor = y_c) -> Tensor:
            return candidate_labels(y_s, 6, share)[torch.arange(5), y_c].double()

        right = labels(0.7)
        own, other = (one_hot(t, 6).double() for t in (y_s, y_c))
        for hint, wrong in {
            "": right,
            "λg is the share of the concealed label, 1 − λg that of the sensitive one": labels(
                1 - 0.7
            ),
            "the sensitive image comes first": right.flip(1),
            "the sensitive image keeps its own label, only that of x̃ is mixed": right[:, 1:].expand(
                -1, 2, -1
            ),
            "the label of x̃ is mixed: λg ỹ + (1 − λg) y_s": torch.stack([own, other], 1),
            "the label of x̃ must sum to 1; its sensitive share is missing": torch.stack(
                [own, 0.7 * other], 1
            ),
        }.items():
            if torch.allclose(answer, wrong, atol=1e-5):
                if hint:
                    raise Wrong(hint)
                break
        else:
            raise Wrong(
                "first row one-hot y_s, second λg times one-hot ỹ plus 1 − λg times the first"
            )


@exercise("What is left has rank one, and falls apart into its two factors.")
def check_other_image(
    other_image: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> None:
    """``other_image(grad_w, grad_b, r_1, delta_1)`` -> features r₂ (n,) and error δ₂ (classes,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        r = torch.rand(2, 8, generator=rng, dtype=torch.float64)
        labels = torch.eye(5, dtype=torch.float64)[:2]
        delta = torch.randn(2, 5, generator=rng, dtype=torch.float64).softmax(1) - labels
        grad_w, grad_b = delta.T @ r / 2, delta.mean(0)
        answer = begun(other_image(grad_w.clone(), grad_b.clone(), r[0].clone(), delta[0].clone()))
        if not pair(answer):
            raise Wrong("return two tensors: the features r₂ and the error δ₂")
        found, error = tensor(answer[0], (8,), "r₂"), tensor(answer[1], (5,), "δ₂")
        if torch.allclose(error, grad_b - delta[0]):
            raise Wrong("the bias gradient is the mean ½(δ₁ + δ₂): double it first")
        if torch.allclose(error, grad_b):
            raise Wrong("the bias gradient has δ₁ in it: take that out")
        if torch.allclose(error, delta[0] - 2 * grad_b):
            raise Wrong("this is −δ₂")
        if not torch.allclose(error, delta[1]):
            raise Wrong("δ₂ is what the bias gradient, doubled, has besides δ₁")
        if torch.allclose(found, r[1]):
            continue
        rest, square = 2 * grad_w - torch.outer(delta[0], r[0]), error @ error
        for hint, wrong in {
            "divide by ‖δ₂‖²": rest.T @ error,
            "divide by ‖δ₂‖², the squared length": rest.T @ error / square.sqrt(),
            "the weight gradient is a mean too: double it": (grad_w - torch.outer(delta[0], r[0])).T
            @ error
            / square,
            "the first image's part δ₁ r₁ᵀ is still in it": 2 * grad_w.T @ error / square,
        }.items():
            if torch.allclose(found, wrong):
                raise Wrong(hint)
        raise Wrong("2∇W − δ₁r₁ᵀ is δ₂r₂ᵀ; multiply its transpose by δ₂ and divide by ‖δ₂‖²")


@exercise("Only the right weight leaves rank one; classes that x̃ does not claim tell the other.")
def check_weigh(weigh: Callable[..., tuple[float, float, Tensor, Tensor]]) -> None:
    """``weigh(grad_w, grad_b, W, b, r_1, y)`` -> weights a, c, features r₂ (n,), label q (K,)."""
    for trial in range(TRIALS):
        rng = generator(trial)
        r = torch.rand(2, 12, generator=rng, dtype=torch.float64)
        W, b = (torch.randn(*s, generator=rng, dtype=torch.float64) / 3 for s in ((10, 12), (10,)))
        y, other = torch.randperm(10, generator=rng)[:2].tolist()
        own, q = torch.eye(10, dtype=torch.float64)[[y, other]]
        q = 0.7 * q + 0.3 * own
        shares = 0.2 + torch.rand(2, 1, generator=rng, dtype=torch.float64)  # a and c
        errors = shares * ((r @ W.T + b).softmax(1) - torch.stack([own, q]))
        given = errors.T @ r, errors.sum(0), W, b, r[0]
        answer = begun(weigh(*(t.clone() for t in given), y))
        if not isinstance(answer, tuple | list) or len(answer) != 4:
            raise Wrong("return four things: a, c, the features r₂ and the label q")
        _check_weights([as_tensor(v) for v in answer[:2]], *shares.flatten().tolist())
        features, label = tensor(answer[2], (12,), "r₂"), tensor(answer[3], (10,), "q")
        if torch.allclose(features, shares[1] * r[1]) or torch.allclose(features, r[1] / shares[1]):
            raise Wrong("the weight c is still in r₂: divide by ‖c δ₂‖², with c in both factors")
        if not torch.allclose(features, r[1], atol=1e-5):
            raise Wrong("r₂ is (∇W − a δ₁ r₁ᵀ)ᵀ times c δ₂, over ‖c δ₂‖²")
        if torch.allclose(label, -q, atol=1e-5):
            raise Wrong("this is −q: the error is prediction minus label")
        if not torch.allclose(label, q, atol=1e-5):
            raise Wrong("q is the prediction for r₂ minus δ₂, and δ₂ is c δ₂ over c")


def _check_weights(found: list[Tensor], a: float, c: float) -> None:
    """Refuse wrong weights, each with what went wrong."""
    for value, name in zip(found, "ac", strict=True):
        if not torch.is_tensor(value) or value.numel() != 1:
            raise Wrong(f"{name} is one number")
    first, second = (float(v) for v in found)
    if abs(first * a - 1) < 1e-5 < abs(first - a):
        raise Wrong("this is 1/a: the formula has a fraction")
    if abs(first - a) > 1e-5:
        raise Wrong("a = 1 / (r̂₁ᵀ G⁺ δ₁), with G = [∇W ∇b] and a 1 appended to r₁")
    if second < c - 1e-5:
        raise Wrong("some quotients (c δ₂)ₖ / p̃ₖ lie below c; a mean or the smallest is too low")
    if second > c + 1e-5:
        raise Wrong("c is the largest of the quotients (c δ₂)ₖ / p̃ₖ, which eight classes share")
