"""Two images behind one upload, told apart by linear algebra (attacks/pair.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from privfl_lite import load, metrics, models, share
from privfl_lite.attacks.pair import Pair, split_head
from privfl_lite.defenses import DCS2
from privfl_lite.runtime import PrivflError
from privfl_lite.wire import Upload

SIZE = 16  # pixels a side: a second instead of a minute


@pytest.fixture(scope="module")
def hidden() -> tuple[Upload, torch.Tensor, DCS2]:
    """Three digits behind DCS², in double precision, with the mixture of labels granted."""
    digits = load("mnist", size=SIZE)
    net = models.build("lenet", digits).double()
    x, y = digits.sample(3, split="test", seed=0)
    defense = DCS2(steps=60, box=True)
    upload = share(net, x.double(), y, defense, each=1, knows=("mixture",))
    known = {"labels": upload.knows["mixture"]}
    return replace(upload, batch=2, knows=known), x.double(), defense


def test_the_last_layer_is_split_into_both_representations(hidden):
    """Against the network itself: r, and δ by autograd."""
    upload, x, defense = hidden
    net = upload.model.requires_grad_(False)
    for u in range(len(x)):
        both = torch.cat([x[u : u + 1], defense.crafted[u].images])
        r_true, y = net.representation(both), upload.knows["labels"][u]
        z = net.head(r_true).requires_grad_()
        (delta_true,) = torch.autograd.grad(cross_entropy(z, y), z)
        g = {n: t[u] for n, t in upload.tensors.items()}
        rng = np.random.default_rng(0)
        r, delta = split_head(g["head.weight"], g["head.bias"], net.head, y, 60, rng)
        order = [0, 1] if (r - r_true).norm() < (r.flip(0) - r_true).norm() else [1, 0]
        assert (r[order] - r_true).norm() < 1e-5 * r_true.norm()
        assert (delta[order] - delta_true).norm() < 1e-5 * delta_true.norm()


def test_both_images_are_read_behind_dcs2(hidden):
    upload, x, defense = hidden
    found = Pair().run(upload)
    scale = sum(t.square().flatten(1).sum(1) for t in upload.tensors.values())
    assert (found.cost < 1e-9 * scale).all()
    for u in range(len(x)):
        both = torch.cat([x[u : u + 1], defense.crafted[u].images])
        pair = found.images[2 * u : 2 * u + 2]
        pair = pair[metrics.assign(pair, both)]
        assert (metrics.psnr(pair.clamp(0, 1), both) > 60).all()


def test_wrong_labels_show_in_the_cost(hidden):
    upload, right = hidden[0][0], hidden[0].knows["labels"][:1]
    tries = (replace(upload, knows={"labels": y}) for y in (right, right.roll(1, dims=2)))
    good, bad = (Pair().run(one).cost.item() for one in tries)
    assert bad > 1e6 * max(good, 1e-20)


def test_bad_requests_get_one_sentence(hidden):
    upload, _, _ = hidden
    with pytest.raises(PrivflError, match="two images and both label distributions"):
        Pair().run(replace(upload, batch=1))
    relu = models.build("lenet", load("mnist", size=SIZE), act="relu")
    x, y = load("mnist", size=SIZE).sample(2, seed=0)
    sent = share(relu, x, y)
    labels = torch.eye(10)[y][None]
    with pytest.raises(PrivflError, match="Pair knows Conv2d, Sigmoid and Flatten"):
        Pair().run(replace(sent, knows={"labels": labels}))
