"""Mixup and InstaHide do what their equations say; and the regressions that undo them do, too."""

from __future__ import annotations

import pytest
import torch

import privfl_lite as pf
from privfl_lite import Plan, attacks, defenses, fedavg, models, share
from privfl_lite.attacks.adaptive import instahide as decode
from privfl_lite.defenses import Context, InstaHide, Mixup, Prune
from privfl_lite.defenses.mixing import coefficients, draw, flip, mix
from privfl_lite.metrics import auc, psnr
from privfl_lite.runtime import generator
from privfl_lite.wire import Facts


def encode(x, y, times: int, k: int = 4, seed: int = 0):
    """``times`` blends of each image by fresh matrices: images, soft labels, M (E, n), all in E."""
    rng = generator(seed)
    return [torch.cat(t) for t in zip(*(mix(x, y, rng, k) for _ in range(times)), strict=True)]


def signed(images, seed: int = 0, center: float = 0.5):
    """InstaHide's encodings, counted from their center; ½ gives the range [−1, 1]."""
    return 2 * (flip(images, generator(seed, 9), center) - center)


def score(x_hat, x) -> float:
    """Mean PSNR in dB of images in [−1, 1] against x in [0, 1]."""
    return psnr(((x_hat + 1) / 2).clamp(0, 1), x).mean().item()


# The defenses


@pytest.mark.parametrize("k", [2, 4, 6])
def test_blends_and_soft_labels_are_the_matrix_times_images_and_labels(batch, k):
    x, y = batch
    images, labels, m = mix(x, y, generator(3), k)
    torch.testing.assert_close(images, torch.einsum("ij,j...->i...", m, x))
    torch.testing.assert_close(labels, m @ torch.eye(10)[y])
    torch.testing.assert_close(labels.sum(1), torch.ones(10))
    assert (m > 0).sum(0).tolist() == (m > 0).sum(1).tolist() == [k] * 10
    assert (m.diagonal() > 0).all() and m.max() <= 0.65


def test_the_door_gives_the_blend_of_mix_and_keeps_the_matrix(batch):
    for defense in (Mixup(3, 0.6), InstaHide(3, 0.6, crypto=False)):
        images, labels = defense.data(*batch, generator(7))
        want = mix(*batch, generator(7), 3, 0.6)
        assert torch.equal(labels, want.labels)
        if type(defense) is Mixup:
            assert torch.equal(images, want.images)
        torch.testing.assert_close((2 * images - 1).abs(), (2 * want.images - 1).abs())
        assert set(vars(defense)) <= {"k", "cap", "classes", "center", "crypto"}
        assert defense.facts(Context(None, {}, [], [], [generator(7)])) == Facts()


@pytest.mark.parametrize(("n", "k"), [(2, 2), (4, 4), (9, 9), (11, 3), (12, 3), (200, 6)])
def test_columns_are_permutations_and_rows_hold_no_image_twice(n, k):
    members, _ = draw(n, k, 0.9, generator(n))
    assert torch.equal(members.sort(0).values, torch.arange(n)[:, None].expand(n, k))
    assert all(len(set(row)) == k for row in members.tolist())
    assert torch.equal(members[:, 0], torch.arange(n))


def test_coefficients_follow_the_dirichlet_distribution_under_a_cap():
    free = coefficients(20000, 4, 1.0, generator(0))
    want = torch.distributions.Dirichlet(torch.tensor([3.0, 1, 1, 1]))
    torch.testing.assert_close(free.mean(0), want.mean, rtol=0, atol=0.005)
    torch.testing.assert_close(free.var(0), want.variance, rtol=0, atol=0.002)
    capped = coefficients(20000, 4, 0.65, generator(1))
    assert free.max() > 0.9 and capped.max() <= 0.65
    torch.manual_seed(0)
    some = want.sample((40000,))  # an independent reference: rejection from torch's own sampler
    some = some[some.amax(1) <= 0.65]
    torch.testing.assert_close(capped.mean(0), some.mean(0), rtol=0, atol=0.006)
    torch.testing.assert_close(capped.sum(1), torch.ones(20000))


def test_signs_are_fair_and_repeat_only_when_seeded(batch):
    x = torch.rand(40, 1, 50, 50, generator=generator(0))
    for rng in (None, generator(4)):
        kept = flip(x, rng) == x
        assert abs(kept.float().mean().item() - 0.5) < 0.01  # 6 standard deviations
        assert kept.float().mean(0).std().item() == pytest.approx(0.5 / 40**0.5, rel=0.1)
    assert not torch.equal(flip(x), flip(x))
    assert torch.equal(flip(x, generator(4)), flip(x, generator(4)))
    a, b = (InstaHide().data(*batch, generator(1)) for _ in range(2))
    assert torch.equal(a[1], b[1]) and not torch.equal(a[0], b[0])  # system signs, seeded blend
    c, d = (InstaHide(crypto=False).data(*batch, generator(1)) for _ in range(2))
    assert torch.equal(c[0], d[0])


def test_flips_hide_little_of_images_on_one_side_of_the_center(digits):
    x, y = digits.sample(100, seed=2)
    blends = mix(x, y, generator(0)).images

    def seen(center: float) -> float:
        """Correlation over all pixels of what the encoding gives away with the blend itself."""
        pixels = torch.stack([signed(blends, center=center).abs().flatten(), blends.flatten()])
        return torch.corrcoef(pixels)[0, 1].item()

    assert seen(0.13) > 0.8 and seen(0.5) < -0.8  # as it is; as a negative
    assert abs(seen(0.3)) < 0.5  # the worst center for who looks


def test_soft_labels_pass_the_wire_and_compose_with_pruning(batch):
    net = models.build("lenet", (1, 14, 14), 10)
    upload = share(net, *batch, Mixup() + Prune(0.9), each=5, knows=("labels",), seed=2)
    assert upload.knows.labels.shape == (2, 5, 10) and upload.knows.names == ("labels",)
    images, labels, _ = mix(batch[0][:5], batch[1][:5], generator(2, 0))
    torch.testing.assert_close(upload.knows.labels[0], labels)
    again = share(net, images, labels, Prune(0.9))  # the same blend, shared as a batch of its own
    for name, t in again.tensors.items():
        torch.testing.assert_close(upload.tensors[name][:1], t, rtol=1e-4, atol=1e-7)
        assert t.numel() < 50 or (t == 0).float().mean() > 0.8
    found = attacks.GS(steps=2, show=False).run(share(net, images, labels, knows="labels"))
    assert found.images.shape == (5, 1, 14, 14) and found.labels.shape == (5,)


@pytest.mark.parametrize("defense", [Mixup(), InstaHide(crypto=False), Mixup(2) + Prune(0.5)])
@pytest.mark.parametrize("what", ["update", "gradient"])
def test_fast_path_equals_plain_path(digits, defense, what):
    net = models.build("lenet", (1, 14, 14), 10, init=0.2)
    clients = [digits.sample(n, seed=n) for n in (7, 12, 12)]
    a, b = (
        fedavg(net, clients, 2, Plan(eta=0.2), share=what, defense=defense, fast=f, show=False)
        for f in (True, False)
    )
    assert len(list(a)) == len(list(b)) == 2
    for name, t in a.model.state_dict().items():
        torch.testing.assert_close(t, b.model.state_dict()[name], rtol=1e-4, atol=1e-6)
        assert not torch.equal(t, net.state_dict()[name])


def test_each_round_has_a_fresh_blend(batch):
    a, b = (Mixup().data(*batch, generator(0, 1, r, 0))[0] for r in (1, 2))
    assert not torch.allclose(a, b)


def test_mixup_still_learns(digits):
    net, clients = models.build("mlp", digits), digits.clients(5, per_client=200)
    test = (digits.x_test, digits.y_test)
    plan = Plan(eta=0.1, epochs=2, batch_size=20)
    none, mixup = (
        list(fedavg(net, clients, 8, plan, test=test, defense=d, show=False))[-1].accuracy
        for d in (defenses.Defense(), Mixup())
    )
    assert none > 0.75 and 0.5 < mixup < none


# Undoing them, with the matrix granted


def test_regression_undoes_mixup_when_the_rank_is_full(batch):
    x, y = batch
    images, _, m = encode(x, y, 2)
    assert attacks.conditioning(m)[0] == 10 and attacks.conditioning(m)[1] < 100
    assert psnr(attacks.mixup_regression(images, m), x).min() > 60
    assert psnr(attacks.mixup_regression(images, m, box=(0, 1)), x).min() > 60


def test_below_full_rank_what_lies_in_the_nullspace_is_lost(batch):
    x, y = batch
    images, _, m = (t[:8] for t in encode(x, y, 1))  # 8 encodings of 10 images
    assert attacks.conditioning(m) == (8, torch.inf)
    found = attacks.mixup_regression(images, m)
    assert psnr(found.clamp(0, 1), x).mean() < 30
    torch.testing.assert_close(torch.einsum("en,n...->e...", m, found), images)  # fits all the same
    null = torch.linalg.svd(m)[2][8:]  # (2, 10), and nothing of x along it is found
    assert torch.einsum("zn,n...->z...", null, found).abs().max() < 1e-5
    assert torch.einsum("zn,n...->z...", null, x).abs().max() > 0.5
    boxed = attacks.mixup_regression(images, m, box=(0, 1))
    assert boxed.min() >= 0 and boxed.max() <= 1
    assert psnr(boxed, x).mean() > psnr(found.clamp(0, 1), x).mean() + 1  # the box tells something
    torch.testing.assert_close(torch.einsum("en,n...->e...", m, boxed), images, rtol=0, atol=5e-3)


def test_full_rank_is_not_good_condition(batch):
    """Noise in the encodings costs at most 1/σ_n; more encodings of the same images lower that."""
    x, y = batch
    scores = []
    for times in (1, 5):
        images, _, m = encode(x, y, times)
        noise = 0.01 * torch.randn(images.shape, generator=generator(8))
        found = attacks.mixup_regression(images + noise, m)
        bound = torch.linalg.norm(noise.flatten(1), 2) / torch.linalg.svdvals(m)[-1]
        assert torch.linalg.norm((found - x).flatten(1), 2) <= bound
        scores.append(psnr(found.clamp(0, 1), x).mean().item())
    assert scores[1] > scores[0] + 10


def test_misfit_is_zero_at_the_truth_and_equals_the_public_residual(batch):
    x, y = batch
    images, _, m = encode(x, y, 2)
    e, truth = signed(images), 2 * x - 1
    assert attacks.misfit(e, m, truth).abs().max() < 1e-5
    assert attacks.misfit(e, m, truth * torch.ones(14, 14).tril().mul(2).sub(1)).abs().max() < 1e-5
    guess = torch.randn(x.shape, generator=generator(0))
    blend = torch.einsum("en,n...->e...", m, guess)
    up, down = e.abs() - blend, -e.abs() - blend
    smaller = torch.where(up.abs() < down.abs(), up, down)
    torch.testing.assert_close(attacks.misfit(e, m, guess).abs(), smaller.abs())


def test_instahide_decode_and_alignment_bring_digits_back(batch):
    x, y = batch
    images, _, m = encode(x, y, 5)
    e = signed(images)
    raw = attacks.instahide_decode(e, m, steps=600, show=False)
    aligned = attacks.align_signs(raw)
    assert score(raw, x) < 5  # the ground comes out white: signs are lost place by place
    assert score(aligned, x) > 18 > score(-torch.ones_like(x), x) + 5  # against an all-dark guess
    assert attacks.misfit(e, m, raw).abs().mean() < 0.1


@pytest.mark.parametrize(("times", "least", "most"), [(1, 0, 30), (5, 60, torch.inf)])
def test_sign_search_is_exact_with_five_encodings_an_image(batch, times, least, most):
    x, y = batch
    images, _, m = encode(x, y, times)
    e = signed(images)
    found = attacks.sign_search(e, m, show=False)
    assert least < score(attacks.align_signs(found), x) < most
    few = [attacks.sign_search(e, m, restarts=2, seed=s, show=False) for s in (0, 0, 1)]
    assert torch.equal(few[0], few[1]) and not torch.equal(few[0], few[2])


def test_align_signs_undoes_any_sign_that_is_common_to_a_place():
    x, _ = pf.load("photos", size=12).sample(20, seed=0)
    truth = 2 * x - 1
    places = 2 * torch.randint(2, x.shape[1:], generator=generator(0)) - 1
    for dark in (True, False):
        found = attacks.align_signs(truth * places, dark)
        flipped = (truth.mean() < 0) != dark
        assert (found == (-truth if flipped else truth)).float().mean() > 0.97


def test_known_signs_make_instahide_a_linear_system_again(batch):
    """Why the generator matters: with crypto=False the attacker replays the signs from the seed."""
    x, y = batch
    images, _, m = encode(x, y, 2)
    e = flip(images, generator(5))
    undone = torch.where(flip(torch.ones_like(e), generator(5)) == 1, e, 1 - e)
    assert psnr(attacks.mixup_regression(undone, m), x).min() > 60
    assert psnr(attacks.mixup_regression(e, m).clamp(0, 1), x).mean() < 12


# Without the matrix


def test_labels_give_the_matrix_if_no_class_comes_twice(digits):
    x, y = digits.sample(8, seed=0, distinct=True)
    images, labels, m = encode(x, y, 3)
    found, classes = attacks.coefficients_from_labels(labels)
    order = torch.argsort(y)
    assert torch.equal(classes, y[order])
    torch.testing.assert_close(found, m[:, order])
    assert psnr(attacks.mixup_regression(images, found), x[order]).min() > 60
    x, y = digits.sample(10, seed=1)  # some classes come twice: fewer columns than images
    images, labels, _ = encode(x, y, 3)
    assert attacks.coefficients_from_labels(labels)[0].shape[1] == len(y.unique()) < 10


@pytest.mark.parametrize("defense", ["mixup", "instahide"])
def test_gradients_alone_give_the_images_back_if_no_class_comes_twice(digits, defense):
    """Gradient -> encoding -> soft label -> M -> images; nothing is granted (knows is empty)."""
    x, y = digits.sample(10, seed=3, distinct=True)
    images, labels, _ = encode(x, y, 6)
    images = flip(images) if defense == "instahide" else images  # the system's signs
    upload = share(models.build("mlp", digits), images, labels, each=1)
    assert upload.knows == Facts()
    e = attacks.ClosedForm().run(upload).images
    assert psnr(e, images).min() > 60
    read = attacks.soft_labels(upload, e)
    torch.testing.assert_close(read, labels, rtol=0, atol=1e-4)
    m, classes = attacks.coefficients_from_labels(read, tol=1e-3)
    if defense == "mixup":
        found = attacks.mixup_regression(e, m)
    else:
        found = (attacks.align_signs(attacks.sign_search(2 * e - 1, m, show=False)) + 1) / 2
    assert torch.equal(classes, y.sort().values)
    assert psnr(found.clamp(0, 1), x[y.argsort()]).min() > 25


@pytest.mark.parametrize(("k", "low", "high"), [(2, 0.75, 0.95), (4, 0.55, 0.8)])
def test_pair_scores_find_shared_images_for_two_and_hardly_for_four(digits, k, low, high):
    x, y = digits.sample(100, seed=0)
    images, _, m = encode(x, y, 3, k)
    e, upper = signed(images), torch.ones(300, 300).triu(1).bool()
    both = ((m > 0).float() @ (m > 0).float().T) > 0
    heavy = ((m > 0.3).float() @ (m > 0.3).float().T) > 0
    scores = attacks.pair_scores(e)
    plain = attacks.pair_scores(images, signed=False)
    area = auc(scores[both & upper], scores[~both & upper])
    assert low < area < high
    assert area < auc(plain[both & upper], plain[~both & upper])  # the flips do cost something
    assert auc(scores[heavy & upper], scores[~both & upper]) > 0.8
    torch.testing.assert_close(scores, scores.T)


def test_candidates_are_found_in_the_blends(digits):
    x, y = digits.sample(60, seed=4)
    images, labels, m = encode(x, y, 1, 2)
    found = attacks.assign_by_known(signed(images), labels, 2 * x - 1, y)
    plain = attacks.assign_by_known(images, labels, x, y, signed=False)
    apart = torch.tensor([len(y[row > 0].unique()) == 2 for row in m])  # two classes in the blend
    assert apart.sum() > 40
    for guess in (found, plain):
        right = ((guess > 0) == (m > 0)).all(1)
        assert right[apart].float().mean() > 0.95 and not right[~apart].any()
        torch.testing.assert_close(guess[apart & right], m[apart & right])


def test_every_function_of_the_module_is_exported():
    public = [n for n, f in vars(decode).items() if getattr(f, "__module__", "") == decode.__name__]
    assert {n for n in public if not n.startswith("_")} <= set(attacks.__all__)


def test_names_on_the_command_line():
    assert repr(defenses.build("mixup:k=6,cap=0.5")) == "Mixup(k=6, cap=0.5, classes=10)"
    made = defenses.build("instahide:k=2,crypto=False+prune")
    assert made.parts[0].crypto is False and made.parts[0].center == 0.5


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x, y: Mixup(1), "k is 1; it must be a whole number from 2 to"),
        (lambda x, y: Mixup(4, 0.25), "cap must be over 1/k = 0.25"),
        (lambda x, y: InstaHide(2, 0.4), "cap must be over 1/k = 0.5"),
        (lambda x, y: coefficients(9, 6, 0.17, generator(0)), "too near 1/k"),
        (lambda x, y: Mixup().data(x[:3], y[:3], generator(0)), "4 images or more; got 3"),
        (lambda x, y: Mixup(classes=5).data(x, y + 5, generator(0)), "0…4 with classes=5"),
        (lambda x, y: Mixup().data(x, torch.eye(10)[:, :4], generator(0)), "over 4 classes"),
        (lambda x, y: attacks.mixup_regression(x, torch.eye(9)), "one row an encoding"),
        (lambda x, y: attacks.instahide_decode(x[0], torch.eye(1)), "(E, C, H, W)"),
        (lambda x, y: attacks.coefficients_from_labels(y), "(E, classes)"),
        (
            lambda x, y: attacks.soft_labels(share(models.build("mlp", x[0].shape, 10), x, y), x),
            "of one",
        ),
        (lambda x, y: attacks.assign_by_known(x, torch.eye(10), x, y[:2]), "as many labels"),
    ],
)
def test_bad_input_gets_one_sentence(refused, batch, call, says):
    refused(lambda: call(*batch), says)
