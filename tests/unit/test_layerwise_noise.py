"""POGZ-FL and CA-FL: noise by layer and compressed noise are what their equations say; so is ε."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import orthogonal_mp

from privfl_lite import FedAvg, Plan, defenses, models, share
from privfl_lite.defenses import CAFL, POGZFL, Context, DPGaussian, Prune
from privfl_lite.defenses.cafl import omp
from privfl_lite.defenses.noise import laplace
from privfl_lite.defenses.pogz import by_layer, from_layers, pogz
from privfl_lite.privacy import Training, account
from privfl_lite.runtime import generator
from privfl_lite.wire import Facts

SHARES = {"a": 1.0, "b": 3.0}


def context(k: int, seed: int = 0, round: int = 0) -> Context:
    return Context(None, {}, [], [], [generator(seed, i) for i in range(k)], round)


def two_layers(k: int, scale: float = 1.0, seed: int = 0) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (30, 20), "a.bias": (30,), "b.weight": (10, 30), "b.bias": (10,)}
    return {n: scale * torch.randn(k, *s, generator=rng) for n, s in shapes.items()}


@pytest.fixture(scope="module")
def setting():
    net = models.build("lenet", (1, 12, 12), 10, init=0.3)
    rng = torch.Generator().manual_seed(2)
    return net, torch.rand(9, 1, 12, 12, generator=rng), torch.arange(9)


def test_layers_come_apart_and_together_again():
    delta = two_layers(3)
    flat = by_layer(delta)
    assert {n: tuple(t.shape) for n, t in flat.items()} == {"a": (3, 630), "b": (3, 310)}
    assert torch.equal(flat["b"][:, 300:], delta["b.bias"])
    back = from_layers(flat, delta)
    assert all(torch.equal(back[n], t) for n, t in delta.items())


# POGZ-FL


def test_pogz_counts_outputs_above_zero_before_the_activation(setting):
    net, x, _ = setting
    counts, z = {}, x
    for name, layer in [*net.features.named_children(), ("head", net.head)]:
        z = layer(z)
        if list(layer.parameters()):
            counts[name if name == "head" else f"features.{name}"] = (z > 0).double().mean().item()
    want = {n: v / sum(counts.values()) for n, v in counts.items()}
    got = pogz(net, x)
    assert list(got) == list(want) and len(got) == 4
    assert all(got[n] == pytest.approx(want[n], rel=1e-5) for n in want)


def test_a_layer_that_is_never_active_still_gets_a_share(setting):
    net = models.build("lenet", (1, 12, 12), 10, init=0.3)
    with torch.no_grad():
        net.head.bias.fill_(-1e3)
    shares = pogz(net, setting[1])
    assert 0 < shares["head"] < 0.02 and sum(shares.values()) == pytest.approx(1)


def test_scales_spend_the_budget_exactly():
    """Σ ε_l = ε, with ε_l = 2αη / b_l; the more important layer gets less noise."""
    made = POGZFL(alpha=0.7, eps=3, eta=0.2, importance=SHARES)
    b = made.scales(SHARES)
    assert sum(2 * 0.7 * 0.2 / v for v in b.values()) == pytest.approx(3)
    assert b["a"] == pytest.approx(3 * b["b"]) and b["b"] == pytest.approx(0.28 / (3 * 0.75))
    assert made.facts(context(1)).noise.of("a.weight") == pytest.approx(2**0.5 * b["a"])


def test_layers_are_clipped_in_l1_and_small_ones_left_alone():
    """With next to no noise the update comes out clipped: a layer's norm, weights and biases."""
    made = POGZFL(alpha=50, eta=0.1, eps=1e8, importance=SHARES)
    for scale in (10.0, 1e-3):
        delta = two_layers(4, scale)
        out = by_layer(made.update(delta, context(4)))
        for n, t in by_layer(delta).items():
            norm = t.abs().sum(1, keepdim=True)
            want = t * (5 / norm).clamp(max=1)
            torch.testing.assert_close(out[n], want, rtol=0, atol=2e-5)
            assert (norm > 5).all() == (scale == 10.0)  # both cases are met


def test_noise_is_laplace_with_the_scale_of_its_layer():
    made = POGZFL(eps=2, importance=SHARES)
    zero = {n: torch.zeros(200, *t.shape[1:]) for n, t in two_layers(1).items()}
    noise = by_layer(made.update(zero, context(200)))
    for n, b in made.scales(SHARES).items():
        z = noise[n] / b
        assert z.abs().mean().item() == pytest.approx(1, abs=0.02)
        for point in (0.5, 1.0, 3.0):  # P(|z| > t) = e^−t
            far = (z.abs() > point).float().mean().item()
            assert far == pytest.approx(math.exp(-point), abs=0.005)
        assert abs(torch.corrcoef(z[:, :2].T)[0, 1]) < 0.2  # entries draw independently
        assert abs(z.mean().item()) < 0.02


def test_density_ratio_of_two_clipped_updates_is_at_most_e_to_eps():
    """ε-DP at the worst pair: each layer's whole norm in one entry, of opposite sign."""
    made = POGZFL(alpha=1, eps=4, eta=0.1, importance=SHARES)
    b = made.scales(SHARES)
    clip = 0.1
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(500):
        loss = 0.0
        for n in SHARES:
            one, two = np.zeros(5), np.zeros(5)
            one[0], two[0] = clip, -clip
            z = one + rng.laplace(0, b[n], 5)
            loss += (np.abs(z - two) - np.abs(z - one)).sum() / b[n]
        worst = max(worst, loss)
    assert worst <= 4 + 1e-9 and worst == pytest.approx(4)  # met with equality: the bound is tight


def test_own_importance_breaks_the_guarantee():
    """Shares that differ between two data sets: the loss grows with the output, without bound."""
    made = POGZFL(eps=10)
    b1 = made.scales({"a": 0.5, "b": 0.5})["a"]
    b2 = made.scales({"a": 0.6, "b": 0.4})["a"]
    loss = [z * (1 / b2 - 1 / b1) + math.log(b1 / b2) for z in (0.1, 1.0, 10.0, 100.0)]
    assert loss == sorted(loss) and loss[-1] > 10 * made.eps
    found = account(made, Training(10))
    assert found.value is None and "follows private data" in found.reason
    assert made.facts(context(1)) == Facts()


def test_noise_power_is_least_at_the_cube_root_of_the_sizes():
    """Σ n_l 2 b_l² = 8 (αη/ε)² Σ n_l / p_l²; no random shares beat p_l ∝ n_l^(1/3)."""
    sizes = {"a": 630, "b": 310}
    made = POGZFL(alpha=2, eps=3, eta=0.5)

    def power(shares):
        b = made.scales(shares)
        return sum(n * 2 * b[k] ** 2 for k, n in sizes.items())

    even = power({"a": 0.5, "b": 0.5})
    assert even == pytest.approx(8 * (2 * 0.5 / 3) ** 2 * (630 + 310) / 0.25)
    best = power({k: n ** (1 / 3) for k, n in sizes.items()})
    rng = np.random.default_rng(0)
    others = [
        power(dict(zip(sizes, rng.dirichlet((2, 2)) + 1e-9, strict=True))) for _ in range(300)
    ]
    assert best < even and best <= min(others) < 1.01 * best


def test_released_code_adds_one_number_a_layer(setting):
    """Differences between the entries of a weight, and all biases, leave as they are."""
    net, x, y = setting
    plan = Plan(eta=0.1, batch_size=3)
    plain = share(net, x, y, each=3, plan=plan).tensors
    sent = share(net, x, y, POGZFL(released=True), each=3, plan=plan).tensors
    for n, t in plain.items():
        added = (sent[n] - t).flatten(1)
        if n.endswith("bias"):
            assert not added.any()
        else:
            assert (added.amax(1) - added.amin(1)).max() < 1e-6
            assert added[:, 0].abs().min() > 1e-6 and len(set(added[:, 0].tolist())) == 3
    assert account(POGZFL(released=True, importance=SHARES), Training(1)).value is None


def test_released_noise_has_the_scale_of_its_layer():
    made = POGZFL(eps=2, importance=SHARES, released=True)
    zero = {n: torch.zeros(3000, *t.shape[1:]) for n, t in two_layers(1).items()}
    out = made.update(zero, context(3000))
    for n, b in made.scales(SHARES).items():
        assert out[f"{n}.weight"][:, 0, 0].abs().mean().item() == pytest.approx(b, rel=0.08)


def test_budget_adds_up_over_rounds_and_survives_composition(setting):
    net, x, y = setting
    fixed = POGZFL(eps=2, importance=pogz(net, x))
    assert account(fixed, Training(7)).value == 14
    assert account(Prune(0.5) + fixed + DPGaussian(0.1), Training(7)).value == 14
    run = FedAvg(net, [(x, y)], 2, defense=fixed, show=False)
    assert [(r.epsilon.value, r.epsilon.delta) for r in run] == [(2, 0), (4, 0)]


def test_own_importance_is_that_of_each_client(setting):
    net, x, y = setting
    dark = torch.cat([x[:3] * 0, x[3:6]])
    sent = share(net, dark, y[:6], POGZFL(eps=1e-3), each=3, seed=1).tensors
    for k, rows in enumerate((dark[:3], dark[3:])):
        fixed = POGZFL(eps=1e-3, importance=pogz(net, rows))
        alone = fixed.update(
            {n: torch.zeros_like(t[:1]) for n, t in sent.items()},
            Context(net, {}, [rows], [], [generator(1, k)]),
        )
        for n, t in alone.items():  # at this ε there is nothing but noise to see
            torch.testing.assert_close(sent[n][k], t[0], rtol=0, atol=0.11)
            assert t.abs().max() > 100


# CA-FL


def test_measurements_are_orthonormal_projections_by_blocks():
    made, delta = CAFL(ratio=0.1), two_layers(3)
    y = made.measure(delta, round=4)
    for i, (layer, t) in enumerate(by_layer(delta).items()):
        n = t.shape[1]
        phi = made.matrix(i, n, 4)
        rows, size = phi.shape
        assert size <= 256 and rows == math.ceil(0.1 * size)
        torch.testing.assert_close(phi @ phi.T, torch.eye(rows, dtype=torch.float64))
        assert tuple(y[layer].shape) == (3, -(-n // size), rows)
        first = phi.float() @ t[1, :size]
        torch.testing.assert_close(y[layer][1, 0], first, rtol=0, atol=1e-5)
        last = torch.zeros(size)
        last[: n - (y[layer].shape[1] - 1) * size] = t[2, (y[layer].shape[1] - 1) * size :]
        torch.testing.assert_close(y[layer][2, -1], phi.float() @ last, rtol=0, atol=1e-5)
    other = made.matrix(0, 630, 5)
    assert not torch.equal(other, made.matrix(0, 630, 4))  # anew each round
    assert not torch.equal(other, made.matrix(1, 630, 5))  # and for each layer
    assert torch.equal(other, CAFL(ratio=0.1).matrix(0, 630, 5))  # the server can draw it too


def test_ratio_one_loses_nothing_but_to_the_perturbation():
    """As many measurements as entries: Φ is orthogonal, and the decoder inverts it."""
    delta = two_layers(2)
    made = CAFL(ratio=1.0)
    back = made.reconstruct(made.measure(delta), delta)
    for n, t in delta.items():
        torch.testing.assert_close(back[n], t, rtol=0, atol=1e-5)


def test_transpose_is_the_shortest_update_with_these_measurements():
    made, delta = CAFL(ratio=0.3), two_layers(1)
    y = made.measure(delta)
    back = made.reconstruct(y, delta)
    again = made.measure(back)
    phi = made.matrix(1, 310, 0)
    size = phi.shape[1]
    want = np.linalg.lstsq(phi.numpy(), y["b"][0, 0].double().numpy(), rcond=None)[0]
    np.testing.assert_allclose(by_layer(back)["b"][0, :size].numpy(), want, atol=1e-5)
    torch.testing.assert_close(again["b"][0, 0], y["b"][0, 0], rtol=0, atol=1e-5)


def test_perturbation_is_unbiased_with_the_stated_variance_and_two_values():
    eps, radius = 1.5, 2.0
    k = (math.exp(eps) + 1) / (math.exp(eps) - 1)
    values = torch.tensor([-2.0, -1.0, 0.0, 0.5, 2.0])
    y = {"a": values.view(1, 1, 5).expand(20000, 1, 5)}
    rngs = [generator(0, i) for i in range(20000)]
    z = CAFL(eps=eps, radius=radius).perturb(y, rngs)["a"][:, 0]
    torch.testing.assert_close(z.abs(), torch.full_like(z, radius * k))
    torch.testing.assert_close(z.mean(0), values, rtol=0, atol=0.1)
    var = radius**2 * k**2 - values**2
    torch.testing.assert_close(z.var(0), var, rtol=0.05, atol=0)
    up = (z > 0).float().mean(0)
    assert (up[-1] / up[0]).item() == pytest.approx(math.exp(eps), rel=0.05)


def test_own_range_is_that_of_the_layer_and_leaks():
    """The two values that leave give away the largest and the smallest measurement."""
    made, delta = CAFL(eps=5), two_layers(4)
    y = made.measure(delta)
    z = made.perturb(y, context(4).rngs)
    k = 1 / math.tanh(2.5)
    for layer, t in y.items():
        for i in range(4):
            low, high = z[layer][i].min(), z[layer][i].max()
            c, r = (low + high) / 2, (high - low) / 2 / k
            torch.testing.assert_close(c + r, t[i].max(), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(c - r, t[i].min(), rtol=1e-4, atol=1e-5)
    found = account(made, Training(1))
    assert found.value is None and "range of private measurements" in found.reason


def test_a_public_radius_clips():
    made, delta = CAFL(eps=40, radius=0.5), two_layers(1, 10)
    y = made.measure(delta)
    z = made.perturb(y, context(1).rngs)
    for layer, t in y.items():
        torch.testing.assert_close(z[layer].abs(), torch.full_like(t, 0.5))
        far = t.abs() > 0.5  # clipped to an end, where only one value is likely
        assert torch.equal(z[layer].sign()[far], t.sign()[far]) and far.sum() > 10


def test_update_is_the_reconstruction_of_what_travels():
    delta = two_layers(3)
    made = CAFL(eps=1, ratio=0.2, seed=7)
    sent = made.update(delta, context(3, round=2))
    z = made.perturb(made.measure(delta, 2), context(3).rngs)
    want = made.reconstruct(z, delta, 2)
    assert all(torch.equal(sent[n], t) for n, t in want.items())


def test_mean_of_reconstructions_is_the_reconstruction_of_the_mean_if_linear():
    delta = two_layers(5)
    for decoder, same in (("transpose", True), ("omp", False)):
        made = CAFL(decoder=decoder, ratio=0.3)
        z = made.perturb(made.measure(delta), context(5).rngs)
        each = by_layer(made.reconstruct(z, delta))["a"].mean(0)
        mean = {n: t.mean(0, keepdim=True) for n, t in z.items()}
        one = {n: t[:1] for n, t in delta.items()}
        together = by_layer(made.reconstruct(mean, one))["a"][0]
        assert torch.allclose(each, together, atol=1e-5) == same


def test_omp_equals_scikit_learn_and_recovers_sparse_updates():
    phi = CAFL(ratio=0.25).matrix(0, 250, 0)
    m, n = phi.shape
    rng = np.random.default_rng(1)
    x = np.zeros((6, n))
    for row in x:
        row[rng.choice(n, 5, replace=False)] = rng.normal(size=5) + 2
    y = x @ phi.numpy().T
    back = omp(phi, torch.tensor(y)).numpy()
    np.testing.assert_allclose(back, x, atol=1e-6)
    dense = rng.normal(size=(4, m))
    length = np.linalg.norm(phi.numpy(), axis=0)
    want = orthogonal_mp(phi.numpy() / length, dense.T, n_nonzero_coefs=m // 4).T / length
    np.testing.assert_allclose(omp(phi, torch.tensor(dense)).numpy(), want, atol=1e-8)
    short = y @ phi.numpy()  # the shortest vector with the same measurements is far off
    assert np.abs(short - x).max() > 1


def test_epsilon_counts_every_measurement_of_every_round(setting):
    net, x, y = setting
    made = CAFL(eps=0.5, ratio=0.2, radius=1.0)
    assert account(made, Training(3)).value is None  # of what, is not known
    run = FedAvg(net, [(x[:4], y[:4]), (x[4:], y[4:])], 2, defense=made, show=False)
    per_round = sum(
        t[0].numel() for t in made.measure({n: p[None] for n, p in net.named_parameters()}).values()
    )
    assert per_round == pytest.approx(0.2 * net.num_parameters, rel=0.03)
    assert [r.epsilon.value for r in run] == [0.5 * per_round, 2 * 0.5 * per_round]


# Both


@pytest.mark.parametrize(
    "defense",
    [
        POGZFL(),
        POGZFL(released=True),
        CAFL(),
        CAFL(decoder="omp", ratio=0.3),
        CAFL(radius=0.01) + POGZFL(),
        DPGaussian(0.01) + CAFL(eps=2) + Prune(0.5),
    ],
)
@pytest.mark.parametrize("kind", ["update", "gradient"])
def test_fast_path_equals_plain_path(setting, defense, kind):
    net, x, y = setting
    clients = [(x[:2], y[:2]), (x[2:5], y[2:5]), (x[5:], y[5:])]
    options = {"defense": defense, "share": kind, "show": False, "keep_uploads": True}
    runs = [FedAvg(net, clients, 1, fast=fast, **options) for fast in (True, False)]
    a, b = (next(iter(run)).uploads for run in runs)
    for one, two in zip(a, b, strict=True):
        close = [
            torch.isclose(t, two.tensors[n], rtol=1e-3, atol=1e-4).float().mean()
            for n, t in one.tensors.items()
        ]
        assert min(close) > 0.99


def test_noise_of_a_client_does_not_depend_on_its_neighbors(setting):
    net, x, y = setting
    for defense in (POGZFL(), CAFL()):
        together = share(net, x, y, defense, each=3, seed=3)
        alone = share(net, x[:3], y[:3], defense, each=3, seed=3)
        for n, t in alone.tensors.items():
            torch.testing.assert_close(together.tensors[n][:1], t, rtol=1e-3, atol=1e-4)


def test_facts_are_granted_by_name(setting):
    net, x, y = setting
    upload = share(net, x, y, CAFL(), knows=("measurement", "eps"))
    same = upload.knows.measurement(upload.tensors)
    assert upload.knows.eps == 5 and set(same) == set(by_layer(upload.tensors))
    shares = pogz(net, x)
    upload = share(net, x, y, POGZFL(importance=shares), knows="noise")
    assert upload.knows.noise.std.keys() == shares.keys()


def test_laplace_is_drawn_by_client():
    like = torch.zeros(3, 7)
    all_, last = (
        laplace(like, [generator(0, i) for i in range(3)]),
        laplace(like[:1], [generator(0, 2)]),
    )
    assert torch.equal(all_[2:], last) and not torch.equal(all_[0], all_[1])


def test_names_on_the_command_line():
    made = defenses.build("pogz_fl:alpha=0.5,eps=3+ca_fl:ratio=0.2,decoder=omp")
    assert repr(made).startswith("POGZFL(alpha=0.5, eps=3, eta=0.1, importance='own'")
    assert "CAFL(eps=5.0, ratio=0.2, radius=None, decoder='omp'" in repr(made)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: POGZFL(alpha=0), "alpha is 0; it must be a number over 0"),
        (lambda: POGZFL(eps=math.nan), "eps is nan"),
        (lambda: POGZFL(importance="all"), "choose one of: own"),
        (lambda: POGZFL(importance={"a": 0.0}), "importance is {'a': 0.0}; it must be one"),
        (
            lambda: POGZFL(importance={"a": 1.0}).update(two_layers(1), context(1)),
            "importance has no layer 'b'; it names: a",
        ),
        (lambda: CAFL(eps=0), "eps is 0"),
        (lambda: CAFL(ratio=1.5), "ratio is 1.5; it must be a number over 0"),
        (lambda: CAFL(radius=-1), "radius is -1"),
        (lambda: CAFL(decoder="fft"), "choose one of: transpose, omp"),
        (lambda: defenses.build("ca_fl:ratio=low"), "'ca_fl' cannot use 'ratio=low'"),
        (lambda: defenses.build("pogz_fl:eps=low"), "'pogz_fl' cannot use 'eps=low'"),
    ],
)
def test_bad_settings_get_one_sentence(refused, call, says):
    refused(call, says)
