"""The report as one HTML page: pictures inside, no script, no request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import torch
from torch import Tensor

from ..pictures import pack_color
from .record import Attempt, LeakReport
from .scores import percent
from .style import CSS

SIDE = 112  # pixels: larger pictures are shrunk to this
MOST = {True: 8, False: 4}  # pictures of an attacker: if small, else
SECTIONS = {
    "pictures": "Who found what",
    "sent": "What was sent",
    "structure": "What counting says",
    "privacy": "ε and bound",
    "changes": "What would change the verdict",
    "settings": "Settings",
}


def page(report: LeakReport) -> str:
    """The whole page."""
    bodies = {
        "pictures": _attackers(report),
        "sent": _sent(report),
        "structure": _structure(report),
        "privacy": _paragraph(report.privacy["says"] + "."),
        "changes": _list(report.changes) if report.changes else _paragraph(_nothing(report)),
        "settings": _settings(report),
    }
    links = "".join(f'<li><a href="#{i}">{escape(t)}</a></li>' for i, t in SECTIONS.items())
    parts = "\n".join(
        f'<section aria-labelledby="{i}"><h2 id="{i}">{escape(SECTIONS[i])}</h2>\n{b}</section>'
        for i, b in bodies.items()
    )
    mark = " found" if report.found else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>Leak report: {escape(report.sent["model"])}</title>
<style>{CSS}</style>
</head>
<body>
<main>
<h1>Leak report: {escape(report.sent["model"])}</h1>
<p class="verdict{mark}">{escape(report.verdict)}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
{parts}
</main>
</body>
</html>
"""


def _attackers(report: LeakReport) -> str:
    head = ("attacker", "outcome", "letter", "seconds", "evaluations", "own cost", "misfit",
            "cosine", "PSNR, dB", "rank")  # fmt: skip
    rows = [
        (
            a.attack,
            a.outcome,
            a.letter,
            f"{a.seconds:.1f}",
            f"{a.evaluations:,}",
            _few(a.cost),
            " ".join(percent(m) for m in a.misfit[:4]),
            _few(a.cosine),
            _few(a.psnr, ".1f"),
            _few(a.ranks, "d"),
        )
        for a in report.attempts
        if a.ran
    ]
    known = "one for each image; 1 is the right one" if report.truth is not None else "unknown here"
    says = (
        "Attackers that ran. Misfit: how far what the same client would have sent from the images "
        "found is from the upload, in percent of its length. Own cost: each attacker's own score, "
        f"not comparable between them. PSNR and rank need the truth ({known})."
    )
    table = _table(says, head, rows, number=range(3, 10)) if rows else ""
    refused = [f"{a.attack}: {a.says}" for a in report.attempts if not a.ran]
    rest = f"<h3>Attackers that did not run</h3>{_list(refused)}" if refused else ""
    guess = percent(report.structure["blind_misfit"])
    blind = _paragraph(
        f"A blind guess, gray or noise with the labels read, misses {guess} of the length; "
        "a small misfit means little where that is small, too"
    )
    return _pictures(report) + table + blind + rest


def _pictures(report: LeakReport) -> str:
    parts = []
    if report.truth is not None:
        shown = _few_images(report.truth)
        named = [f"private image {i + 1}" for i in range(len(shown))]
        parts.append(_row("The private images", shown, named, named))
    for a in report.attempts:
        if a.images is None:
            continue
        shown = _few_images(a.images)
        alts = [f"what {a.attack} found for image {i + 1}" for i in range(len(shown))]
        under = [_caption(a, i) for i in range(len(shown))]
        more = len(a.images) - len(shown)
        said = a.says + (f" ({more} more are not shown)" if more > 0 else "")
        parts.append(_row(a.attack, shown, alts, under, said))
    return "\n".join(parts)


def _caption(a: Attempt, i: int) -> str:
    score = f", {a.psnr[i]:.1f} dB" if a.psnr else ""
    return f"label {a.labels[i]}{score}" if i < len(a.labels) else f"image {i + 1}{score}"


def _row(
    title: str, images: list[Tensor], alts: Sequence[str], under: Sequence[str], said: str = ""
) -> str:
    items = "".join(
        f'<li><figure><img src="data:image/png;base64,{pack_color(x)}" alt="{escape(alt)}" '
        f'width="{x.shape[2]}" height="{x.shape[1]}"><figcaption>{escape(text)}</figcaption>'
        "</figure></li>"
        for x, alt, text in zip(images, alts, under, strict=True)
    )
    told = _paragraph(said) if said else ""
    return f'<h3>{escape(title)}</h3>{told}<ul class="pictures">{items}</ul>'


def _few_images(images: Tensor) -> list[Tensor]:
    """The first few, shrunk where they are large."""
    side = max(images.shape[2:])
    few = images[: MOST[side <= 64]].nan_to_num(0.5, 1.0, 0.0).clamp(0, 1).float()
    if side > SIDE:
        scale = SIDE / side
        few = torch.nn.functional.interpolate(few, scale_factor=scale, mode="area")
    return list(few)


def _sent(report: LeakReport) -> str:
    s = report.sent
    rows = [
        ("model", f"{s['model']}, {s['classes']} classes"),
        ("image", " × ".join(map(str, s["image"])) + " (channels, height, width)"),
        ("taken for", s["taken_for"]),
        ("tensors", f"{s['tensors']}, {s['numbers']:,} numbers ({s['bytes'] / 1e6:.3g} MB)"),
        ("not sent", ", ".join(s["missing"]) or "nothing: every weight has its tensor"),
        ("uploads", str(s["uploads"])),
        ("images behind each", str(s["batch"])),
        ("local steps", str(s["steps"])),
        ("rules of training", s["plan"] or "one gradient of the mean loss"),
        ("batch norm mode", s["mode"]),
        ("granted besides", ", ".join(s["granted"]) or "nothing"),
        ("threat model", f"letter {s['letter']} (Carletti et al. 2025)"),
    ]
    return _table("The upload, as the server has it.", ("what", "value"), rows)


def _structure(report: LeakReport) -> str:
    s = report.structure
    on = s["recursion"]["on"]
    head = ("layer", "kind", "numbers in", "own gradient", "output", "open", "what it tells")
    rows = []
    for r in s["layers"]:
        most, least = ("", "") if r["measured"] else ("≤ ", "≥ ")
        told = f"; counts measured on {on}" if r["measured"] else ""
        fixed = f"{most}{r['by_gradient']:,}", f"{most}{r['by_output']:,}"
        left = f"{least}{max(0, r['left']):,}"
        rows.append((r["name"], r["kind"], f"{r['inputs']:,}", *fixed, left, r["says"] + told))
    says = (
        "Layers with weights on the wire: for one image, how many numbers enter, how many of them "
        "the layer's own gradient fixes if the error signal is known, and its output if that is "
        "known. What is open has no equation. With ≤ and ≥ it is a bound from shapes: it does not "
        "say that an attacker gets so far."
    )
    return (
        _paragraph(f"Labels. {s['labels']['says']}.")
        + _paragraph(f"The way back through the layers (tried on {on}): {s['recursion']['says']}.")
        + (_paragraph(f"Standing out. {s['loudest']['says']}") if s["loudest"] else "")
        + _list(s["between"])
        + _table(says, head, rows, number=range(2, 6), wide=6)
    )


def _settings(report: LeakReport) -> str:
    s = report.settings
    limit = f"{s['seconds']:g} seconds in all" if s["seconds"] else f"{s['evaluations']} a search"
    used = [(a.attack, a.settings) for a in report.attempts if a.ran]
    versions = ", ".join(f"{k} {v}" for k, v in s["versions"].items())
    tools = _table("Settings of the attackers that ran.", ("attacker", "settings"), used)
    note = (
        "By a clock, the number of evaluations differs between machines; evaluations= fixes it. "
        if s["seconds"]
        else ""
    )
    return (
        f"<pre><code>{escape(s['command'])}</code></pre>"
        + _paragraph(f"Budget: {limit}. {note}Seed {s['seed']}. Versions: {versions}.")
        + _paragraph(f"Not asked for: {', '.join(s['not_asked']) or 'none'}.")
        + (tools if used else "")
    )


def _nothing(report: LeakReport) -> str:
    if report.interrupted:
        return "The report was stopped before this was measured."
    return "Nothing was measured here: no attacker found anything, and none refused for its batch."


def _few(values: Sequence[float], form: str = ".3g") -> str:
    shown = " ".join(format(v, form) for v in values[:4])
    return shown + (" …" if len(values) > 4 else "") or "–"


def _paragraph(text: str) -> str:
    text = text[:1].upper() + text[1:].removesuffix(".")
    return f"<p>{escape(text)}.</p>"


def _list(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(t)}</li>" for t in texts)
    return f"<ul>{items}</ul>" if items else ""


def _table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]], number: Iterable[int] = (),
    wide: int | None = None,
) -> str:  # fmt: skip
    """A table with a caption, which scrolls by itself where it is wider than the page."""
    right = set(number)

    def mark(i: int) -> str:
        return ' class="number"' if i in right else ' class="says"' if i == wide else ""

    heads = "".join(f'<th scope="col"{mark(i)}>{escape(h)}</th>' for i, h in enumerate(head))
    body = "".join(
        "<tr>"
        + f'<th scope="row">{escape(str(row[0]))}</th>'
        + "".join(f"<td{mark(i)}>{escape(str(v))}</td>" for i, v in enumerate(row) if i)
        + "</tr>"
        for row in rows
    )
    label = escape(caption.partition(".")[0])
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<caption><span>{escape(caption)}</span></caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
