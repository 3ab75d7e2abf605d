"""Chapter "All against all": each statement, and where it fails to hold; what the prose says.

A test has the name of its label in the book.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from privfl_lite.privacy.bounds import success_bound
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.studies.all_against_all.audited import audit, clipped
from privfl_lite.studies.all_against_all.rows import ROWS, build
from privfl_lite.studies.proof_bound_audit.canaries import CLIP
from privfl_lite.teach import judgment
from privfl_lite.teach import judgment_besides as besides
from privfl_lite.teach.checks import all_against_all as checks


def tables(count: int = 20) -> list[torch.Tensor]:
    """Shares named, defenses by attackers."""
    return [torch.rand(5, 4, generator=generator(i), dtype=torch.float64) for i in range(count)]


def test_prop_judgment_more_attackers():
    """More attackers never lower the best; a failed one reverses nothing; one answer can."""
    for s in tables():
        best = [s[:, : k + 1].amax(1) for k in range(s.shape[1])]
        assert all((b >= a).all() for a, b in itertools.pairwise(best))
        # 2: whoever looked better may look worse after one more attacker, the others untouched
        order = best[-1].argsort()
        low, high = int(order[0]), int(order[-1])
        answer = torch.zeros(len(s), 1, dtype=s.dtype)
        answer[low] = 1.0
        after = torch.cat([s, answer], 1).amax(1)
        assert best[-1][low] < best[-1][high] and after[low] > after[high]
        # 3: not beyond a bound that holds for every attacker
        beta = float(best[-1][low])
        capped = torch.cat([s, answer.clamp(max=beta)], 1).amax(1)
        assert capped[low] < capped[high]


def test_prop_judgment_more_attackers_fails_for_means():
    """A mean over attackers falls with every attacker who fails: such a score rewards weak ones."""
    s = tables(1)[0]
    weak = torch.cat([s, torch.zeros(len(s), 1, dtype=s.dtype)], 1)
    assert (weak.mean(1) < s.mean(1)).all() and (weak.amax(1) == s.amax(1)).all()


def test_prop_judgment_front():
    """A utility that likes accuracy and dislikes leaks chooses on the front; a linear one cannot
    choose every point of it."""
    for trial in range(20):
        rng = generator(trial)
        values = torch.rand(8, 2, generator=rng, dtype=torch.float64).tolist()
        points = {str(i): (a, b) for i, (a, b) in enumerate(values)}
        front = checks.front_of(points)
        assert front
        for weight in (0.1, 1.0, 10.0):
            for utility in (
                lambda p, w=weight: p[1] - w * p[0],
                lambda p, w=weight: p[1] ** 3 - w * p[0] ** 0.5,
            ):
                assert max(points, key=lambda n, u=utility: u(points[n])) in front
    dent = {"a": (0.0, 0.0), "b": (0.6, 0.4), "c": (1.0, 1.0)}  # b on the front, below the chord
    assert checks.front_of(dent) == {"a", "b", "c"}
    for weight in torch.linspace(0, 20, 400).tolist():
        assert max(dent, key=lambda n, w=weight: dent[n][1] - w * dent[n][0]) != "b"


def test_ex_judgment_by_hand():
    """The numbers of the example: Φ(Φ⁻¹(0.01) + 1), and Wilson's interval for 0 of 18."""
    assert success_bound(0.01, 1.0) == pytest.approx(0.0924, abs=5e-5)
    low, high = checks.wilson(0, 18)
    assert (low, high) == (0.0, pytest.approx(1.96**2 / (18 + 1.96**2), abs=1e-3))
    assert high == pytest.approx(0.176, abs=5e-4)


RIGHT = {
    "bound": success_bound,
    "front": checks.front_of,
    "certain": checks.certainly_beaten,
}
SLIPS = [
    ("bound", lambda kappa, sigma: kappa, "chance of a guess"),
    ("front", lambda points: set(points), "dominated"),
    (
        "certain",
        lambda rows: (
            rows.keys() - checks.front_of({n: (h / m, sum(a) / 3) for n, (h, m, a) in rows.items()})
        ),
        "intervals are apart",
    ),
]


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_are_right(expect, name):
    expect(getattr(checks, f"check_{name}"), RIGHT[name], "Right")
    expect(getattr(checks, f"check_{name}"), lambda *_: ..., "replace the dots")


@pytest.mark.parametrize(("name", "answer", "word"), SLIPS)
def test_typical_slips_are_named(expect, name, answer, word):
    expect(getattr(checks, f"check_{name}"), answer, word)


# --- what the prose says of the stored table ---


def hits(name: str, attacker: str, data: str = "mnist") -> int:
    cell = judgment.on(name, data, attacker)
    return sum(n["named_pixels"] for n in cell["networks"])


def test_what_informing_changes_is_what_the_prose_says():
    for name in ("PRECODE", "FedKL"):
        assert (hits(name, "plain"), hits(name, "informed")) == (0, 12)
    for name in ("DCS²", "Soteria 0.6", "Mixup 4", "Prune 0.9"):
        assert hits(name, "plain") in (5, 6) and hits(name, "informed") in (11, 12)
    assert hits("Entangle 0.7", "plain") == 10 and hits("raw noise 0.01", "informed") == 11
    assert [hits("FedKL + noise", a) for a in ("earlier", "informed")] == [2, 3]


def test_the_proved_rows_are_those_of_clip_and_noise_and_none_is_read_above_its_bound():
    rows = {row.name: row for row in judgment.judged()}
    proved = [row for row in rows.values() if row.evidence == "proved"]
    assert {r.name for r in proved} == {
        "DP-SGD σ 1", "DP-SGD σ 1 + Prune", "ModelCloak σ 5", "ModelCloak + sum"
    }  # fmt: skip
    assert all(r.named().low <= r.bound for r in proved)
    assert rows["DP-SGD σ 1"].accuracy.value < rows["none"].accuracy.value / 2
    assert round(rows["DP-SGD σ 0.1"].epsilon["value"]) == 2695
    assert "diverged" in rows["ModelCloak σ 5"].epsilon["reason"]
    for name in ("POGZ-FL", "CA-FL"):
        assert rows[name].evidence == "not found" and rows[name].accuracy.value < 0.25


def test_who_looks_safe_to_the_plain_attacker():
    """Twelve of twenty rows; four of these are read or found once the attacker knows."""
    rows = judgment.judged()
    safe = [row for row in rows if hits(row.name, "plain") <= 1]
    assert (len(rows), len(safe)) == (20, 12)
    assert sum(row.evidence in ("read", "found") for row in safe) == 4


def test_ats_is_read_as_its_client_trained():
    cell = judgment.on("ATS", "mnist")
    assert min(v for n in cell["networks"] for v in n["psnr_seen"]) > 60
    assert hits("ATS", "informed") == 0


def test_faces_widen_the_gap():
    for name in ("Soteria 0.6", "PRECODE"):
        assert (hits(name, "plain", "faces"), hits(name, "informed", "faces")) == (0, 12)
    for name in ("Mixup 4", "Entangle 0.7"):
        assert hits(name, "plain", "faces") > 3 and hits(name, "informed", "faces") == 12
    assert hits("Prune 0.9", "informed", "faces") == 7
    assert hits("DCS² + Prune", "informed", "faces") == 0


def test_without_a_proof_nothing_that_learns_is_left():
    """What the chooser of "Which would you deploy?" says."""
    assert judgment.remaining(active=False, proof=False, lost=0.2, many=True) == []
    assert judgment.remaining(active=True, proof=True, lost=1.0, many=False)


def test_no_epsilon_of_the_table_is_refuted_and_claims_made_elsewhere_are():
    stated = {line["defense"]: line for line in besides.stated()}
    assert set(stated) == {"DP-SGD σ 0.1", "DP-SGD σ 1", "ModelCloak σ 5", "DP-SGD σ 1 + Prune"}
    assert all(line["least p"] > 0.05 for line in stated.values())
    assert all(line["ε audited"].high < line["ε claimed"] for line in stated.values())
    loud = stated["DP-SGD σ 0.1"]
    assert round(loud["ε claimed"]) == 284 and round(loud["ε audited"].high, 2) == 3.48
    elsewhere = besides.refuted()
    assert {line["defense"] for line in elsewhere} == {"POGZ-FL", "CA-FL"}
    assert all(line["most p"] < 0.05 for line in elsewhere)


def test_an_audit_is_of_the_rows_own_noise():
    """The canaries' clip changes no multiplier; and what is refused says why."""
    settings = STUDIES[judgment.NAME].settings("cpu")
    for name in ("DP-SGD σ 1 + Prune", "ModelCloak σ 5"):
        own = build(settings, name, "mnist", 1.0, 0, 1)
        for before, after in zip(parts(own), parts(clipped(own)), strict=True):
            assert getattr(after, "sigma", None) == getattr(before, "sigma", None)
            assert getattr(after, "clip", CLIP) == CLIP
    assert "without a clip" in audit(settings, {"row": "raw noise 0.01"})["refused"]


def parts(defense):
    return getattr(defense, "parts", (defense,))


def test_behind_lenet_the_closed_form_was_the_plain_choice_for_bare_uploads_only():
    """So leaving it out on CIFAR-10 costs those rows alone."""
    chosen = set()
    for data in ("mnist", "faces"):
        for row in judgment.judged(data):
            networks = row.cell("plain")["networks"]
            if ROWS[row.name].net == "lenet" and any(n["chosen"]["closed form"] for n in networks
                                                     if "closed form" in n["chosen"]):  # fmt: skip
                chosen.add(row.name)
    assert chosen == {"none", "ATS"}


def seen(name: str, attacker: str = "informed") -> int:
    """Images named by features in color."""
    return sum(n["named_features"] for n in judgment.on(name, "cifar10", attacker)["networks"])


def test_what_the_prose_says_of_color():
    for name in ("none", "raw noise 0.01", "PRECODE", "Mixup 4"):
        assert hits(name, "informed", "cifar10") == 12
    assert hits("InstaHide 4", "informed", "cifar10") == 8
    assert hits("none", "plain", "cifar10") == 5  # the search has not arrived
    for name in ("Soteria 0.6", "Entangle 0.7"):
        assert hits(name, "informed", "cifar10") == 5
        assert max(v for n in judgment.on(name, "cifar10")["networks"] for v in n["psnr"]) < 9
    assert [hits(n, "informed", "cifar10") for n in ("Prune 0.9", "DCS² + Prune")] == [1, 2]
    weak = ("Soteria 0.6", "Entangle 0.7", "Prune 0.9", "DCS² + Prune")
    assert min(hits(n, "informed") for n in weak) == 9
    assert (hits("LODA₁", "informed", "cifar10"), seen("LODA₁")) == (0, 12)
    assert judgment.Judged("LODA₁", "cifar10").evidence == "found"
    assert (hits("ATS", "informed", "cifar10"), seen("ATS")) == (0, 3)
    color = besides.color_accuracy("LODA₁")
    assert round(color.value, 2) == 0.07 and color.high < 0.1
