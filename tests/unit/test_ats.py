"""ATS: each operation equals Pillow's, the policy is applied as the released code does, the scores
are what their definitions say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.nn.functional import cross_entropy

from privfl_lite import FedAvg, defenses, models, share
from privfl_lite.defenses import ATS, DPGaussian, Prune, ats, ats_search
from privfl_lite.runtime import generator
from privfl_lite.wire import Facts


def pictures(channels: int, side: tuple[int, int] = (32, 32), n: int = 6) -> torch.Tensor:
    """8-bit images: half of them smooth with full range, half noise; (n, C, H, W) in [0, 1]."""
    rng = np.random.default_rng(0)
    v, u = np.mgrid[: side[0], : side[1]] / max(side)
    made = []
    for i in range(n):
        waves = [
            np.sin(6 * a * u + 5 * b * v + 6 * c) for a, b, c in rng.random((channels, 3)) + 0.2
        ]
        noise = rng.integers(20, 230, (channels, *side))
        made.append(np.rint(127.5 + 120 * np.stack(waves)) if i % 2 else noise)
    return torch.tensor(np.stack(made)).float() / 255


def to_pil(x: torch.Tensor) -> Image.Image:
    a = (255 * x).round().byte().permute(1, 2, 0).numpy()
    return Image.fromarray(a[..., 0] if a.shape[2] == 1 else a)


def from_pil(image: Image.Image) -> np.ndarray:
    a = np.asarray(image).astype(float)
    return a[None] if a.ndim == 2 else a.transpose(2, 0, 1)


def rotate_with_gray_corners(image: Image.Image, degrees: float) -> Image.Image:
    turned = image.convert("RGBA").rotate(degrees)
    behind = Image.new("RGBA", turned.size, (128, 128, 128, 128))
    return Image.composite(turned, behind, turned).convert(image.mode)


def affine(image: Image.Image, rows: tuple, kind=Image.Resampling.NEAREST) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, rows, kind, fillcolor=0)


CUBIC = Image.Resampling.BICUBIC
PILLOW = {
    "shear_x": lambda i, m: affine(i, (1, m, 0, 0, 1, 0), CUBIC),
    "shear_y": lambda i, m: affine(i, (1, 0, 0, m, 1, 0), CUBIC),
    "translate_x": lambda i, m: affine(i, (1, 0, m * i.size[0], 0, 1, 0)),
    "translate_y": lambda i, m: affine(i, (1, 0, 0, 0, 1, m * i.size[1])),
    "rotate": rotate_with_gray_corners,
    "color": lambda i, m: ImageEnhance.Color(i).enhance(1 + m),
    "contrast": lambda i, m: ImageEnhance.Contrast(i).enhance(1 + m),
    "sharpness": lambda i, m: ImageEnhance.Sharpness(i).enhance(1 + m),
    "brightness": lambda i, m: ImageEnhance.Brightness(i).enhance(1 + m),
    "posterize": lambda i, m: ImageOps.posterize(i, int(m)),
    "solarize": lambda i, m: ImageOps.solarize(i, m),
    "autocontrast": lambda i, m: ImageOps.autocontrast(i),
    "equalize": lambda i, m: ImageOps.equalize(i),
    "invert": lambda i, m: ImageOps.invert(i),
}
EXACT = ("translate_x", "translate_y", "posterize", "solarize", "equalize", "invert")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", sorted(ats.APPLY))
def test_operations_equal_pillow_on_8_bit_images(name, channels):
    assert set(PILLOW) == set(ats.APPLY)
    signs = (1,) if name in ("rotate", "posterize", "solarize") else (1, -1)
    for side in ((32, 32), (28, 20)):
        x = pictures(channels, side)
        for level in (0, 1, 4, 5, 9):
            for sign in signs:
                m = sign * ats.magnitude(name, level)
                ours = 255 * ats.APPLY[name](x, torch.full((len(x),), m)).double().numpy()
                want = np.stack([from_pil(PILLOW[name](to_pil(i), m)) for i in x])
                off = np.abs(ours - want)
                if name == "rotate":  # Pillow's fixed-point grid: a pixel on an edge may go astray
                    assert (off < 1e-3).mean() > 0.999
                elif name in EXACT:
                    assert off.max() < 1e-3
                else:  # Pillow rounds its plain image, then the result
                    assert off.max() <= 1.2, (name, level, sign, off.max())


def test_color_leaves_gray_images_alone():
    x = pictures(1)
    torch.testing.assert_close(ats.APPLY["color"](x, torch.full((6,), -0.4)), x)


def test_equalize_leaves_flat_channels_alone_and_autocontrast_too():
    x = torch.full((2, 3, 8, 8), 0.4)
    for name in ("equalize", "autocontrast"):
        assert torch.equal(ats.APPLY[name](x, torch.zeros(2)), x)


def test_list_and_levels_are_the_released_ones():
    assert len(ats.OPERATIONS) == 50
    picked = [ats.OPERATIONS[i] for i in (3, 1, 7, 43, 18)]
    assert picked == [
        *(("translate_x", 9), ("contrast", 6), ("translate_y", 2)),
        *(("translate_y", 3), ("contrast", 7)),
    ]
    assert ats.magnitude("translate_x", 9) == pytest.approx(150 / 331)
    bits = [ats.magnitude("posterize", i) for i in range(10)]
    assert bits == np.round(np.linspace(8, 4, 10)).tolist()
    assert ats.magnitude("solarize", 4) == pytest.approx(np.linspace(256, 0, 10)[4])
    assert ats.magnitude("equalize", 5) == 0


def test_each_image_gets_one_list_in_order_with_random_signs():
    """Every output is one of the images that the lists can give, and all of them come up."""
    x = pictures(3)[1:2].expand(400, -1, -1, -1)
    out, y = ATS("3-1-7+43-18").data(x, torch.arange(400), generator(0))
    assert torch.equal(y, torch.arange(400))
    possible = {}
    for number, indices in enumerate(((3, 1, 7), (43, 18))):
        for signs in np.ndindex(*(2,) * len(indices)):
            z = x[:1]
            for index, s in zip(indices, signs, strict=True):
                name, level = ats.OPERATIONS[index]
                z = ats.APPLY[name](z, torch.tensor([(2 * s - 1) * ats.magnitude(name, level)]))
            possible[number, signs] = z[0]
    hits = {k: (out - v).abs().amax((1, 2, 3)) < 1e-6 for k, v in possible.items()}
    assert torch.stack(list(hits.values())).sum(0).eq(1).all()
    share_of_first = sum(h.sum().item() for (n, _), h in hits.items() if n == 0) / 400
    assert abs(share_of_first - 0.5) < 0.1
    assert all(h.float().mean() > 0.02 for h in hits.values())


def test_probabilities_are_ignored_as_in_the_code():
    """Operation 29 inverts with probability 0 in the list; the code inverts all the same."""
    x = pictures(1)
    out, _ = ATS("29").data(x, torch.zeros(6), generator(1))
    torch.testing.assert_close(out, 1 - x)


def test_ats_is_seeded_and_stays_in_range():
    x = pictures(3, n=30)
    policy = "21-13-3+7-4-15+1-2-5-8-10"  # DCS²'s
    a, b, c = (ATS(policy).data(x, torch.zeros(30), generator(s))[0] for s in (0, 0, 1))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert a.min() >= 0 and a.max() <= 1 and not torch.equal(a, x)


@pytest.fixture(scope="module")
def setting():
    net = models.build("lenet", (1, 12, 12), 10, init=0.3)
    rng = torch.Generator().manual_seed(2)
    return net, torch.rand(6, 1, 12, 12, generator=rng), torch.arange(6)


def test_the_wire_carries_the_gradient_of_the_transformed_images(setting):
    net, x, y = setting
    sent = share(net, x, y, ATS(), each=2, seed=5, knows=("policy",))
    again = [
        ATS().data(x[i : i + 2], y[i : i + 2], generator(5, i // 2))[0] for i in range(0, 6, 2)
    ]
    plain = share(net, torch.cat(again), y, each=2)
    for n, t in plain.tensors.items():
        torch.testing.assert_close(sent.tensors[n], t)
    assert sent.knows == Facts(policy="3-1-7+43-18-18")


@pytest.mark.parametrize("defense", [ATS(), ATS("14-33") + Prune(0.5) + DPGaussian(0.01)])
def test_fast_path_equals_plain_path(setting, defense):
    net, x, y = setting
    clients = [(x[:2], y[:2]), (x[2:5], y[2:5]), (x[5:], y[5:])]
    runs = [FedAvg(net, clients, 2, defense=defense, fast=f, show=False) for f in (True, False)]
    for run in runs:
        assert all(report.epsilon.value is None for report in run)
    for a, b in zip(*(r.model.state_dict().values() for r in runs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_privacy_score_equals_its_definition(setting):
    net, x, y = setting
    x, y = x[:2], y[:2]
    rng = generator(3)
    moved, _ = ATS("47-1").data(x, y, rng)
    z = torch.rand(x.shape, generator=rng)

    def gradient(image, label):
        loss = cross_entropy(net(image[None]), label[None])
        return torch.autograd.grad(loss, list(net.parameters()))

    areas = []
    for image, noise, label in zip(moved, z, y, strict=True):
        true, curve = gradient(image, label), []
        for i in range(6):
            fake = gradient(i / 5 * image + (1 - i / 5) * noise, label)
            pairs = zip(fake, true, strict=True)
            curve.append(np.mean([((a * b).sum() / a.norm() / b.norm()).item() for a, b in pairs]))
        areas.append(sum(0.1 * (a + b) for a, b in pairwise(curve)))
    got = ats_search.privacy_score(net, x, y, "47-1", points=6, seed=3)
    assert got == pytest.approx(np.mean(areas), abs=1e-5)
    assert curve[-1] == pytest.approx(1) and got < 1


def test_accuracy_score_equals_its_definition(setting):
    net, x, _ = setting
    moved = ATS("47").data(x, torch.zeros(6), generator(0))[0]
    rows = torch.func.vmap(torch.func.grad(lambda i: net(i[None]).sum()))(moved)
    v = np.linalg.eigvals(np.corrcoef(rows.detach().flatten(1).double().numpy())).real + 1e-5
    want = -np.sum(np.log(v) + 1 / v)
    assert ats_search.accuracy_score(net, x, "47") == pytest.approx(want, rel=1e-3)
    same = x[:1].expand(4, -1, -1, -1)  # images that look alike to the network score worst
    assert ats_search.accuracy_score(net, same, "47") < ats_search.accuracy_score(net, x[:4], "47")


def test_search_is_seeded_sorted_and_keeps_to_the_floor(setting):
    net, x, y = setting
    found = ats_search.search(net, net, x, y, candidates=5, points=4, seed=1)
    assert found == ats_search.search(net, net, x, y, candidates=5, points=4, seed=1)
    assert len(found) == 5 and found == sorted(found, key=lambda c: c.privacy)
    assert all(1 <= len(ats.parse(c.policy)[0]) <= 3 for c in found)
    best = found[0]
    assert best.privacy == ats_search.privacy_score(net, x, y, best.policy, points=4, seed=1)
    floor = sorted(c.accuracy for c in found)[2]
    kept = ats_search.search(net, net, x, y, candidates=5, floor=floor, points=4, seed=1)
    assert kept == [c for c in found if c.accuracy >= floor] and len(kept) == 3
    ATS("+".join(c.policy for c in kept))


def test_names_on_the_command_line():
    assert defenses.build("ats:policy=3-1-7/43-18-18") == ATS()
    assert repr(defenses.build("ats:policy=3-1-7/43-18-18")) == repr(ATS())
    assert repr(defenses.build("ats:policy=3")) == "ATS(policy='3')"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ATS("3-50"), "with operations 0…49"),
        (lambda: ATS("3--1"), "is not of the form"),
        (lambda: ATS(""), "is not of the form"),
        (lambda: ATS("a-b"), "policy 'a-b' is not of the form"),
        (lambda: ATS().data(torch.rand(1, 2, 8, 8), torch.zeros(1), generator(0)), "1 or 3 chan"),
        (
            lambda: ats_search.privacy_score(None, None, None, "3", points=1),
            "points must be at least 2",
        ),
    ],
)
def test_bad_settings_get_one_sentence(refused, call, says):
    refused(call, says)
