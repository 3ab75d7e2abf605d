"""The statements, exercise checks and stored results of the chapter "Hiding the input"."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
import torch

from privfl_lite import attacks, models, share
from privfl_lite.defenses import ATS
from privfl_lite.defenses.mixing import flip, mix
from privfl_lite.metrics import psnr
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.studies.hiding_the_input.attack import decoders, encode
from privfl_lite.teach import ledger
from privfl_lite.teach.checks import hiding_the_input as checks
from privfl_lite.teach.drawings import lost_signs


@pytest.fixture(scope="module")
def study():
    return STUDIES["hiding-the-input/attack"].show()


def centered(x):
    return 2 * x.flatten(1).double() - 1  # (n, P), counted from the center ½ in units of ½


# Statements


def test_prop_mixup_linear(batch):
    x, y = batch
    blends, _, m = encode(x, y, 1, 4, seed=1)
    blends, m = blends.flatten(1).double(), m.double()
    truth = x.flatten(1).double()
    u, sigma, _ = torch.linalg.svd(m)
    assert sigma[-1] > 0.01
    torch.testing.assert_close(torch.linalg.pinv(m) @ blends, truth, rtol=0, atol=1e-4)
    # 1: below rank n another set of images has the same blends
    null = torch.linalg.svd(m[:9])[2][-1:]
    other = truth + null.T
    torch.testing.assert_close(m[:9] @ other, m[:9] @ truth)
    assert (other - truth).norm() > 1
    # 2: the bound holds, and the last left singular vector attains it
    for noise, attained in ((torch.randn(10, 196).double(), False), (u[:, -1:] * 0.1, True)):
        error, bound = (torch.linalg.pinv(m) @ noise).norm(), noise.norm() / sigma[-1]
        assert error <= bound * (1 + 1e-9) and torch.isclose(error, bound) == attained
    # 3: the mean squared error that uncorrelated noise leaves
    noise = 0.1 * torch.randn(10, 20000, generator=generator(3)).double()
    predicted = 0.1**2 * (sigma**-2).mean().item()
    assert (torch.linalg.pinv(m) @ noise).square().mean().item() == pytest.approx(
        predicted, rel=0.05
    )
    # 4: stacking
    for seed in range(20):
        a, b = (encode(x, y, 1, 4, s)[2].double() for s in (seed, seed + 100))
        least = [torch.linalg.svdvals(t)[-1] ** 2 for t in (a, b, torch.cat([a, b]))]
        assert least[2] >= least[0] + least[1] - 1e-12


def test_prop_labels_leak_weights(digits):
    net = models.build("lenet", digits)
    for distinct in (True, False):
        x, y = digits.sample(8, seed=3, distinct=distinct)
        mixed = mix(x, y, generator(0))
        e = flip(mixed.images, generator(1))
        upload = share(net, e, mixed.labels, each=1)
        with torch.no_grad():
            q = net(e).softmax(1) - upload.tensors["head.bias"]
        torch.testing.assert_close(q, mixed.labels, rtol=0, atol=1e-5)
        for c in range(10):  # a class holds the sum of its images' weights
            want = mixed.matrix[:, y == c].sum(1)
            torch.testing.assert_close(q[:, c], want, rtol=0, atol=1e-5)
        alone = [int((y == c).sum()) == 1 for c in y]
        assert all(alone) == distinct
        exact = (q[:, y] - mixed.matrix).abs().amax(0) < 1e-5
        assert exact.tolist() == alone
    # without e the label stays open: another image gives another q
    with torch.no_grad():
        wrong = net(torch.rand_like(e)).softmax(1) - upload.tensors["head.bias"]
    assert (wrong - mixed.labels).abs().max() > 1e-3


def test_prop_flip_leaks_size():
    m = torch.rand(3, 1, 40, 40, generator=generator(0))
    for c in (0.5, 0.13, 0.0):
        e = flip(m, generator(1), c)
        torch.testing.assert_close((e - c).abs(), (m - c).abs())
        mirrored = flip(2 * c - m, generator(1), c)  # a blend on the other side of the center
        both = {True: torch.minimum(e, 2 * c - e), False: torch.minimum(mirrored, 2 * c - mirrored)}
        torch.testing.assert_close(both[True], both[False])  # the same two values are possible
        known = c + torch.sign(m - c) * (e - c).abs()  # with the side known, nothing is hidden
        torch.testing.assert_close(known, m)
    many = flip(torch.full((1, 1, 200, 200), 0.8), generator(2))  # and both come equally often
    assert abs((many > 0.5).float().mean().item() - 0.5) < 0.015  # 6 standard deviations


def test_lem_nearest_sign():
    e, m = torch.randn(2, 10000, generator=generator(0)).double()
    nearest = torch.minimum((e.abs() - m).abs(), (-e.abs() - m).abs())
    torch.testing.assert_close(nearest, (e.abs() - m.abs()).abs())
    torch.testing.assert_close((torch.copysign(e.abs(), m) - m).abs(), nearest)
    # read as plain numbers, not sizes, the minimum is something else
    assert (torch.minimum(e.abs() - m, -e.abs() - m).abs() > nearest + 0.1).any()


def test_prop_sign_per_place(batch):
    x, y = batch
    m, u = encode(x, y, 5, 4, 0)[2].double(), centered(x)
    places = (2 * torch.randint(2, (196,), generator=generator(5)) - 1).double()
    torch.testing.assert_close((m @ (u * places)).abs(), (m @ u).abs())
    alone = u.clone()
    alone[0] *= places  # one image's signs alone do show
    assert ((m @ alone).abs() - (m @ u).abs()).abs().max() > 0.1


def splits(m):
    """The largest rank of the two groups, at its smallest over all splits of the rows."""
    rank = torch.linalg.matrix_rank
    masks = (torch.tensor(bits) for bits in product((False, True), repeat=len(m)))
    return min(max(int(rank(m[a])) if a.any() else 0, int(rank(m[~a]))) for a in masks if a[0])


def test_prop_enough_encodings():
    n = 3
    generic = torch.rand(2 * n, n, generator=generator(0)).double()
    assert splits(generic[: 2 * n - 1]) == n  # 2n − 1 generic rows suffice
    assert splits(generic[: 2 * n - 2]) == n - 1  # one fewer does not
    a = torch.linalg.svd(generic[:2])[2][-1]  # the counterexample of the proof
    b = torch.linalg.svd(generic[2:4])[2][-1]
    u, v = a + b, a - b
    torch.testing.assert_close((generic[:4] @ u).abs(), (generic[:4] @ v).abs())
    assert min((u - v).norm(), (u + v).norm()) > 0.1
    assert ((generic[:5] @ u).abs() - (generic[:5] @ v).abs()).abs().max() > 1e-3
    # 3: ten rows of two images each, image 0 in two of them: more than 2n − 1, and not enough
    sparse = torch.tensor(
        [[0.6, 0.4, 0], [0.3, 0, 0.7], *[[0, w, 1 - w] for w in np.arange(8) / 9]]
    )
    assert len(sparse) == 10 and splits(sparse.double()) < n
    # every image equally often, below and from n²/k = 12.5 on (n = 5, k = 2)
    fake = torch.zeros(5, 1, 1, 1), torch.zeros(5, dtype=torch.long)
    assert splits(encode(*fake, 2, 2, 0)[2].double()) < 5  # E = 10


def test_prop_mask_fresh_secret(batch):
    x, y = batch
    m, u = encode(x, y, 1, 4, seed=1)[2].double(), centered(x)
    mixed = m @ u
    assert attacks.conditioning(m)[0] == 10
    signs = 2 * torch.randint(2, mixed.shape, generator=generator(0)).double() - 1
    inverse = torch.linalg.pinv(m)
    torch.testing.assert_close(inverse @ (signs * (signs * mixed)), u)  # 1: known
    torch.testing.assert_close(inverse @ (mixed * signs[:1]), u * signs[:1])  # 2: used for all
    assert ((inverse @ (mixed * signs)).abs() - u.abs()).abs().mean() > 0.3  # fresh: neither
    again = 2 * torch.randint(2, mixed.shape, generator=generator(1)).double() - 1
    same = (mixed * signs) == (mixed * again)  # 3: twice the same blend
    assert torch.equal(same, signs == again) and same.any() and not same.all()
    turned = ((-mixed) * -signs, (-mixed) * -again)  # the opposite blend, and the same encodings
    assert torch.equal(turned[0], mixed * signs) and torch.equal(turned[1], mixed * again)


def expected_encodings(n: int, k: int) -> float:
    miss = [comb(n - j, k) / comb(n, k) for j in range(n + 1)]
    return sum((-1) ** (j + 1) * comb(n, j) / (1 - miss[j]) for j in range(1, n + 1))


@pytest.mark.parametrize(("n", "k"), [(6, 2), (10, 4), (5, 1)])
def test_prop_every_image_seen(n, k):
    rng = np.random.default_rng(0)
    needed, unseen, after = [], [], 4
    for _ in range(3000):
        seen, draws = set(), 0
        while len(seen) < n:
            seen |= set(rng.choice(n, k, replace=False).tolist())
            draws += 1
            if draws == after:
                unseen.append(n - len(seen))
        needed.append(draws)
        unseen += [0] * (draws < after)
    assert np.mean(needed) == pytest.approx(expected_encodings(n, k), rel=0.05)
    assert np.mean(unseen) == pytest.approx(n * (1 - k / n) ** after, rel=0.15, abs=0.02)
    bound = n * (1 - k / n) ** after
    assert np.mean(np.array(needed) > after) <= bound + 0.02
    harmonic = 5 * sum(1 / i for i in range(1, 6))
    assert expected_encodings(5, 1) == pytest.approx(harmonic)  # the classical coupon collector


def test_prop_ats_transparent(digits):
    net = models.build("mlp", digits)
    x, y = digits.sample(6, seed=2)
    for policy in ("3-1-7+43-18-18", "1-18-13", "0"):
        seen = [ATS(policy).data(x[i : i + 1], y[i : i + 1], generator(0, i))[0] for i in range(6)]
        found = attacks.ClosedForm().run(share(net, x, y, ATS(policy), each=1)).images
        assert psnr(found, torch.cat(seen)).min() > 80
        assert psnr(found.clamp(0, 1), x).max() < 60
    torch.testing.assert_close(1 - found, x, rtol=0, atol=1e-3)  # operation 0 inverts: one-to-one
    # operation 3 shifts by 45 % of the width; two images that differ only in what leaves are one
    left = torch.zeros(2, 1, 14, 14)
    left[1, :, 5, 0] = 1
    moved = [
        ATS("3").data(left[i : i + 1], y[:1], generator(s))[0] for s in range(8) for i in (0, 1)
    ]
    assert any(torch.equal(a, b) for a, b in zip(moved[::2], moved[1::2], strict=True))


def test_ex_hiding_by_hand():
    """The numbers of the example, and that the drawing has the same."""
    weights = torch.tensor(lost_signs.WEIGHTS).double()
    blends = weights @ torch.tensor(lost_signs.PIXELS).double()
    torch.testing.assert_close(blends, torch.tensor([0.625, 0.275, 0.45]).double())
    assert lost_signs.sizes() == [0.125, 0.225, 0.05]
    pairs = lost_signs.candidates()
    assert set(pairs) == {(0.3, -0.4), (-0.3, 0.4), (0.075, 0.275), (-0.075, -0.275)}
    third = {u: round(abs(u[0] + u[1]) / 2, 6) for u in pairs}
    assert sorted(third.values()) == [0.05, 0.05, 0.175, 0.175] and third[0.3, -0.4] == 0.05
    assert splits(weights) == 2 > splits(weights[:2])  # three suffice for every pair, two do not


# Exercises


def from_starts(size, m, starts):
    """The alternating search from some starts, the best end kept for each place."""
    inverse, rng = torch.linalg.pinv(m), generator(0)
    best, least = torch.zeros(m.shape[1], size.shape[1]), torch.full(size.shape[1:], torch.inf)
    for _ in range(starts):
        u = 2 * torch.rand(best.shape, generator=rng) - 1
        for _ in range(80):
            u = (inverse @ torch.copysign(size, m @ u)).clamp(-1, 1)
        misfit = ((m @ u).abs() - size).square().sum(0)
        best, least = torch.where(misfit < least, u, best), torch.minimum(misfit, least)
    return best


RIGHT = {
    "unmix": lambda e, m: torch.linalg.lstsq(m, e).solution,
    "mixing_weights": lambda z, g: z.softmax(0) - g,
    "sign_misfit": lambda e, m: (e.abs() - m.abs()).abs(),
    "search_step": lambda s, m, u: (torch.linalg.pinv(m) @ torch.copysign(s, m @ u)).clamp(-1, 1),
    "decode_signs": lambda s, m: from_starts(s, m, 80),
}
WRONG = [
    ("unmix", lambda e, m: torch.linalg.inv(m[:4]) @ e[:4], "n blends only"),
    ("unmix", lambda e, m: m.T @ e, "transpose"),
    ("unmix", lambda e, m: e[:4], "as it can be"),
    ("unmix", lambda e, m: e, "shape"),
    ("mixing_weights", lambda z, g: g - z.softmax(0), "turned round"),
    ("mixing_weights", lambda z, g: -g, "prediction"),
    ("mixing_weights", lambda z, g: z - g, "softmax is missing"),
    ("mixing_weights", lambda z, g: z, "solve for q"),
    ("sign_misfit", lambda e, m: (e - m).abs(), "random"),
    ("sign_misfit", lambda e, m: (e.abs() - m).abs(), "nearer"),
    ("sign_misfit", lambda e, m: torch.minimum(e.abs() - m, -e.abs() - m), "smaller in size"),
    ("sign_misfit", lambda e, m: e.abs() - m.abs(), "never negative"),
    ("search_step", lambda s, m, u: torch.linalg.pinv(m) @ torch.copysign(s, m @ u), "box"),
    (
        "search_step",
        lambda s, m, u: (torch.linalg.pinv(m) @ (s * torch.sign(m @ u))).clamp(-1, 1),
        "equation is lost",
    ),
    ("search_step", lambda s, m, u: (torch.linalg.pinv(m) @ s).clamp(-1, 1), "need the signs"),
    ("search_step", lambda s, m, u: u, "least squares"),
    ("decode_signs", lambda s, m: from_starts(s, m, 1), "local minimum"),
    ("decode_signs", lambda s, m: torch.linalg.pinv(m) @ s, "all signs"),
    ("decode_signs", lambda s, m: torch.zeros(4, 40), "these sizes"),
    ("decode_signs", lambda s, m: s, "shape"),
]


@pytest.mark.parametrize("name", RIGHT)
def test_checks_accept_right_answers_and_refuse_stubs(name, expect):
    check = getattr(checks, f"check_{name}")
    expect(check, RIGHT[name], "Right")
    expect(check, lambda *_: ..., "replace the dots")
    expect(check, lambda *_: 1.0, "return a tensor")


@pytest.mark.parametrize(("name", "answer", "hint"), WRONG)
def test_checks_say_what_is_wrong(name, answer, hint, expect):
    expect(getattr(checks, f"check_{name}"), answer, hint)


# The study: what the chapter says about it


def part(study, **want) -> list[dict]:
    return [c for c in study["cells"] if all(c.get(k) == v for k, v in want.items())]


def test_a_stored_cell_comes_out_again(study):
    cell = part(study, part="digits", k=4, rounds=2, seed=0)[0]
    compute = STUDIES["hiding-the-input/attack"].compute(
        study["settings"], {k: cell[k] for k in ("part", "k", "rounds", "seed")}
    )
    assert compute["rank"] == cell["rank"] == 10
    for name in ("black", "mean image", "Adam, aligned"):
        assert compute["psnr"][name] == pytest.approx(cell["psnr"][name], abs=0.5)


def test_decoders_agree_with_their_parts(batch):
    blends, _, m = encode(*batch, 2, 4, 0)
    e = flip(blends, generator(0))
    found = decoders(e, m, 5)
    search = attacks.align_signs(attacks.sign_search(2 * e - 1, m, restarts=5, show=False))
    assert torch.equal(found["search, aligned"], ((search + 1) / 2).clamp(0, 1))
    assert set(decoders(e, m, 1, adam=False)) == {"search, aligned"}


def test_the_draw_that_is_not_exact_has_one_place_of_the_wrong_sign(digits):
    x, y = digits.sample(10, seed=2)
    blends, _, m = encode(x, y, 5, 4, 2)
    e, truth = 2 * flip(blends, generator(2, 9)) - 1, 2 * x - 1
    found = attacks.align_signs(attacks.sign_search(e, m, show=False))
    wrong = (found - truth).abs().amax((0, 1)) > 1e-2
    assert wrong.sum() == 1 and attacks.misfit(e, m, found).abs().max() < 1e-3
    torch.testing.assert_close(found[..., wrong], -truth[..., wrong], rtol=0, atol=1e-3)


def test_what_the_chapter_says_about_decoders(study):
    for k in (2, 4, 6):
        for cell in part(study, part="digits", k=k):
            mean = {name: np.mean(v) for name, v in cell["psnr"].items()}
            assert mean["Adam"] < 3 < 10 < mean["Adam, aligned"] < 22
            assert mean["search, aligned"] > mean["Adam, aligned"] - 1
            assert min(cell["psnr"]["regression on Mixup"]) > 100
        five = [
            np.mean(c["psnr"]["search, aligned"]) for c in part(study, part="digits", k=k, rounds=5)
        ]
        assert 30 < sorted(five)[0] < 36 and sorted(five)[1] > 100


def test_what_the_chapter_says_about_lodas_tables(study):
    for k in (4, 6):
        paper = ledger.paper("loda/table-2")[f"Mixup k={k}"]["Avg. PSNR"][0]
        exact, noisy = (part(study, part="loda", k=k, noise=z)[0]["psnr"] for z in (0.0, 0.148))
        assert np.mean(noisy["regression on Mixup"]) == pytest.approx(paper, abs=2)
        assert np.mean(exact["Adam"]) == pytest.approx(10.7, abs=1.5)
        assert np.mean(exact["Adam"]) < np.mean(exact["mean image"]) + 1
        assert np.mean(exact["Adam, aligned"]) == pytest.approx(np.mean(exact["Adam"]), abs=0.5)
        assert min(exact["search, aligned"]) > 60
        assert np.mean(noisy["search, aligned"]) < np.mean(noisy["mean image"])
        between = part(study, part="loda", k=k, noise=0.05)[0]["psnr"]["search, aligned"]
        assert np.mean(between) > 33


def test_what_the_chapter_says_about_ats(study):
    found = [v for cell in part(study, part="ats") for v in cell["recursion"]["transformed"]]
    assert len(found) == 72 and min(found) > 90  # rounding moves this by 10 dB
    assert [round(c["trained_to"], 2) for c in part(study, part="ats", steps=500)] == [0.86] * 3
    for cell in part(study, part="ats"):
        if cell["defense"] == "none":
            assert cell["GS"]["transformed"] == cell["GS"]["private"]
            continue
        assert np.median(cell["recursion"]["private"]) < 30
        plain = part(study, part="ats", defense="none", steps=cell["steps"])[0]
        gap = np.median(plain["GS"]["private"]) - np.median(cell["GS"]["transformed"])
        if cell["steps"] == 0:
            assert np.median(plain["GS"]["private"]) < 15 and abs(gap) < 3
        else:
            assert 5 < gap < 20 and max(cell["GS"]["transformed"]) > 25


def test_what_the_chapter_says_about_accuracy(study):
    reached = {c["defense"]: np.median(c["accuracy"]) for c in part(study, part="accuracy")}
    assert max(reached, key=reached.get) == "none"
    assert reached["InstaHide 4, c = 0.5"] < 0.2 < reached["InstaHide 4, c = 0.13"]
