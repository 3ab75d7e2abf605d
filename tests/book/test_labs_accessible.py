"""Labs pass the checks of pages that a notebook can fail: headings, pictures, names of links."""

from __future__ import annotations

import re
import sys

import pytest
from chapters import MARKDOWN
from checkout import BOOK, ROOT

sys.path[:0] = [str(BOOK / "_ext"), str(ROOT / "scripts")]
import accessible  # noqa: E402

from labs import source  # noqa: E402

NAMELESS = {"here", "link", "this", "page", "click here", ""}


def rendered(slug: str) -> str:
    """The Markdown of a lab as a plain renderer shows it, solutions included."""
    cells = [c.source for c in source.read(slug).cells if c.cell_type == "markdown"]
    return "\n".join(MARKDOWN.render(text) for text in cells)


@pytest.mark.parametrize("slug", source.slugs())
def test_a_lab_is_accessible(slug):
    html = rendered(slug)
    assert len(re.findall("<h1>", html)) == 1
    assert not accessible.heading_faults(html) and not accessible.picture_faults(html)
    links = re.findall(r"<a href=[^>]*>(.*?)</a>", html, re.S)
    assert links and not NAMELESS & {words.strip().lower() for words in links}


@pytest.mark.parametrize("slug", source.slugs())
def test_a_figure_of_a_lab_says_what_it_shows(slug):
    """Students draw them, so that no alt text can be stored: axes or titles have words."""
    for cell in source.read(slug).cells:
        if cell.cell_type == "code" and "plt." in cell.source and "imshow" not in cell.source:
            assert re.search(r"label=|set_title|title\(|xlabel", cell.source), cell.source


def test_faults_are_found():
    assert accessible.heading_faults("<h1>A</h1><h3>B</h3>")
