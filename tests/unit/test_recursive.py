"""The recursive attack: exact where the rank is full, and its cost tells where it is not."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

import privfl_lite as pf
from privfl_lite.attacks.analytic.equations import definite, solve
from privfl_lite.attacks.analytic.recursive import Recursive
from privfl_lite.attacks.analytic.way_back import Step
from privfl_lite.models import Net
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.studies.through_the_layers import trained as recursive_trained

DIGITS = pf.load("mnist")


def narrow(channels: int, act: type = nn.Sigmoid, seed: int = 0, bias: bool = True) -> Net:
    """DLG's LeNet with another number of channels."""
    torch.manual_seed(seed)
    features = nn.Sequential(
        *(nn.Conv2d(1, channels, 5, 2, 2, bias=bias), act()),
        *(nn.Conv2d(channels, channels, 5, 2, 2, bias=bias), act()),
        *(nn.Conv2d(channels, channels, 5, 1, 2, bias=bias), act(), nn.Flatten()),
    )
    net = Net("narrow", features, nn.Linear(49 * channels, 10, bias=bias), (1, 28, 28))
    for p in net.parameters():
        nn.init.uniform_(p, -0.5, 0.5)
    return net.eval()


def scores(net: Net, n: int = 2, seed: int = 0) -> tuple[torch.Tensor, list, object]:
    x, y = DIGITS.sample(n, seed=seed)
    found = Recursive().run(pf.share(net, x, y, each=1))
    assert torch.equal(found.labels, y)
    return pf.metrics.compare(found.images, x)["psnr"], found.details["steps"], found


@pytest.mark.parametrize("act", ["relu", "sigmoid", "tanh", "identity"])
def test_mlp_is_exact(act: str):
    psnr, steps, found = scores(pf.models.build("mlp", DIGITS, hidden=(96, 48), act=act), n=4)
    assert psnr.min() > 90
    assert found.images.shape == (4, 1, 28, 28) and found.cost.max() < 1e-8
    assert steps[0] == [Step("features.3", 96, 96, 0), Step("features.1", 784, 784, 0)]


@pytest.mark.parametrize("name", ["lenet", "lenet4"])
def test_sigmoid_lenet_is_read_without_a_search(name: str):
    psnr, steps, _ = scores(pf.models.build(name, DIGITS))
    assert psnr.min() > 80
    *_, second, first = steps[0]
    assert second == Step("features.2", 2352, 12 * 195, 12)  # 195 of 196 pixels a channel
    assert first == Step("features.0", 784, 300, 484)


def test_relu_lenet():
    psnr, _, found = scores(pf.models.build("lenet", DIGITS, act="relu"), n=4, seed=5)
    assert psnr.median() > 80
    assert ((psnr > 60) == (found.cost < 1e-3)).all()  # the attacker can tell a failure by its cost


def test_too_few_channels_leave_directions_open():
    psnr, steps, found = scores(narrow(6))
    middle = steps[0][1]
    assert middle.by_gradient == 6 * 145  # 49 + 36 + 36 + 24 pixels a channel
    assert middle.by_gradient + middle.by_output < middle.unknowns
    assert psnr.max() < 30 and found.cost.min() > 1e-4
    psnr, steps, _ = scores(narrow(7))
    assert all(s.by_gradient + s.by_output == s.unknowns for s in steps[0])
    assert psnr.min() > 60


def test_no_bias_anywhere():
    """Model Entanglement's Eq. 11 has no bias: the head's own softmax takes its place."""
    assert scores(narrow(12, nn.Tanh, bias=False))[0].min() > 60


def test_tensors_that_stay_at_home_are_not_needed():
    x, y = DIGITS.sample(2)
    upload = pf.share(pf.models.build("lenet", DIGITS), x, y, each=1)
    kept = {n: t for n, t in upload.tensors.items() if not n.endswith("bias")}
    found = Recursive().run(dataclasses.replace(upload, tensors=kept))
    assert pf.metrics.psnr(found.images, x).min() > 60


def test_dead_layer_falls_back_on_its_output():
    """A layer that is off tells nothing: the answer is the shortest input, not a crash."""
    net = pf.models.build("mlp", DIGITS, hidden=(32,))
    with torch.no_grad():
        net.features[1].bias.fill_(-100)
        net.head.bias.zero_()
    x, y = DIGITS.sample(1)
    found = Recursive().run(pf.share(net, x, y))
    assert found.details["steps"][0] == [Step("features.1", 784, 0, 0)]
    assert found.images.isfinite().all() and not found.images.any()


def test_noise_costs_decibels():
    x, y = DIGITS.sample(2)
    upload = pf.share(pf.models.build("lenet", DIGITS), x, y, each=1)
    found = []
    for level in (0.0, 1e-4, 1e-1):
        rng = torch.Generator().manual_seed(0)
        tensors = {
            n: t + level * t.square().mean().sqrt() * torch.randn(t.shape, generator=rng)
            for n, t in upload.tensors.items()
        }
        images = Recursive(tol=1e-2).run(dataclasses.replace(upload, tensors=tensors)).images
        found.append(pf.metrics.compare(images, x)["psnr"].mean())
    assert found[0] > found[1] + 20 > found[2] + 40


def test_spoiled_uploads_give_an_answer_and_a_high_cost():
    """Noise, zeros and missing biases end in a poor image that the cost gives away, not a crash."""
    x, y = DIGITS.sample(1)
    for name, act in (("lenet", "sigmoid"), ("lenet", "relu"), ("mlp", "tanh")):
        upload = pf.share(pf.models.build(name, DIGITS, act=act), x, y)
        rng = torch.Generator().manual_seed(0)
        noise = {n: torch.randn(t.shape, generator=rng) for n, t in upload.tensors.items()}
        for tensors in (noise, {n: 0 * t for n, t in noise.items()}):
            for names in (noise, [n for n in noise if "bias" not in n]):
                kept = {n: tensors[n] for n in names}
                found = Recursive().run(dataclasses.replace(upload, tensors=kept))
                assert found.images.isfinite().all() and found.cost.min() > 1e-3


def test_same_answer_twice_and_for_each_upload_alone():
    x, y = DIGITS.sample(3)
    upload = pf.share(pf.models.build("lenet", DIGITS), x, y, each=1)
    together = Recursive().run(upload).images
    assert torch.equal(together, Recursive().run(upload, seed=9).images)
    torch.testing.assert_close(together[1:2], Recursive().run(upload[1]).images)


def test_clear_words_where_it_cannot_work():
    x, y = DIGITS.sample(4)
    lenet = pf.models.build("lenet", DIGITS)
    with pytest.raises(pf.PrivflError, match="got 4, 1"):
        Recursive().run(pf.share(lenet, x, y))
    with pytest.raises(pf.PrivflError, match="got 1, 3"):
        Recursive().run(pf.share(lenet, x, y, each=1, plan=pf.Plan(steps=3, batch_size=1)))
    upload = pf.share(lenet, x, y, each=1)
    kept = {n: t for n, t in upload.tensors.items() if n != "head.weight"}
    with pytest.raises(pf.PrivflError, match=r"head\.weight"):
        Recursive().run(dataclasses.replace(upload, tensors=kept))
    two = Net("two", nn.Sequential(nn.Flatten()), nn.Linear(784, 2, bias=False), (1, 28, 28))
    with pytest.raises(pf.PrivflError, match="three classes"):
        Recursive().run(pf.share(two, x, y % 2, each=1))


def test_one_step_update_serves_as_well_as_a_gradient():
    x, y = DIGITS.sample(2)
    plan = pf.Plan(eta=0.1, steps=1, batch_size=1)
    upload = pf.share(pf.models.build("lenet", DIGITS), x, y, each=1, plan=plan)
    assert pf.metrics.compare(Recursive().run(upload).images, x)["psnr"].min() > 40


# --- the study recursive-trained: does training stop it? ---


@pytest.fixture(scope="module")
def trained() -> dict:
    return STUDIES["through-the-layers/trained"].show()


def read(trained: dict, *acts: str, recipe: str = "", learned: bool = False) -> tuple[int, int]:
    """(read, all) digits behind the networks with these activations and this recipe."""
    scores = [
        v > trained["settings"]["threshold_db"]
        for cell in trained["cells"]
        if cell["act"] in acts and recipe in cell["recipe"]
        if not learned or (cell["accuracy"] > 0.8 and cell["recipe"] != "untrained")
        for v in cell["psnr"]
    ]
    return sum(scores), len(scores)


def test_what_the_chapter_says_of_trained_networks(trained):
    for act in ("sigmoid", "tanh", "relu"):
        assert read(trained, act, recipe="untrained") == (48, 48)
    assert read(trained, "sigmoid", "tanh", learned=True) == (228, 228)  # 19 networks
    learned = [c["accuracy"] for c in trained["cells"] if c["accuracy"] > 0.2]
    assert min(learned) > 0.855  # "86 % or more"
    assert read(trained, "sigmoid", recipe="SGD, small") == (48, 48)
    (collapsed,) = (c for c in trained["cells"] if c["act"] == "tanh" and max(c["psnr"]) < 20)
    assert collapsed["accuracy"] == 0.1
    assert read(trained, "relu", recipe="SGD, small") == (48, 48)
    assert read(trained, "relu", recipe="Adam") == (24, 48)
    assert read(trained, "relu", recipe="SGD, large") == (0, 48)
    failed = [f for c in trained["cells"] for f in c.get("failures", [])]
    assert len(failed) == 72 and all(any(f["open_at_truth"]) for f in failed)
    assert sum(any(f["too_few"]) for f in failed) == 62
    assert min(f["channels_on"][0] for f in failed) == 2
    assert min(f["channels_on"][1] for f in failed) == 0
    for f in failed:  # what counting misses, rank must miss too
        assert all(a <= b for a, b in zip(f["too_few"], f["open_at_truth"], strict=True))


@pytest.mark.parametrize(
    ("act", "recipe", "falls"),
    [("sigmoid", "untrained", False), ("relu", "untrained", False), ("relu", "SGD, large", True)],
)
def test_stored_cells_of_trained_networks_come_out_again(trained, act, recipe, falls):
    """Two of the twelve digits behind one network."""
    study = STUDIES["through-the-layers/trained"]
    stored = next(c for c in trained["cells"] if c["act"] == act and recipe in c["recipe"])
    cell = {k: stored[k] for k in ("act", "recipe", "seed")}
    again = study.compute({**trained["settings"], "images": 2}, cell)
    assert again["labels_right"] == 2
    assert again["accuracy"] == pytest.approx(stored["accuracy"], abs=0.05)
    for v in again["psnr"] + stored["psnr"][:2]:
        assert v < 20 if falls else v > 80
    if falls:
        assert all(any(f["too_few"]) and any(f["open_at_truth"]) for f in again["failures"])


def test_counting_agrees_with_the_proposition():
    """LeNet's second convolution: 7 channels with all units on are enough, 6 are not."""
    for channels, enough in ((6, False), (7, True)):
        conv = nn.Conv2d(channels, channels, 5, 2, 2)
        on = torch.ones(channels, 7, 7, dtype=torch.bool)
        assert (recursive_trained.too_few(conv, (14, 14), on) == 0) is enough
        on[0] = False  # a channel that is off has no equations at all
        assert recursive_trained.too_few(conv, (14, 14), on) > 0
    first = nn.Conv2d(1, 12, 5, 2, 2)
    off = torch.zeros(12, 14, 14, dtype=torch.bool)
    assert recursive_trained.too_few(first, (28, 28), off) == 784


def test_rank_at_the_truth_is_full_where_the_attack_succeeds():
    x, y = DIGITS.sample(1)
    net = pf.models.build("lenet", DIGITS, act="relu")
    assert recursive_trained.open_at_truth(net, x, y, 1e-6) == [0, 0, 0]
    with torch.no_grad():
        net.features[2].bias.fill_(-1e4)  # the second convolution is dead
    assert recursive_trained.open_at_truth(net, x, y, 1e-6)[1] == 12 * 14 * 14


# --- pooling, batch norm in eval mode, shortcuts ---


def chained(*layers: nn.Module, shape: tuple = (1, 8, 8), seed: int = 0) -> Net:
    """A net of these layers and a head, with batch norms that have something to undo."""
    torch.manual_seed(seed)
    features = nn.Sequential(*layers, nn.Flatten()).eval()
    for m in features.modules():
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            m.reset_parameters()
        if isinstance(m, nn.BatchNorm2d):
            for t in (m.weight.data, m.running_var):
                t.uniform_(0.5, 2)
            for t in (m.bias.data, m.running_mean):
                t.normal_(0, 0.3)
    width = features(torch.zeros(1, *shape)).shape[1]
    return Net("chained", features, nn.Linear(width, 10), shape).eval()


def exact(net: Net, least: float, n: int = 2, dtype: torch.dtype = torch.float32) -> list:
    """All n noise pictures come out with this PSNR; the steps of the first."""
    x = torch.rand(n, *net.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = Recursive().run(pf.share(net.to(dtype), x, torch.arange(n), each=1))
    assert pf.metrics.psnr(found.images, x).min() > least
    assert all(s.by_gradient + s.by_output == s.unknowns for s in found.details["steps"][0])
    return found.details["steps"][0]


BOTH = pytest.mark.parametrize(
    ("dtype", "least"), [(torch.float64, 150), (torch.float32, 60)], ids=["64", "32"]
)


@BOTH
def test_batch_norm_in_eval_mode(dtype, least):
    first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, bias=False)
    net = chained(first, nn.BatchNorm2d(8), nn.Tanh(), second, nn.BatchNorm2d(8), nn.Sigmoid())
    exact(net, least, dtype=dtype)


@BOTH
def test_an_average_in_front_of_the_activation_is_one_more_linear_map(dtype, least):
    conv = nn.Conv2d(1, 8, 3, padding=1)
    steps = exact(chained(conv, nn.AvgPool2d(2), nn.Sigmoid()), least, dtype=dtype)
    assert steps[0].by_gradient < 64 == steps[0].unknowns  # the average's output gives the rest


@BOTH
@pytest.mark.parametrize("pool", [nn.AvgPool2d(2), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)])
@pytest.mark.parametrize("act", [nn.ReLU, nn.Sigmoid])
def test_pooling_behind_enough_channels(pool, act, dtype, least):
    first, second = nn.Conv2d(1, 80, 3, padding=1), nn.Conv2d(80, 24, 3, padding=1)
    net = chained(first, act(), second, act(), pool, shape=(1, 4, 4))
    if (
        act is nn.Sigmoid
    ):  # else a sigmoid's outputs are nearly linear, and rank 16 is lost in noise
        for p in net.parameters():
            p.data *= 3
    steps = exact(net, least if dtype == torch.float64 or act is nn.ReLU else 25, dtype=dtype)
    assert steps[0] == Step("features.2", 80 * 16, 80 * 16, 0)


@BOTH
def test_resnet20_of_small_photos(dtype, least):
    steps = exact(pf.models.build("resnet20", (3, 8, 8), classes=10), least, dtype=dtype)
    assert len(steps) == 19 and steps[-1] == Step("features.0", 192, 192, 0)


@BOTH
def test_black_corners_behind_resnet20(dtype, least):
    """Behind them and no bias all units are off: those pixels are in no equation, and stay black.

    Once, what rounding left of their columns was taken for equations.
    """
    x, y = DIGITS.sample(4, seed=2)
    x = nn.functional.interpolate(x, (8, 8), mode="area").to(dtype)
    net = pf.models.build("resnet20", (1, 8, 8), classes=10).to(dtype)
    found = Recursive().run(pf.share(net, x, y, each=1))
    assert pf.metrics.psnr(found.images, x).min() > least
    last = [steps[-1] for steps in found.details["steps"]]
    assert [s.unknowns - s.by_gradient - s.by_output for s in last] == [0, 0, 2, 11]
    assert [s.by_output for s in last] == [0] * 4
    lit = Recursive().run(pf.share(net, 0.99 * x + 0.01, y, each=1))  # no pixel is black: all seen
    assert all(s[-1].by_gradient == 64 for s in lit.details["steps"])


def test_convnet_of_small_photos():
    """Eight convolutions, batch norm, and 3×3 maxima twice."""
    exact(pf.models.build("convnet", (3, 9, 9), classes=10, width=32), 100, n=1)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("lenet5", (1, 28, 28), r"'features\.3': ReLU and MaxPool2d .* here 6 for 196"),
        ("cloak", (1, 28, 28), r"'features\.3': ReLU and MaxPool2d .* here 32 for 169"),
        ("convnet", (3, 32, 32), r"'features\.15': .*MaxPool2d .* here 256 for 1024"),
        ("vgg16", (3, 32, 32), r"'features\.10': ReLU and MaxPool2d .* here 128 for 256"),
        ("resnet20", (3, 16, 16), r"'features\.5\.body\.3': .* 144 equations for the 256 pixels"),
        ("resnet20", (3, 32, 32), r"'features\.5\.body\.3': .* equations for the 1024 pixels"),
    ],
)
def test_where_it_ends_it_names_the_layer(name, shape, words):
    net = pf.models.build(name, shape, classes=10)
    upload = pf.share(net, torch.rand(1, *shape), torch.tensor([3]))
    with pytest.raises(pf.PrivflError, match=words):
        Recursive().run(upload)


def test_a_scale_or_a_mode_that_is_missing():
    net = chained(
        nn.Conv2d(9, 16, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3), shape=(9, 3, 3)
    )
    with pytest.raises(pf.PrivflError, match="no bias gradient tells the scale"):
        Recursive().run(pf.share(net, torch.rand(1, 9, 3, 3), torch.tensor([3])))
    net = pf.models.build("resnet20", (3, 8, 8), classes=10)
    with pytest.raises(pf.PrivflError, match="eval mode"):
        Recursive().run(pf.share(net, torch.rand(1, 3, 8, 8), torch.tensor([3]), mode="train"))
    with pytest.raises(pf.PrivflError, match="ends at the image: MaxPool2d"):
        pooled = chained(nn.MaxPool2d(2))
        Recursive().run(pf.share(pooled, torch.rand(1, 1, 8, 8), torch.tensor([3])))


def test_open_directions_that_no_memory_holds(monkeypatch):
    monkeypatch.setenv("PRIVFL_MEMORY", "1MB")
    x, y = DIGITS.sample(1)
    with pytest.raises(pf.PrivflError, match="open in each: too many for the memory"):
        Recursive().run(pf.share(narrow(6), x, y))


def test_a_definite_system_has_the_factor_that_saves_the_decomposition():
    """Where ``definite`` answers, ``solve`` leaves no direction open and finds the same."""
    rng, answered = generator(0), 0
    for rank in (40, 39, 20):
        rows = torch.randn(60, rank, generator=rng, dtype=torch.float64)
        matrix = rows @ torch.randn(rank, 40, generator=rng, dtype=torch.float64)
        normal, right = matrix.T @ matrix, matrix.T @ rows[:, :1]
        slow, left = solve(normal, right, 1e-8)
        lower = definite(normal, 1e-8, 0.0)
        assert left.shape[1] == 40 - rank
        assert (lower is None) is (rank < 40)
        if lower is not None:
            assert torch.allclose(torch.cholesky_solve(right, lower), slow, rtol=1e-6)
            answered += 1
    assert answered == 1
    faint = torch.diag(torch.tensor([1.0, 1e-10], dtype=torch.float64))
    assert definite(faint, 1e-8, 0.0) is None and definite(faint, 1e-12, 0.0) is not None
    assert definite(faint, 1e-12, 1e-9) is None  # by the measure of all outputs
