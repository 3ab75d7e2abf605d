"""SPEAR reads whole batches exactly, knows when it has, and says where it ends."""

from __future__ import annotations

import pytest
import torch

from privfl_lite import Plan, load, models, share
from privfl_lite.attacks import Spear
from privfl_lite.attacks.analytic.spear import Directions, decompose, distinct, undominated
from privfl_lite.defenses import DPGaussian

SPEAR = Spear(show=False)


def digits(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return load("mnist").sample(count, seed=seed)


def net(seed: int = 0, act: str | None = None, width: int = 256):
    return models.build("mlp", (1, 28, 28), 10, seed=seed, act=act, hidden=(width,))


def worst(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Root mean square error of the image that is missed most."""
    apart = torch.cdist(truth.double().flatten(1), found.double().flatten(1))
    return apart.min(1).values.max().item() / truth[0].numel() ** 0.5


@pytest.mark.parametrize("batch", [1, 2, 5, 8, 10])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_batch_is_read_exactly_and_the_attack_knows_it(batch, kind):
    x, y = digits(batch, seed=batch)
    upload = share(net(seed=batch).to(kind), x.to(kind), y)
    found = SPEAR.run(upload)
    assert worst(found.images, x) < (1e-6 if kind == torch.float32 else 1e-12)
    assert found.details["agreement"] == [1.0] and found.cost.item() == 0


def test_colors_faces_and_several_uploads_at_once():
    photos = load("photos")
    x, y = photos.sample(12)
    model = models.build("mlp", photos, hidden=(256,))
    found = SPEAR.run(share(model, x, y, each=4))
    for i in range(3):
        assert worst(found.images[4 * i : 4 * i + 4], x[4 * i : 4 * i + 4]) < 1e-5


def test_an_update_of_one_step_is_a_gradient():
    x, y = digits(6)
    found = SPEAR.run(share(net(), x, y, plan=Plan(eta=0.1, steps=1)))
    assert worst(found.images, x) < 1e-3


@pytest.mark.parametrize("plan", [
    Plan(eta=0.1, steps=5, batch_size=4),
    Plan(eta=0.1, epochs=3, batch_size=2, momentum=0.5),
])  # fmt: skip
def test_an_update_of_several_steps_in_any_order_is_read_as_well(plan):
    x, y = digits(4, seed=4)
    found = SPEAR.run(share(net(seed=4), x, y, plan=plan, mode="train"))
    assert worst(found.images, x) < 1e-4


def test_too_few_proposals_are_no_success_by_its_own_count():
    x, y = digits(14, seed=3)
    found = Spear(proposals=1, show=False).run(share(net(), x, y))
    assert found.cost.item() > 0.001 and found.details["proposals"] == [4096]


def test_noise_is_tolerated_while_zeros_can_be_told_and_then_it_knows_that_it_failed():
    x, y = digits(4)
    little, much = (share(net(), x, y, DPGaussian(sigma)) for sigma in (1e-7, 1e-2))
    assert worst(SPEAR.run(little).images, x) < 0.01
    lost = Spear(proposals=5000, show=False).run(much)
    assert worst(lost.images, x) > 0.1 and lost.cost.item() > 0.1


def test_where_it_ends_is_told(refused):
    x, y = digits(4)
    refused(lambda: SPEAR.run(share(net(act="sigmoid"), x, y)), "needs ReLU")
    refused(lambda: SPEAR.run(share(models.build("lenet", (1, 28, 28), 10), x, y)), "dense layer")
    refused(lambda: SPEAR.run(share(net(width=3), x, y)), "at most 3 images")
    refused(lambda: Spear(proposals=0), "at least 1")


def test_rows_of_the_basis_are_the_gradient():
    torch.manual_seed(0)
    errors, inputs = torch.randn(20, 3).double(), torch.rand(3, 9).double()
    layer = decompose(errors @ inputs, errors.sum(1), 3)
    both = torch.cat([errors @ inputs, errors.sum(1, keepdim=True)], 1)
    torch.testing.assert_close((layer.rows * layer.sizes[:, None]) @ layer.basis.T, both)
    assert layer.noise.max() < 1e-12


def test_repeated_directions_count_once_whatever_their_sign():
    q = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]).double()
    assert sorted(distinct(q, torch.tensor([3, 5, 1]), 9).tolist()) == [1, 2]


def test_mixtures_are_dominated_by_their_images():
    one, two = torch.tensor([1, 1, 1, 1, 0, 0]), torch.tensor([1, 0, 0, 0, 0, 0])
    found = Directions(torch.eye(2).double(), torch.stack([one, two]).double())
    assert undominated(found).zeros.tolist() == [one.tolist()]
