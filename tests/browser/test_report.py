"""A leak report in a real browser: no outside request, by keyboard, on a phone, printed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from accessible_page import faint_words
from chromium import serve

import privfl_lite as pf

pytestmark = pytest.mark.browser
SIZES = ((1280, "light"), (390, "light"), (390, "dark"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, digits) -> Path:
    """A report with pictures of several attackers, layers, changes and an ε."""
    here = tmp_path_factory.mktemp("report")
    x, y = digits.sample(4, seed=3)
    net = pf.models.build("mlp", digits)
    made = pf.report(
        net,
        pf.share(net, x, y),
        data=(x, y),
        defense="modelcloak:clip=1,sigma=5",
        evaluations=5,
        show=False,
    )
    made.save(here / "leak.html")
    return here


@pytest.fixture(params=SIZES, ids=str)
def opened(request, chromium, folder) -> Iterator[tuple]:
    """The page in one size and theme, what it asked for, and what it complained of."""
    width, scheme = request.param
    page = chromium.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    with serve(folder) as url:
        page.goto(f"{url}/leak.html", wait_until="load")
        yield page, asked, said, f"{url}/leak.html"
    page.close()


def test_it_asks_for_nothing_and_complains_of_nothing(opened):
    page, asked, said, url = opened
    assert [a for a in asked if not a.startswith("data:")] == [url] and said == []
    broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert page.locator("img").count() >= 8 and page.evaluate(broken) == 0


def test_it_fits_and_can_be_read(opened):
    page, *_ = opened
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert faint_words(page.locator("body")) == []
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert page.locator(".verdict").bounding_box()["y"] < 844  # above the fold


def test_it_is_worked_by_the_keyboard(opened):
    page, *_ = opened
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#pictures"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#privacy")
    wide = page.locator(".scroll").filter(has_text="Layers with weights").first
    wide.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    moved, room = wide.evaluate("e => [e.scrollLeft, e.scrollWidth - e.clientWidth]")
    assert (moved > 0) == (room > 0)


def test_on_paper_there_is_no_menu_and_nothing_is_cut(opened):
    page, *_ = opened
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden() and page.locator("h2").count() == 6
