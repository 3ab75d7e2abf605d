"""Figures and tables of the chapter "Proof, bound, audit", from its three stored studies."""

from __future__ import annotations

from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...metrics import clustered
from ...pictures import unpack
from ...privacy import analytic_gaussian_epsilon, epsilon_of_attack, success_bound
from ...studies import STUDIES
from ...studies.proof_bound_audit.axis import drawn
from ..figures import COLORS, show_image
from ..tables import Spread

NAME = "proof-bound-audit/"
LOW, HIGH = 0.007, 14  # noise multipliers on the common axis


@cache
def result(study: str = "axis") -> dict[str, Any]:
    return STUDIES[NAME + study].show()


def settings() -> dict[str, Any]:
    return result()["settings"]


@cache
def cell(part: str, sigma: float, rounds: int) -> dict[str, Any]:
    """The stored cell of a point of the axis."""
    want = {"part": part, "sigma": sigma, "rounds": rounds}
    return next(c for c in result()["cells"] if want.items() <= c.items())


def share(hits: list[int], counts: list[int]) -> Spread:
    """A rate over networks with its clustered interval."""
    return Spread(sum(hits) / sum(counts), *clustered(hits, counts))


def named(sigma: float, rounds: int, few: bool = False) -> Spread:
    """How often the likeliest candidate is the truth, of 100 or of ten."""
    rows = cell("attack", sigma, rounds)["networks"]
    return share([r["named_few" if few else "named"] for r in rows], [r["clients"] for r in rows])


def rebuilt(sigma: float, rounds: int) -> dict[str, Any]:
    """The search that names most: its name, share named, mean PSNR and first picture."""
    rows = cell("attack", sigma, rounds)["networks"]
    kinds = [k for k in ("search", "denoise") if k in rows[0]]
    many = [r["images"] for r in rows]

    def sums(kind: str) -> tuple[int, float]:
        found = [r[kind] for r in rows]
        return sum(f["named"] for f in found), float(np.mean([f["psnr"] for f in found]))

    best = max(kinds, key=sums)
    return {
        "attack": best,
        "named": share([r[best]["named"] for r in rows], many),
        "psnr": max(sums(k)[1] for k in kinds),
        "picture": rows[0]["search"]["picture"],
    }


def blind() -> dict[str, float]:
    """The mean training image, handed in without looking at any upload."""
    rows = cell("attack", settings()["sigmas"][0], 1)["networks"]
    hits = sum(r["blind"]["named"] for r in rows)
    return {
        "named": hits / sum(r["images"] for r in rows),
        "psnr": float(np.mean([r["blind"]["psnr"] for r in rows])),
    }


def claimed(sigma: float, rounds: int) -> float:
    """The ε that the package states: a replaced example moves a clipped gradient by up to 2C."""
    return analytic_gaussian_epsilon(sigma / 2 / rounds**0.5, settings()["delta_dp"])


def proved_by_naming(sigma: float, rounds: int) -> float:
    """The ε that the naming attack proves to be exceeded (95 % confidence)."""
    rows = cell("attack", sigma, rounds)["networks"]
    hits, tries = (sum(r[k] for r in rows) for k in ("named", "clients"))
    return epsilon_of_attack(hits, tries, 1 / settings()["candidates"], settings()["delta_dp"])


def five(sigma: float, rounds: int) -> dict[str, Any]:
    """The numbers of one point of the axis."""
    most = [success_bound(k, sigma, rounds=rounds) for k in (0.01, 0.1)]
    found = rebuilt(sigma, rounds)
    return {
        "σ": sigma,
        "ε claimed": claimed(sigma, rounds),
        "ε audited": cell("audit", sigma, rounds)["epsilon"],
        "ε by naming": proved_by_naming(sigma, rounds),
        "bound, 1 of 100": most[0],
        "named of 100": named(sigma, rounds),
        "bound, 1 of 10": most[1],
        "named of 10": named(sigma, rounds, few=True),
        "named by rebuilding": found["named"],
        "PSNR": found["psnr"],
    }


def within(rounds: int) -> list[float]:
    """How far the lower end of what was named lies above its bound, at each σ: never over 0."""
    over = []
    for few, kappa in ((False, 0.01), (True, 0.1)):
        for s in settings()["sigmas"]:
            over.append(named(s, rounds, few).low - success_bound(kappa, s, rounds=rounds))
    return over


def hook() -> Figure:
    """One round: rebuilt digits, what is named under its bound, ε claimed over ε audited."""
    fig, axes = plt.subplots(3, 1, figsize=(5.2, 6.0), sharex=True, height_ratios=[0.42, 1.5, 1.5])
    _strip(axes[0], 1)
    _shares(axes[1], 1)
    _epsilons(axes[2], 1)
    axes[2].set(xlabel="noise multiplier σ (noise σC on every entry)", xlim=(LOW, HIGH))
    return fig


def eight() -> Figure:
    """Eight rounds: the same, the digits left out."""
    fig, axes = plt.subplots(2, 1, figsize=(5.2, 5.0), sharex=True)
    _shares(axes[0], 8)
    _epsilons(axes[1], 8)
    axes[1].set(xlabel="noise multiplier σ of each of eight rounds", xlim=(LOW, HIGH))
    return fig


def _strip(ax: Axes, rounds: int) -> None:
    """The first digit as the search rebuilds it, above its σ."""
    ax.set_axis_off()
    span = np.log10(HIGH / LOW)
    for s in settings()["sigmas"]:
        at = np.log10(s / LOW) / span
        small = ax.inset_axes((at - 0.033, 0.0, 0.066, 1.0))
        found = rebuilt(s, rounds)
        show_image(small, unpack(found["picture"]))
        small.set_xlabel(f"{found['psnr']:.0f}", fontsize=9, labelpad=1)
    ax.set_title("what a search rebuilds, and its mean PSNR in dB", fontsize=11)


def _marks(ax: Axes, spreads: list[Spread], fmt: str, color: str, label: str) -> None:
    value = [s.value for s in spreads]
    ends = [[s.value - s.low for s in spreads], [s.high - s.value for s in spreads]]
    ax.errorbar(
        settings()["sigmas"],
        value,
        ends,
        fmt=fmt,
        color=COLORS[color],
        ms=5,
        capsize=2,
        label=label,
    )


def _shares(ax: Axes, rounds: int) -> None:
    """Bound, likelihood and rebuilding, among 100 candidates; chance."""
    sigmas, fine = settings()["sigmas"], np.geomspace(LOW, HIGH, 200)
    most = [success_bound(0.01, s, rounds=rounds) for s in fine]
    ax.plot(fine, most, color=COLORS["defense"], lw=2, label="bound for all attackers")
    _marks(ax, [named(s, rounds) for s in sigmas], "o", "attack", "named by likelihood")
    _marks(ax, [rebuilt(s, rounds)["named"] for s in sigmas], "s", "warm", "named by rebuilding")
    ax.axhline(0.01, color="gray", ls=":", label="guessing")
    ax.set(xscale="log", ylim=(-0.03, 1.05), ylabel="success among 100")
    ax.legend(fontsize=9, loc="upper right")


def _epsilons(ax: Axes, rounds: int) -> None:
    """ε claimed, and what two experiments prove from below."""
    sigmas, fine = settings()["sigmas"], np.geomspace(LOW, HIGH, 200)
    stated = [claimed(s, rounds) for s in fine]
    ax.plot(fine, stated, color=COLORS["defense"], lw=2, label="ε claimed (proof)")
    for of, fmt, color, label in (
        (lambda s: cell("audit", s, rounds)["epsilon"], "^", "attack", "ε audited, one run"),
        (lambda s: proved_by_naming(s, rounds), "o", "warm", "ε proved by naming"),
    ):
        values = np.array([of(s) for s in sigmas])
        kept = values > 0.01  # 0, nothing proved, has no place on this axis
        ax.plot(np.array(sigmas)[kept], values[kept], fmt, color=COLORS[color], ms=6, label=label)
    ax.set(xscale="log", yscale="log", ylim=(0.02, 3e5), ylabel="ε at δ = 1e-5")
    ax.legend(fontsize=9, loc="upper right")


def frame(σ: float, rounds: int) -> Figure:
    """A point of the axis: private digit, rebuilt digit, and five numbers as bars."""
    fig, axes = plt.subplots(1, 3, figsize=(5.2, 2.3), width_ratios=[1, 1, 2.6])
    kept = settings()
    x, _, secret = drawn(kept["data"], kept["candidates"], kept["clients"], 0)
    found, row = rebuilt(σ, rounds), five(σ, rounds)
    show_image(axes[0], x[secret[0]], "private")
    show_image(axes[1], unpack(found["picture"]), f"{row['PSNR']:.0f} dB", COLORS["attack"])
    bars = {"bound": row["bound, 1 of 100"], "named": row["named of 100"].value}
    bars["rebuilt"] = found["named"].value
    inks = [COLORS[c] for c in ("defense", "attack", "warm")]
    axes[2].barh(list(bars)[::-1], list(bars.values())[::-1], color=inks[::-1])
    for i, v in enumerate(list(bars.values())[::-1]):
        axes[2].text(v + 0.02, i, f"{100 * v:.0f} %", va="center", fontsize=10)
    axes[2].set(xlim=(0, 1.25), xticks=[0, 0.5, 1], xlabel="success among 100")
    words = f"ε claimed {row['ε claimed']:,.3g}, audited ≥ {row['ε audited']:.2g}"
    fig.suptitle(f"{words}, by naming ≥ {row['ε by naming']:.2g}", fontsize=10)
    return fig


def words(σ: float, rounds: int) -> str:
    """What a frame shows."""
    row = five(σ, rounds)
    return (
        f"σ = {σ:g}, {rounds} round{'s' * (rounds > 1)}: ε claimed {row['ε claimed']:.3g}, audited "
        f"{row['ε audited']:.2g}, proved by naming {row['ε by naming']:.2g}; bound on naming among "
        f"100 {row['bound, 1 of 100']:.0%}, named {row['named of 100'].value:.0%}, named by "
        f"rebuilding {row['named by rebuilding'].value:.0%}, at {row['PSNR']:.0f} dB."
    )


# --- tables ---


def claims(true: bool) -> list[dict[str, Any]]:
    """One row a claim: ε, and the median (least to most) of five audits; the p nearest to 5 %."""
    rows = []
    for c in result("mechanisms")["cells"]:
        if c["true"] is not true:
            continue
        found = sorted(a["epsilon"] for a in c["audits"])
        p = [a["p"] for a in c["audits"]]
        row = {"claim": c["case"], "unit": c["unit"], "neighbors": c["neighbors"]}
        row |= {"ε claimed": c["claimed"], "ε audited": Spread(found[2], found[0], found[-1])}
        rows.append(row | ({"least p": min(p)} if true else {"most p": max(p)}))
    return rows


def agreement() -> list[dict[str, Any]]:
    """For each rate and number of rounds: the largest difference from the two other methods."""
    kept, rows = result("second"), []
    for rate in kept["settings"]["rates"]:
        for rounds in kept["settings"]["rounds"]:
            some = [c for c in kept["cells"] if (c["rate"], c["rounds"]) == (rate, rounds)]
            other = [c for c in some if c["pld"]]
            pld = [
                a - b
                for c in other
                for a, b in zip(c["ours"]["bounds"], c["pld"]["bounds"], strict=True)
            ]
            played = [
                a - b for c in some for a, b in zip(c["ours"]["bounds"], c["played"], strict=True)
            ]
            row = {"rate": rate, "rounds": rounds, "bound − PLD": max(pld, key=abs)}
            row["bound − played"] = max(played, key=abs)
            row["ε / PLD's"] = max(c["ours"]["epsilon"] / c["pld"]["epsilon"] for c in other)
            rows.append(row)
    return rows
