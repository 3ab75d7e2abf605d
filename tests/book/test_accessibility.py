"""The checks of book/_ext/accessible.py can fail, our styles pass, and figures share a palette.

That a strict build fails on a fault is shown in test_site.py (test_faults_are_found).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from checkout import NOTEBOOKS

from privfl_lite.teach.figures import COLORS

BOOK = Path(__file__).resolve().parents[2] / "book"
sys.path.insert(0, str(BOOK / "_ext"))
import accessible  # noqa: E402

OKABE_ITO = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}
NAMED = {"black", "white", "gray", "grey", "lightgray", "lightgrey", "darkgray", "darkgrey"}
NAMED |= {"dimgray", "dimgrey", "none", "silver", "whitesmoke", "gainsboro"}
GIVEN = re.compile(  # a color given by name to a plot: color="red", fc='C1', "--r" is not one
    r"""\b(?:color|c|fc|ec|mec|mfc|facecolor|edgecolor|ecolor)\s*=\s*["']([A-Za-z][A-Za-z0-9:]*)["']"""
)
MAPS = re.compile(r"""cmap\s*=\s*["'](\w+)["']""")
SAFE_MAPS = {"gray", "Greys", "viridis", "cividis", "magma", "inferno", "plasma", "PuOr", "RdBu"}
SAFE_MAPS |= {"Blues", "Oranges", "Purples", "binary", "RdYlBu"}
SAFE_MAPS |= {f"{name}_r" for name in SAFE_MAPS}


# --- alt text ---


@pytest.mark.parametrize(
    "alt",
    [
        None,
        "",
        "  ",
        "plot.png",
        "../_images/4b1f.png",
        "4b1f6f6a3c0d7e8f9a0b1c2d3e4f5a6b",
        "<Figure size 640x480 with 1 Axes>",
        "Figure size 640x480 with 1 Axes",
        "a plot",
    ],
)
def test_alt_text_that_says_nothing_is_refused(alt: str | None):
    assert accessible.alt_fault(alt, "_images/plot.png")


def test_real_alt_text_passes():
    assert accessible.alt_fault("accuracy against rounds, rising to 0.9", "a.png") is None
    html = '<h1>A</h1><img alt="accuracy against rounds" src="a.png">'
    assert accessible.picture_faults(html) == accessible.heading_faults(html) == []


def test_pictures_in_widgets_are_checked():
    def state(name: str, value: str) -> dict:
        return {"state": {"1": {"model_name": name, "state": {"value": value}}}}

    good = '<img alt="a digit after ten steps" src="data:,">'
    assert accessible.widget_faults(state("HTMLModel", good)) == []
    assert accessible.widget_faults(state("HTMLModel", '<img src="data:,">'))
    assert accessible.widget_faults(state("ImageModel", ""))


# --- headings ---


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ((2, 3), "start with"),
        ((1, 3), "level 3 follows"),
        ((1, 2, 2, 4), "level 4"),
        ((1, 1), "sec"),
    ],
)
def test_skipped_heading_is_noticed(levels: tuple[int, ...], says: str):
    html = "".join(f"<h{n}>x</h{n}>" for n in levels)
    assert any(says in fault for fault in accessible.heading_faults(html))


def test_headings_in_order_pass():
    html = "".join(f"<h{n}>x</h{n}>" for n in (1, 2, 3, 4, 2, 3))
    assert accessible.heading_faults(html) == []


# --- contrast ---


def test_contrast_is_wcags():
    assert accessible.contrast("#000", "#ffffff") == pytest.approx(21)
    assert accessible.contrast("#777777", "#fff") == pytest.approx(
        4.48, abs=0.01
    )  # just too little
    assert accessible.contrast("#767676", "#fff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize(
    "css",
    [
        ".a { color: #777; background: #fff; }",
        "@media print { .a { color: #aaa; background-color: #fff } }",
        'html[data-theme="dark"] { --x: #333333; } .a { color: var(--x); background: #222; }',
        'html[data-theme="dark"] { --pst-color-link: #222222; --pst-color-surface: #111111; }',
        ".a { color: rgb(1 2 3); }",
    ],
)
def test_pale_style_is_noticed(css: str):
    assert accessible.contrast_faults(css)


def test_rule_of_one_theme_is_judged_there_only():
    css = 'html[data-theme="light"] { --i: #111111; } html[data-theme="dark"] { --i: #eeeeee; }'
    css += ' html[data-theme="dark"] .a { color: var(--i); background: #000000; }'
    assert accessible.contrast_faults(css) == []


@pytest.mark.parametrize("path", sorted((BOOK / "_assets").glob("*.css")), ids=lambda p: p.name)
def test_our_styles_are_readable(path: Path):
    css = path.read_text(encoding="utf-8")
    assert not (found := accessible.contrast_faults(css)), "\n".join(found)
    known = accessible.variables(css)
    for name in accessible.PAIRS:
        for theme in accessible.THEMES:
            assert accessible.resolve(known[theme].get(name), known[theme]), f"{theme}: no {name}"


# --- one palette ---


def palette_faults(source: str) -> list[str]:
    """Colors of a code cell that are neither Okabe and Ito's nor gray."""
    found = []
    for color in re.findall(r"#[0-9a-fA-F]{6}\b|(?<=[\"'])#[0-9a-fA-F]{3}(?=[\"'])", source):
        digits = color[1:].lower()
        parts = {digits[i : i + len(digits) // 3] for i in range(0, len(digits), len(digits) // 3)}
        if color.upper() not in OKABE_ITO and len(parts) > 1:
            found.append(f"{color} is not in the palette (privfl_lite.teach.figures.COLORS)")
    for name in GIVEN.findall(source):
        if name not in NAMED and name not in COLORS and not re.fullmatch(r"C\d|k|w", name):
            found.append(f"color {name!r} is not in the palette")
    for name in MAPS.findall(source):
        if name not in SAFE_MAPS:
            found.append(f"color map {name!r} is not safe for color-blind readers")
    return found


def test_palette_is_okabe_and_itos():
    assert {c.upper() for c in COLORS.values()} <= OKABE_ITO
    assert len(set(COLORS.values())) == len(COLORS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_keeps_to_the_palette(path: Path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    assert not (found := palette_faults(code)), "\n".join(found)


def test_package_keeps_to_the_palette():
    for path in (BOOK.parent / "privfl_lite" / "teach").glob("*.py"):
        drawn = re.sub(r'(?s)CSS = """.*?"""', "", path.read_text(encoding="utf-8"))
        assert not (found := palette_faults(drawn)), f"{path.name}: {found}"


@pytest.mark.parametrize(
    "source", ['ax.plot(x, color="red")', 'c = "#ff0000"', 'imshow(x, cmap="jet")', "fc='lime'"]
)
def test_other_colors_are_noticed(source: str):
    assert palette_faults(source)


def test_palette_and_grays_pass():
    source = 'plot(c=COLORS["attack"], ec="gray", fc="#D55E00"); text(color="#555555"); a = "C1"'
    assert palette_faults(source + '; imshow(x, cmap="PuOr"); plot(color="C2")') == []
