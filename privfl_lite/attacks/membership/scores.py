"""Was this image in the training set? Scores per candidate, higher for a likely member.

What the attacker may ask is the threat model. Labels only (``LabelOracle``): the gap attack and the
decision-boundary attack. Confidences (the model itself): the loss threshold and a likelihood test.
Candidates are x (N, C, H, W) in [0, 1] with true labels y (N,); ``metrics.auc`` and ``tpr_at_fpr``
judge the scores. Report the gap attack beside every other: it takes one query.
"""

from __future__ import annotations

import copy
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ...arrays import MODEL, Array, Images, Labels
from ...checking import checked
from ...runtime import PrivflError
from ...values import Count

Model = Annotated[nn.Module, MODEL]
Many = Annotated[Tensor, Array("images (…, C, H, W)", (4, 5, 6), finite=False, empty=True)]
Asked = Annotated[Tensor, Array("candidates (N,)", (1,), "whole", 0, empty=True)]


class LabelOracle:
    """A model behind a counter: hand in images, get arg-max labels, and nothing else.

    This is the threat model of label-only attacks. The oracle answers for a copy of the model as it
    is now, in eval mode; besides, only the image shape is known. ``total`` counts all images that
    it labeled, ``queries(n)`` those that were asked for each of the candidates 0…n−1.
    """

    @checked
    def __init__(self, model: Model, batch: Count = 1000):
        net, self.shape = copy.deepcopy(model).eval(), getattr(model, "shape", None)
        self.total, self._count = 0, torch.zeros(0, dtype=torch.long)
        self._ask = lambda x: _logits(net, x, batch).argmax(1)

    @checked
    @torch.no_grad()
    def __call__(self, x: Many, who: Asked | None = None) -> Tensor:
        """Labels (…) of x (…, C, H, W). Row r asks for candidate ``who[r]``; None: for no one."""
        lead, flat = x.shape[:-3], x.reshape(-1, *x.shape[-3:])
        if not len(flat):
            return flat.new_empty(lead, dtype=torch.long)
        self.total += len(flat)
        if who is not None:
            self._count = self.queries(max(len(self._count), int(who.max()) + 1))
            self._count += len(flat) // len(who) * who.cpu().bincount(minlength=len(self._count))
        return self._ask(flat).view(lead)

    def queries(self, n: int) -> Tensor:
        """How many images were asked for each of the first n candidates, (n,)."""
        return torch.cat([self._count, self._count.new_zeros(n)])[:n]


@checked
def gap_scores(oracle: LabelOracle, x: Images, y: Labels) -> Tensor:
    """1 where the label is right, else 0, (N,): one query each (Yeom et al. 2018, the gap attack).

    Its AUC is exactly 1/2 + (accuracy on members − accuracy on nonmembers) / 2.
    """
    x, y = candidates(x, y, oracle.shape)
    return (oracle(x, torch.arange(len(x), device=x.device)) == y).to(x)


@checked
def loss_scores(model: Model, x: Images, y: Labels) -> Tensor:
    """Minus the cross-entropy in nats, (N,), float64 (Yeom et al. 2018, the loss threshold)."""
    return logsigmoid(_phi(model, x, y)[0])


@checked
def likelihood_scores(
    model: Model, x: Images, y: Labels, reference: tuple[Images, Labels] | None = None
) -> Tensor:
    """The scaled confidence φ = log(p_y / (1 − p_y)), (N,), float64, without shadow models.

    φ is the statistic of LiRA (Carlini et al. 2022). The loss is log(1 + e^−φ), so φ alone ranks
    candidates as ``loss_scores`` does; it is only closer to a normal distribution. LiRA asks shadow
    models how φ of *this* image spreads when it is not a member. Here ``reference`` may stand in
    for them, images (x, y) known to be no members: the score is then (φ − mean) / std over those of
    the same class (over all, for a class with under 8): LiRA's offline test with class mates.
    """
    phi, y = _phi(model, x, y)
    if reference is None:
        return phi
    known, labels = (t.to(phi.device) for t in _phi(model, *reference))
    for label in y.unique():
        mates = known[labels == label] if (labels == label).sum() >= 8 else known
        spread = mates.std(correction=0).clamp_min(1e-12)
        phi[y == label] = (phi[y == label] - mates.mean()) / spread
    return phi


def _phi(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """z_y − logsumexp of the other logits, (N,), and y; in float32 confident answers would tie."""
    x, y = candidates(x, y, getattr(model, "shape", None))
    net = copy.deepcopy(model).eval()
    with torch.no_grad():
        z = _logits(net, x, 500).double()
    if y.min() < 0 or y.max() >= z.shape[1]:
        raise PrivflError(f"labels must lie in 0…{z.shape[1] - 1}; got {y.min()} to {y.max()}")
    own, others = z.gather(1, y[:, None]), z.scatter(1, y[:, None], -torch.inf)
    return own[:, 0] - others.logsumexp(1), y


def _logits(net: nn.Module, x: Tensor, batch: int) -> Tensor:
    """Logits (N, classes) of x, computed where the network is, and handed back to where x is."""
    home = next((p.device for p in net.parameters()), x.device)
    return torch.cat([net(part.to(home)) for part in x.split(batch)]).to(x.device)


def candidates(x: Tensor, y: Tensor | None, shape: tuple[int, ...] | None) -> tuple[Tensor, ...]:
    """Images and labels that can be tested, or one sentence."""
    good = torch.is_tensor(x) and x.is_floating_point() and x.dim() == 4 and len(x)
    if not good or (shape and tuple(x.shape[1:]) != tuple(shape)):
        want = ", ".join(map(str, shape or ("C", "H", "W")))
        got = tuple(x.shape) if torch.is_tensor(x) else type(x).__name__
        raise PrivflError(f"images must be a float tensor (N, {want}), N at least 1; got {got}")
    if not (x.min() >= 0 and x.max() <= 1):
        raise PrivflError("images must have pixels in [0, 1], none of them NaN")
    labels = x[:, 0, 0, 0].long() if y is None else y  # None: images without labels
    if not torch.is_tensor(labels) or labels.is_floating_point() or labels.shape != x.shape[:1]:
        raise PrivflError(f"{len(x)} images need an integer tensor of {len(x)} labels")
    return x.detach(), labels.to(x.device)
