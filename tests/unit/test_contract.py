"""The contract holds for every registered defense and attack, and its checks can fail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from privfl_lite import PrivflError, attacks, contract, defenses, load, models, share
from privfl_lite.attacks import ATTACKS, INFORMED, Attack, Imprint, Reconstruction
from privfl_lite.contract import check_attack, check_defense
from privfl_lite.defenses import DEFENSES, Defense
from privfl_lite.defenses.mixing import mix
from privfl_lite.wire import Facts, Plan

DEFAULT = {  # settings that make a defense quick, and draws repeatable
    "instahide": {"crypto": False},
    "modelcloak": {"clip": 1.0, "sigma": 0.01},
    "adaptive_cloak": {"clip": 1.0, "sigma": 0.01, "bit": 0.1},
    "dcs2": {"steps": 3},
    "fedkl": {"seed": 0, "key_length": 16},
    "loda": {"steps": 2},
}
NETS = {"loda": ("lenet", (3, 16, 16))}


@pytest.mark.parametrize("name", DEFENSES)
def test_every_defense_keeps_the_contract(name):
    kind, shape = NETS.get(name, ("lenet", (1, 16, 16)))
    net = models.build(kind, shape, 10)
    check_defense(DEFENSES[name](**DEFAULT.get(name, {})), net)


def test_chains_keep_the_contract():
    check_defense(defenses.Prune(0.5, feedback=True) + defenses.DPGaussian(0.01))
    check_defense(defenses.ModelCloak(1.0, 0.1) + defenses.Prune(0.5))
    check_defense(defenses.ModelCloak(1.0, 0.1) + defenses.SecureSum())
    assert contract._adds(defenses.SecureSum(lost=1, threshold=0.5)) == ""


def upload_for(name: str):
    """What this attack can take."""
    digits = load("mnist", size=16)
    x, y = digits.sample(2)
    net = models.build("lenet", digits)
    knows = ATTACKS[name].needs
    if name == "imprint":
        return share(Imprint(net, torch.linspace(0, 1, 8)), x, y)
    if name == "fishing":
        return share(attacks.fished(net, int(y[0])), x, y)
    if name in ("closed_form", "spear", "components", "unmix", "unflip"):
        net = models.build("mlp", digits)
    if name in ("unmix", "unflip"):
        made = mix(*digits.sample(6), torch.Generator().manual_seed(0))
        sent = share(net, made.images, made.labels, each=1)
        return replace(sent, knows=Facts(matrix=made.matrix))
    if name == "grnn":
        digits = load("mnist", size=32)
        x, y = digits.sample(2)
        net = models.build("lenet", digits)
    if name in ("ggl", "learned"):
        digits = load("mnist")
        x, y = digits.sample(2)
        net = models.build("lenet", digits)
    defense = {
        "denoise": defenses.DPGaussian(0.01),
        "denoise_unknown": defenses.DPGaussian(0.01),
        "unprune": defenses.Prune(0.5),
        "unmask": defenses.Soteria(),
        "before_draw": defenses.PRECODE(16),
        "measured": defenses.CAFL(),
        "pair": defenses.DCS2(steps=3),
        "pair_pruned": defenses.DCS2(steps=3) + defenses.Prune(0.5),
        "unguard": defenses.Entangle(guard=share(net, x[:1], y[:1]).tensors),
        "unguard_rows": defenses.Entangle(guard=share(net, x[:1], y[:1]).tensors),
        "unlock": defenses.FedKL(seed=0, key_length=16),
        "lock_matching": defenses.FedKL(seed=0, key_length=16),
    }.get(name)
    if name == "unobscure":
        photos = load("photos", size=16)
        x, y = photos.sample(2)
        net, defense = models.build("lenet", photos), defenses.LODA(steps=2)
    if name == "epochs":
        return share(net, *digits.sample(4), each=2, plan=Plan(epochs=2, batch_size=1))
    return share(net, x, y, defense, knows, each=1)


QUICK = {"steps": 12, "show": False}


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_keeps_the_contract(name):
    kind = ATTACKS[name]
    takes = kind.__dataclass_fields__
    given = {k: v for k, v in QUICK.items() if k in takes}
    if name == "fishing":
        given = {"attack": attacks.IDLG(**QUICK)}
    if name == "unguard":
        given = {"attack": attacks.IDLG(nonzero=True, **QUICK)}
    check_attack(kind(**given), upload_for(name))


def test_every_defense_has_an_informed_attacker_that_answers_it():
    assert INFORMED.keys() == DEFENSES.keys()
    for defense, kind in INFORMED.items():
        if defense not in ("none", "ats", "secure_sum"):  # these are read as they are
            assert defense in kind.answers, defense
        assert kind in ATTACKS.values()


def test_informed_takes_the_noise_where_it_is_granted():
    digits = load("mnist", size=16)
    x, y = digits.sample(1)
    net, cloak = models.build("lenet", digits), defenses.ModelCloak(1.0, 0.01)
    sent = share(net, x, y, cloak, ("noise", "clip"), each=1)
    assert type(attacks.answer("modelcloak", sent.knows.names)) is attacks.Denoise
    assert type(attacks.answer("modelcloak")) is attacks.DenoiseUnknown
    found = attacks.informed(sent, "modelcloak", steps=5, show=False)
    assert found.images.shape == x.shape
    with pytest.raises(PrivflError, match="unknown defense"):
        attacks.informed(sent, "wall")


# --- the checks can fail ---


class Remembers(Defense):
    calls = 0

    def gradient(self, g, ctx):
        type(self).calls += 1
        return {n: t * type(self).calls for n, t in g.items()}


@dataclass(frozen=True)
class Neighbors(Defense):
    def gradient(self, g, ctx):
        return {n: t + t.sum(0, keepdim=True) for n, t in g.items()}


@dataclass(frozen=True)
class Forgets(Defense):
    notes: dict = field(default_factory=dict)

    def update(self, delta, ctx):
        self.notes[ctx.round] = self.notes.get(ctx.round - 1, 0) + 1
        return {n: t * self.notes[ctx.round] for n, t in delta.items()}


@dataclass(frozen=True)
class Crooked(defenses.SecureSum):
    """A sum whose masks do not cancel: they were left in."""

    def collect(self, who, rng, secure=False):
        pool = super().collect(who, rng, secure)
        done = pool.done
        noise = torch.randn(1, generator=rng(who[0]))
        pool.done = lambda: ({n: t + noise for n, t in done()[0].items()}, done()[1])
        return pool


@dataclass(frozen=True)
class Whispers(defenses.SecureSum):
    """Adds up as it says, but a client looks at its neighbors before."""

    def update(self, delta, ctx):
        return {n: t + t.sum(0, keepdim=True) for n, t in delta.items()}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (Crooked(), "not the weighted sum"),
        (Whispers(), "adds to the sum depends"),
        (Remembers(), "share twice"),
        (Neighbors(), "computed beside it"),
        (Forgets(), "resumed ends with other bits"),
    ],
)
def test_a_bad_defense_is_told_why(bad, says):
    with pytest.raises(PrivflError, match=says):
        check_defense(bad)


@dataclass(frozen=True)
class Noisy(Attack):
    most = (1, 1)

    def run(self, upload, seed=0):
        shape = (len(upload) * upload.batch, *upload.model.shape)
        upload.model.head.bias.data += 1
        return Reconstruction(torch.rand(shape), torch.zeros(shape[0]), torch.zeros(len(upload)))


def test_a_bad_attack_is_told_why():
    with pytest.raises(PrivflError) as error:
        check_attack(Noisy())
    for clause in ("other images", "changes itself, the model", "beyond its limits"):
        assert clause in str(error.value)
