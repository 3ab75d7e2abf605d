"""Usage: explore_data.py [NAME]. Write what explorables show: privfl_lite/teach/js/explore/data.

``digits``: embedded digits at 14 × 14 and one at 28 × 28, and quantiles of brightness over all of
them. ``face``: a photograph, 48 × 48. ``signals``: the error signals of a dense first layer for one
digit. ``epsilon``: the accountant's ε over (σ, q, T), as far as it comes from Rényi orders that are
no whole numbers (for whole ones the page has a closed form), and how far the page is off. Pixels
are bytes, logarithms of ε 16 bits, in base64. ``plan``: the laws and
ratios of privfl_lite/laws.py. ``reach``: the stored study ``reach/map``, whatever cells it
has, and what its theory counts. tests/book/test_explorables.py computes it again.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from explore_reach import reach
from PIL import Image
from scipy.special import gammaln, logsumexp, xlogy

import privfl_lite as pf
from privfl_lite import laws, planning
from privfl_lite.data.embedded import bundled
from privfl_lite.defenses.masking import BYTES
from privfl_lite.privacy import epsilon
from privfl_lite.privacy.accountants import _rdp

OUT = Path(pf.__file__).parent / "teach" / "js" / "explore" / "data"
SIGMA, RATE, ROUNDS = (0.5, 16.0, 33), (2.0**-10, 1.0, 21), (1, 2**14, 15)  # low, high, points
DELTA = 1e-5
TRIED = 2000  # random settings on which the interpolation is compared with the accountant
SEED = 23


def text(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


def pixels(x: torch.Tensor) -> str:
    return text((255 * x).round().to(torch.uint8).numpy())


# --- pictures ---


def digits() -> dict[str, Any]:
    """16 digits that differ in brightness, and the brightness of all 5,000 at 0, 1, … 100 %."""
    small = pf.load("mnist", size=14)
    x, _ = small.sample(16, seed=7)
    every = torch.cat([small.x_train, small.x_test]).mean((1, 2, 3))
    levels = torch.quantile(every.double(), torch.linspace(0, 1, 101).double())
    return {
        "source": small.source,
        "side": 14,
        "images": [pixels(image) for image in x],
        "brightness": [round(v, 6) for v in levels.tolist()],
    }


def one_digit() -> tuple[torch.Tensor, torch.Tensor]:
    full = pf.load("mnist")
    return full.sample(1, seed=4)


def signals() -> dict[str, Any]:
    """A digit at 28 × 28 and the bias gradient δ of an untrained MLP's first layer for it."""
    x, y = one_digit()
    model = pf.models.build("mlp", pf.load("mnist"))
    tensors = pf.share(model, x, y).tensors
    name = next(n for n in tensors if n.endswith("bias"))
    return {
        "side": 28,
        "image": pixels(x[0]),
        "delta": [float(f"{v:.6g}") for v in tensors[name][0].tolist()],
    }


def face() -> dict[str, Any]:
    """Eileen Collins (NASA, public domain), out of scikit-image: 3 × 48 × 48."""
    whole = Image.open(bundled("skimage/data/astronaut.png")).convert("RGB")
    cut = whole.crop((130, 0, 330, 200)).resize((48, 48), Image.Resampling.LANCZOS)
    return {"side": 48, "image": text(np.asarray(cut).transpose(2, 0, 1).copy())}


# --- ε over rounds ---


def grid(low: float, high: float, points: int) -> np.ndarray:
    return np.exp(np.linspace(np.log(low), np.log(high), points))


def table() -> np.ndarray:
    """log ε at δ = 1e-5 from the orders between whole numbers, Poisson sampling: (σ, q, T)."""
    sigmas, rates, rounds = grid(*SIGMA), grid(*RATE), np.round(grid(*ROUNDS)).astype(int)
    rates[-1] = 1.0
    eps = [[[between(s, q, t) for t in rounds] for q in rates] for s in sigmas]
    return np.log(np.array(eps))


def between(sigma: float, rate: float, rounds: int) -> float:
    """ε after ``rounds``, the best order that is no whole number (prop-rdp, 3)."""
    orders, rdp = _rdp(float(sigma), float(rate), "poisson")
    some = orders % 1 > 0
    return float((rounds * rdp[some] + conversion(orders[some])).min())


def whole(sigma: float, rate: float, rounds: int) -> float:
    """The same with the orders 2 to 63 (Mironov et al. 2019, Eq. 5)."""
    orders = np.arange(2, 64)
    k = np.arange(64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = gammaln(orders[:, None] + 1) - gammaln(k + 1) - gammaln(orders[:, None] - k + 1)
        logs += xlogy(k, rate) + xlogy(orders[:, None] - k, 1 - rate) + k * (k - 1) / 2 / sigma**2
    rdp = logsumexp(np.where(k <= orders[:, None], logs, -np.inf), axis=1) / (orders - 1)
    return float((rounds * rdp + conversion(orders)).min())


def conversion(orders: np.ndarray) -> np.ndarray:
    """What (ε, δ) has on top of Rényi's ρ at an order (prop-rdp, 3)."""
    return (-np.log(DELTA) - np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)


def shown(logs: np.ndarray, setting: tuple[float, float, int]) -> float:
    """What the page shows for (σ, q, T)."""
    return max(0.0, min(interpolate(logs, setting), whole(*setting)))


def interpolate(logs: np.ndarray, setting: tuple[float, ...]) -> float:
    """Cubic through four neighbors on each axis, in logarithms; the page does the same."""
    for (low, high, points), value in zip((SIGMA, RATE, ROUNDS), setting, strict=True):
        place = np.log(value / low) / np.log(high / low) * (points - 1)
        first = int(min(max(np.floor(place) - 1, 0), points - 4))
        logs = np.tensordot(_weights(place - first), logs[first : first + 4], 1)
    return float(np.exp(logs))


def _weights(t: float) -> np.ndarray:
    a, b, c, d = t, t - 1, t - 2, t - 3
    return np.array([-b * c * d / 6, a * c * d / 2, -a * b * d / 2, a * b * c / 6])


def settings(count: int, seed: int) -> list[tuple[float, float, int]]:
    """Random (σ, q, T), even on the sliders' logarithmic scales."""
    u = np.random.default_rng(seed).random((count, 3))
    rounds = np.round(1e4 ** u[:, 2]).astype(int)
    spread = [low * (high / low) ** u[:, i] for i, (low, high, _) in enumerate((SIGMA, RATE))]
    return [*zip(*(v.tolist() for v in (*spread, rounds)), strict=True)]


def accountant() -> dict[str, Any]:
    logs = table()
    low, high = float(logs.min()), float(logs.max())
    coded = np.round((logs - low) / (high - low) * 65535).astype("<u2")
    stored = low + coded / 65535 * (high - low)
    off = [abs(shown(stored, s) / epsilon(*s, DELTA) - 1) for s in settings(TRIED, SEED)]
    return {
        "delta": DELTA,
        "axes": [SIGMA, RATE, ROUNDS],
        "low": low,
        "high": high,
        "logs": text(coded),
        "tried": TRIED,
        "worst": float(f"{max(off):.4f}"),
        "usual": float(f"{np.quantile(off, 0.95):.4f}"),
    }


CHOICES = (  # name on the page, defense, secure sum, where its noise is, unit, against whom
    ("nothing", "none", "none", "", "", ""),
    ("Prune 0.9", "prune:rate=0.9", "none", "", "", ""),
    ("FedKL", "fedkl", "none", "", "", ""),
    ("DCS²", "dcs2", "none", "", "", ""),
    ("masks only", "none", "pairs", "", "", ""),
    ("DP-SGD at clients", "dp_sgd:clip=1.0,sigma={}", "none", "step", "example", "the server"),
    ("noise at the server", "modelcloak:clip=1.0,sigma={},where=server", "none", "mean", "client",
     "outsiders"),
    ("noise, masks in pairs", "modelcloak:clip=1.0,sigma={}", "pairs", "sums", "client",
     "a server that sees sums only"),
    ("noise, graph of masks", "modelcloak:clip=1.0,sigma={}", "graph", "sums", "client",
     "a server that sees sums only"),
)  # fmt: skip


def plan() -> dict[str, Any]:
    """What the plan's page computes with: laws of seconds, ratios of defenses, sizes."""
    rows = []
    for name, defense, summing, place, unit, against in CHOICES:
        cost = laws.ratios(defense.format(1))
        row = {"name": name, "defense": defense, "summing": summing, "place": place}
        row |= {"unit": unit, "against": against, "time": cost.time, "bytes": cost.bytes}
        rows.append(row | {"why": "" if place else "nothing clips and adds noise"})
    return {
        "laws": laws.seconds(),
        "defenses": rows,
        **{
            "key": BYTES,
            "bits": pf.defenses.SecureSum().bits,
            "float": planning.FLOAT,
            "tensors": planning.TENSORS,
        },
        **{"sure": planning.SURE, "corrupt": planning.CORRUPT, "lost": planning.LOST},
    }


MAKERS = {
    "digits": digits,
    "signals": signals,
    "face": face,
    "epsilon": accountant,
    "reach": reach,
    "plan": plan,
}


def module(made: dict[str, Any]) -> str:
    lines = [f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}," for k, v in made.items()]
    head = "// Made by scripts/explore_data.py; do not edit.\nexport const DATA = {\n"
    return head + "\n".join(lines) + "\n};\n"


def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    for name in names or MAKERS:
        (OUT / f"{name}.js").write_text(module(MAKERS[name]()), encoding="utf-8")
        print(f"{name}.js: {(OUT / f'{name}.js').stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
