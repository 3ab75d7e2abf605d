"""The registry of networks by name, and ``build``, which fits one to a data set or a shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, cast, get_args

import torch
from torch import nn

from ..budget import refused_if_full
from ..checking import check, checked
from ..runtime import PrivflError, choose, seeded
from ..values import Holds, Number, Positive, Rule, Seed, Word
from .nets import Net, Shape, cloak, convnet, lenet, lenet5, mlp, resnet, vgg16

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh, "identity": nn.Identity}
# name -> (features, activation, bound of the uniform start or None, whether the head has a bias)
MODELS: dict[str, tuple[Callable, str, float | None, bool]] = {
    "lenet": (lenet, "sigmoid", 0.5, True),
    "lenet4": (partial(lenet, strides=(2, 2, 1, 1)), "sigmoid", 0.5, True),
    "lenet5": (lenet5, "relu", None, True),
    "mlp": (mlp, "relu", None, True),
    "cloak": (cloak, "relu", None, False),
    "convnet": (convnet, "relu", None, True),
    "resnet20": (partial(resnet, blocks=(3, 3, 3), width=16), "relu", None, True),
    "resnet32": (partial(resnet, blocks=(5, 5, 5), width=16), "relu", None, True),
    "resnet18": (resnet, "relu", None, True),
    "resnet34": (partial(resnet, blocks=(3, 4, 6, 3)), "relu", None, True),
    "vgg16": (vgg16, "relu", None, True),
}

SHAPE = cast(Rule, get_args(Shape)[1])
Classes = Annotated[int, Number(1, 10**6, whole=True)]
Like = Annotated[
    Any,
    Holds(
        "a data set, or the shape (C, H, W) of an image",
        lambda v: hasattr(v, "shape") or SHAPE.fits(v),
    ),
]


@checked
def build(
    name: Annotated[str, Word("model", *MODELS)],
    like: Like,
    classes: Classes | None = None,
    seed: Seed = 0,
    act: Annotated[str, Word("activation", *ACTIVATIONS)] | None = None,
    init: Positive | None = None,
    **options: object,
) -> Net:
    """Build network ``name`` for a data set, or for a shape (C, H, W) and a number of classes.

    ``act`` replaces the network's own activation; ``init=a`` draws every weight and bias from
    U(−a, a), as DLG does with a = 0.5 (already the default of ``lenet`` and ``lenet4``).
    ``options`` go to the network (``width`` of ``convnet``, ``hidden`` of ``mlp``). The same seed
    gives the same weights, whatever was drawn before.
    """
    make, own_act, bound, bias = MODELS[name]
    for option in options:
        choose(f"option of {name}", option, list(inspect.signature(make).parameters)[2:])
    shape: tuple[int, ...] = tuple(cast(Sequence[int], getattr(like, "shape", like)))
    classes = classes or getattr(like, "num_classes", None)
    if len(shape) != 3 or not classes:
        raise PrivflError(
            f"build({name!r}) needs a data set, or a shape (C, H, W) with classes=…; got {like!r}"
        )
    if classes == 1:
        raise PrivflError(
            "with one class the loss is always 0 and nothing is learned; give classes=…, "
            "or sort the pictures into a folder for each class"
        )
    check("the shape of an image (C, H, W)", shape, SHAPE)
    activation = ACTIVATIONS[act or own_act]
    with seeded(seed), refused_if_full(f"model {name!r}"):
        features = make(shape[0], activation, **options).eval()
        width = _flat_size(name, features, shape, partial(make, shape[0], activation, **options))
        net = Net(name, features, nn.Linear(width, classes, bias=bias), shape)
        if limit := init or bound:
            for p in net.parameters():
                nn.init.uniform_(p, -limit, limit)
    return net.eval()


def _flat_size(name: str, features: nn.Module, shape: tuple, remake: Callable) -> int:
    """Length of r for this image size; if it does not fit, an error with the smallest side."""
    try:
        width = features(torch.zeros(1, *shape)).shape[1]
        if width:
            return width
    except RuntimeError:
        pass
    for side in range(1, 257):
        try:
            with torch.device("meta"):
                if remake().eval()(torch.zeros(1, shape[0], side, side)).shape[1]:
                    break
        except RuntimeError:
            continue
    raise PrivflError(
        f"model {name!r} cannot take images of {shape[1]}×{shape[2]} pixels; "
        f"the smallest side that it takes is {side}"
    )
