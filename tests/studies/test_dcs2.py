"""The studies of DCS²: joint search, who is defended and how, and stored cells come out again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from privfl_lite import load, models
from privfl_lite.defenses import DCS2, Defense, Memory, Soteria
from privfl_lite.defenses.base import Context
from privfl_lite.federated import FedAvg
from privfl_lite.gradients import gradient_function, weights
from privfl_lite.runtime import generator
from privfl_lite.stored import SHIPPED
from privfl_lite.studies import STUDIES
from privfl_lite.studies.dcs2 import attack as study
from privfl_lite.studies.dcs2 import photos as dcs2_photos
from privfl_lite.studies.dcs2 import training as dcs2_training
from privfl_lite.wire import Plan


def test_class_means():
    data = load("mnist")
    want = sum(x for x, y in zip(data.x_train, data.y_train, strict=True) if y == 7)
    torch.testing.assert_close(study.class_means()[7], want / (data.y_train == 7).sum())


def test_a_stored_cell_comes_out_again():
    """Two of its images, with fewer steps of crafting: how they were concealed does not matter."""
    stored = STUDIES["dcs2/attack"].show()
    cell = {"part": "separate", "variant": study.MAIN}
    settings = {**stored["settings"], "images": 2, "craft": 60}
    again = STUDIES["dcs2/attack"].compute(settings, cell)
    (kept,) = (c for c in stored["cells"] if cell.items() <= c.items())
    assert min(again["psnr"]) > 50 and min(kept["psnr"][:2]) > 50
    assert again["label_right"] == again["success"] == 2
    assert (SHIPPED / "dcs2/attack.json").stat().st_size < 200_000


# Training


@pytest.fixture(scope="module")
def three():
    """Three clients with four digits each: their gradients, and what they hold."""
    net = models.build("lenet", (1, 28, 28), 10)
    x, y = load("mnist").sample(12, seed=1)
    x, y, theta = x.view(3, 4, 1, 28, 28), y.view(3, 4), weights(net)
    many = {n: p.expand(3, *p.shape) for n, p in theta.items()}

    def context(round: int = 1) -> Context:
        return Context(net, many, x, y, [generator(0, k) for k in range(3)], round, [4, 5, 6])

    return gradient_function(net)(theta, x, y), context


def test_only_the_named_client_is_defended_and_as_by_the_defense_itself(three):
    g, context = three
    mine = dcs2_training.ForClients(DCS2(steps=3), (5,)).gradient(g, context())
    want = DCS2(steps=3, clients=5).gradient(g, context())
    for n in g:
        torch.testing.assert_close(mine[n], want[n], rtol=1e-4, atol=1e-6)
        assert torch.equal(mine[n][[0, 2]], g[n][[0, 2]]) and not torch.equal(mine[n][1], g[n][1])


def test_soteria_keeps_its_mask_for_a_round(three):
    g, context = three

    memory = Memory()

    def alone(round: int, rows: slice) -> Context:
        ctx = replace(context(round), memory=memory)
        theta = {n: t[1:2] for n, t in ctx.theta.items()}
        own = replace(ctx, theta=theta, x=ctx.x[1:2, rows], y=ctx.y[1:2, rows])
        return replace(own, rngs=ctx.rngs[1:2], who=[5])

    one = {n: torch.ones_like(t[1:2]) for n, t in g.items()}
    here, whole = dcs2_training.RoundSoteria(0.5, images=2), Soteria(0.5)
    first = here.gradient(one, alone(1, slice(0, 4)))["head.weight"]
    assert torch.equal(first, whole.gradient(one, alone(1, slice(0, 2)))["head.weight"])
    assert torch.equal(first, here.gradient(one, alone(1, slice(2, 4)))["head.weight"])
    later = here.gradient(one, alone(2, slice(2, 4)))["head.weight"]
    assert torch.equal(later, whole.gradient(one, alone(2, slice(2, 4)))["head.weight"])
    assert not torch.equal(first, later)
    settings = STUDIES["dcs2/training"].settings("cpu")
    asked = {"data": "mnist", "defense": "Soteria", "how": "real"}
    assert dcs2_training.defense_of(settings, asked, None) == dcs2_training.RoundSoteria(
        0.2, images=4
    )


def test_a_frozen_client_only_shortens_the_mean_of_the_others():
    net = models.build("mlp", (1, 28, 28), 10, hidden=())
    clients = load("mnist").clients(3, "iid", 8)
    plan = Plan(eta=0.1, batch_size=4, momentum=0.9)

    def frozen_for(*clients: int) -> Defense:
        return dcs2_training.ForClients(dcs2_training.Scaled(0.0), clients)

    def moved(guard) -> torch.Tensor:
        run = FedAvg(net, clients, 1, plan, defense=guard, show=False)
        (report,) = run
        return run.model.head.weight.detach() - net.head.weight.detach(), report.norms

    frozen, norms = moved(frozen_for(1))
    each = [moved(frozen_for(1, c))[0] for c in (0, 2)]
    torch.testing.assert_close(frozen, sum(each))
    assert norms[1] == 0 < min(norms[0], norms[2])


def test_a_client_trains_on_images_that_no_concealed_one_starts_from():
    settings = STUDIES["dcs2/training"].settings("cpu")
    for split in ("iid", "dirichlet"):
        clients, (pool, _) = dcs2_training.parts(settings, "mnist", split, 0)
        held = {x.numpy().tobytes() for part, _ in clients for x in part}
        assert len(held) == 1280 and not held & {x.numpy().tobytes() for x in pool}


def test_a_stored_accuracy_comes_out_again():
    stored = STUDIES["dcs2/training"].show()
    cell = {"data": "mnist", "split": "iid", "defended": "one", "defense": "none", "how": "real"}
    (kept,) = (c for c in stored["cells"] if cell.items() <= c.items())
    again = dcs2_training.train(stored["settings"], cell, 0)
    assert abs(again["test"] - kept["test"][0]) < 0.03
    frozen = [c for c in stored["cells"] if c["how"] == "frozen" and c["defense"] != "Soteria"]
    assert len(frozen) == 4 and all(set(c["update"]) == {0.0} for c in frozen)


# Color


@pytest.mark.parametrize("channels", [1, 3])
def test_equations_of_the_last_step_of_pair(channels):
    """At stride 2 an offset of the kernel meets only pixels of its own parity in rows and columns:
    8 × 8 of each, met by 3 offsets an axis if even, by 2 if odd, and 12 output channels."""
    free = sum(max(12 * u * v - 8 * 8, 0) for u in (3, 2) for v in (3, 2))
    counts = dcs2_photos.counted(models.build("lenet", (channels, 32, 32), 10).double())
    assert counts["equations"] == 12 * free + 12 * 8 * 8
    assert counts["unknowns"] == channels * 32 * 32
    assert (counts["equations"] > counts["unknowns"]) == (channels == 1)
    assert (counts["equations_both"] > counts["unknowns_both"]) == (channels == 1)


def test_imprint_is_scored_by_place_and_by_match():
    settings = STUDIES["dcs2/photos"].settings("cpu")
    settings |= {"imprint": {**settings["imprint"], "images": 6}, "imprint_craft": 10}
    cell = {"part": "imprint", "data": "faces"}
    plain, hidden = (dcs2_photos.imprint(settings, cell | {"defense": d}) for d in ("none", "DCS²"))
    assert plain["occupied"] == {"1": 6} and plain["position"] == plain["matched"]
    assert min(plain["matched"]["psnr"]) > 60
    best, last = (hidden[k]["psnr"] for k in ("matched", "position"))
    assert all(a >= b for a, b in zip(best, last, strict=True))
    assert hidden["matched"]["success"] >= 5 > hidden["position"]["success"]


def test_stored_photos_are_small_and_of_enough_images():
    stored = STUDIES["dcs2/photos"].show()
    assert (SHIPPED / "dcs2/photos.json").stat().st_size < 300_000
    assert all(stored["cells"])  # a result that overwrites a key of its cell is lost
    tables = [c for c in stored["cells"] if c["part"] in ("table", "joint", "ggl")]
    assert tables and min(c["images"] for c in tables) >= 16
