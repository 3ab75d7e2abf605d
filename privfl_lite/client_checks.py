"""What a client can check before it trains a model that it was sent.

D-SNR, the disaggregation signal-to-noise ratio (Garov, Dimitrov, Jovanović and Vechev 2024, "Hiding
in Plain Sight", the paper on SEER): does one of my images stand out from the gradient of my batch?
Chapter: the malicious server.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from .arrays import MODEL
from .batches import GivenImages, GivenLabels, as_batch, image_shape
from .budget import at_once, footprint
from .checking import checked
from .gradients import gradient_function, stateless, weights
from .models import wrap
from .runtime import PrivflError, device

LAYERS = (nn.Linear, nn.modules.conv._ConvNd)  # whose weights the paper looks at


@checked
def example_norms(
    model: Annotated[nn.Module, MODEL], x: GivenImages, y: GivenLabels
) -> dict[str, Tensor]:
    """‖∂ℓ_i/∂W‖ of every image (B,), for the weights W of each dense and convolutional layer.

    In eval mode: behind batch norm in train mode an image has no gradient of its own.
    """
    net = wrap(model, *image_shape(x))
    x, y = as_batch(net, x, y)
    net = stateless(net, "eval").to(device())
    names = [f"{n}.weight" for n, m in net.named_modules() if isinstance(m, LAYERS)]
    if not names:
        raise PrivflError("the model has no dense or convolutional layer to look at")
    f, theta = gradient_function(net), weights(net)
    (numbers, outputs), parts = footprint(net, net.shape), []
    few = min(64, at_once(len(x), 4 * (3 * numbers + 4 * outputs), "gradients of single images"))
    for xb, yb in zip(x.to(device()).split(few), y.to(device()).split(few), strict=True):
        g = f(theta, xb[:, None], yb[:, None])  # each image a batch of its own
        parts.append({n: g[n].flatten(1).double().norm(dim=1) for n in names if n in g})
    return {n: torch.cat([part[n] for part in parts]).cpu() for n in parts[0]}


@checked
def d_snr_by_layer(
    model: Annotated[nn.Module, MODEL], x: GivenImages, y: GivenLabels
) -> dict[str, float]:
    """max_i ‖g_i‖ / √(Σ_j ‖g_j‖² − max_i ‖g_i‖²) over images i of a batch, layer by layer.

    B images that are equally loud have 1/√(B − 1), so honest models give less than 1 as a rule;
    one that is alone has infinity, and a layer that no image moves 0. A batch of one is refused: it
    stands alone whatever the model.
    """
    if len(x) < 2:
        raise PrivflError("D-SNR needs two images or more: one stands alone whatever the model")
    found = {}
    for name, norms in example_norms(model, x, y).items():
        power = norms.square().sort().values
        rest = power[:-1].sum()
        found[name] = float((power[-1] / rest).sqrt()) if power[-1] > 0 else 0.0
    return found


@checked
def d_snr(model: Annotated[nn.Module, MODEL], x: GivenImages, y: GivenLabels) -> float:
    """The largest of ``d_snr_by_layer``: how far one image stands out.

    It sees a server that lifts one image of the batch above all others. It does not see one that
    keeps all images apart but equally loud, as ``Imprint`` with many bins does.
    """
    return max(d_snr_by_layer(model, x, y).values())
