"""Challenges 9 and 10: a server that changed the model, and a client with a key."""

from __future__ import annotations

from functools import partial

import torch

from ..attacks import Imprint
from ..attacks.malicious.imprint import normal_edges
from ..client import share
from ..defenses import FedKL
from ..models import Net
from ..runtime import PrivflError
from ..wire import Upload
from .base import Challenge, Hint, Private, Seeds
from .digits import drawn
from .sending import digits, lenet

BINS, BATCH, REDRAWN = 256, 8, 100
MEAN, STD = 0.13, 0.045  # of a digit's mean pixel, as a server may guess
LOCK = partial(FedKL, key_length=64)


def imprinted(seed: int = 0) -> Imprint:
    """The LeNet behind an imprint block with bins for the mean pixel."""
    return Imprint(lenet(seed), normal_edges(MEAN, STD, BINS))


def apart(seeds: Seeds) -> Private:
    """Digits of which no two fall into one bin, redrawn until it is so."""
    edges = normal_edges(MEAN, STD, BINS)
    for attempt in range(REDRAWN):
        x, y = drawn(BATCH, seeds(f"images {attempt}"))
        bins = torch.bucketize(x.mean((1, 2, 3)), edges)
        if len(bins.unique()) == BATCH and bins.min() > 0:
            return Private(x, y)
    raise PrivflError(f"{REDRAWN} draws gave no digits that fall into bins of their own")


def send_imprinted(seeds: Seeds, private: Private) -> Upload:
    net = imprinted(seeds("weights"))
    return share(net, private.images, private.labels, seed=seeds("client"))


def locked(seed: int = 0) -> Net:
    """The LeNet with FedKL's lock, whose weights and key the server does not have."""
    return LOCK().model(lenet(seed))


def send_locked(seeds: Seeds, private: Private) -> Upload:
    defense = LOCK(seed=seeds("key"))
    net, x, y = lenet(seeds("weights")), private.images, private.labels
    return share(net, x, y, defense, each=1, seed=seeds("client"))


MALICIOUS = Challenge(
    name="a-gift",
    title="A gift from the server",
    story="The server sent a model with two more layers in front, and eight digits were averaged "
    "behind it. Each digit has a number by which the layers told it from the others.",
    granted="One gradient of eight digits, and the network with its weights, which the server "
    "chose: an imprint block of 256 bins in front of a LeNet.",
    letter="G",
    points=250,
    hints=(
        Hint("All rows of the first layer's weights are equal. What do its biases ask?", 25),
        Hint("Row i of the gradient holds all digits brighter than edge i. What does row i minus "
             "row i + 1 hold?", 40),
        Hint("pf.attacks.ImprintReadout().run(upload)", 60),
    ),
    chapter="malicious-server",
    answer="images",
    uploads=1,
    batch=BATCH,
    private=apart,
    network=imprinted,
    network_text="pf.attacks.Imprint(lenet, edges); pf.challenges.load builds it",
    send=send_imprinted,
)  # fmt: skip

KEYED = Challenge(
    name="lock-without-key",
    title="A lock without its key",
    story="FedKL hides scale and shift of the first normalization behind a private key. Four "
    "clients trust it with one digit each.",
    granted="Four gradients of one digit each in eval mode, without the lock's own entries; the "
    "network with its weights, the lock's zeroed. The key is not granted.",
    letter="B",
    points=300,
    hints=(
        Hint("The layers behind the lock can be undone one by one, to what enters the first "
             "sigmoid. What stands between it and the first convolution?", 30),
        Hint("Two unknown numbers for each channel: an affine map. The convolution's own gradient "
             "gives equations that are linear in pixels and in those numbers.", 45),
        Hint("pf.attacks.Unlock().run(upload)", 75),
    ),
    chapter="fedkl",
    answer="images",
    uploads=4,
    batch=1,
    private=digits(4),
    network=locked,
    network_text="pf.defenses.FedKL(key_length=64).model(lenet); pf.challenges.load builds it",
    send=send_locked,
)  # fmt: skip
