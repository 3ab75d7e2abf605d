"""What a reader meets, in a real browser: the first screen, search, the glossary, paper."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from checkout import ROOT
from chromium import is_offline, serve, shared_site

sys.path.insert(0, str(ROOT / "scripts"))
import print_book

pytestmark = [pytest.mark.book, pytest.mark.browser]
PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_site(tmp_path_factory)


@pytest.fixture(scope="module")
def address(site: Path):
    with serve(site) as address:
        yield address


@pytest.fixture
def visit(chromium, address: str):
    """visit(page, size): a page of the site, in a window of its own."""
    opened = []

    def go(page: str, size: dict, **options):
        context = chromium.new_context(viewport=size, **options)
        opened.append(context)
        found = context.new_page()
        found.goto(f"{address}/book/{page}.html", wait_until="load")
        return found

    yield go
    for context in opened:
        context.close()


# What can be clicked at its middle, inside the window.
IN_SIGHT = """selector => [...document.querySelectorAll(selector)].filter(e => {
  const box = e.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
  const top = box.width && document.elementFromPoint(x, y);
  return top && (e.contains(top) || top.contains(e)) && box.top >= 0 && box.left >= 0
    && box.bottom <= innerHeight && box.right <= innerWidth;
}).length"""


@pytest.mark.parametrize("size", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_the_first_screen_is_title_strip_and_picture(visit, size: dict):
    page = visit("intro", size)
    for part in ("article h1", ".pf-strip a", "article figure img"):
        assert page.evaluate(IN_SIGHT, part) >= 1, f"{part} is not on the first screen"
    above = "e => document.querySelector('article figure img').compareDocumentPosition(e) & 2"
    code = page.locator("article pre, article details").all()
    assert code and not any(c.evaluate(above) for c in code), "code stands before the picture"
    page.locator(".pf-strip a").click()
    page.wait_for_url("**/federated-learning.html*")


@pytest.mark.parametrize("width", [360, 390, 768, 992, 1280, 1600])
def test_search_is_in_sight_at_every_width(visit, width: int):
    page = visit("loda", {"width": width, "height": 800})
    field = ".search-button__button"
    assert page.evaluate(IN_SIGHT, field) == 1
    page.evaluate("document.querySelector('#pst-primary-sidebar').scrollTop = 9999")
    page.evaluate("scrollTo(0, 3000)")
    page.wait_for_timeout(200)
    assert page.evaluate(IN_SIGHT, field) == 1, "it scrolls away"
    if width >= 992:  # the list of chapters closes; below, it is closed already
        page.locator(".primary-toggle:visible").first.click()
        page.wait_for_timeout(500)
        assert page.evaluate(IN_SIGHT, field) == 1, "it goes with the list of chapters"
    page.locator(f"{field}:visible").first.click()
    assert page.locator("input[type=search]:visible").count() == 1


def test_the_map_works_on_a_phone(visit):
    page = visit("intro", PHONE)
    small = "es => Math.min(...es.map(e => e.getBoundingClientRect().height))"
    assert page.locator(".pf-map .pf-small").evaluate_all(small) >= 11, "too small to read"
    wide = "es => Math.max(...es.map(e => e.getBoundingClientRect().right))"
    assert page.locator(".pf-map text").evaluate_all(wide) <= 390
    page.locator(".pf-stop", has_text="A lock on the gradient").click()
    page.wait_for_url("**/fedkl.html")


# --- the glossary ---


def shown(page) -> str:
    return (
        page.locator(".pf-tip:visible").inner_text()
        if page.locator(".pf-tip:visible").count()
        else ""
    )


def test_a_term_is_explained_on_hover_and_by_keyboard(visit):
    page = visit("intro", LAPTOP)
    term = page.locator("a.pf-term", has_text="PSNR").first
    assert not shown(page)
    term.hover()
    assert shown(page).startswith("PSNR: Nearness of two images in decibels")
    page.locator(".pf-tip").hover()  # it can be reached, and stays
    page.wait_for_timeout(400)
    assert shown(page)
    page.locator("article h1").hover()
    page.locator(".pf-tip").wait_for(state="hidden")
    term.focus()
    assert shown(page) and term.get_attribute("aria-describedby") == "pf-tip"
    assert page.locator("#pf-tip").get_attribute("role") == "tooltip"
    page.keyboard.press("Escape")
    assert not shown(page) and term.get_attribute("aria-describedby") is None
    page.keyboard.press("Enter")
    page.wait_for_url("**/glossary.html#term-PSNR")


def test_a_first_tap_explains_and_a_second_one_follows(visit):
    page = visit("intro", PHONE, has_touch=True)
    term = page.locator("a.pf-term", has_text="PSNR").first
    term.tap()
    assert shown(page).startswith("PSNR:")
    box = page.locator(".pf-tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.locator("article h2").first.tap()
    assert not shown(page) and page.url.endswith("intro.html")
    term.tap()
    term.tap()
    page.wait_for_url("**/glossary.html#term-PSNR")


def test_without_scripts_a_term_is_a_link(visit):
    page = visit("intro", LAPTOP, java_script_enabled=False)
    page.locator("a.pf-term").first.click()
    assert "/glossary.html#term-" in page.url


# --- paper ---

FOLDED = """() => [...document.querySelectorAll(
    'article .admonition.toggle > .admonition-title ~ *, article details:not(.hide) > p')]
  .filter(e => !e.checkVisibility({visibilityProperty: true}) || !e.clientHeight).length"""


def test_a_printed_page_is_open_and_has_no_sidebar(visit, site: Path):
    page = visit("cutting-gradients", LAPTOP)
    if is_offline(site):
        page.wait_for_function("MathJax.startup.promise.then(() => true)")
    assert page.evaluate(FOLDED) > 5, "nothing is folded: this test shows nothing"
    page.emulate_media(media="print")
    page.add_style_tag(content="* { transition: none !important; }")
    assert page.evaluate(FOLDED) == 0
    code = page.locator("article details.hide").first
    assert code.locator("summary").is_visible() and not code.locator("pre").first.is_visible()
    for part in (".bd-sidebar-primary", ".bd-sidebar-secondary", ".bd-header-article"):
        assert not page.locator(part).first.is_visible(), part
    page.set_viewport_size({"width": 700, "height": 1000})  # A4 without its margins
    out = """() => [...document.querySelectorAll('article table, article pre, article img')]
      .filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1
                   || e.getBoundingClientRect().right > 701).map(e => e.outerHTML.slice(0, 80))"""
    assert not (cut := page.evaluate(out)), f"cut off on paper: {cut}"


def test_the_book_is_printed_with_contents_and_page_numbers(site: Path, tmp_path: Path, chromium):
    """Three pages of the site; `make pdf` prints all of them in the same way."""
    pypdf = pytest.importorskip("pypdf")
    if not is_offline(site):
        pytest.skip("formulas come from a CDN")
    chosen = ["intro", "first-answers", "glossary"]
    target = tmp_path / "book.pdf"
    assert print_book.print_with(chromium, site, target, chosen) == 3
    reader = pypdf.PdfReader(target)
    text = [page.extract_text() for page in reader.pages]
    assert len(text) > 8 and "privfl_lite" in text[0] and "Contents" in text[1]
    tops = [e for e in reader.outline if not isinstance(e, list)]
    assert [t.title for t in tops][:2] == ["Contents", "Gradients give the data away"]
    for entry in tops[1:]:
        number, title = reader.get_destination_page_number(entry) + 1, entry.title.split(". ")[-1]
        row = next(line for line in text[1].split("\n") if title in line)
        assert row.split()[-1] == str(number), row
        assert text[number - 1].split("\n")[-1].strip() == str(number), "the page's own number"
    whole = " ".join("".join(text).split())
    assert "Solution: on the page" in whole
    assert "A laboratory stands here on the site" in whole and "if scripts are on" not in whole
