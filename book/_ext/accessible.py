"""Accessibility, enforced: each fault below is a warning, and a strict build accepts none.

* a picture without real alt text (on the page, or in a widget's stored frames);
* a heading level that is skipped;
* a pair of colors in our own style sheets (``_assets/*.css``) below WCAG AA, light or dark.

The checks are plain functions that return sentences (tests/test_accessibility.py).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

ASSETS = Path(__file__).resolve().parents[1] / "_assets"
ENOUGH = 4.5  # WCAG 2.2, success criterion 1.4.3 (AA), text of normal size
THEMES = ("light", "dark")
PAIRS = {  # text color: the grounds on which the theme sets it
    "--pst-color-text-base": ("background", "surface", "on-background"),
    "--pst-color-text-muted": ("background", "surface", "on-background"),
    "--pst-color-heading": ("background", "surface"),
    "--pst-color-link": ("background", "surface", "on-background"),
    "--pst-color-link-hover": ("background", "surface"),
    "--pst-color-inline-code": ("background", "surface"),
    "--pst-color-inline-code-links": ("background", "surface"),
}
logger = logging.getLogger(__name__)


# --- alt text and headings ---


def alt_fault(alt: str | None, src: str = "") -> str | None:
    """Why a text does not describe its picture, or None."""
    alt = " ".join((alt or "").split())
    name = PurePosixPath(urlsplit(src).path).name
    if not alt:
        return "has no alt text"
    if alt.startswith(("<Figure size", "Figure size")):
        return f"has matplotlib's default as alt text: {alt!r}"
    if PurePosixPath(alt).name == name or re.fullmatch(r"\S+\.\w{2,5}|[0-9a-fA-F_-]{16,}", alt):
        return f"has a file name or a hash as alt text: {alt[:60]!r}"
    if len(alt.split()) < 3:
        return f"has an alt text of under three words: {alt!r}"
    return None


class Outline(HTMLParser):
    """The pictures and headings of a piece of HTML, in order."""

    def __init__(self, html: str):
        super().__init__()
        self.pictures: list[tuple[str | None, str]] = []  # alt, src
        self.levels: list[int] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "img":
            self.pictures.append((given.get("alt"), given.get("src") or ""))
        elif re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))


def picture_faults(html: str) -> list[str]:
    """One sentence for each picture without real alt text."""
    return [
        f"picture {src[:60]!r} {fault}"
        for alt, src in Outline(html).pictures
        if (fault := alt_fault(alt, src))
    ]


def heading_faults(html: str) -> list[str]:
    """A page starts with its only h1, and no level is skipped on the way down."""
    levels = Outline(html).levels
    found = [] if levels[:1] == [1] else ["the page does not start with a heading of level 1"]
    found += ["the page has a second heading of level 1"] * (levels.count(1) > 1)
    steps = itertools.pairwise(levels)
    return found + [
        f"a heading of level {b} follows one of level {a}" for a, b in steps if b > a + 1
    ]


def widget_faults(state: dict[str, Any]) -> list[str]:
    """Pictures inside stored widgets; an Image widget cannot carry alt text at all."""
    found = []
    for model in state.get("state", {}).values():
        if model.get("model_name") == "ImageModel":
            found.append("an Image widget has no alt text: use HTML('<img alt=…>')")
        value = model.get("state", {}).get("value")
        if isinstance(value, str) and "<img" in value:
            found += [f"in a widget: {fault}" for fault in picture_faults(value)]
    return sorted(set(found))


# --- contrast ---


def contrast(a: str, b: str) -> float:
    """WCAG's ratio of two colors ``#rgb`` or ``#rrggbb``: 1 (equal) to 21 (black on white)."""
    bright, dim = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(color: str) -> float:
    digits = color.lstrip("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    parts = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
    linear = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def rules(css: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Every innermost rule: its selector and its declarations (those inside @media too)."""
    css = re.sub(r"(?s)/\*.*?\*/", "", css)
    for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        pairs = (line.partition(":") for line in body.split(";") if ":" in line)
        yield selector.strip(), {name.strip(): value.strip() for name, _, value in pairs}


def themes_of(selector: str) -> tuple[str, ...]:
    """A rule holds in both themes unless its selector names one."""
    return tuple(t for t in THEMES if f'data-theme="{t}"' in selector) or THEMES


def variables(css: str) -> dict[str, dict[str, str]]:
    """The custom properties in force in each theme."""
    found: dict[str, dict[str, str]] = {theme: {} for theme in THEMES}
    for selector, body in rules(css):
        for theme in themes_of(selector):
            found[theme] |= {k: v for k, v in body.items() if k.startswith("--")}
    return found


def resolve(value: str | None, known: dict[str, str]) -> str | None:
    """A color as ``#…``; None for what is not a color of ours (inherit, the theme's variables)."""
    for _ in range(5):
        if not (name := re.fullmatch(r"var\((--[\w-]+)\)", value or "")):
            break
        value = known.get(name[1])
    return value if value and re.fullmatch(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})", value) else None


def contrast_faults(css: str) -> list[str]:
    """One sentence for each pair of colors that cannot be read."""
    known, found = variables(css), []

    def compare(what: str, theme: str, ink: str | None, paper: str | None) -> None:
        ink, paper = resolve(ink, known[theme]), resolve(paper, known[theme])
        if ink and paper and (ratio := contrast(ink, paper)) < ENOUGH:
            found.append(f"{what}, {theme}: {ink} on {paper} has contrast {ratio:.2f} < {ENOUGH}")

    for selector, body in rules(css):
        ground = body.get("background-color", body.get("background"))
        for theme in themes_of(selector):
            compare(selector, theme, body.get("color"), ground)
        for name in ("color", "background", "background-color"):
            if re.match(r"(rgb|hsl|hwb|lab|lch|oklab|oklch|color)a?\(", body.get(name, "")):
                found.append(f"{selector}: {body[name]} cannot be checked; write it as #rrggbb")
    for theme, values in known.items():
        for ink, grounds in PAIRS.items():
            for ground in grounds:
                compare(ink, theme, values.get(ink), values.get(f"--pst-color-{ground}"))
    return found


# --- the build ---


def check_styles(app: Sphinx) -> None:
    for path in sorted(ASSETS.glob("*.css")):
        for fault in contrast_faults(path.read_text(encoding="utf-8")):
            logger.warning("%s: %s", path.name, fault, type="accessible")


def check_page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree) -> None:
    if doctree is None:  # search, index: the theme's own
        return
    html = context.get("body", "")
    for fault in (*picture_faults(html), *heading_faults(html)):
        logger.warning(fault, location=page, type="accessible")
    stored = getattr(app.env, "nb_metadata", {}).get(page, {}).get("js_files", {})
    if state := stored.get("ipywidgets_state"):
        for fault in widget_faults(json.loads(state[1]["body"])):
            logger.warning(fault, location=page, type="accessible")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", check_styles)
    app.connect("html-page-context", check_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
