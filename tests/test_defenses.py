"""Defenses: what each does to the wire is exactly what its equation says, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from privfl_lite import defenses, models, share
from privfl_lite.defenses import Context, Defense, DPGaussian, Prune
from privfl_lite.runtime import generator


@pytest.fixture(scope="module")
def setting():
    net = models.build("lenet", (1, 12, 12), 10)
    rng = torch.Generator().manual_seed(5)
    return net, torch.rand(4, 1, 12, 12, generator=rng), torch.randint(10, (4,), generator=rng)


def context(k: int, seed: int = 0) -> Context:
    return Context(None, {}, [], [], [generator(seed, i) for i in range(k)])


def test_no_defense_changes_nothing(setting):
    plain, open_ = share(*setting, each=1), share(*setting, Defense(), each=1)
    assert all(torch.equal(plain.tensors[n], t) for n, t in open_.tensors.items())


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9, 0.999])
def test_prune_equals_numpy_percentile_per_tensor_and_client(setting, rate):
    plain, pruned = share(*setting, each=1), share(*setting, Prune(rate), each=1)
    for name, t in plain.tensors.items():
        for k in range(len(t)):
            g = t[k].numpy().astype(np.float64)
            want = np.where(np.abs(g) < np.percentile(np.abs(g), 100 * rate), 0, g)
            np.testing.assert_array_equal(pruned.tensors[name][k].numpy(), want.astype(np.float32))


def test_prune_keeps_ties():
    g = {"w": torch.ones(2, 8)}
    assert Prune(0.9).gradient(g, context(2))["w"].sum() == 16


def test_noise_is_white_with_the_stated_standard_deviation():
    g = {"a": torch.zeros(8, 4000), "b": torch.zeros(8, 3000)}
    noise = torch.cat(list(DPGaussian(0.3).gradient(g, context(8)).values()), 1)
    assert abs(noise.std().item() - 0.3) < 0.005 and abs(noise.mean().item()) < 0.005
    between = torch.corrcoef(noise)[~torch.eye(8, dtype=bool)]  # clients draw independently
    assert between.abs().max() < 0.05


def test_noise_of_a_client_does_not_depend_on_its_neighbors(setting):
    net, x, y = setting
    together = share(net, x, y, DPGaussian(0.1), each=1, seed=3)
    alone = share(net, x[:1], y[:1], DPGaussian(0.1), each=1, seed=3)
    for n, t in alone.tensors.items():
        torch.testing.assert_close(together.tensors[n][:1], t, rtol=0, atol=1e-6)
    other = share(net, x[:1], y[:1], DPGaussian(0.1), each=1, seed=4)
    assert not torch.equal(other.tensors["head.bias"], alone.tensors["head.bias"])


def test_composition_is_in_order_and_flat(setting):
    noise_first = share(*setting, DPGaussian(0.1) + Prune(0.9), each=1)
    noise_last = share(*setting, Prune(0.9) + DPGaussian(0.1), each=1)
    zeros = [
        (u.tensors["head.weight"] == 0).float().mean().item() for u in (noise_first, noise_last)
    ]
    assert zeros[0] == pytest.approx(0.9, abs=0.01) and zeros[1] == 0
    three = Prune(0.1) + DPGaussian(0.1) + Prune(0.2)
    assert len(three.parts) == 3 and three.secrets() == {"noise": 0.1}


def test_raw_noise_claims_no_epsilon():
    assert (DPGaussian(5.0) + Prune(0.9)).epsilon(rounds=10, rate=0.1) is None


def test_names_on_the_command_line():
    made = defenses.build("prune:rate=0.7+dp_gaussian:sigma=0.5")
    assert repr(made) == "Prune(rate=0.7, feedback=False) + DPGaussian(sigma=0.5)"
    assert type(defenses.build("none")) is Defense


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: DPGaussian(0), "sigma is a standard deviation and must be over 0; got 0"),
        (lambda: DPGaussian(float("nan")), "must be over 0"),
        (lambda: Prune(1.0), "from 0 to below 1; got 1.0"),
        (lambda: defenses.build("prun"), "choose one of: none, dp_gaussian, dp_sgd, prune"),
        (lambda: defenses.build("prune:speed=3"), "key one of: rate"),
        (lambda: defenses.build("prune:rate"), "write key=value"),
        (lambda: defenses.build("none:rate=1"), "key one of: none"),
        (lambda: defenses.build("prune:rate=high"), "'prune' cannot use 'rate=high'"),
    ],
)
def test_bad_settings_get_one_sentence(refused, call, says):
    refused(call, says)
