"""Chapter "A lock on the gradient: FedKL": its statements, exercises and studies."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privfl_lite.attacks.adaptive.fedkl_recursion import projected
from privfl_lite.attacks.analytic.equations import by_channel, kernel_equations
from privfl_lite.models.keylock import KeyLock
from privfl_lite.runtime import generator
from privfl_lite.studies import STUDIES
from privfl_lite.studies.fedkl.training import difference, table
from privfl_lite.teach import ledger
from privfl_lite.teach.checks import fedkl as checks

SEEDS = range(3)
SIDE, CLASSES = 8, 5


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-10)


class Small:
    """conv, normalization, γ û + β, sigmoid, a fully connected layer; in double precision."""

    def __init__(
        self, seed: int, channels: int = 6, kernel: int = 5, padding: int = 2, bias: bool = True
    ):
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(1, channels, kernel, 2, padding, bias=bias).double()
        side = (SIDE + 2 * padding - kernel) // 2 + 1
        self.head = nn.Linear(channels * side**2, CLASSES).double()
        rng = generator(seed)
        self.x = torch.rand(1, 1, SIDE, SIDE, generator=rng).double()
        self.y = torch.tensor([seed % CLASSES])
        self.gamma, self.beta, self.mean = torch.randn(3, channels, generator=rng).double()
        self.var = torch.rand(channels, generator=rng).double() + 0.5

    def run(
        self,
        x: Tensor | None = None,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        mode: str = "train",
        eps: float = 0.0,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The upload, and what stays inside: s, δ, û, u, ∂ℓ/∂u, σ² + ε and μ."""
        x, gamma, beta = (
            b if a is None else a for a, b in ((x, self.x), (gamma, self.gamma), (beta, self.beta))
        )
        u = self.conv(x)
        over = (0, 2, 3)
        mean, var = (u.mean(over), u.var(over, correction=0))
        if mode == "eval":
            mean, var = self.mean, self.var
        wide = (slice(None), None, None)
        u_hat = (u - mean[wide]) / (var + eps)[wide].sqrt()
        s = gamma[wide] * u_hat + beta[wide]
        y = self.y.expand(len(x))
        loss = F.cross_entropy(self.head(s.sigmoid().flatten(1)), y)
        weights = [*self.conv.named_parameters("conv"), *self.head.named_parameters("head")]
        wanted = [p for _, p in weights] + [s, u, u_hat]
        found = torch.autograd.grad(loss, wanted, materialize_grads=True)
        upload = {n: g for (n, _), g in zip(weights, found, strict=False)}
        delta, du, du_hat = found[len(weights) :]
        inside = {"s": s, "delta": delta, "u": u, "du": du, "u_hat": u_hat, "du_hat": du_hat}
        return upload, {k: v.detach() for k, v in inside.items()} | {"var": var + eps, "mean": mean}

    def system(self, s: Tensor, signal: Tensor, g: Tensor) -> Tensor:
        """The matrix of the theorem, unknowns x, a, d."""
        n, c = SIDE**2, len(s)
        one = torch.eye(n).double().view(n, 1, SIDE, SIDE)
        W = (self.conv(one) - self.conv(0 * one)).flatten(1).T.detach()
        M = kernel_equations(self.conv, signal, (SIDE, SIDE))

        def channel(rows: int) -> Tensor:
            return torch.eye(c).double().repeat_interleave(rows, 0)

        at, k = s[0].numel(), g[0].numel()
        first = torch.cat([W, -channel(at) * s.reshape(-1, 1), -channel(at)], 1)
        second = torch.cat([M, -channel(k) * by_channel(g), 0 * channel(k)], 1)
        return torch.cat([first, second / M.norm()])


def apart(a: dict[str, Tensor], b: dict[str, Tensor], skip: tuple[str, ...] = ()) -> float:
    """The largest relative difference of two uploads, over tensors."""
    return max(
        ((b[n] - a[n]).norm() / a[n].norm().clamp(min=1e-12)).item() for n in a if n not in skip
    )


NOISE = ("conv.bias",)  # 0 in train mode, so that its relative error says nothing


# --- the derivatives and Proposition 2 ---


def locked_loss(seed: int, activation: str = "none", batch: int = 3) -> tuple[Tensor, ...]:
    """A net with a lock and a batch: lock, s, û and the loss, ready to differentiate."""
    net, rng = Small(seed), generator(seed, 1)
    lock = KeyLock(6, 20, activation).double()
    lock.key.copy_(torch.rand(20, generator=rng))
    x = torch.rand(batch, 1, SIDE, SIDE, generator=rng).double()
    u = net.conv(x)
    u_hat = (u - u.mean((0, 2, 3), keepdim=True)) / u.std((0, 2, 3), correction=0, keepdim=True)
    gamma, beta = lock()
    s = gamma[:, None, None] * u_hat + beta[:, None, None]
    y = torch.randint(CLASSES, (batch,), generator=rng)
    return lock, s, u_hat, F.cross_entropy(net.head(s.sigmoid().flatten(1)), y)


@pytest.mark.parametrize("seed", SEEDS)
def test_claim_kl_lock_gradients(seed: int) -> None:
    """Eq. 27–29 against autograd: right with the sums, and no single position is right."""
    lock, s, u_hat, loss = locked_loss(seed)
    wanted = [lock.scale.weight, lock.scale.bias, lock.shift.weight, lock.shift.bias, s, u_hat]
    by_v, by_c, by_w, by_d, delta, by_hat = torch.autograd.grad(loss, wanted)
    over = (0, 2, 3)
    g_gamma, g_beta = (delta * u_hat).sum(over), delta.sum(over)
    close(by_v, torch.outer(g_gamma, lock.key))
    close(by_w, torch.outer(g_beta, lock.key))
    close(by_c, g_gamma)
    close(by_d, g_beta)
    close(by_hat, lock()[0].detach()[:, None, None] * delta)  # Eq. 29 as printed
    for each, total in ((delta * u_hat, g_gamma), (delta, g_beta)):  # Eq. 27, 28 as printed
        single = each.transpose(0, 1).flatten(1)
        assert ((single - total[:, None]).abs() > 1e-8).all()


@pytest.mark.parametrize("activation", ["none", "relu"])
def test_prop_kl_key_read(activation: str) -> None:
    lock, _, _, loss = locked_loss(0, activation)
    for layer in (lock.scale, lock.shift):
        by_w, by_b = torch.autograd.grad(loss, [layer.weight, layer.bias], retain_graph=True)
        close(by_w.T @ by_b / by_b.square().sum(), lock.key)
        dead = layer(lock.key) < 0
        if activation == "relu":
            assert dead.any() and not by_b[dead].any() and not by_w[dead].any()
        elif dead.any():
            assert by_b[dead].abs().min() > 0
    nn.init.constant_(lock.shift.bias, -9.0)  # a dead lock tells nothing
    nn.init.constant_(lock.scale.bias, -9.0)
    if activation == "relu":
        lock.key.uniform_()
        out = sum(t.sum() for t in lock())
        assert not any(g.any() for g in torch.autograd.grad(out, list(lock.parameters())))


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_kl_proposition_2(seed: int) -> None:
    """One factor a channel in Eq. 26; the upload knows key and lock through γ and β only."""
    net = Small(seed)
    for mode in ("train", "eval"):
        for eps in (0.0, 1e-2):
            _, inside = net.run(mode=mode, eps=eps)
            d, h = (inside[k].flatten(2)[0] for k in ("delta", "u_hat"))
            made = d
            if mode == "train":
                made = d - d.mean(1, keepdim=True) - h * (d * h).mean(1, keepdim=True)
            factor = net.gamma / inside["var"].sqrt()
            close(inside["du"].flatten(2)[0], (factor[:, None] * made).detach())
            close(inside["du_hat"], net.gamma[:, None, None] * inside["delta"])
            # the same δ and û with another γ have another error signal: it is not determined
            assert (0.5 * factor[:, None] * made - factor[:, None] * made).norm() > 1e-6
    # 1: another key and another lock with the same γ and β
    coefficients = []
    for k in range(2):
        lock = KeyLock(6, 11, "none").double()
        lock.key.copy_(torch.rand(11, generator=generator(seed, k)))
        with torch.no_grad():
            lock.scale.bias += net.gamma - lock()[0]
            lock.shift.bias += net.beta - lock()[1]
        coefficients.append([t.detach() for t in lock()])
    a, b = (net.run(gamma=g, beta=h)[0] for g, h in coefficients)
    assert apart(a, b, NOISE) < 1e-9
    assert apart(net.run()[0], net.run(gamma=1.1 * net.gamma)[0], NOISE) > 1e-3  # γ does matter


@pytest.mark.parametrize("seed", SEEDS)
def test_prop_kl_ambiguity(seed: int) -> None:
    padded, bare = Small(seed), Small(seed, kernel=3, padding=0)
    for net, kappa in ((padded, 0.0), (bare, 0.3)):  # 1: contrast, and brightness without padding
        assert apart(net.run()[0], net.run(0.4 * net.x + kappa)[0], NOISE) < 1e-9
        # 2: the negative, with −γ
        other = net.run(-0.4 * net.x + kappa, -net.gamma)[0]
        assert apart(net.run()[0], other, NOISE) < 1e-9
        assert apart(net.run()[0], net.run(-0.4 * net.x + kappa)[0], NOISE) > 1e-2  # public γ
    assert apart(padded.run()[0], padded.run(padded.x + 0.3)[0], NOISE) > 1e-3  # the border tells
    assert apart(bare.run()[0], bare.run(1 - bare.x, -bare.gamma)[0], NOISE) < 1e-9
    for eps in (1e-3,):  # ε > 0: nearly
        assert 1e-9 < apart(padded.run(eps=eps)[0], padded.run(0.4 * padded.x, eps=eps)[0]) < 1
    # 3: eval mode
    for bias in (True, False):
        net = Small(seed, bias=bias)
        b = net.conv.bias.detach() if bias else torch.zeros(6).double()
        for alpha in (0.4, -2.0):
            shift = (1 - 1 / alpha) * net.gamma * (b - net.mean) / net.var.sqrt()
            one, _ = net.run(mode="eval")
            two, _ = net.run(alpha * net.x, net.gamma / alpha, net.beta + shift, mode="eval")
            assert apart(one, two, NOISE) < 1e-9
            if bias:
                close(two["conv.bias"], one["conv.bias"] / alpha)
                assert apart(one, two) > 0.1
        assert apart(net.run(mode="eval")[0], net.run(0.4 * net.x, mode="eval")[0], NOISE) > 1e-2


# --- the lock opens ---


@pytest.mark.parametrize("seed", SEEDS)
def test_lem_kl_secret_read(seed: int) -> None:
    net = Small(seed)
    for eps in (0.0, 0.1):
        _, inside = net.run(eps=eps)
        s, var = inside["s"].flatten(2)[0], inside["var"].detach()
        close(s.mean(1), net.beta)
        close(s.std(1, correction=0), net.gamma.abs() * ((var - eps) / var).sqrt())
    upload, inside = net.run(mode="eval", eps=0.1)
    total = inside["delta"].sum((0, 2, 3))
    close((net.var + 0.1).sqrt() * upload["conv.bias"] / total, net.gamma)
    s = inside["s"].flatten(2)[0]
    assert (s.mean(1) - net.beta).abs().max() > 1e-2  # in eval mode the mean is not β
    net.gamma[2] = 0.0
    for mode in ("train", "eval"):
        rows = net.run(mode=mode)[0]["conv.weight"].flatten(1).abs().sum(1)
        assert rows[2] == 0 and (rows > 0).sum() == 5
    # two images: the mean over both is β, that over one is not
    x = torch.cat([net.x, net.x.flip(3).square()])
    s = net.run(x)[1]["s"].flatten(2)
    close(s.mean((0, 2)), net.beta)
    assert (s[0].mean(1) - net.beta).abs().max() > 1e-3


def solutions(net: Small, mode: str) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Singular values and right singular vectors of the theorem's matrix; the upload."""
    upload, inside = net.run(mode=mode)
    s, delta = inside["s"][0], inside["delta"][0]
    signal = projected(s, delta) if mode == "train" else delta
    matrix = net.system(s, signal, upload["conv.weight"])
    _, values, vectors = torch.linalg.svd(matrix, full_matrices=True)
    return values, vectors, upload


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("seed", SEEDS)
def test_thm_kl_opens(seed: int, mode: str) -> None:
    net, n = Small(seed), SIDE**2
    values, vectors, upload = solutions(net, mode)
    assert values[-1] < 1e-8 < 1e-3 < values[-2]  # dimension one
    x, a, d = vectors[-1, :n], vectors[-1, n:-6], vectors[-1, -6:]
    truth = net.x.flatten()
    close(x / x[x.abs().argmax()], truth / truth.max())  # 3: up to a factor, sign included
    scale = (truth @ truth) / (x @ truth)
    inside = net.run(mode=mode)[1]
    sigma, mean = inside["var"].sqrt().detach(), inside["mean"].detach()
    close(scale * a, sigma / net.gamma)  # 1
    close(scale * d, mean - net.conv.bias.detach() - scale * a * net.beta)
    if mode == "eval":  # the bias gradient fixes the factor
        total = inside["delta"].sum((0, 2, 3))
        close(total, scale * a * upload["conv.bias"])
    # 2: with one kernel entry for every other pixel, a comb of bright pixels is hidden as well
    net = Small(seed, kernel=3, padding=1)
    values, _, upload = solutions(net, mode)
    comb = torch.zeros(SIDE, SIDE).double()
    comb[::2, ::2] = 0.3
    hidden = mode == "train"
    assert bool(values[-2] < 1e-8) is hidden
    assert (apart(upload, net.run(net.x + comb, mode=mode)[0], NOISE) < 1e-8) is hidden
    # 2: with two channels there are too few equations, and every solution has this upload
    net = Small(seed, channels=2, kernel=3, padding=1)
    values, vectors, upload = solutions(net, mode)
    free = vectors[len(values[values > 1e-9]) :]
    assert len(free) > 5
    mix = torch.randn(len(free), generator=generator(seed)).double() @ free
    x, a, d = mix[:n], mix[n:-2], mix[-2:]
    assert a.abs().min() > 1e-6
    assert abs(torch.cosine_similarity(x, net.x.flatten(), dim=0)) < 0.9  # another image
    s = net.run(mode=mode)[1]["s"][0].flatten(1)
    if mode == "train":
        gamma, beta = a.sign() * s.std(1, correction=0), s.mean(1)
    else:
        gamma = net.var.sqrt() / a
        beta = (net.mean - net.conv.bias.detach() - d) / a
    other = net.run(x.view(1, 1, SIDE, SIDE), gamma, beta, mode)[0]
    assert apart(upload, other, NOISE) < 1e-6


def test_a_dead_channel_takes_its_equations_along() -> None:
    net = Small(0)
    net.gamma[:5] = 0.0  # one channel is left
    upload, inside = net.run()
    s, delta = inside["s"][0], inside["delta"][0]
    matrix = net.system(s, projected(s, delta), upload["conv.weight"])
    assert torch.linalg.matrix_rank(matrix[:, : SIDE**2]) < matrix.shape[1]
    assert (upload["conv.weight"].flatten(1).abs().sum(1) > 0).tolist() == [False] * 5 + [True]


# --- the key ---


def trained_lock(decay: float = 0.0, momentum: float = 0.9) -> tuple[KeyLock, dict[str, Tensor]]:
    """A lock after seven steps on changing batches, and its first weights."""
    net, rng = Small(1), generator(5)
    lock = KeyLock(6, 30, "none").double()
    lock.key.copy_(torch.rand(30, generator=rng))
    first = {n: p.detach().clone() for n, p in lock.named_parameters()}
    step = torch.optim.SGD(lock.parameters(), 0.1, momentum, weight_decay=decay)
    for _ in range(7):
        u = net.conv(torch.rand(4, 1, SIDE, SIDE, generator=rng).double()).detach()
        gamma, beta = lock()
        s = gamma[:, None, None] * (u - u.mean()) / u.std() + beta[:, None, None]
        loss = F.cross_entropy(net.head(s.sigmoid().flatten(1)), torch.arange(4))
        step.zero_grad()
        loss.backward()
        step.step()
    return lock, first


def test_prop_kl_wrong_key() -> None:
    lock, first = trained_lock()
    key = lock.key
    for name in ("scale", "shift"):
        layer = getattr(lock, name)
        v = layer.bias.detach() - first[f"{name}.bias"]
        change = layer.weight.detach() - first[f"{name}.weight"]
        assert v.norm() > 1e-3
        close(change, torch.outer(v, key))  # 1
        other = torch.rand(30, generator=generator(8)).double()
        rho = (key @ other + 1) / (key @ key + 1)
        close(change @ other + v, rho * (change @ key + v))  # 2
    decayed, first = trained_lock(decay=0.1)
    v = decayed.scale.bias.detach() - first["scale.bias"]
    change = decayed.scale.weight.detach() - first["scale.weight"]
    assert (change - torch.outer(v, key)).norm() > 1e-2 * change.norm()  # not with decay
    # one step on the lock is one on γ, at ‖k‖² + 1 times the rate
    lock, _, _, loss = locked_loss(2)
    gamma = lock()[0].detach()
    by_w, by_b = torch.autograd.grad(loss, [lock.scale.weight, lock.scale.bias])
    with torch.no_grad():
        lock.scale.weight -= 0.01 * by_w
        lock.scale.bias -= 0.01 * by_b
    close(lock()[0].detach() - gamma, -0.01 * (lock.key @ lock.key + 1) * by_b)
    # U[0, 1): three quarters; U[−1, 1): nothing. 3: the same as a correlation before training
    keys = torch.rand(2, 1024, generator=generator(3)).double()
    weights = torch.rand(20_000, 1025, generator=generator(4)).double() * 2 - 1
    for k, expected in ((keys, 0.75), (2 * keys - 1, 0.0)):
        longer = torch.cat([k, torch.ones(2, 1).double()], 1)
        rho = (longer[0] @ longer[1] / longer[0].square().sum()).item()
        assert rho == pytest.approx(expected, abs=0.06)
        found = torch.corrcoef(longer @ weights.T)[0, 1].item()
        want = torch.cosine_similarity(longer[0], longer[1], dim=0).item()
        assert found == pytest.approx(want, abs=0.03)


# --- the paper's tables and the studies ---


def test_table_6_is_in_the_papers_own_decibel() -> None:
    table, lenet = ledger.paper("fedkl/table-6"), ("LeNet", "MNIST")
    rows = (
        ("DLG", *lenet),
        ("GRNN", *lenet),
        ("GRNN", "LeNet", "C-100"),
        ("GGL", "ResNet-18", "ILSVRC"),
    )
    for method, net, data in rows:
        rmse, printed = (table[method][net][data][score][1] for score in ("MSE", "PSNR"))
        own = 10 * math.log10(255**2 / rmse)
        assert own == pytest.approx(printed, abs=0.12)
        assert 20 * math.log10(255 / rmse) == pytest.approx(2 * (own - 24.065), abs=0.01)
    assert abs(2 * (table["GRNN"]["LeNet"]["C-100"]["PSNR"][1] - 24.065) - 8.2) < 0.1


def test_training_study_says_what_the_chapter_says() -> None:
    cells = STUDIES["fedkl/training"].show()["cells"]
    low, high = difference(cells, "FedKL", "FedAvg")["interval"]
    assert low < 0 < high  # within the interval
    assert table(cells)["FedKL"]["mean"] > 0.9
    own = [c for c in cells if c.get("arm") == "FedKL" and c["part"] == "digits"]
    mean = {
        kind: sum(sum(c["keys"][kind]) / len(c["keys"][kind]) for c in own) / len(own)
        for kind in ("random", "wrong key", "other key", "zero")
    }
    accuracy = sum(c["accuracy"] for c in own) / len(own)
    assert mean["random"] < 0.2 and mean["zero"] < 0.15  # the collapse
    assert abs(mean["wrong key"] - accuracy) < 0.01  # a trained lock needs no key
    assert abs(mean["other key"] - accuracy) < 0.01


def test_attack_study_says_what_the_chapter_says() -> None:
    cells = STUDIES["fedkl/attack"].show()["cells"]

    def pick(**want: object) -> dict:
        (found,) = [c for c in cells if all(c.get(k) == v for k, v in want.items())]
        return found

    for variant in ("Eq. 30", "ReLU", "own lock"):
        c = pick(part="informed", attack="closed form", variant=variant)
        assert c["images"] >= 20 and c["success"] >= 0.9 * c["images"]
        assert c["labels_right"] == c["images"]
    table = {
        k: pick(part="table", net="lock", attack="DLG", knows=k) for k in ("wrong key", "lock")
    }
    assert table["wrong key"]["fit"]["psnr_mean"] < 15 < table["lock"]["fit"]["psnr_mean"]
    floor = pick(part="floor")
    assert floor["fedkl_psnr"] > 28 and floor["psnr_mean"] < 12
    norm = pick(part="table", net="batch norm", attack="DLG")
    assert norm["psnr_mean"] < 15 and norm["fit"]["psnr_mean"] > 40


def test_ex_kl_by_hand() -> None:
    """Four pixels, a kernel of one pixel with weight 5 and bias ½, γ = −3, β = 5."""
    x = torch.tensor([0.1, 0.1, 0.9, 0.9], dtype=torch.float64)
    delta = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    weight, bias = (torch.tensor(v).double().requires_grad_() for v in (5.0, 0.5))
    u = weight * x + bias
    close(u.detach(), torch.tensor([1.0, 1, 5, 5]).double())
    s = -3 * (u - u.mean()) / u.std(correction=0) + 5
    close(s.detach(), torch.tensor([8.0, 8, 2, 2]).double())
    assert s.mean().item() == pytest.approx(5) and s.std(correction=0).item() == pytest.approx(3)
    public = -3 * (u - 3) / 2 + 5  # eval mode: running mean 3, running variance 4
    g_weight, g_bias = torch.autograd.grad((public * delta).sum(), (weight, bias))
    assert g_bias.item() == pytest.approx(-1.5) and g_weight.item() == pytest.approx(-0.99)
    a = delta.sum() / g_bias  # 1 / −1.5
    shape = a * public.detach() / 5  # x up to a constant
    constant = a * g_weight - (delta * shape).sum()  # Σ δ x = a ∇W, and Σ δ = 1
    close(shape + constant, x)


def test_ex_kl_by_hand_the_negative_has_the_same_upload() -> None:
    delta = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    for pixels, gamma in (((0.0, 0, 1, 1), -3), ((1.0, 1, 0, 0), 3), ((0.1, 0.1, 0.9, 0.9), -3)):
        weight = torch.tensor(5.0).double().requires_grad_()
        u = weight * torch.tensor(pixels, dtype=torch.float64) + 0.5
        s = gamma * (u - u.mean()) / u.std(correction=0) + 5
        close(s.detach(), torch.tensor([8.0, 8, 2, 2]).double())
        (g,) = torch.autograd.grad((s * delta).sum(), weight)
        assert g.item() == pytest.approx(0, abs=1e-12)


# --- exercises ---


def opened(patches, kernels, s, delta, g, project=True, last=-1, turn=True):
    """A reader's answer to ex-kl-open, with the usual mistakes as options."""
    u = s - s.mean(1, keepdim=True)
    u = u / u.norm(dim=1, keepdim=True)
    error = delta - delta.mean(1, keepdim=True) if project else delta
    error = error - u * (u * error).sum(1, keepdim=True) if project else error
    rows, count, n = [], len(s), patches.shape[2]
    for c in range(count):
        for p in range(len(patches)):
            row = torch.zeros(n + 2 * count).double()
            row[:n], row[n + c], row[n + count + c] = kernels[c] @ patches[p], -s[c, p], -1
            rows.append(row)
        seen = torch.einsum("p,pqn->qn", error[c], patches)
        for line, value in zip(seen, g[c], strict=True):
            row = torch.zeros(n + 2 * count).double()
            row[:n], row[n + c] = line, -value
            rows.append(row)
    image = torch.linalg.svd(torch.stack(rows))[2][last, :n]
    return image / image[image.abs().argmax()] if turn else image


def test_check_open_lock(expect) -> None:
    expect(checks.check_open_lock, opened, "Right")
    for options, hint in (
        ({"project": False}, "take off the mean"),
        ({"last": 0}, "first singular vector"),
        ({"last": -2}, "unknowns are x, a and d"),
    ):
        expect(checks.check_open_lock, lambda *a, o=options: opened(*a, **o), hint)
    expect(checks.check_open_lock, lambda *a: -opened(*a), "the negative")
    expect(checks.check_open_lock, lambda *a: opened(*a, turn=False), "sign included")
    expect(checks.check_open_lock, lambda *a: opened(*a)[:3], "has shape")
    expect(checks.check_open_lock, lambda *a: ..., "replace the dots")


def secret(s: Tensor) -> tuple[Tensor, Tensor]:
    return s.flatten(1).std(1, correction=0), s.flatten(1).mean(1)


def test_check_read_secret(expect) -> None:
    expect(checks.check_read_secret, secret, "Right")
    for wrong, hint in (
        (lambda s: secret(s)[::-1], "the order is"),
        (lambda s: (s.flatten(1).std(1), secret(s)[1]), "one less"),
        (lambda s: (secret(s)[0] ** 2, secret(s)[1]), "take its root"),
        (lambda s: (secret(s)[0], s[:, 0, 0]), "β is the mean"),
        (lambda s: (s[:, 0, 0], secret(s)[1]), "standard deviation of s"),
        (lambda s: secret(s)[0], "return two tensors"),
        (lambda s: ..., "replace the dots"),
    ):
        expect(checks.check_read_secret, wrong, hint)


def scale(g: Tensor, d: Tensor, var: Tensor, eps: float) -> Tensor:
    return (var + eps).sqrt() * g / d.sum((1, 2))


def test_check_read_scale(expect) -> None:
    expect(checks.check_read_scale, scale, "Right")
    wrongs: tuple[tuple[Callable, str], ...] = (
        (lambda g, d, v, e: g / d.sum((1, 2)), "variance is missing"),
        (lambda g, d, v, e: v.sqrt() * g / d.sum((1, 2)), "eps is missing"),
        (lambda g, d, v, e: (v + e) * g / d.sum((1, 2)), "take the root"),
        (lambda g, d, v, e: g / d.sum((1, 2)) / (v + e).sqrt(), "multiply by"),
        (lambda g, d, v, e: (v + e).sqrt() * g / d.mean((1, 2)), "not a mean"),
        (lambda g, d, v, e: (v + e).sqrt() * d.sum((1, 2)) / g, "other way round"),
        (lambda g, d, v, e: g, "times the sum of δ"),
        (lambda g, d, v, e: d, "has shape"),
        (lambda g, d, v, e: None, "replace the dots"),
    )
    for wrong, hint in wrongs:
        expect(checks.check_read_scale, wrong, hint)


def test_check_key_of(expect) -> None:
    expect(checks.check_key_of, lambda w, b: w.T @ b / b.square().sum(), "Right")
    expect(checks.check_key_of, lambda w, b: w[b.abs().argmax()] / b[b.abs().argmax()], "Right")
    for wrong, hint in (
        (lambda w, b: (w / b[:, None]).mean(0), "dead channel"),
        (lambda w, b: w.T @ b / b.norm(), "not by its root"),
        (lambda w, b: w.T @ b, "divide by ‖g_bias‖²"),
        (lambda w, b: (w[b != 0] / b[b != 0, None]).mean(0), "weigh rows"),
        (lambda w, b: w[1] / b[1], "large bias gradient"),
        (lambda w, b: w[3], "outer product"),
        (lambda w, b: ..., "replace the dots"),
    ):
        expect(checks.check_key_of, wrong, hint)


def test_check_turn(expect) -> None:
    def top(images: Tensor) -> Tensor:
        flat = images.flatten(1)
        return flat.gather(1, flat.abs().argmax(1, keepdim=True))[:, :, None, None]

    expect(checks.check_turn, lambda v: v / top(v), "Right")
    for wrong, hint in (
        (lambda v: v / top(v).abs(), "keep the sign"),
        (lambda v: v / v.amax((1, 2, 3), keepdim=True), "max misses it"),
        (lambda v: v / v[0].max(), "its own brightest"),
        (lambda v: v, "whose magnitude is largest"),
        (lambda v: v.flatten(1), "has shape"),
        (lambda v: None, "replace the dots"),
    ):
        expect(checks.check_turn, wrong, hint)
