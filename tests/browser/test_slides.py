"""Decks in a browser: they fit, by day and by night, on a wall, a phone and paper; keys work."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from pathlib import Path

import pytest
from accessible_page import faint_words
from chapters import SOURCES, formulas, read
from checkout import BOOK
from editions.myst import walk
from editions.plain import Writer
from pypdf import PdfReader
from slides.__main__ import make
from slides.mathml import mathml
from slides_at_hand import CHAPTERS, INDEX, deck, html

pytestmark = pytest.mark.browser
VENDOR = Path(os.environ.get("PRIVFL_VENDOR", BOOK / "_vendor")) / "vendor" / "mathjax"
WALL, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}
SHOW = """n => {
  document.querySelectorAll(".slide").forEach((s, i) => s.classList.toggle("now", i === n));
  document.querySelectorAll(".step").forEach((s) => s.classList.add("seen"));
  document.querySelectorAll(".notes").forEach((s) => s.remove());
}"""
# Of each slide: what stands too low or too far to the right, letters that are too small (scripts of
# formulas are as small as scripts are), formulas and pictures that are not there.
FAULTS = """() => [...document.querySelectorAll(".slide")].flatMap((slide, n) => {
  (SHOW)(n);
  const foot = slide.querySelector(".foot").getBoundingClientRect();
  const found = [];
  for (const e of slide.querySelectorAll("header, header *, .body, .body *")) {
    const box = e.getBoundingClientRect();
    const words = `slide ${n + 1}, ${e.tagName} ${e.textContent.trim().slice(0, 40)}`;
    if (e.matches("math, img") && (box.width < 4 || box.height < 4)) found.push(`${words}: gone`);
    if (e.matches("img") && Math.max(box.width, box.height) < 500) found.push("a small figure");
    if (!box.width || (e.closest("math") && e.tagName !== "math")) continue;
    if (box.bottom > foot.top + 1) found.push(`${words}: ${box.bottom - foot.top} px too low`);
    if (box.right > innerWidth + 1 || box.left < -1) found.push(`${words}: too wide`);
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "auto")
      found.push(`${words}: cut off`);
    const size = parseFloat(getComputedStyle(e).fontSize);
    const own = [...e.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (own && size < 21.9) found.push(`${words}: ${size} px`);
  }
  return found;
})""".replace("SHOW", SHOW)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("slides")
    make([], made)
    return made


@pytest.fixture
def opened(chromium, folder, request):
    """opened(slug, viewport, theme): a deck, without a request, an error or a complaint."""
    pages, faults = [], []

    def show(slug: str, viewport: dict = WALL, theme: str = "light"):
        page = chromium.new_page(viewport=viewport, color_scheme=theme)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: said.type == "error" and faults.append(said.text))
        page.on(
            "request",
            lambda r: r.url.startswith(("file:", "data:")) or faults.append(r.url),
        )
        page.goto((folder / f"{slug}.html").as_uri())
        pages.append(page)
        return page

    yield show
    for page in pages:
        page.close()
    assert not faults


@pytest.mark.parametrize("slug", CHAPTERS)
def test_every_slide_fits(opened, slug):
    page = opened(slug)
    assert page.locator("math").count() == html(slug).count("<math")
    assert page.locator(".slide").count() == len(deck(slug).slides)
    assert not (found := page.evaluate(FAULTS)), found


@pytest.mark.parametrize("slug", CHAPTERS)
def test_every_slide_has_contrast(opened, slug):
    page = opened(slug, theme="dark")
    for theme in ("dark", "light"):
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        for number in range(len(deck(slug).slides)):
            page.evaluate(SHOW, number)
            found = faint_words(page.locator(".slide.now"))
            assert not found, f"slide {number + 1}, {theme}: {found}"
        page.keyboard.press("t")


def test_faults_are_found(opened):
    page = opened("dcs2")
    spoil = "s => { document.querySelector(s[0]).style.cssText = s[1]; }"
    for part, style, says in (
        ("#s4 .body p", "font-size: 12px", "px"),
        ("#s4 .body p", "margin-top: 800px", "too low"),
        ("#s4 .body p", "width: 2000px", "too wide"),
        ("#s2 img", "width: 90px; height: 90px", "small figure"),
    ):
        page.evaluate(spoil, [part, style])
        assert any(says in fault for fault in page.evaluate(FAULTS))
    page.evaluate(spoil, ["#s4 .body p", "color: #eeeeee"])
    page.evaluate(SHOW, 3)
    assert faint_words(page.locator("#s4"))


@pytest.mark.parametrize("slug", CHAPTERS)
def test_phone(opened, slug):
    page = opened(slug, PHONE)
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1], f"{wide[0]} px wide in a window of {wide[1]} px"
    slides = page.locator(".slide")
    assert all(slides.nth(n).is_visible() for n in (0, 3, slides.count() - 1))
    size = "e => parseFloat(getComputedStyle(e).fontSize)"
    assert page.locator(".slide p").nth(4).evaluate(size) >= 13


def test_keyboard(opened):
    slug = "noise-and-epsilon"
    page = opened(slug)
    count = len(deck(slug).slides)

    def at() -> int:
        assert page.locator(".slide:visible").count() == 1
        return int(page.locator(".slide.now").get_attribute("id")[1:])

    presses = {"ArrowRight": 2, "PageDown": 3, "ArrowLeft": 2, "End": count, "Enter": count}
    presses |= {"Home": 1, "PageUp": 1, " ": 2}
    for key, number in presses.items():
        page.keyboard.press(key)
        assert at() == number, key
        assert page.evaluate("location.hash") == f"#{number}"
    status = page.locator("[role=status]")
    assert status.inner_text() == f"Slide 2 of {count}: {page.locator('#h2').inner_text()}"
    notes = page.locator("#s2 .notes")
    assert not notes.is_visible()
    page.keyboard.press("n")
    assert notes.is_visible() and "minute" in notes.inner_text()
    assert not faint_words(notes)
    page.keyboard.press("N")
    assert not notes.is_visible()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert not faint_words(notes)
    page.evaluate("window.print = () => { window.printed = true; }")
    page.keyboard.press("p")
    assert page.evaluate("window.printed")


def test_answers_come_by_key(opened):
    slug = "noise-and-epsilon"
    page = opened(slug)
    number = next(n for n, s in enumerate(deck(slug).slides, 1) if s.kind == "recall")
    page.goto(page.url.partition("#")[0] + f"#{number}")
    steps = page.locator(f"#s{number} .step")
    page.locator(f"#s{number}").wait_for()
    assert steps.count() >= 2 and not steps.nth(0).is_visible()
    page.keyboard.press("ArrowRight")
    assert steps.nth(0).is_visible() and not steps.nth(1).is_visible()
    assert page.locator("[role=status]").text_content() == steps.nth(0).text_content()
    page.keyboard.press("ArrowRight")
    assert steps.nth(1).is_visible() and page.locator(f"#s{number}").is_visible()


def test_window_of_the_speaker(opened):
    slug = "dcs2"
    page = opened(slug)
    with page.expect_popup() as popup:
        page.keyboard.press("s")
    speaker = popup.value
    speaker.get_by_text(f"{deck(slug).minutes} minutes").first.wait_for()
    page.bring_to_front()
    page.keyboard.press("ArrowRight")
    heading = page.locator("#h2").inner_text()
    speaker.locator("h1", has_text=heading).wait_for()
    speaker.keyboard.press("ArrowRight")
    assert page.locator("#s3").is_visible(), "the speaker's window has the keys too"


def test_buttons_have_names_and_work(opened):
    page = opened("dcs2")
    for button in page.locator("nav button").all():
        assert len(button.get_attribute("aria-label")) > 3
    page.get_by_role("button", name="Next").click()
    assert page.locator("#s2").is_visible()


@pytest.mark.parametrize("slug", CHAPTERS[::4])
def test_one_slide_a_page(opened, slug, tmp_path):
    page = opened(slug)
    page.keyboard.press("n")  # notes are not printed
    page.pdf(path=tmp_path / "deck.pdf", prefer_css_page_size=True, print_background=True)
    pages = PdfReader(tmp_path / "deck.pdf").pages
    assert len(pages) == len(deck(slug).slides)
    for number, (sheet, slide) in enumerate(zip(pages, deck(slug).slides, strict=True), start=1):
        assert round(float(sheet.mediabox.width) / float(sheet.mediabox.height), 2) == 1.78
        assert f"{number} / {len(pages)}" in sheet.extract_text(), slide.heading


# --- formulas, beside MathJax ---

COUNT = """all => all.map((text) => {
  const found = new DOMParser().parseFromString(text, "text/html");
  const many = (names) => found.querySelectorAll(names).length;
  const raised = [...found.querySelectorAll("msup, mover, msubsup, munderover")]
    .filter((e) => e.lastElementChild.textContent.replace(/[′″\\s]/g, ""));
  return [found.body.textContent, many("mfrac"), many("msqrt, mroot"), many("mtable"), many("mtr"),
    many("msub, munder, msubsup, munderover"), raised.length];
})"""
SAME = str.maketrans({"∗": "*", "⋅": "·", "ˉ": "¯", "–": "¯", "―": "¯", "~": "˜", "∼": "˜",
                      "∣": "|", "∥": "‖", "⋯": "…", "′": "'"})  # fmt: skip


def plain(found: list) -> list:
    """Without spaces and bars; primes are counted, as a subscript may stand before or behind."""
    text = unicodedata.normalize("NFKC", found[0].translate(SAME)).replace("...", "…")
    text = text.replace("″", "''").replace("ˉ", "").translate(SAME)
    found.append(text.count("'"))
    return [re.sub("[\\s\u0304\u0305\u00af\u203e'\u2061-\u2064\u200b]", "", text), *found[1:]]


@pytest.mark.skipif(not VENDOR.is_dir(), reason="MathJax is not in book/_vendor: make vendor")
def test_formulas_say_what_mathjax_says(chromium):
    """Characters, fractions, roots, rows and scripts of every formula of the book."""
    found = set()
    for slug in CHAPTERS:
        writer = Writer(INDEX, slug, "instructor")
        for cell in read(SOURCES / f"{slug}.md"):
            for block in (b for b in walk(cell.blocks) if b.kind == "text"):
                found |= set(formulas(writer.text(block.raw)))
    page, found = chromium.new_page(), sorted(found)
    page.add_script_tag(path=VENDOR / "tex-mml-chtml.js")
    page.wait_for_function("!!(window.MathJax && window.MathJax.tex2mml)")
    theirs = page.evaluate(f"({COUNT})({json.dumps(found)}.map((f) => MathJax.tex2mml(f)))")
    ours = page.evaluate(COUNT, [mathml(tex) for tex in found])
    page.close()
    assert len(found) > 3000
    pairs = zip(found, map(plain, ours), map(plain, theirs), strict=True)
    assert not (other := [(tex, a, b) for tex, a, b in pairs if a != b]), other[:5]
