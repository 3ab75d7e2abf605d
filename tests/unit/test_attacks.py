"""Attacks: engines against reference optimizers, closed forms against the truth, no oracle."""

from __future__ import annotations

import pytest
import torch

import privfl_lite as pf
from privfl_lite import PrivflError, attacks, metrics, models, share
from privfl_lite.attacks import (
    DLG,
    GS,
    IDLG,
    ClosedForm,
    Matching,
    infer_label,
    infer_labels,
    solvers,
)
from privfl_lite.attacks.matching.search import total_variation
from privfl_lite.attacks.solvers import Pairs, adam, lbfgs
from privfl_lite.defenses import PRECODE, DPGaussian, Prune
from privfl_lite.gradients import gradient_function, own_gradient, stateless, weights
from privfl_lite.wire import Plan


@pytest.fixture(scope="module")
def digits():
    return pf.load("mnist")


@pytest.fixture(scope="module")
def small():
    """Four 12×12 images and a small sigmoid LeNet, quick to attack."""
    rng = torch.Generator().manual_seed(2)
    x = torch.nn.functional.interpolate(torch.rand(4, 1, 5, 5, generator=rng), 12, mode="bilinear")
    return models.build("lenet", (1, 12, 12), 10), x, torch.tensor([3, 1, 4, 1])


# --- engines ---


def rosenbrock(z, rows):
    return (100 * (z[:, 1:] - z[:, :-1] ** 2) ** 2 + (1 - z[:, :-1]) ** 2).sum(1)


def test_lbfgs_solves_many_rosenbrock_valleys_as_torch_does():
    start = torch.randn(6, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = lbfgs(rosenbrock, start, range(400))
    for k in range(6):
        z = start[k : k + 1].clone().requires_grad_()
        torch_lbfgs = torch.optim.LBFGS([z], max_iter=400, line_search_fn="strong_wolfe")

        def closure(z=z, optimizer=torch_lbfgs):
            optimizer.zero_grad()
            f = rosenbrock(z, None).sum()
            f.backward()
            return f

        torch_lbfgs.step(closure)
        reference = rosenbrock(z.detach(), None).item()
        assert ours.cost[k] < max(1e-12, 10 * reference)  # the same valley floor or a better one


def test_lbfgs_problems_do_not_disturb_each_other():
    scale = torch.logspace(-2, 3, 8, dtype=torch.float64)[:, None]
    target = torch.arange(8.0, dtype=torch.float64)[:, None].expand(8, 5)
    start = torch.zeros(8, 5, dtype=torch.float64)

    def cost(z, rows):
        return (scale[rows] * (z - target[rows]) ** 4 + (z - target[rows]) ** 2).sum(1)

    together = lbfgs(cost, start, range(60))
    torch.testing.assert_close(together.z, target, atol=1e-4, rtol=0)
    for k in range(8):
        alone = lbfgs(lambda z, rows, k=k: cost(z, rows + k), start[k : k + 1], range(60))
        torch.testing.assert_close(alone.z[0], together.z[k], rtol=1e-6, atol=1e-9)


def test_engines_survive_a_problem_that_is_not_finite():
    scale = torch.tensor([1.0, torch.nan, 1.0])

    def cost(z, rows):
        return scale[rows] * (z**2).sum(1)

    start = torch.ones(3, 2)
    for solve in (
        lambda: lbfgs(cost, start, range(20)),
        lambda: adam(cost, start, range(200), 200),
    ):
        found = solve()
        assert found.cost[[0, 2]].max() < 1e-2 and not found.cost[1] < 1


def test_lbfgs_steps_back_from_a_cliff():
    """log has no value below 0: long steps are not finite, and the search shortens them."""
    found = lbfgs(lambda z, r: (z - torch.log(z)).sum(1), torch.full((1, 3), 8.0), range(60))
    torch.testing.assert_close(found.z, torch.ones(1, 3), atol=1e-3, rtol=0)


def two_loops(g, pairs):
    """Liu & Nocedal's recursion (1989) for one problem: the inverse Hessian times g."""
    q, alphas = g.clone(), []
    for s, y in reversed(pairs):
        alphas.append((s @ q) / (s @ y))
        q = q - alphas[-1] * y
    s, y = pairs[-1]
    q = q * (s @ y) / (y @ y)
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        q = q + (alpha - (y @ q) / (s @ y)) * s
    return q


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_directions_are_those_of_the_two_loop_recursion(dtype, near):
    """Rings that fill at their own pace, wrap around, and are emptied; steps shrink 10¹⁰-fold."""
    rng = torch.Generator().manual_seed(0)
    n, size, problems = 20, 7, 3
    a = torch.randn(n, n, generator=rng, dtype=torch.float64)
    hessian, own = a @ a.T + torch.eye(n), [[] for _ in range(problems)]
    pairs = Pairs(torch.zeros(problems, n, dtype=dtype), size)
    for k in range(200):
        w = (torch.rand(problems, generator=rng) < 0.7).nonzero().flatten()
        s, g = torch.randn(2, len(w), n, generator=rng, dtype=torch.float64)
        s = s * 10 ** (-k / 20)
        s, y, g = (v.to(dtype) for v in (s, s @ hessian, g))
        if not len(w):
            continue
        got = pairs.direction(w, s, y, g)
        for i, p in enumerate(w.tolist()):
            own[p] = [*own[p], (s[i].double(), y[i].double())][-size:]
            want = -two_loops(g[i].double(), own[p])
            assert (got[i] - want).norm() < near * want.norm()
        if k == 60:
            pairs.forget(torch.tensor([1]))
            own[1] = []


def test_lbfgs_takes_the_steps_of_torch_where_no_line_search_is_needed():
    """On a flat bowl every step is taken at its full length: the points of torch.optim.LBFGS."""
    rng = torch.Generator().manual_seed(3)
    a = torch.randn(30, 30, generator=rng, dtype=torch.float64)
    bowl = 0.4 * torch.eye(30) + 0.8 * a @ a.T / torch.linalg.matrix_norm(a, 2) ** 2
    start = 0.1 * torch.randn(1, 30, generator=rng, dtype=torch.float64)

    def cost(z, rows):
        return ((z @ bowl) * z).sum(1) / 2

    ours = lbfgs(cost, start, range(1, 9), snapshots=range(1, 9), memory=4)
    z = start.clone().requires_grad_()
    reference = torch.optim.LBFGS([z], max_iter=1, history_size=4)

    def closure():
        reference.zero_grad()
        f = cost(z, None).sum()
        f.backward()
        return f

    for _, point in ours.snapshots:
        reference.step(closure)
        torch.testing.assert_close(point, z.detach(), rtol=1e-6, atol=1e-12)
    assert len(ours.snapshots) == 8 and cost(start, None) > 1e4 * ours.cost


@pytest.mark.parametrize("steps", [1, 5, 40])
def test_signed_adam_is_torchs_adam_to_the_bit(steps):
    rng = torch.Generator().manual_seed(steps)
    start, target = torch.randn(2, 3, 50, generator=rng)

    def cost(z, rows):
        return (z - target[rows]).pow(4).sum(1) + z.sum(1).sin()

    found = adam(cost, start, range(steps), steps, project=lambda z: z.clamp_(-1, 1))
    z = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=0.1)
    drops = [steps * k // 8 for k in (3, 5, 7)]
    rate = torch.optim.lr_scheduler.MultiStepLR(optimizer, drops, gamma=0.1)
    best, least = start.clone(), torch.full((3,), torch.inf)
    for _ in range(steps):
        f = cost(z, torch.arange(3))
        better = f < least
        best[better], least[better] = z.detach()[better], f.detach()[better]
        z.grad = torch.autograd.grad(f.sum(), z)[0].sign()
        optimizer.step()
        rate.step()
        z.data.clamp_(-1, 1)
    assert torch.equal(found.z, best) and torch.equal(found.cost, least)


def test_compiled_adam_finds_what_plain_adam_finds():
    rng = torch.Generator().manual_seed(1)
    start, target = torch.randn(2, 3, 8, generator=rng, dtype=torch.float64)

    def cost(z, rows):
        inner = z.requires_grad_() if z.is_leaf else z
        (g,) = torch.autograd.grad((inner * target[rows]).sin().sum(), inner, create_graph=True)
        return (g - target[rows].cos()).pow(2).sum(1)  # a gradient in the cost, as in matching

    plain, quick = (adam(cost, start, range(30), 30, compile=c) for c in (False, True))
    torch.testing.assert_close(quick.z, plain.z, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(quick.cost, plain.cost, rtol=1e-9, atol=1e-12)
    assert quick.evaluations == 30


def test_long_searches_are_compiled_where_that_works(monkeypatch, refused):
    asked = []

    def broken(cost, z, rows):
        asked.append(len(rows))
        raise RuntimeError("no compiler")

    monkeypatch.setattr(solvers, "compiled", broken)
    monkeypatch.setattr(solvers, "LONG", 20)

    def run(steps, compile):
        return adam(
            lambda z, r: z.pow(2).sum(1), torch.ones(2, 3), range(5), steps, compile=compile
        )

    wanted = run(20, False)
    run(19, None)
    assert not asked
    assert torch.equal(run(20, None).z, wanted.z) and asked == [2]
    refused(lambda: run(5, True), "torch.compile cannot be used here: no compiler")
    refused(lambda: IDLG(compile=True), "compile=True needs optimizer='adam'")


def test_signed_adam_matches_a_plain_loop_step_by_step():
    start, target = torch.randn(2, 6), torch.randn(2, 6)
    films = adam(
        lambda z, r: ((z - target) ** 2).sum(1), start, range(1, 41), 40, snapshots=range(1, 41)
    )
    z = start.clone().requires_grad_()
    m = v = torch.zeros_like(z)
    best, cost = start.clone(), torch.full((2,), torch.inf)
    for t in range(1, 41):
        f = ((z - target) ** 2).sum(1)
        better = f < cost
        best[better], cost[better] = z.detach()[better], f.detach()[better]
        torch.testing.assert_close(films.snapshots[t - 1][1], best)
        g = (z.detach() - target).sign()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        rate = 0.1 * 0.1 ** sum(t > 40 * k // 8 for k in (3, 5, 7))
        step = rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        z = (z.detach() - step).requires_grad_()


def test_total_variation_by_hand():
    x = torch.tensor([[0.0, 1.0], [1.0, 1.0]]).view(1, 1, 1, 2, 2)
    assert total_variation(x).item() == pytest.approx(0.5 + 0.5)


# --- labels ---


def test_idlg_rule_reads_every_label_of_a_sigmoid_net(digits):
    net = models.build("lenet", digits)
    x, y = digits.sample(40)
    assert torch.equal(infer_label(share(net, x, y, each=1)).flatten(), y)


def test_labels_of_a_batch_with_repeats(digits):
    net = models.build("lenet5", digits)
    x, y = digits.sample(64)
    for upload in (share(net, x, y, each=8), share(net, x, y, each=8, plan=Plan(0.01, 1, 1, 8))):
        guess = infer_labels(upload)
        want = y.view(8, 8).sort(1).values
        hits = sum(
            min((g == c).sum(), (w == c).sum()).item()
            for g, w in zip(guess, want, strict=True)
            for c in range(10)
        )
        assert guess.shape == (8, 8) and hits >= 0.95 * 64


def test_labels_of_a_batch_without_a_bias(digits):
    net = models.build("cloak", digits)
    x, y = digits.sample(8, distinct=True)
    guess = infer_labels(share(net, x, y))[0]
    assert len(set(guess.tolist()) & set(y.tolist())) >= 6


# --- closed form ---


@pytest.mark.parametrize("act", ["relu", "sigmoid"])
def test_closed_form_is_exact_for_one_image(digits, act):
    x, y = digits.sample(6)
    net = models.build("mlp", digits, act=act)
    found = ClosedForm().run(share(net, x, y, each=1))
    torch.testing.assert_close(found.images, x, atol=1e-3, rtol=0)
    assert torch.equal(found.labels, y)


def test_closed_form_finds_images_that_own_a_unit(digits):
    x, y = digits.sample(4)
    net = models.build("mlp", digits, hidden=(512,))
    found = ClosedForm().run(share(net, x, y))
    order = metrics.assign(found.images, x)
    assert (metrics.psnr(found.images[order], x) > 40).sum() >= 3


def test_closed_form_says_when_it_does_not_apply(small):
    net, x, y = small
    with pytest.raises(PrivflError, match="begins with a fully connected layer"):
        ClosedForm().run(share(net, x, y, each=1))


# --- matching ---


@pytest.mark.parametrize("attack", [DLG(steps=300), IDLG(steps=200)])
def test_lbfgs_attacks_rebuild_small_images(small, attack):
    net, x, y = small
    found = attack.run(share(net, x, y, each=1))
    assert metrics.psnr(found.images, x).median() > 40
    assert torch.equal(found.labels, y) and found.failed == 0


def test_gs_rebuilds_small_images(small):
    net, x, y = small
    found = GS(steps=400).run(share(net, x, y, each=1, knows=("labels",)))
    assert metrics.psnr(metrics.as_image(found.images), x).median() > 18


@pytest.mark.parametrize(
    ("name", "mode"), [("lenet", "eval"), ("lenet5", "eval"), ("resnet20", "train")]
)
def test_one_gradient_by_plain_autograd_has_the_bits_of_torch_func(name, mode):
    rng = torch.Generator().manual_seed(4)
    net = models.build(name, (1, 16, 16), 10)
    x, soft = torch.rand(1, 2, 1, 16, 16, generator=rng), torch.randn(1, 2, 10, generator=rng)
    quick = own_gradient(stateless(net, mode))
    right, theta = gradient_function(stateless(net, mode)), weights(net)

    def slopes(f):
        z, y = x.clone().requires_grad_(), soft.clone().requires_grad_()
        g = f(z, y.softmax(2))
        return *g.values(), *torch.autograd.grad(sum(t.pow(2).sum() for t in g.values()), (z, y))

    pairs = zip(slopes(quick), slopes(lambda x, y: right(theta, x, y)), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    with torch.no_grad():
        assert torch.equal(*(f["head.bias"] for f in (quick(x, soft), right(theta, x, soft))))
    assert not any(t.requires_grad for t in quick(x, soft).values())


def test_an_imitation_can_be_differentiated_by_torch_func_too(small):
    net, x, y = small
    imitate = share(net, x[:1], y[:1]).imitator()

    def size(z):
        return sum(t.pow(2).sum() for t in imitate(z, y[None, :1]).values())

    z = x[1:2, None].clone().requires_grad_()
    (want,) = torch.autograd.grad(size(z), z)
    torch.testing.assert_close(torch.func.grad(size)(x[1:2, None]), want)
    torch.testing.assert_close(torch.func.vmap(size)(z.detach()[None])[0], size(z))


@pytest.mark.parametrize("attack", [GS(steps=6), IDLG(steps=6)])
@pytest.mark.parametrize("uploads", [1, 2])
def test_matching_repeats_on_a_network_that_draws(small, attack, uploads):
    net, x, y = small
    upload = share(net, x[:uploads], y[:uploads], PRECODE(8), each=1, knows=("labels",))
    first = attack.run(upload, seed=1).images
    before = torch.random.get_rng_state()
    torch.rand(5)
    after = torch.random.get_rng_state()
    assert torch.equal(attack.run(upload, seed=1).images, first)
    assert torch.equal(torch.random.get_rng_state(), after) and not torch.equal(before, after)


def test_a_reconstruction_says_which_solver_made_it(small):
    net, x, y = small
    upload = share(net, x[:1], y[:1], knows=("labels",))
    assert IDLG(steps=1).run(upload).details["solver"] == solvers.SOLVER == "lbfgs-2"
    assert GS(steps=1).run(upload).details["solver"] == "adam-1"


def test_one_upload_alone_gives_the_same_as_among_others(small):
    net, x, y = small
    upload = share(net, x, y, each=1)
    together, alone = (IDLG(steps=15).run(u) for u in (upload, upload[0]))
    torch.testing.assert_close(together.images[:1], alone.images, atol=1e-3, rtol=1e-3)


def test_a_batch_of_two_and_an_update_of_two_steps(small):
    net, x, y = small
    knows = ("labels",)
    pair = share(net, x[:2], y[:2], knows=knows)
    found = Matching(steps=400).run(pair)
    order = metrics.assign(found.images, x[:2])
    assert metrics.psnr(found.images[order], x[:2]).min() > 25
    plan = Plan(eta=0.05, steps=2, batch_size=1, shuffle=False, mode="eval")
    update = share(net, x[:1], y[:1], knows=knows, plan=plan)
    found = Matching(steps=200).run(update)
    assert metrics.psnr(found.images, x[:1]).min() > 25


def test_the_best_restart_is_chosen_by_cost_alone(small):
    """More restarts never raise the attacker's cost, and the first start stays among them."""
    net, x, y = small
    upload = share(net, x[:2], y[:2], each=1, knows=("labels",))
    single, several = (GS(steps=60, restarts=r).run(upload) for r in (1, 4))
    assert (several.cost <= single.cost + 1e-6)[0]  # upload 0 keeps its first start
    again = upload.imitator()(several.images.view(2, 1, 1, 12, 12), y[:2, None])
    dot = sum((again[n] * t).flatten(1).sum(1) for n, t in upload.tensors.items())
    sizes = [
        sum(t.flatten(1).pow(2).sum(1) for t in d.values()).sqrt() for d in (again, upload.tensors)
    ]
    torch.testing.assert_close(several.cost, 1 - dot / (sizes[0] * sizes[1]), atol=1e-5, rtol=1e-3)


def test_an_attacker_who_knows_of_pruning_is_not_misled(small):
    """Entries that were pruned say nothing; matching them to zero would push the image away."""
    net, x, y = small
    upload = share(net, x, y, Prune(0.6), each=1, knows=("labels",))
    naive, aware = (IDLG(steps=150, nonzero=n).run(upload) for n in (False, True))
    assert metrics.psnr(aware.images, x).median() > metrics.psnr(naive.images, x).median() + 5


def test_dropped_tensors_do_not_matter(small):
    net, x, y = small
    upload = share(net, x, y, each=1, knows=("labels",))
    spoiled = {n: t * (-3 if n == "head.weight" else 1) for n, t in upload.tensors.items()}
    wrong = pf.Upload(spoiled, "gradient", net, 1, knows=upload.knows)
    clean, cured = (IDLG(steps=40, drop=("head.weight",)).run(u) for u in (upload, wrong))
    assert torch.equal(clean.images, cured.images)
    with pytest.raises(PrivflError, match="leaves no tensor"):
        IDLG(drop=("head", "features")).run(upload)


def test_per_tensor_distance_is_the_mean_of_each_tensors_own(small):
    net, x, y = small
    upload = share(net, x, y, each=1)
    other = share(net, x.flip(0), y, each=1).tensors
    got = GS(per_tensor=True).cost(upload)(x.flip(0)[:, None], y[:, None], torch.arange(4))
    cosines = [
        torch.cosine_similarity(other[n].flatten(1), t.flatten(1))
        for n, t in upload.tensors.items()
    ]
    torch.testing.assert_close(got, 1 - torch.stack(cosines).mean(0), rtol=1e-4, atol=1e-6)


def test_likelihood_is_the_log_density_of_the_noise(small):
    net, x, y = small
    upload = share(net, x, y, DPGaussian(0.02), each=1, knows=("labels", "noise"))
    cost = Matching(distance="likelihood").cost(upload)
    near, far = (cost(z[:, None], y[:, None], torch.arange(4)) for z in (x, x.flip(0)))

    def log_density(z):
        mean = share(net, z, y, each=1).tensors
        noise = {n: torch.distributions.Normal(t, 0.02) for n, t in mean.items()}
        return sum(noise[n].log_prob(t).flatten(1).sum(1) for n, t in upload.tensors.items())

    torch.testing.assert_close(
        far - near, log_density(x) - log_density(x.flip(0)), rtol=1e-3, atol=0
    )
    entries = sum(t[0].numel() for t in upload.tensors.values())
    assert near.mean().item() == pytest.approx(entries / 2, rel=0.1)  # half a squared σ an entry
    with pytest.raises(PrivflError, match="needs the noise: knows"):
        IDLG(distance="likelihood").run(share(net, x, y, each=1))


def test_rounds_average_the_noise(small):
    net, x, y = small

    def sent(seed):
        return share(net, x, y, DPGaussian(0.01), each=1, knows=("labels",), seed=seed)

    rounds = [sent(seed) for seed in range(16)]
    mean = {n: sum(u.tensors[n] for u in rounds) / 16 for n in rounds[0].tensors}
    average = pf.Upload(mean, "gradient", net, 1, knows=rounds[0].knows)
    x0, x1 = x[:, None], x.flip(0)[:, None]
    ask = (y[:, None], torch.arange(4))
    joint = sum(IDLG().cost(u)(x1, *ask) - IDLG().cost(u)(x0, *ask) for u in rounds)
    once = IDLG().cost(average)
    torch.testing.assert_close(joint, 16 * (once(x1, *ask) - once(x0, *ask)), rtol=1e-3, atol=1e-3)
    one, many = (metrics.psnr(IDLG(steps=150).run(r).images, x) for r in (rounds[0], rounds))
    assert (many - one).median() > 6  # 10 log10(16) = 12 dB where noise is all that is wrong


def test_rounds_may_come_from_a_model_that_moved_on(small):
    net, x, y = small
    later = models.build("lenet", (1, 12, 12), 10, seed=5)
    rounds = [share(m, x, y, DPGaussian(0.01), each=1, knows=("labels",)) for m in (net, later)]
    one, both = (metrics.psnr(IDLG(steps=150).run(r).images, x) for r in (rounds[0], rounds))
    assert (both - one).median() > 1
    with pytest.raises(PrivflError, match="same clients and batch size"):
        IDLG().run([rounds[0], rounds[1][:2]])


def test_a_start_near_the_truth_is_used(small):
    net, x, y = small
    upload = share(net, x[:1], y[:1], knows=("labels",))
    found = GS(steps=1, tv=0.0, start=x[0]).run(upload)
    assert metrics.psnr(metrics.as_image(found.images), x[:1]).item() > 35


def test_history_shows_the_attack_at_work(small):
    net, x, y = small
    found = IDLG(steps=80, frames=4).run(share(net, x, y, each=1))
    errors = [metrics.mse(images, x).mean().item() for _, images in found.history]
    assert [tick for tick, _ in found.history] == [20, 40, 60, 80] and errors[-1] < errors[0] / 2


def test_same_seed_same_bits(small):
    net, x, y = small
    upload = share(net, x, y, each=1)
    a, b, c = (DLG(steps=20).run(upload, seed=s).images for s in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_a_start_that_diverges_is_counted_not_hidden(small):
    net, x, y = small
    upload = share(net, x, y, each=1)
    with torch.no_grad():
        upload.model.features[0].weight.mul_(torch.inf)  # every start of the server's copy is NaN
    found = IDLG(steps=5).run(upload)
    assert found.failed == 4 and found.cost.isinf().all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: GS(steps=0), "steps is 0; it must be a whole number at"),
        (lambda: GS(distance="l3"), "choose one of: l2, cosine"),
        (lambda: IDLG(box=True), "box=True needs optimizer='adam'"),
        (lambda: Matching(labels="guess"), "choose one of: infer, joint"),
    ],
)
def test_bad_settings_get_one_sentence(refused, call, says):
    refused(call, says)


def test_labels_that_cannot_be_read_are_asked_for(small):
    net, x, y = small
    upload = share(net, x, y, each=1)
    hidden = {n: t for n, t in upload.tensors.items() if not n.startswith("head")}
    blind = pf.Upload(hidden, "gradient", net, 1)
    with pytest.raises(PrivflError, match="grant them with knows="):
        IDLG(steps=5).run(blind)


def test_every_attack_has_a_name():
    assert set(attacks.ATTACKS) >= {"closed_form", "dlg", "idlg", "gs"}
