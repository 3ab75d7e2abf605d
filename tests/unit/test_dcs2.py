"""DCS²: each equation against an independent version, and the defense at every place it works."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from torch.nn.functional import cross_entropy, one_hot

from privfl_lite import Plan, PrivflError, defenses, fedavg, models, share
from privfl_lite.defenses import DCS2, Context, Memory, Mixup, Prune
from privfl_lite.defenses.dcs2 import crafted, project
from privfl_lite.gradients import weights
from privfl_lite.runtime import generator
from privfl_lite.stored import identity
from privfl_lite.wire import Facts

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def setting():
    net = models.build("lenet", SHAPE, 10)
    rng = torch.Generator().manual_seed(5)
    return net, torch.rand(4, *SHAPE, generator=rng), torch.tensor([3, 1, 3, 7])


@pytest.fixture(scope="module")
def exact(setting):
    """The same in double precision, where the order of sums does not matter."""
    net, x, y = setting
    return copy.deepcopy(net).double(), x.double(), y


def autograd(net, loss) -> dict:
    """Gradient of a scalar by plain autograd."""
    return dict(
        zip(
            [n for n, _ in net.named_parameters()],
            torch.autograd.grad(loss, list(net.parameters())),
            strict=True,
        )
    )


def vector(g) -> torch.Tensor:
    return torch.cat([t.flatten() for t in g.values()])


def eq9(net, x_c, y_c, mates, labels, lambda_x, lambda_z, eps) -> float:
    """Eq. 9 for one concealed sample, word by word; several mates are averaged."""
    a = vector(autograd(net, cross_entropy(net(x_c[None]), y_c[None])))
    b = vector(autograd(net, cross_entropy(net(mates), labels)))
    far = sum((x_c - x).pow(2).sum().sqrt() for x in mates) / len(mates)
    z, z_s = net(x_c[None])[0], net(mates)
    latent = sum((z - t).norm() / t.norm() for t in z_s) / len(z_s)
    term = 1 - (a @ b) / (a.norm() * b.norm())
    return (term + torch.exp(-lambda_x * far) + lambda_z * (latent - eps)).item()


# Crafting


@pytest.mark.parametrize("ratio", ["1:1", "2:1", "1:2"])
def test_objective_is_equation_9(exact, ratio):
    net, x, y = exact
    defense = DCS2(lambda_x=0.3, lambda_z=0.2, eps=0.05, steps=3, ratio=ratio)
    made = defense.craft(net, weights(net), x, y, generator(1))
    groups = {"1:1": [[0], [1], [2], [3]], "2:1": [[0, 1], [2, 3]]}.get(ratio)
    groups = groups or [[k] for k in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert len(made.images) == len(groups)
    for k, group in enumerate(groups):
        want = eq9(net, made.images[k], made.labels[k], x[group], y[group], 0.3, 0.2, 0.05)
        assert made.history[k, 0, -1].item() == pytest.approx(want, rel=1e-9)


def test_a_step_is_adam_along_the_gradient_of_equation_9(exact):
    """Differentiated by finite differences: the first step of Adam is lr times the sign."""
    net, x, y = exact
    defense = DCS2(lambda_x=0.3, lambda_z=0.2, eps=0.05, steps=1)
    task = defense.task(x[:1], one_hot(y[:1], 10).double(), generator(1))
    (made,) = defense.search(net, {n: t[None] for n, t in weights(net).items()}, {0: task})
    x_0, moved = task[2][0], made.images[0] - task[2][0]

    def cost(at):
        return eq9(net, at, made.labels[0], x[:1], y[:1], 0.3, 0.2, 0.05)

    for i, j in ((0, 0), (3, 4), (7, 2), (5, 5)):
        bump = torch.zeros_like(x_0)
        bump[0, i, j] = 1e-5
        slope = (cost(x_0 + bump) - cost(x_0 - bump)) / 2e-5
        assert moved[0, i, j].item() == pytest.approx(-0.1 * math.copysign(1, slope), rel=1e-3)


def test_batched_crafting_equals_one_by_one(exact):
    net, x, y = exact
    pool = torch.rand(9, *SHAPE, generator=generator(3)).double()
    for defense in (DCS2(steps=12), DCS2(steps=12, start="mixup", pool=pool, box=True)):
        together = share(net, x, y, defense, each=1, memory=(memory := Memory()))
        made = crafted(memory)
        for k in range(4):
            task = defense.task(x[k : k + 1], one_hot(y[k : k + 1], 10).double(), generator(0, k))
            theta = {n: t[None] for n, t in weights(net).items()}
            (alone,) = defense.search(net, theta, {0: task})
            for a, b in zip(alone, made[k], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
        alone = share(net, x[:1], y[:1], defense, each=1)
        torch.testing.assert_close(vector(together[0].tensors), vector(alone.tensors))


def test_chunks_and_own_weights_change_nothing(exact, monkeypatch):
    """Clients at different weights, in one batch or in chunks of one sample."""
    net, x, y = exact
    theta = {n: torch.stack([t, 1.1 * t]) for n, t in weights(net).items()}
    defense, labels = DCS2(steps=10), one_hot(y, 10).double()
    tasks = {k: defense.task(x[2 * k :][:2], labels[2 * k :][:2], generator(k)) for k in (0, 1)}
    whole = defense.search(net, theta, tasks)
    monkeypatch.setattr("privfl_lite.defenses.dcs2.ELEMENTS", 1)
    for a, b in zip(whole, defense.search(net, theta, tasks), strict=True):
        torch.testing.assert_close(a.images, b.images, rtol=1e-7, atol=1e-9)
    (alone,) = defense.search(net, {n: t[1:] for n, t in theta.items()}, {0: tasks[1]})
    torch.testing.assert_close(alone.images, whole[1].images, rtol=1e-7, atol=1e-9)


def test_crafting_lowers_the_objective_and_moves_away(setting):
    made = DCS2(steps=60).craft(setting[0], weights(setting[0]), *setting[1:], generator(0))
    first, last = made.history[..., 0], made.history[..., -1]
    assert (last[:, 0] < first[:, 0]).all() and (last[:, 2] > first[:, 2]).all()
    assert made.history.shape == (4, 4, 61)


def test_epsilon_inside_a_sum_changes_nothing_but_a_hinge_makes_it_count(exact):
    def images(**options):
        return DCS2(steps=15, lambda_z=1.0, **options).craft(
            exact[0], weights(exact[0]), *exact[1:], generator(0)
        )

    a, b = images(eps=0.0), images(eps=0.5)
    assert torch.equal(a.images, b.images)
    torch.testing.assert_close(a.history[:, 0] - b.history[:, 0], torch.full((4, 16), 0.5).double())
    assert not torch.allclose(a.images, images(eps=0.5, hinge=True).images)


def test_a_box_keeps_images_and_far_stops_each_sample_by_itself(setting):
    net, x, y = setting
    made = DCS2(steps=40, box=True).craft(net, weights(net), x, y, generator(0))
    assert made.images.min() >= 0 and made.images.max() <= 1
    free = DCS2(steps=40).craft(net, weights(net), x, y, generator(0))
    assert free.images.min() < 0 and free.images.max() > 1
    limit = free.history[:, 2, 8].mean().item()
    stopped = DCS2(steps=40, far=limit).craft(net, weights(net), x, y, generator(0))
    for k in range(4):
        over = (free.history[k, 2] > limit).nonzero()[0].item()  # first tick beyond the limit
        torch.testing.assert_close(stopped.history[k, :, over], free.history[k, :, over])
        assert (stopped.history[k, 2, over:] == stopped.history[k, 2, over]).all()


@pytest.mark.parametrize("start", ["sample", "mixup"])
def test_starts_come_from_the_pool_with_its_labels(setting, start):
    _, x, y = setting
    pool = torch.rand(6, *SHAPE, generator=generator(9)), torch.tensor([0, 2, 4, 5, 6, 8])
    defense = DCS2(start=start, pool=pool)
    _, _, x_0, y_c = defense.task(x, one_hot(y, 10).float(), generator(2))
    for k in range(4):
        index = (pool[1] == y_c[k].argmax()).nonzero().item()
        want = pool[0][index] if start == "sample" else 0.7 * pool[0][index] + 0.3 * x[k]
        torch.testing.assert_close(x_0[k], want)
    other = DCS2(start=start, pool=pool[0])  # another data set: labels of its own mean nothing
    assert other.task(x, one_hot(y, 10).float(), generator(2))[3].sum(1).eq(1).all()


# Eq. 10


@pytest.mark.parametrize("lambda_g", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("scale", ["mean", "sum", "code"])
def test_upload_is_equation_10(exact, lambda_g, scale):
    net, x, y = exact
    defense = DCS2(lambda_g=lambda_g, steps=3, scale=scale)
    sent = share(net, x[:2], y[:2], defense, memory=(memory := Memory())).tensors
    made = crafted(memory)[0]
    loss = cross_entropy(net(x[:2]), y[:2])
    loss = loss + lambda_g * cross_entropy(net(made.images), made.labels)
    loss = loss + (1 - lambda_g) * cross_entropy(net(made.images), y[:2])
    over = {"mean": 2, "sum": 1, "code": 3 if lambda_g == 0.7 else 2}[scale]
    for n, t in autograd(net, loss / over).items():
        torch.testing.assert_close(sent[n][0], t)


@pytest.mark.parametrize(("ratio", "concealed"), [("1:1", 4), ("5:1", 1), ("3:1", 2), ("1:3", 12)])
def test_augmented_batch_with_soft_labels_is_what_leaves(exact, ratio, concealed):
    """What an informed attacker may use: the upload is an ordinary gradient of B + M samples."""
    net, x, y = exact
    memory, granted = Memory(), ("mixture", "concealed", "shares")
    sent = share(net, x, y, DCS2(steps=2, ratio=ratio), knows=granted, memory=memory)
    made, mixture = crafted(memory)[0], sent.knows.mixture
    assert sent.knows.concealed.shape == (1, concealed)
    assert torch.equal(sent.knows.concealed[0], made.labels)
    assert sent.knows.shares == (4 / (4 + concealed), concealed / (4 + concealed))
    torch.testing.assert_close(mixture[0, 4:], made.soft)
    known = replace(sent, batch=4 + concealed)
    again = known.imitator()(torch.cat([x, made.images])[None], mixture)
    for n, t in sent.tensors.items():
        torch.testing.assert_close(again[n], t)


def test_labels_are_granted_only_where_every_client_conceals_as_many(exact):
    """A stack of unequal numbers, 0 among them, is not granted; neither are some of the clients."""
    net, x, y = exact  # labels 3, 1, 3, 7
    for sensitive, each, names in (
        (3, 2, ("lambda_g", "concealed", "mixture", "shares")),  # one in each of two clients
        (7, 2, ("lambda_g",)),  # none and one
        ((1, 3), 2, ("lambda_g",)),  # two and one
        (3, 1, ("lambda_g",)),  # one, none, one, none
    ):
        defense = DCS2(steps=2, sensitive=sensitive)
        with pytest.raises(PrivflError, match=f"one of: labels, {', '.join(names)}$"):
            share(net, x, y, defense, each=each, knows="key")


def test_only_chosen_samples_are_concealed(exact):
    net, x, y = exact
    by_image, by_class = DCS2(steps=3, sensitive=x[1:2]), DCS2(steps=3, sensitive=1)
    memory, other = Memory(), Memory()
    a, b = share(net, x, y, by_image, memory=memory), share(net, x, y, by_class, memory=other)
    made = crafted(memory)[0]
    assert torch.equal(made.images, crafted(other)[0].images) and len(made.images) == 1
    assert torch.equal(vector(a.tensors), vector(b.tensors))
    hidden = 0.7 * cross_entropy(net(made.images), made.labels)
    hidden = hidden + 0.3 * cross_entropy(net(made.images), y[1:2])
    plain, hidden = share(net, x, y).tensors, autograd(net, hidden)
    for n, t in a.tensors.items():  # 4/5 of the whole batch's mean, 1/5 of the one concealed
        torch.testing.assert_close(t[0], 0.8 * plain[n][0] + 0.2 * hidden[n])
    # a batch without it leaves as it is, and of the step before nothing is granted
    others = share(net, x[2:], y[2:], by_image, knows="lambda_g", memory=memory)
    assert torch.equal(vector(others.tensors), vector(share(net, x[2:], y[2:]).tensors))
    assert crafted(memory) == {} and others.knows == Facts(lambda_g=0.7)
    with pytest.raises(PrivflError, match=r"choose one of: labels, lambda_g$"):
        share(net, x[2:], y[2:], by_image, knows="mixture", memory=memory)
    share(net, x, y, DCS2(steps=2, sensitive=[1, 3]), memory=memory)
    assert len(crafted(memory)[0].images) == 3


# Eq. 11 and 12


@pytest.mark.parametrize("seed", range(4))
def test_projection_equals_a_quadratic_program(seed):
    rng = torch.Generator().manual_seed(seed)
    g = {"a": torch.randn(2, 3, 2, generator=rng), "b": torch.randn(2, 4, generator=rng)}
    g_c = {
        n: torch.randn(t.shape, generator=rng) - (0.8 if seed % 2 else 0) * t for n, t in g.items()
    }
    g, g_c = ({n: t.double() for n, t in d.items()} for d in (g, g_c))
    found, v = project(g, g_c)
    for k in range(2):
        a, c = (np.concatenate([t[k].flatten().numpy() for t in d.values()]) for d in (g, g_c))
        primal = minimize(  # Eq. 11
            lambda p, c=c: 0.5 * ((p - c) ** 2).sum(),
            c,
            jac=lambda p, c=c: p - c,
            constraints={"type": "ineq", "fun": lambda p, a=a: a @ p, "jac": lambda p, a=a: a},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        ours = np.concatenate([t[k].flatten().numpy() for t in found.values()])
        np.testing.assert_allclose(ours, primal.x, atol=1e-4)
        dual = minimize(
            lambda v, a=a, c=c: 0.5 * v * (a @ a) * v + (c @ a) * v, 1.0, bounds=[(0, None)]
        )
        assert v[k].item() == pytest.approx(dual.x.item(), abs=1e-4)  # Eq. 12, with its missing v
        assert ours @ a >= -1e-4 and (v[k] > 0) == (a @ c < 0)


def test_equation_12_as_printed_has_no_minimum():
    g, g_c = np.array([1.0, 0.0]), np.array([-2.0, 1.0])
    assert g @ g_c < -0.5 * g @ g
    printed = linprog([0.5 * g @ g + g_c @ g], bounds=[(0, None)])
    assert printed.status == 3  # unbounded
    found, v = project({"w": torch.tensor(g)[None]}, {"w": torch.tensor(g_c)[None]})
    assert v.item() == 2 and found["w"].tolist() == [[0, 1]]


def test_projection_acts_only_against_a_longer_opposed_gradient():
    """⟨g, a g + b g̃⟩ < 0 exactly where cos(g, g̃) < −a‖g‖ / b‖g̃‖."""
    rng = torch.Generator().manual_seed(0)
    g, hidden = (torch.randn(4000, 3, generator=rng).double() for _ in range(2))
    hidden = hidden * torch.rand(4000, 1, generator=rng) * 4
    for a, b in ((0.5, 0.5), (0.8, 0.2), (1 / 3, 1 / 3)):
        _, v = project({"w": g}, {"w": a * g + b * hidden})
        cosine = torch.cosine_similarity(g, hidden)
        needs = cosine < -a * g.norm(dim=1) / (b * hidden.norm(dim=1))
        assert torch.equal(v > 0, needs) and needs.any() and not needs[cosine >= 0].any()
        assert not needs[b * hidden.norm(dim=1) <= a * g.norm(dim=1)].any()


def test_the_door_projects(exact, monkeypatch):
    """With a concealed gradient made to point back, what leaves is at a right angle to g."""
    net, x, y = exact
    plain = share(net, x[:1], y[:1]).tensors
    real = defenses.dcs2.passes

    def against(model):
        run = real(model)
        return lambda *args: ({n: -9 * plain[n] for n in plain}, run(*args)[1])

    monkeypatch.setattr(defenses.dcs2, "passes", against)
    monkeypatch.setattr(DCS2, "search", lambda self, *_: [made])
    made = defenses.dcs2.Crafted(x[:1], y[:1], one_hot(y[:1], 10).double(), torch.zeros(1, 4, 2))
    sent = share(net, x[:1], y[:1], DCS2(steps=1)).tensors
    assert abs(vector(sent) @ vector(plain)) < 1e-9


# Where it works


def test_random_numbers_come_from_the_client_alone(setting):
    net, x, y = setting
    torch.manual_seed(1)
    a = share(net, x, y, DCS2(steps=3), each=2, seed=4)
    torch.manual_seed(2)
    b = share(net, x, y, DCS2(steps=3), each=2, seed=4)
    c = share(net, x, y, DCS2(steps=3), each=2, seed=5)
    assert torch.equal(vector(a.tensors), vector(b.tensors))
    assert not torch.allclose(vector(a.tensors), vector(c.tensors))


@pytest.fixture(scope="module")
def federation():
    net = models.build("mlp", SHAPE, 10, hidden=(8,))
    rng = torch.Generator().manual_seed(1)
    sizes = (5, 4, 6)  # uneven, so that batches differ in size
    data = [
        (torch.rand(n, *SHAPE, generator=rng), torch.randint(10, (n,), generator=rng))
        for n in sizes
    ]
    return net, data


def play(net, data, defense, **options):
    run = fedavg(net, data, rounds=2, plan=Plan(eta=0.2, batch_size=3), defense=defense, **options)
    reports = list(run)
    assert all(math.isfinite(norm) for r in reports for norm in r.norms)
    return run


@pytest.mark.parametrize("clients", [None, 1])
def test_fedavg_with_one_and_with_all_clients(federation, clients):
    net, data = federation
    defense = DCS2(steps=4, clients=clients)
    fast, slow = (play(net, data, defense, fast=f, keep_uploads=True) for f in (True, False))
    for n, p in fast.model.named_parameters():
        torch.testing.assert_close(p, slow.model.get_parameter(n), rtol=1e-3, atol=1e-4)
    plain = play(net, data, defenses.Defense(), fast=True, keep_uploads=True)
    for a, b, c in zip(fast.history[0].uploads, plain.history[0].uploads, range(3), strict=True):
        untouched = torch.allclose(vector(a.tensors), vector(b.tensors), atol=1e-6)
        assert untouched == (clients is not None and c != 1)
    want = range(3) if clients is None else [clients]  # what was crafted is the run's
    assert sorted(crafted(fast.memory)) == sorted(crafted(slow.memory)) == list(want)
    assert crafted(plain.memory) == {}


def test_fedavg_finds_a_chosen_subset_in_shuffled_batches(federation):
    net, data = federation
    seen = []

    class Spy(DCS2):
        def gradient(self, g, ctx):
            g = super().gradient(g, ctx)
            made = crafted(ctx.memory)
            seen.extend(len(made[c].images) for c in ctx.who if c in made)
            return g

    play(net, data, Spy(steps=2, sensitive=torch.cat([data[0][0][:2], data[2][0][:1]])))
    assert sum(seen) == 2 * 3  # each of the three, once a round


def test_shared_gradients_and_updates_of_federated_clients(federation):
    net, data = federation
    play(net, data, DCS2(steps=2, ratio="5:1"), share="gradient")
    sent = share(net, *data[2], DCS2(steps=2), plan=Plan(eta=0.1, batch_size=3), each=3)
    assert sent.kind == "update" and len(sent) == 2


def test_composes_with_prune_both_ways(exact):
    net, x, y = exact
    after, before = DCS2(steps=3) + Prune(0.7), Prune(0.7) + DCS2(steps=3)
    alone = DCS2(steps=3)
    g = share(net, x[:1], y[:1], alone).tensors
    pruned = share(net, x[:1], y[:1], after, knows=("mixture",))
    for n, t in pruned.tensors.items():
        torch.testing.assert_close(t, g[n] * (t != 0))
        if t[0].numel() > 100:
            assert (t == 0).double().mean() == pytest.approx(0.7, abs=0.02)
    sent = share(net, x[:1], y[:1], before).tensors
    plain = share(net, x[:1], y[:1]).tensors
    cut = share(net, x[:1], y[:1], Prune(0.7)).tensors
    for n, t in sent.items():  # the batch's half is pruned, the concealed half is whole
        torch.testing.assert_close(t, g[n] - plain[n] / 2 + cut[n] / 2)


def test_composes_with_soft_labels_and_other_networks(setting):
    _, x, y = setting
    net = models.build("convnet", (1, 18, 18), 10, width=4)
    x = torch.rand(4, 1, 18, 18, generator=generator(0))
    for defense in (Mixup(2) + DCS2(steps=2), defenses.PRECODE(size=4) + DCS2(steps=2)):
        sent = share(net, x, y, defense, each=2)
        assert all(t.isfinite().all() for t in sent.tensors.values())


def test_facts_hold_no_image_and_runs_have_stable_names(setting):
    net, x, y = setting
    defense = DCS2(steps=2, sensitive=x, start="sample", pool=1 - x)
    names = ("lambda_g", "concealed", "mixture", "shares")
    sent = share(net, x, y, defense, each=2, knows=names)
    with pytest.raises(PrivflError, match=f"one of: labels, {', '.join(names)}$"):
        share(net, x, y, defense, each=2, knows="images")
    assert sent.knows.names == names
    assert sent.knows.concealed.shape == (2, 2) and sent.knows.mixture.shape == (2, 4, 10)
    assert identity(defense) == identity(copy.deepcopy(defense)) and "tensor " in identity(defense)
    assert identity(DCS2(sensitive=x[:2])) != identity(DCS2(sensitive=x[2:]))
    made = defenses.build("dcs2:ratio=5:1,steps=7,clients=3,box=True+prune:rate=0.7")
    assert made.parts[0].ratio == "5:1" and made.parts[0].box and made.parts[0].steps == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lambda_g": 1.2}, "lambda_g is 1.2; it must be a number from 0"),
        ({"lambda_x": -1.0}, "lambda_x is -1.0; it must be a number at"),
        ({"lambda_z": float("nan")}, "lambda_z"),
        ({"steps": 0}, "steps is 0; it must be a whole number at"),
        ({"far": 0.0}, "far is 0.0; it must be a number over 0"),
        ({"ratio": "5"}, "it must be sensitive:concealed"),
        ({"ratio": "2:3"}, "ratio is '2:3'; it must be"),
        ({"ratio": "0:1"}, "ratio is '0:1'; it must be"),
        ({"start": "zero"}, "choose one of: noise, sample, mixup"),
        ({"start": "mixup"}, "start='mixup' needs pool="),
        ({"scale": "third"}, "choose one of: mean, sum, code"),
        ({"sensitive": "some"}, "choose one of: all"),
    ],
)
def test_bad_settings_get_one_sentence(refused, options, says):
    refused(lambda: DCS2(**options), says)


@pytest.mark.parametrize(
    ("pool", "says"),
    [
        (torch.zeros(3, 1, 9, 9), "pool needs images (1, 8, 8)"),
        ("x", "none of them a sensitive one"),
        ((torch.zeros(3, *SHAPE), torch.tensor([0, 1, 10])), "labels of pool must lie in 0…9"),
    ],
)
def test_a_pool_that_does_not_fit_gets_one_sentence(refused, setting, pool, says):
    net, x, y = setting
    refused(
        lambda: share(
            net, x, y, DCS2(steps=1, start="sample", pool=x if isinstance(pool, str) else pool)
        ),
        says,
    )


def test_context_without_sensitive_samples_is_left_alone():
    net = models.build("mlp", SHAPE, 10, hidden=(4,))
    theta = {n: p[None] for n, p in weights(net).items()}
    ctx = Context(
        net, theta, torch.rand(1, 2, *SHAPE), torch.zeros(1, 2).long(), [generator(0)], 0, [7]
    )
    g = {n: torch.randn_like(t) for n, t in theta.items()}
    sent = DCS2(clients=(1, 2)).gradient(g, ctx)
    assert all(torch.equal(sent[n], g[n]) for n in g)


def test_a_context_without_numbers_defends_everyone(setting):
    net, x, y = setting
    theta = {n: p[None] for n, p in weights(net).items()}
    defense, g = DCS2(steps=1), {n: torch.ones_like(t) for n, t in theta.items()}
    ctx = Context(net, theta, x[None], y[None], [generator(0)])
    defense.gradient(g, ctx)
    assert len(crafted(ctx.memory)[0].images) == 4
