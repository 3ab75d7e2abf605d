"""Bad input gets one sentence, when it is given: a table over everything public.

The rows are made: for every argument of every public constructor and function, from the rule that
it declares (``bad_values``). Each goes wrong in one place of a call that otherwise works
(``public``). Behind it stand uploads of every odd kind for every attack, settings at the ends of
their ranges, the command line, and the named cases of the review.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch
from bad_values import bad
from public import NOT_CALLED, Call, calls, declared, valid, world

import privfl_lite as pf
from privfl_lite.checking import Checked, checked, rules
from privfl_lite.values import Kind, Number, Positive, Word

SECONDS = 5.0
CALLS = calls()
TOTALS: Counter[str] = Counter()


def outcome(call, **given) -> str:
    """ "refused", "accepted", "slow", or the raw exception."""
    began = time.process_time()  # other people's work on this machine does not count
    try:
        call(**given)
        said = "accepted"
    except pf.PrivflError as error:
        text = str(error)
        said = "refused" if text and "\n" not in text and len(text) < 600 else f"unclear: {text}"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    return said if time.process_time() - began < SECONDS else "slow"


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.path)
def test_every_argument_declares_what_it_may_be(call: Call):
    """A new setting without a range fails here, and so does a call that nobody made valid."""
    open_ones = [name for name, rule in rules(call.rules_of).items() if rule is None]
    assert not open_ones, f"{call.path}: no rule for {', '.join(open_ones)} (privfl_lite.values)"
    made = call.make(**valid(call.path))
    assert made is None or made is not NotImplemented


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.path)
def test_bad_values_are_refused_in_one_sentence(call: Call):
    wrong = {}
    for name, rule in rules(call.rules_of).items():
        assert rule is not None
        for value in bad(rule):
            said = outcome(call.make, **{**valid(call.path), name: value})
            TOTALS[said.partition(":")[0]] += 1
            if said != "refused":
                wrong[f"{name}={value!r}"[:80]] = said[:120]
    assert not wrong, wrong


def test_the_table_is_large_and_every_row_was_refused():
    """Runs after the rows above (alone, or with one process for the file, it sees them all)."""
    rows = {c.path: sum(len(bad(r)) for r in rules(c.rules_of).values() if r) for c in CALLS}
    print(f"{sum(rows.values()):,} bad inputs for {len(rows)} calls; {dict(TOTALS)}")
    assert sum(rows.values()) > 4000 and len(rows) > 120
    assert set(TOTALS) <= {"refused"}
    settled = [c.path for c in CALLS if rules(c.rules_of) and not rows[c.path]]
    assert not settled, f"no bad input was made for {settled}"


def test_a_setting_without_a_range_is_noticed():
    @dataclass(frozen=True)
    class Careless(pf.defenses.Defense):
        strength: float = 1.0
        rate: Positive = 1.0

    @checked
    def careless(n: int, word: str, fine: bool = True) -> None: ...

    assert rules(declared(Careless)) == {"strength": None, "rate": Number(0, open="low")}
    assert [n for n, r in rules(declared(careless)).items() if r is None] == ["n", "word"]
    with pytest.raises(pf.PrivflError, match="rate is -1; it must be a number over 0"):
        Careless(rate=-1)


def test_every_defense_attack_and_exception_of_the_list_is_there():
    paths = {call.path for call in CALLS}
    for kind in (*pf.defenses.DEFENSES.values(), *pf.attacks.ATTACKS.values()):
        assert issubclass(kind, Checked) and any(p.endswith(f".{kind.__name__}") for p in paths)
    assert all(NOT_CALLED.values())


@pytest.mark.parametrize("kind", [*pf.defenses.DEFENSES.values(), *pf.attacks.ATTACKS.values()])
def test_copies_text_and_defaults_go_on_as_they_did(kind):
    made = kind()
    assert repr(replace(made)) == repr(made) and type(replace(made)) is kind
    with pytest.raises(AttributeError):
        made.anything = 1


# Uploads of odd kinds, for every attack: it works, or says what it needs


def odd_uploads() -> dict[str, object]:
    w = world()
    up = w.upload[:2]
    late = pf.Plan(steps=2, batch_size=1)
    no_head = {n: t for n, t in up.tensors.items() if not n.startswith("head")}
    only_head = {n: t for n, t in up.tensors.items() if n.startswith("head")}
    zero = {n: torch.zeros_like(t) for n, t in up.tensors.items()}
    large = {n: 1e30 * torch.ones_like(t) for n, t in up.tensors.items()}
    labels = pf.Facts(labels=torch.zeros(2, 1, dtype=torch.long))
    flat = pf.models.build("mlp", (1, 12, 12), 10)
    return {
        "usual": up,
        "without head": replace(up, tensors=no_head),
        "head alone": replace(up, tensors=only_head),
        "zeros": replace(up, tensors=zero),
        "huge": replace(up, tensors=large),
        "64 bits": replace(up, tensors={n: t.double() for n, t in up.tensors.items()}),
        "labels": replace(up, knows=labels),
        "train mode": replace(up, mode="train"),
        "noise of 0": replace(up, knows=pf.Facts(noise=pf.Noise(0.0))),
        "three images": pf.share(w.net, w.x[:3], w.y[:3]),
        "two steps": pf.share(w.net, w.x[:2], w.y[:2], each=1, plan=late),
        "dense": pf.share(flat, w.x[:2], w.y[:2], each=1),
        "locked": pf.share(w.net, w.x[:2], w.y[:2], pf.defenses.FedKL(8, seed=1), each=1),
        "bottleneck": pf.share(w.net, w.x[:1], w.y[:1], pf.defenses.PRECODE(8)),
        "none": None,
        "a dictionary": dict(up.tensors),
        "no rounds": [],
        "two rounds": [up, up],
        "unlike rounds": [up, w.upload],
    }


LIKE_USUAL = ("zeros", "huge", "64 bits", "labels", "train mode", "noise of 0")
QUICK = {"steps": 2, "show": False, "restarts": 1}


@pytest.mark.parametrize("name", pf.attacks.ATTACKS)
def test_attacks_work_or_say_what_they_need(name):
    kind = pf.attacks.ATTACKS[name]
    attack = kind(**{k: v for k, v in QUICK.items() if k in rules(kind)})
    if name == "unguard":
        attack = replace(attack, attack=pf.attacks.IDLG(nonzero=True, steps=2, show=False))
    odd = odd_uploads()
    if name == "pair":  # seconds for each upload that it takes: one of them will do
        odd = {k: v[:1] if k == "usual" else v for k, v in odd.items() if k not in LIKE_USUAL}
    said = {what: outcome(attack.run, upload=upload) for what, upload in odd.items()}
    for seed in ("x", None, 1.5, 2**70, [1]):
        said[f"seed {seed}"] = outcome(attack.run, upload=odd["usual"], seed=seed)
    assert set(said.values()) <= {"accepted", "refused"}, said
    never = [
        "none",
        "a dictionary",
        "no rounds",
        "unlike rounds",
        "seed x",
        "seed None",
        "seed 1.5",
    ]
    assert {said[what] for what in never} == {"refused"}, said


# Settings at the ends of their ranges: allowed, so they must work, or end in a sentence


def ends(kind: type) -> list[tuple[str, object]]:
    found = []
    for name, rule in rules(kind).items():
        for one in getattr(rule, "items", (rule,)):
            if isinstance(one, Number) and name not in ("steps", "seed", "key_length", "images"):
                low = one.low + (1e-12 if "low" in one.open else 0)
                high = one.high - (1e-12 if "high" in one.open else 0)
                found += [(name, low)] if one.whole else [(name, low), (name, high)]
            elif isinstance(one, Word):
                found += [(name, word) for word in one.options]
            elif isinstance(one, Kind) and one.kind is bool:
                found += [(name, True), (name, False)]
    return found


@pytest.mark.parametrize("name", [n for n in pf.defenses.DEFENSES if n not in ("loda", "ats")])
def test_the_ends_of_every_range_of_a_defense_work(name):
    kind, w = pf.defenses.DEFENSES[name], world()
    few = {"dcs2": {"steps": 1}, "fedkl": {"seed": 1, "key_length": 4}}.get(name, {})
    wrong = {}
    for field, value in ends(kind):
        said = outcome(lambda f=field, v=value: pf.share(w.net, w.x, w.y, kind(**few | {f: v})))
        if said not in ("accepted", "refused"):
            wrong[f"{field}={value}"] = said
    assert not wrong, wrong


MATCHING = ["dlg", "gs", "denoise", "lock_matching"]


@pytest.mark.parametrize("name", [*MATCHING, "ggl", "grnn", "recursive", "unlock", "imprint"])
def test_the_ends_of_every_range_of_an_attack_work(name):
    kind = pf.attacks.ATTACKS[name]
    quick = {k: v for k, v in QUICK.items() if k in rules(kind)}
    knows = pf.Facts(noise=pf.Noise(0.1)) if name == "denoise" else pf.Facts()
    upload = replace(odd_uploads()["locked" if "lock" in name else "usual"], knows=knows)
    if name in ("grnn", "ggl"):
        data = pf.load("mnist", size=16)
        upload = pf.share(pf.models.build("mlp", data), *data.sample(1))
    wrong = {}
    for field, value in ends(kind):
        if field != "compile":
            said = outcome(lambda f=field, v=value: kind(**quick | {f: v}).run(upload))
            if said not in ("accepted", "refused"):
                wrong[f"{field}={value}"] = said
    assert not wrong, wrong
