"""Defenses: what each does to the wire is exactly what its equation says, and nothing else."""

from __future__ import annotations

import dataclasses
from itertools import islice

import numpy as np
import pytest
import torch
from toy import make_clients

from privfl_lite import FedAvg, Plan, PrivflError, defenses, models, privacy, share
from privfl_lite.defenses import (
    ATS,
    CAFL,
    DCS2,
    DEFENSES,
    DPSGD,
    LODA,
    POGZFL,
    PRECODE,
    AdaptiveCloak,
    Chain,
    Context,
    Defense,
    DPGaussian,
    Entangle,
    FedKL,
    InstaHide,
    Memory,
    Mixup,
    ModelCloak,
    Prune,
    Rounded,
    SecureSum,
    Soteria,
)
from privfl_lite.runtime import generator
from privfl_lite.stored import identity
from privfl_lite.wire import Facts, Noise


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
    assert len(three.parts) == 3 and three.facts(context(1)) == Facts(noise=Noise(0.1))
    noisy = DPGaussian(0.3) + Prune(0.1) + DPGaussian(0.4)
    assert noisy.facts(context(1)).noise.std == pytest.approx(0.5)


# --- settings without memory ---

ONES = {  # each with settings that are not its own defaults, and with draws that repeat
    "none": [Defense()],
    "dp_gaussian": [DPGaussian(0.2)],
    "dp_sgd": [DPSGD(0.5, 0.3)],
    "prune": [Prune(0.7), Prune(0.7, feedback=True)],
    "soteria": [Soteria(0.5), Soteria(0.5, "paper")],
    "precode": [PRECODE(8, 0.01, 3)],
    "ats": [ATS("14-33+3-1-7")],
    "pogz_fl": [POGZFL(0.5, 3.0, 1.0), POGZFL(released=True)],
    "ca_fl": [CAFL(3.0, 0.2), CAFL(3.0, 0.3, radius=0.1), CAFL(3.0, 0.2, decoder="omp", seed=4)],
    "mixup": [Mixup(2, 0.7)],
    "instahide": [InstaHide(2, 0.7, center=0.3, crypto=False)],
    "modelcloak": [
        ModelCloak(0.3, 2.0),
        ModelCloak(0.3, 2.0, "dynamic", "scale"),
        ModelCloak(0.3, 2.0, per="layer", where="server"),
    ],
    "dcs2": [DCS2(0.6, steps=3, box=True), DCS2(steps=2, sensitive=(1, 3), ratio="1:2")],
    "entangle": [Entangle(0.5), Entangle(0.5, "both", "add", "random")],
    "fedkl": [FedKL(16, "relu", seed=2), FedKL(16, blocks="all", fresh=True, seed=2)],
    "loda": [LODA(steps=2, layers="loda3", seed=5)],
    "adaptive_cloak": [AdaptiveCloak(0.3, 2.0)],
    "rounded": [Rounded("bfloat16")],
    "secure_sum": [SecureSum(40, 16), SecureSum(lost=1, threshold=0.5)],
}
SINGLE = [(name, defense) for name, several in ONES.items() for defense in several]
CHAINS = [
    Prune(0.5, feedback=True) + DPGaussian(0.1),
    Mixup(2) + DCS2(steps=2) + Prune(0.7),
    FedKL(16, seed=1) + ModelCloak(0.3, 2.0),
    ATS() + PRECODE(8) + CAFL(decoder="omp", ratio=0.2),
    DPSGD(0.5, 0.1) + Entangle(0.5, score="random"),
    ModelCloak(0.3, 2.0) + SecureSum(),
]
EVERY = [*(defense for _, defense in SINGLE), *CHAINS]


def label(value: object) -> str:
    return type(value).__name__ if isinstance(value, Defense) else str(value)


def test_every_registered_defense_is_below():
    assert ONES.keys() == DEFENSES.keys()
    assert all(type(defense) is DEFENSES[name] for name, defense in SINGLE)


def fitting(defense: Defense):
    """A network and six images that this defense can take: LODA's extractor wants color."""
    color = any(isinstance(part, LODA) for part in getattr(defense, "parts", (defense,)))
    shape = (3, 16, 16) if color else (1, 12, 12)
    return models.build("lenet", shape, 10), *make_clients([6], shape, seed=3)[0]


def bits(upload) -> list[torch.Tensor]:
    granted = [getattr(upload.knows, name) for name in upload.knows.names]
    state = [*upload.tensors.values(), *upload.model.state_dict().values()]
    return state + [value for value in granted if isinstance(value, torch.Tensor)]


def granted(defense: Defense, net, x, y, **options) -> tuple[str, ...]:
    """All names that ``knows=`` takes here, as the refusal of another one lists them."""
    with pytest.raises(PrivflError) as refusal:
        share(net, x, y, defense, knows=("nothing",), **options)
    return tuple(str(refusal.value).rpartition(": ")[2].split(", "))


@pytest.mark.parametrize("plan", [None, Plan(eta=0.05, steps=2, batch_size=2)], ids=["g", "plan"])
@pytest.mark.parametrize("defense", EVERY, ids=label)
def test_share_twice_with_one_seed_gives_the_same_bits(defense, plan):
    """Whatever the global generator does, and all that may be granted with it."""
    net, x, y = fitting(defense)
    options = {"each": 2, "plan": plan, "seed": 7}
    knows = granted(defense, net, x, y, **options)
    first, again = [], []
    for found, noise in ((first, 1), (again, 2)):
        torch.manual_seed(noise)
        found += bits(share(net, x, y, defense, knows, **options))
    assert len(first) == len(again)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("defense", EVERY, ids=label)
def test_settings_are_frozen_and_survive_replace(defense):
    """A changed copy has the change and all else; the defense itself cannot be changed."""
    same = dataclasses.replace(defense)
    assert identity(same) == identity(defense) and type(same) is type(defense)
    for field in dataclasses.fields(defense):
        assert getattr(same, field.name) is getattr(defense, field.name)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(defense, field.name, None)
    for field, other in CHANGES.get(type(defense), {}).items():
        changed = dataclasses.replace(defense, **{field: other})
        assert identity(changed) != identity(defense) and getattr(changed, field) == other
        kept = [f.name for f in dataclasses.fields(defense) if f.name != field]
        assert all(getattr(changed, n) is getattr(defense, n) for n in kept)


CHANGES = {
    DPGaussian: {"sigma": 0.7},
    DPSGD: {"clip": 2.0, "sigma": 0.25},
    Prune: {"rate": 0.3},
    Soteria: {"rate": 0.3},
    PRECODE: {"seed": 9},
    ATS: {"policy": "7"},
    POGZFL: {"eps": 1.0, "importance": {"head": 1.0}},
    CAFL: {"ratio": 0.7},
    Mixup: {"cap": 0.9},
    InstaHide: {"k": 3, "center": 0.1},
    ModelCloak: {"sigma": 1.0},
    DCS2: {"ratio": "5:1", "lambda_g": 0.1},
    Entangle: {"beta": 0.1},
    FedKL: {"key_length": 8, "seed": None},
    LODA: {"steps": 7, "c": 2.0},
    Chain: {"parts": (Prune(0.1),)},
}


@pytest.mark.parametrize("defense", EVERY, ids=label)
def test_nothing_is_remembered_by_the_defense_itself(defense):
    """Neither by what it holds nor by what it sends: only a memory that is handed in tells."""
    net, x, y = fitting(defense)
    before, held = identity(defense), set(vars(defense))
    first = share(net, x, y, defense, each=2, seed=7)
    share(net, x.flip(0), y.flip(0), defense, each=2, seed=8)
    again = share(net, x, y, defense, each=2, seed=7)
    assert all(torch.equal(a, b) for a, b in zip(bits(first), bits(again), strict=True))
    assert identity(defense) == before and set(vars(defense)) - held <= {"g"}  # LODA's network


def test_a_memory_that_is_handed_in_is_used_and_kept_apart_in_a_chain(setting):
    net, x, y = setting
    memory, chain = Memory(), Prune(0.9, feedback=True) + Prune(0.5, feedback=True)
    first = share(net, x, y, chain, each=2, memory=memory)
    again = share(net, x, y, chain, each=2, memory=memory)
    assert not torch.equal(first.tensors["head.weight"], again.tensors["head.weight"])
    parts = [memory.part(i)[0]["head.weight"] for i in (0, 1)]
    assert not torch.equal(*parts) and not any(memory.clients.values())
    copy = Memory()
    copy.load_state_dict(memory.state_dict())
    third, same = (share(net, x, y, chain, each=2, memory=m) for m in (memory, copy))
    assert all(torch.equal(t, same.tensors[n]) for n, t in third.tensors.items())


@dataclasses.dataclass(frozen=True)
class Count(Defense):
    """Notes at the data door how often it was there, ``by`` each time, and tells it as a fact."""

    by: float = 1.0

    def data(self, x, y, rng, kept=None):
        kept["count"] = kept.get("count", torch.zeros(())) + self.by
        return x, y

    def facts(self, ctx):
        return Facts(c=float(ctx.memory[ctx.who[0]]["count"]))


def test_parts_of_a_chain_have_notes_of_their_own_at_the_data_door_too(setting):
    net, x, y = setting
    memory, chain = Memory(), Count(1.0) + Prune(0.5) + Count(10.0)
    for _ in range(3):
        upload = share(net, x, y, chain, ("c",), each=2, memory=memory)
    counts = [{c: n["count"].item() for c, n in memory.part(i).clients.items()} for i in (0, 2)]
    assert counts == [dict.fromkeys(range(2), 3.0), dict.fromkeys(range(2), 30.0)]
    assert upload.knows.c == 30  # the same note that the door wrote, of the later part
    assert not any(memory.clients.values()) and not any(memory.part(1).clients.values())
    alone = Memory()
    share(net, x, y, Count(2.0), each=2, memory=alone)
    assert alone[0]["count"] == 2
    copy = Memory()
    copy.load_state_dict(memory.state_dict())
    share(net, x, y, chain, each=2, memory=copy)
    assert copy.part(0)[1]["count"] == 4 and memory.part(0)[1]["count"] == 3


# --- a run's memory and its checkpoint ---

REMEMBERS = [
    Defense(),
    Prune(0.8, feedback=True),
    DCS2(steps=2),
    FedKL(16),  # keys of the operating system
    FedKL(16, seed=0, share_statistics=False),
    ModelCloak(0.3, 2.0, "dynamic"),
    ModelCloak(0.3, 2.0, "dynamic", "scale", "server"),
    CAFL(radius=0.1),
    Prune(0.8, feedback=True) + ModelCloak(0.3, 2.0) + Prune(0.5, feedback=True),
]


def same_memory(a: Memory, b: Memory) -> bool:
    def equal(one: object, two: object) -> bool:
        if isinstance(one, torch.Tensor):
            return torch.equal(one, two)
        if isinstance(one, dict):
            return one.keys() == two.keys() and all(equal(v, two[k]) for k, v in one.items())
        return one == two

    return equal(a.state_dict(), b.state_dict())


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("defense", REMEMBERS, ids=label)
def test_a_resumed_run_equals_a_whole_one(defense, fast, tmp_path):
    """Model, ε and memory, bit for bit. Unseeded keys cannot be drawn again, so the whole run of
    those is the interrupted one, gone on with in one process."""
    net, clients = models.build("lenet", (1, 12, 12), 10, init=0.2), make_clients([4, 6, 4, 5])
    plan, file = Plan(eta=0.1, batch_size=3, momentum=0.5), tmp_path / "run.pt"

    def run(**options: object) -> FedAvg:
        how = {"per_round": 3, "fast": fast, "show": False, **options}
        return FedAvg(net, clients, 4, plan, defense=defense, **how)

    whole = run(checkpoint=file)
    going = iter(whole)
    list(islice(going, 2))  # as if stopped here
    resumed = run(checkpoint=tmp_path / "copy.pt")
    (tmp_path / "copy.pt").write_bytes(file.read_bytes())
    list(going), list(resumed)
    assert len(whole.history) == len(resumed.history) == 4
    for name, t in whole.model.state_dict().items():
        assert torch.equal(t, resumed.model.state_dict()[name])
    assert [r.epsilon for r in whole.history] == [r.epsilon for r in resumed.history]
    assert same_memory(whole.memory, resumed.memory)
    if defense != FedKL(16):
        fresh = run()
        list(fresh)
        assert all(
            torch.equal(t, resumed.model.state_dict()[n])
            for n, t in fresh.model.state_dict().items()
        )
        assert same_memory(fresh.memory, resumed.memory)


def test_raw_noise_claims_no_epsilon():
    found = privacy.account(DPGaussian(5.0) + Prune(0.9), privacy.Training(10))
    assert found.value is None and "DPGaussian: noise without a clip" in found.reason


def test_names_on_the_command_line():
    made = defenses.build("prune:rate=0.7+dp_gaussian:sigma=0.5")
    assert repr(made) == "Prune(rate=0.7, feedback=False) + DPGaussian(sigma=0.5)"
    assert type(defenses.build("none")) is Defense


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: DPGaussian(0), "sigma is 0; it must be a number over 0"),
        (lambda: DPGaussian(float("nan")), "sigma is nan; it must be a number over 0"),
        (lambda: Prune(1.0), "rate is 1.0; it must be a number at least 0"),
        (lambda: defenses.build("prun"), "choose one of: none, dp_gaussian, dp_sgd, prune"),
        (lambda: defenses.build("prune:speed=3"), "key one of: rate"),
        (lambda: defenses.build("prune:rate"), "write key=value"),
        (lambda: defenses.build("none:rate=1"), "key one of: none"),
        (lambda: defenses.build("prune:rate=high"), "'prune' cannot use 'rate=high'"),
    ],
)
def test_bad_settings_get_one_sentence(refused, call, says):
    refused(call, says)
