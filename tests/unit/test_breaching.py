"""Our GS against ``breaching`` 0.1.2 (Geiping et al.): the same numbers, step by step.

Its trace is stored in tests/data/breaching_trace.json, so that ours is held to it everywhere; where
the framework is installed, the two also run side by side, and the stored trace is made again. All
in double precision: 1 − cosine near 0 has no five digits in single precision.
"""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path

import pytest
import torch

from privfl_lite import PrivflError
from privfl_lite.attacks import GS
from privfl_lite.attacks import solvers as engine
from privfl_lite.attacks.matching import search as matching

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks import breaching_side as side  # noqa: E402

needs_breaching = pytest.mark.skipif(side.load() is None, reason=side.missing())
STORED = json.loads(side.TRACE.read_text(encoding="utf-8"))
FIVE_DIGITS = 5e-6  # relative


def border(x):
    """What padding with zeros adds: the mean size of the last row and of the last column, (P,)."""
    return x[..., -1, :].abs().flatten(1).mean(1) + x[..., :, -1].abs().flatten(1).mean(1)


def our_search(monkeypatch, name, with_border=True, **changes):
    """The real ``GS.run`` from the same start: points z (50, n) and objectives (50,).

    breaching pads an n × n image with zeros and averages over all n² pixels, so
        its TV = (1 − 1/n) · ours + border/n + 2·10⁻⁸,
    and its scale s is our weight s·(1 − 1/n) on (ours + border/(n − 1)).
    """
    upload, start, scale = side.case(name)
    points, values = [], []

    def recorded(cost, z, rows, plain=engine.value_and_gradient):
        f, g = plain(cost, z, rows)
        points.append(z.detach()[0].clone())
        values.append(f.item())
        return f, g

    def padded(x, plain=matching.total_variation):
        return plain(x) + with_border * border(x) / (side.SIDE - 1)

    monkeypatch.setattr(engine, "value_and_gradient", recorded)
    monkeypatch.setattr(matching, "total_variation", padded)
    monkeypatch.setattr(GS, "_start", lambda *_: start.reshape(1, -1))
    settings = {"steps": side.STEPS, "tv": scale * (1 - 1 / side.SIDE), "show": False, **changes}
    GS(**settings).run(upload)
    return torch.stack(points), torch.tensor(values, dtype=torch.float64)


def apart(a, b):
    """Largest relative difference of two traces."""
    a, b = (torch.as_tensor(t, dtype=torch.float64) for t in (a, b))
    assert a.shape == b.shape == (side.STEPS,)
    return ((a - b) / b).abs().max().item()


# --- what is stored: runs everywhere ---


@pytest.mark.parametrize("name", side.CASES)
def test_gs_follows_the_stored_trace_of_breaching_to_five_digits(monkeypatch, name):
    _, ours = our_search(monkeypatch, name)
    assert apart(ours, STORED["traces"][name]) < FIVE_DIGITS


def test_the_stored_trace_would_notice_another_attack(monkeypatch):
    """A changed step, weight, objective or box shows, and so does leaving the border term out."""
    name = "lenet, total variation"
    for changes in ({"tv": 0.2}, {"box": False}, {"distance": "l2"}, {"with_border": False}):
        with monkeypatch.context() as patch:
            _, ours = our_search(patch, name, **changes)
        assert apart(ours, STORED["traces"][name]) > 1e-3, changes
    _, ours = our_search(monkeypatch, name, steps=side.STEPS + 6)  # drops elsewhere
    assert apart(ours[: side.STEPS], STORED["traces"][name]) > 1e-3


def test_the_stored_trace_says_how_it_was_made():
    assert STORED["breaching"] == side.VERSION
    assert STORED["command"] == "python benchmarks/breaching_side.py"
    assert STORED["steps"] == side.STEPS and set(STORED["traces"]) == set(side.CASES)


def test_without_breaching_one_sentence_says_how_to_install_it(monkeypatch):
    plain = builtins.__import__

    def refuse(name, *args, **more):
        if name.split(".")[0] in ("breaching", "hydra", "omegaconf"):
            raise ModuleNotFoundError(name)
        return plain(name, *args, **more)

    monkeypatch.setattr(side.importlib, "import_module", refuse)
    monkeypatch.setattr(side.runtime, "torchvision", lambda: None)
    assert side.load() is None
    upload, start, _ = side.case("lenet")
    with pytest.raises(PrivflError, match=r"pip install --no-deps breaching==0\.1\.2") as error:
        side.attack(upload, start, 1)
    assert "\n" not in str(error.value)


# --- side by side: where breaching is installed ---


@needs_breaching
@pytest.mark.parametrize("name", side.CASES)
def test_gs_and_breaching_take_the_same_steps(monkeypatch, name):
    """The objective agrees at every step; the stored trace is what breaching gives today.

    Its answer is not quite the best point: it keeps the image *after* the step that starts at the
    lowest objective. Ours is the image at which the lowest objective was found.
    """
    upload, start, scale = side.case(name)
    image, theirs = side.attack(upload, start, side.STEPS, tv=scale)
    points, ours = our_search(monkeypatch, name)
    assert apart(ours, theirs) < FIVE_DIGITS
    assert apart(STORED["traces"][name], theirs) < FIVE_DIGITS
    best = int(ours.argmin())
    assert not torch.allclose(image.flatten(), points[best], atol=1e-6)
    if best + 1 < len(points):
        assert torch.allclose(image.flatten(), points[best + 1], atol=1e-9)


@needs_breaching
def test_single_precision_does_not_hold_five_digits():
    """Why double precision: where the cosine is near 1, 1 − cosine is mostly rounding error."""
    upload, start, scale = side.case("convnet", torch.float32)
    _, single = side.attack(upload, start, side.STEPS, tv=scale)
    assert apart(single, STORED["traces"]["convnet"]) > 100 * FIVE_DIGITS


@needs_breaching
@pytest.mark.parametrize("height, width", [(16, 16), (9, 14)])
def test_its_total_variation_is_ours_and_a_border(height, width):
    """TV = (1 − 1/W)·right + (1 − 1/H)·down + |last column|/W + |last row|/H + 2·10⁻⁸."""
    from breaching.attacks.auxiliaries.regularizers import TotalVariation

    x = torch.randn(2, 3, height, width, dtype=torch.float64)
    setup = {"dtype": torch.float64, "device": torch.device("cpu")}
    theirs = TotalVariation(setup, scale=1.0)(x)
    right = (x[..., 1:] - x[..., :-1]).abs().mean()
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().mean()
    edge = x[..., -1].abs().mean() / width + x[..., -1, :].abs().mean() / height
    relation = (1 - 1 / width) * right + (1 - 1 / height) * down + edge + 2e-8
    assert theirs.item() == pytest.approx(relation.item(), rel=1e-12)
    ours = matching.total_variation(x[None]).item()
    assert ours == pytest.approx((right + down).item(), rel=1e-12)
    if height == width:  # then one factor relates the two, but for the border
        shared = (1 - 1 / width) * ours + border(x[None]).item() / width + 2e-8
        assert theirs.item() == pytest.approx(shared, rel=1e-12)
    with pytest.raises(RuntimeError):
        TotalVariation(setup, scale=1.0)(x[:, :1])  # three channels, no other number


@needs_breaching
def test_its_step_size_falls_almost_where_ours_does():
    """After 3/8, 5/8, 7/8 of the steps; its divisors 2.667, 1.6, 1.142 are rounded."""
    from breaching.attacks.auxiliaries.common import optimizer_lookup

    def drops(steps):
        lookup = optimizer_lookup([torch.zeros(1)], "adam", 0.1, "step-lr", 0, steps)
        return sorted(int(m) for m in lookup[1].milestones)

    assert drops(side.STEPS) == [side.STEPS * k // 8 for k in (3, 5, 7)]
    assert drops(24_000) == [8998, 14999, 21015]  # ours: 9000, 15000, 21000
