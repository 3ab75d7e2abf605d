"""How a shared link looks: description, Open Graph tags and a picture for each page.

The description is the page's first paragraph. The picture is a card of 1200 × 630 pixels with the
title and the page's first figure, drawn when the page is written; a page without one shows the
book's picture, ``_assets/leak.png``. Addresses are absolute, below ``html_baseurl``.
"""

from __future__ import annotations

import re
import textwrap
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image, ImageDraw, ImageFont
from sphinx.application import Sphinx

FALLBACK = Path(__file__).resolve().parents[1] / "_assets" / "leak.png"
SIZE, MARGIN, FOLDER = (1200, 630), 48, "_images/cards"
INK, RUST, PAPER, MUTED = "#12344d", "#9c3a22", "#ffffff", "#51606d"
LONGEST = 200  # letters of a description


def description(doctree: nodes.document) -> str:
    """The first paragraph of the text itself, cut at the end of a sentence or of a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        inside = isinstance(paragraph.parent, nodes.section)
        if inside and len(text := " ".join(_words(paragraph).split())) > 40:
            return shortened(text)
    return ""


def _words(node: nodes.Node) -> str:
    """Text without formulas, which no preview can show."""
    if isinstance(node, nodes.math):
        return re.sub(r"\\varepsilon", "ε", node.astext())
    if isinstance(node, nodes.Text):
        return node.astext()
    return "".join(_words(child) for child in node.children)


def shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    sentences = re.match(rf"(.{{40,{LONGEST - 1}}}[.?!])\s", text)
    return sentences[1] if sentences else textwrap.shorten(text, LONGEST, placeholder=" …")


def first_figure(app: Sphinx, doctree: nodes.document) -> Path | None:
    """The file of the first picture that Pillow can open; the page names its copy in the site."""
    sources = {name: source for source, name in app.builder.images.items()}
    for image in doctree.findall(nodes.image):
        path = Path(app.srcdir, sources.get(Path(image["uri"]).name, image["uri"]))
        if path.suffix.lower() in (".png", ".jpg", ".jpeg", ".webp") and path.is_file():
            return path
    return None


def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """matplotlib brings fonts along, whatever the machine has."""
    import matplotlib

    name = "DejaVuSerif-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), size)


def card(title: str, figure: Path) -> Image.Image:
    """Title above a wide figure or left of a tall one, the book's name at the foot."""
    with Image.open(figure) as opened:
        picture = opened.convert("RGBA")
    made = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(made)
    tall = picture.width < 1.3 * picture.height
    lines = textwrap.wrap(title, 17 if tall else 38)[: 6 if tall else 2]
    pen.multiline_text((MARGIN, 36), "\n".join(lines), INK, font(44, bold=True), spacing=10)
    below, foot = 44 + 62 * len(lines), SIZE[1] - 56
    pen.line((MARGIN, below, 560 if tall else SIZE[0] - MARGIN, below), RUST, 5)
    pen.text((MARGIN, foot), "privfl_lite", MUTED, font(28))
    left, top = (600, 30) if tall else (MARGIN, below + 20)
    room = (SIZE[0] - MARGIN - left, (SIZE[1] - 30 if tall else foot - 10) - top)
    scale = min(room[0] / picture.width, room[1] / picture.height, 2.0)
    picture = picture.resize((round(picture.width * scale), round(picture.height * scale)))
    place = (left + (room[0] - picture.width) // 2, top + (room[1] - picture.height) // 2)
    made.paste(picture, place, picture)
    return made


def tags(app: Sphinx, page: str, title: str, doctree: nodes.document, image: str) -> str:
    home = app.config.html_baseurl.rstrip("/")
    about = description(doctree) or title
    named = {"description": about, "twitter:card": "summary_large_image"}
    properties = {
        "og:title": title,
        "og:description": about,
        "og:type": "website" if page == app.config.root_doc else "article",
        "og:site_name": app.config.html_title,
        "og:url": f"{home}/{page}.html",
        "og:image": f"{home}/{image}",
        "og:image:width": str(SIZE[0]),
        "og:image:height": str(SIZE[1]),
        "og:image:alt": f"The title “{title}” above a figure of the page",
    }
    lines = [f'<meta name="{k}" content="{escape(v)}">' for k, v in named.items()]
    lines += [f'<meta property="{k}" content="{escape(v)}">' for k, v in properties.items()]
    return "\n".join(lines) + "\n"


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree) -> None:
    if doctree is None or app.builder.format != "html":
        return
    title = re.sub(r"<[^>]+>", "", context["title"])
    image = f"{FOLDER}/{page.rpartition('/')[2]}.png"
    target = Path(app.outdir, image)
    target.parent.mkdir(parents=True, exist_ok=True)
    card(title, first_figure(app, doctree) or FALLBACK).save(target, optimize=True)
    context["metatags"] = context.get("metatags", "") + tags(app, page, title, doctree, image)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
