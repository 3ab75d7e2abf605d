"""Ready panels on the kit: reconstruction player, trade-off explorer, side by side, gradient x-ray.

Each takes what the package already returns (a ``Reconstruction``, the cells of a stored result, an
``Upload``) and gives a ``Panel`` with alt text of its own. Further options go to ``Panel``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ..attacks.analytic.closed_form import row_quotients
from ..attacks.base import Reconstruction
from ..metrics import bootstrap_interval, compare
from ..runtime import PrivflError, choose
from ..wire import Upload
from .figures import COLORS, show_image, show_upload
from .panel import Panel

WIDTH = 4.4  # inches: letters stay readable at 360 pixels
INKS = [COLORS[name] for name in ("attack", "defense", "good", "accent")]  # one an image shown
_db = "{:.0f} dB".format


def reconstruction_player(
    found: Reconstruction, x: Tensor, title: str = "An attack at work", **options: Any
) -> Panel:
    """Watch an attack iterate over its ``history``, as in ModelCloak's Fig. 1.

    x: the true images (N, C, H, W), in the order of ``found.images``; the first four are shown.
    """
    if not found.history:
        raise PrivflError("the attack kept no images on its way; run it with frames=20")
    history = dict(found.history)
    psnr = {tick: compare(images, x)["psnr"].tolist() for tick, images in history.items()}
    count, ticks = min(len(x), len(INKS)), list(history)

    def make(evaluations: int) -> Figure:
        fig = plt.figure(figsize=(WIDTH, 4.4), layout="constrained")
        grid = fig.add_gridspec(3, count, height_ratios=(1, 1, 1.2))
        truth, now = ([fig.add_subplot(grid[r, i]) for i in range(count)] for r in (0, 1))
        curve = fig.add_subplot(grid[2, :])
        for i, ink in enumerate(INKS[:count]):
            show_image(truth[i], x[i])
            show_image(now[i], history[evaluations][i])
            now[i].set_xlabel(_db(psnr[evaluations][i]), fontsize=12)
            now[i].spines[:].set(visible=True, color=ink, linewidth=3)  # the color of its curve
            curve.plot(ticks, [psnr[tick][i] for tick in ticks], color=ink)
            curve.plot(evaluations, psnr[evaluations][i], "o", color=ink)
        _name_rows((truth[0], now[0]), ("private", f"after\n{evaluations:,}"))
        curve.set_xlabel("evaluations of the gradient")
        curve.set_ylabel("PSNR in dB")
        return fig

    def alt(evaluations: int) -> str:
        values = ", ".join(map(_db, psnr[evaluations][:count]))
        return f"After {evaluations} evaluations the attack's images have a PSNR of {values}."

    return Panel(make, {"evaluations": ticks}, title=title, alt=alt, play="evaluations", **options)


def tradeoff_explorer(
    cells: Sequence[Mapping[str, Any]],
    axes: Sequence[str],
    better: Mapping[str, str],
    names: Mapping[str, str] | None = None,
    title: str = "Settings and what they cost",
    **options: Any,
) -> Panel:
    """A grid of settings with accuracy, leakage and ε, as in ModelCloak's Table II.

    ``cells``: those of a stored result, each with its settings and scores; a score that is a list
    is shown as its mean, with a 95 % bootstrap interval. ``axes``: the settings; the first gives
    the rows, the second the columns, each further one only a control. ``better``: score -> "high"
    or "low". ``names``: how to write a setting or a score (default: its key).
    """
    if len(axes) < 2 or not cells:
        raise PrivflError("the explorer needs at least one cell, and two settings in axes=")
    names = {key: (names or {}).get(key, key) for key in (*axes, *better)}
    for key in names:
        choose("key of a cell", key, set.intersection(*map(set, cells)))
        choose("direction", better.get(key, "low"), ("high", "low"))
    (row, column), scores = axes[:2], {names[key]: key for key in better}
    values = {key: list(dict.fromkeys(cell[key] for cell in cells)) for key in axes}
    table = {tuple(cell[key] for key in axes): cell for cell in cells}
    if len(table) < len(cells):
        raise PrivflError("several cells have the same setting; name all that differs in axes=")

    def look(point: Mapping[str, Any], **other: Any) -> Mapping[str, Any]:
        setting = {key: point[names[key]] for key in axes} | other
        return table.get(tuple(setting.values()), {})

    def facts(point: Mapping[str, Any]) -> str:
        setting, cell = ", ".join(f"{names[k]} = {point[names[k]]}" for k in axes), look(point)
        found = "; ".join(f"{names[k]} {_spread(cell[k])}" for k in better if cell)
        return f"{setting}: {found or 'not run'}"

    def make(**point: Any) -> str:
        score = scores[point["show"]]
        grid = {
            (r, c): _mean(look(point, **{row: r, column: c}).get(score, math.nan))
            for r, c in product(values[row], values[column])
        }
        here = point[names[row]], point[names[column]]
        html = _heat(grid, here, better[score] == "high", f"{names[row]} ↓ {names[column]} →")
        note = escape(f"★ best {names[score]} of this table ({better[score]} is better)")
        return f"{html}<p><b>{escape(facts(point))}</b></p><p>{note}</p>"

    def alt(**point: Any) -> str:
        return f"Table of {point['show']} by {names[row]} and {names[column]}. {facts(point)}."

    controls = {"show": list(scores)} | {names[key]: values[key] for key in axes}
    return Panel(make, controls, title=title, alt=alt, **options)


def side_by_side(
    rows: Mapping[str, Mapping[str, Any]],
    x: Tensor,
    title: str = "What is private, what is sent, what is found",
    **options: Any,
) -> Panel:
    """Truth, what the server sees, and what each attacker finds, under each defense.

    ``rows``: defense -> {"upload": Upload, "found": {attack: Reconstruction}}; x: the true images
    (N, C, H, W), in the order of the reconstructions; the first four are shown.
    """
    count, psnr = min(len(x), len(INKS)), {}
    for defense, row in rows.items():
        scores = {name: compare(found.images, x)["psnr"] for name, found in row["found"].items()}
        psnr[defense] = {name: [_db(v) for v in s.tolist()[:count]] for name, s in scores.items()}

    def make(defense: str) -> Figure:
        upload, found = rows[defense]["upload"], rows[defense]["found"]
        n, size = 2 + len(found), (WIDTH, 2 + 1.2 * len(found))
        fig, axes = plt.subplots(n, count, figsize=size, squeeze=False, layout="constrained")
        for i in range(count):
            show_image(axes[0, i], x[i])
            show_upload(axes[1, i], upload, i // upload.batch)
            for ax, name in zip(axes[2:, i], found, strict=True):
                show_image(ax, found[name].images[i])
                ax.set_xlabel(psnr[defense][name][i], fontsize=12)
        _name_rows(axes[:, 0], ("private", "sent", *found))
        return fig

    def alt(defense: str) -> str:
        found = (f"{name} finds images of {', '.join(v)}" for name, v in psnr[defense].items())
        return f"Private images, uploads and reconstructions under {defense}: {'; '.join(found)}."

    return Panel(make, {"defense": list(rows)}, title=title, alt=alt, **options)


def gradient_xray(
    upload: Upload, i: int = 0, title: str = "Which tensors carry what", **options: Any
) -> Panel:
    """The tensors of upload i one by one: values, norm, share of the squared norm, zeros.

    Where a fully connected layer takes the whole image, the quotient ∇W_j / ∇b_j of the row j with
    the largest ∇b_j stands beside its values: behind an upload of one image, that is the image.
    """
    tensors = {name: t[i].detach().cpu() for name, t in upload.tensors.items()}
    squares = {name: t.square().sum().item() for name, t in tensors.items()}
    share = {name: value / (sum(squares.values()) or 1.0) for name, value in squares.items()}
    leaks = {name: image for name in tensors if (image := _quotient(upload, i, name)) is not None}

    def facts(name: str) -> str:
        shape, zeros = tuple(tensors[name].shape), (tensors[name] == 0).float().mean().item()
        norm = f"norm {squares[name] ** 0.5:.3g}, {share[name]:.1%} of the squared norm"
        return f"shape {shape}, {norm}, {zeros:.0%} zeros"

    def make(tensor: str) -> Figure:
        largest = {tensor, *sorted(share, key=share.__getitem__)[-10:]}
        bars = [name for name in reversed(share) if name in largest]
        fig = plt.figure(figsize=(WIDTH, 2.9 + 0.22 * len(bars)), layout="constrained")
        grid = fig.add_gridspec(2, 2, height_ratios=(1.9, 0.3 + 0.22 * len(bars)))
        values, leak = tensors[tensor], leaks.get(tensor)
        values = values.reshape(len(values), -1) if values.dim() > 1 else values.reshape(1, -1)
        limit = values.abs().quantile(0.95).item() or values.abs().max().item() or 1.0
        ax = fig.add_subplot(grid[0, :] if leak is None else grid[0, 0])
        ax.imshow(values.numpy(), cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
        ax.set_axis_off()
        if leak is not None:
            show_image(fig.add_subplot(grid[0, 1]), leak, "row ÷ bias")
        fig.suptitle(f"{tensor}\n{facts(tensor)}".replace("), ", ")\n"), fontsize=11)
        ax = fig.add_subplot(grid[1, :])
        inks = [COLORS["attack" if name == tensor else "light"] for name in bars]
        ax.barh(bars, [100 * share[name] for name in bars], color=inks)
        ax.set_xlabel("% of the squared norm")
        return fig

    def alt(tensor: str) -> str:
        more = " Its strongest row over its bias gives an image." if tensor in leaks else ""
        return f"Values of {tensor}: {facts(tensor)}.{more}"

    return Panel(make, {"tensor": list(tensors)}, title=title, alt=alt, **options)


def _quotient(upload: Upload, i: int, name: str) -> Tensor | None:
    """The row quotient as an image, if the tensor is the weight of a layer that takes one."""
    shape, bias = tuple(upload.model.shape), f"{name.removesuffix('.weight')}.bias"
    weight = upload.tensors[name][i : i + 1].detach().cpu()
    whole = weight.dim() == 3 and weight.shape[2] == math.prod(shape)
    if not whole or name == bias or bias not in upload.tensors:
        return None
    g_bias = upload.tensors[bias][i : i + 1].detach().cpu()
    return row_quotients(weight, g_bias)[0, g_bias[0].abs().argmax()].reshape(shape)


def _name_rows(axes: Iterable[Axes], names: Iterable[str]) -> None:
    for ax, name in zip(axes, names, strict=True):
        ax.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)


def _mean(score: float | Sequence[float] | None) -> float:
    score = math.nan if score is None else score
    return sum(score) / len(score) if isinstance(score, Sequence) else score


def _spread(score: float | Sequence[float] | None) -> str:
    if not isinstance(score, Sequence):
        return "–" if score is None else f"{score:.3g}"
    low, high = bootstrap_interval(score)
    return f"{_mean(score):.3g} ({low:.3g} to {high:.3g}, n = {len(score)})"


def _heat(grid: dict[tuple, float], here: tuple, high: bool, corner: str) -> str:
    """An HTML table: the darker the larger, a star on the best, a frame around the chosen one."""
    known = list(filter(math.isfinite, grid.values())) or [0.0]
    low, span, best = min(known), max(known) - min(known) or 1.0, (max if high else min)(known)
    rows, columns = (list(dict.fromkeys(key[i] for key in grid)) for i in (0, 1))
    heads = "".join(f'<th scope="col">{escape(str(c))}</th>' for c in columns)
    html = f"<table><tr><th>{escape(corner)}</th>{heads}"
    for r in rows:
        html += f'</tr><tr><th scope="row">{escape(str(r))}</th>'
        for c in columns:
            value = grid[r, c]
            shade = 0.45 * (value - low) / span if math.isfinite(value) else 0.0
            mark = ' aria-current="true"' if (r, c) == here else ""
            frame = f";outline:3px solid {COLORS['attack']};outline-offset:-3px" if mark else ""
            text = "–" if math.isnan(value) else f"{value:.3g}" + " ★" * (value == best)
            html += f'<td{mark} style="background:rgba(0,114,178,{shade:.2f}){frame}">{text}</td>'
    return f"{html}</tr></table>"
