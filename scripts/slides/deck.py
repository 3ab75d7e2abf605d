"""A deck as one page of HTML that asks for nothing: pictures, style and player are in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from .fit import COLUMNS
from .model import Deck, Slide
from .setting import Piece

HERE = Path(__file__).parent
BUTTONS = (
    ("back", "Previous", "‹"),
    ("on", "Next", "›"),
    ("notes", "Notes (N)", "Notes"),
    ("speaker", "Speaker’s window (S)", "Speaker"),
    ("theme", "Light or dark (T)", "Theme"),
    ("print", "Print (P)", "Print"),
)


def page(deck: Deck) -> str:
    """The deck, with what it needs inside."""
    count = len(deck.slides)
    slides = "\n".join(section(s, n, count, deck) for n, s in enumerate(deck.slides, start=1))
    return shell(f"{deck.title} · slides", f"<main>\n{slides}\n</main>\n{controls()}", deck)


def shell(title: str, body: str, deck: Deck | None = None) -> str:
    style = (HERE / "slides.css").read_text(encoding="utf-8")
    player = (HERE / "player.js").read_text(encoding="utf-8") if deck else ""
    script = f"<script>\n{player}</script>" if deck else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en" data-theme="light">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f'<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n{script}\n</body>\n</html>\n"
    )


def controls() -> str:
    keys = "".join(
        f'<button type="button" data-do="{do}" aria-label="{label}" title="{label}">{text}</button>'
        for do, label, text in BUTTONS
    )
    return (
        f'<nav class="controls" aria-label="Slides">{keys}</nav>\n<div class="line"></div>\n'
        '<p class="said" role="status" aria-live="polite"></p>'
    )


def section(slide: Slide, number: int, count: int, deck: Deck) -> str:
    """One slide."""
    label = f' data-label="{slide.label}"' if slide.label else ""
    shape = f" {'tall' if slide.picture.tall else 'wide'}" if slide.picture else ""
    chapter = f"{deck.number} · {escape(deck.title)}" if slide.kind != "title" else "privfl_lite"
    return (
        f'<section id="s{number}" class="slide {slide.kind}{shape} size-{slide.size}"'
        f'{label} data-minutes="{slide.minutes:g}" aria-labelledby="h{number}">\n'
        f'{heading(slide, number, deck)}\n<div class="body">{body(slide)}</div>\n'
        f'<p class="foot"><span>{chapter}</span><span>{number} / {count}</span></p>\n'
        f'<aside class="notes" aria-label="Notes"><p class="clock">'
        f"{minutes(slide.minutes)}</p>{''.join(slide.notes)}</aside>\n</section>"
    )


def minutes(value: float) -> str:
    return "1 minute" if value == 1 else f"{value:g} minutes"


def heading(slide: Slide, number: int, deck: Deck) -> str:
    if slide.kind == "title":
        above = f'<p class="kicker">Chapter {deck.number} · {escape(deck.part)}</p>'
        return f'<header>{above}<h1 id="h{number}">{slide.heading}</h1></header>'
    above = slide.kicker
    if slide.picture:
        above = " · ".join(filter(None, (slide.name, slide.kicker)))
    part, of = slide.count
    more = f' <span class="part">{part} of {of}</span>' if of > 1 else ""
    said = f'<div class="say">{joined(slide.pieces)}</div>' if slide.picture else ""
    return (
        f'<header><p class="kicker">{escape(above) or f"Chapter {deck.number}"}</p>'
        f'<h2 id="h{number}">{unbroken(slide.heading)}{more}</h2>{said}</header>'
    )


def unbroken(html: str) -> str:
    """Numbers such as 1e-5 and 95 % on one line."""
    return re.sub(r"(\de)-(\d)", "\\1\u2011\\2", html.replace(" %", "\u00a0%"))


def body(slide: Slide) -> str:
    if slide.picture:
        alt = escape(slide.picture.alt, quote=True)
        width, height = slide.picture.size
        return f'<img src="{slide.picture.address}" alt="{alt}" width="{width}" height="{height}">'
    if slide.code:
        out = f'<pre class="out">{escape(slide.output)}</pre>' if slide.output else ""
        return joined(slide.pieces) + coded(slide.code) + out
    inside = [p for p in slide.pieces if p.box]
    outside = [p for p in slide.pieces if not p.box]
    boxed = ""
    if inside:
        name = f'<p class="name">{slide.name}</p>'
        boxed = f'<div class="box">{name}{joined(inside)}</div>'
    return boxed + joined(outside)


def joined(pieces: Sequence[Piece]) -> str:
    """The HTML of pieces; items of one list are one list again."""
    made = ""
    for piece in pieces:
        html = piece.html
        if piece.step:
            html = f'<div class="step">{html}</div>'
        for tag in ("ul", "ol"):
            if made.endswith(f"</{tag}>") and html.startswith(f"<{tag}"):
                made = made.removesuffix(f"</{tag}>")
                html = html[html.index(">") + 1 :]
        made += html
    return made


def coded(source: str) -> str:
    """Code with its colors, in the larger of two sizes that fits."""
    source = re.sub(r"\s+# fmt: skip$", "", source, flags=re.M)
    longest = max(map(len, source.split("\n")))
    size = next((s for s, columns in COLUMNS.items() if longest <= columns), 22)
    size = 22 if source.count("\n") >= 13 else size
    marked = highlight(source, PythonLexer(), HtmlFormatter(nowrap=True))
    return f'<pre class="code code-{size}" tabindex="0"><code>{marked.rstrip()}</code></pre>'


def listing(decks: Sequence[Deck]) -> str:
    """The page that names all decks."""
    rows = "".join(
        f'<li><a href="{d.slug}.html">{d.number}. {escape(d.title)}</a> '
        f"<span>{len(d.slides)} slides, {d.minutes} minutes</span></li>"
        for d in decks
    )
    body = f'<main class="list"><h1>Slides of privfl_lite</h1><ul>{rows}</ul></main>'
    return shell("Slides of privfl_lite", body)
