"""Decks are made from the chapters: complete, readable, with the book's own words and numbers.

What a browser shows of them is in tests/browser/test_slides.py.
"""

from __future__ import annotations

import re
import sys

import pytest
import yaml
from bs4 import BeautifulSoup
from chapters import RAW, SOURCES, formulas, read
from checkout import BOOK, ROOT
from editions.myst import EditionError, walk
from editions.plain import Writer
from slides import pick, timing
from slides.__main__ import make
from slides.deck import joined
from slides.fit import SIZES, fit
from slides.mathml import mathml
from slides.model import Slide
from slides.outline import sections
from slides.setting import Setter, sentences
from slides_at_hand import CHAPTERS, INDEX, deck, html

sys.path.insert(0, str(BOOK / "_ext"))
import accessible

STYLE = ROOT / "scripts" / "slides" / "slides.css"
SMALLEST = 22  # pixels of letters in a window of 1280 by 720
ALL = pytest.mark.parametrize("slug", CHAPTERS)


def numbered() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [part for part in toc["parts"] if part.get("numbered")]
    return [c["file"].removeprefix("book/") for part in parts for c in part["chapters"]]


def soup(slug: str) -> BeautifulSoup:
    return BeautifulSoup(html(slug), "html.parser")


def words(slug: str) -> str:
    """What is read on a deck, without code and formulas."""
    page = soup(slug)
    for part in page.select("style, script, pre, code, math"):
        part.decompose()
    return page.get_text(" ")


# --- every chapter ---


def test_every_chapter_has_a_deck(tmp_path):
    assert numbered() == CHAPTERS
    (tmp_path / "gone.html").write_text("an old deck")
    assert make([], tmp_path) == len(CHAPTERS)
    assert {p.stem for p in tmp_path.glob("*.html")} == {*CHAPTERS, "index"}
    listed = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert [f"{slug}.html" for slug in CHAPTERS] == re.findall(r'<a href="([\w-]+\.html)"', listed)


@ALL
def test_deck_is_a_lecture(slug):
    made = deck(slug)
    assert 12 <= len(made.slides) <= 30
    assert 15 <= made.minutes <= 45
    assert all(slide.minutes >= 0.5 and slide.notes for slide in made.slides)
    assert f"<strong>{made.minutes} minutes</strong>" in made.slides[0].notes[0]
    shown = re.findall(r'data-minutes="([\d.]+)"', html(slug))
    assert round(sum(map(float, shown))) == made.minutes


@ALL
def test_deck_has_what_a_lecture_needs(slug):
    kinds = [slide.kind for slide in deck(slug).slides]
    assert kinds[0] == "title" and kinds[-1] == "home"
    assert {"figure", "question", "example", "code", "summary", "recall"} <= {*kinds}
    titles = {s.title.lower() for s in sections(slug)}
    assert ("what this does not say" in titles) <= ("limits" in kinds)


# --- the book's own words and numbers ---


@ALL
def test_statements_are_the_books(slug):
    """Number, title and every formula of each statement, and nothing of its proof."""
    writer = Writer(INDEX, slug, "student")
    blocks = {b.label: b for c in read(SOURCES / f"{slug}.md") for b in walk(c.blocks)}
    page, seen = soup(slug), 0
    for label in {s.label for s in deck(slug).slides if s.kind in ("statement", "example")}:
        shown = page.select(f'section[data-label="{label}"] .body')
        box = page.select(f'section[data-label="{label}"] .box')
        inside = box or shown
        count = len(formulas(writer.blocks(blocks[label].body)))
        assert sum(len(part.select("math")) for part in inside) == count, label
        if box:
            assert {p.get_text() for p in page.select(f'[data-label="{label}"] .name')} == {
                INDEX.find(label).name
            }
        seen += count
    assert seen or slug in ("first-answers", "which-would-you-deploy", "your-own-run")


@ALL
def test_nothing_is_raw(slug):
    text = words(slug)
    assert not (found := RAW.findall(text)), found
    assert not (found := re.findall(r"\$|\\[a-zA-Z]+|\*\*|\]\(|\{\w+\}|\0", text)), found


@ALL
def test_code_is_the_books(slug):
    cells = {c.source.strip("\n"): c for c in read(SOURCES / f"{slug}.md") if c.kind == "code"}
    for slide in deck(slug).slides:
        if slide.kind == "code":
            assert slide.code.count("\n") < 16
            assert not cells[slide.code].tags & {"hide-input", "hide-cell", "solution"}


@ALL
def test_solutions_stay_out(slug):
    answers = [
        b for c in read(SOURCES / f"{slug}.md") for b in walk(c.blocks) if b.name == "solution"
    ]
    said = " ".join(words(slug).split())
    for answer in answers:
        longest = max(re.split(r"[$`{}]", answer.raw), key=len).strip()
        assert " ".join(longest.split()) not in said


# --- readable by all ---


@ALL
def test_deck_is_accessible(slug):
    page = html(slug)
    assert accessible.picture_faults(page) == accessible.heading_faults(page) == []
    assert all(s.picture is None or len(s.picture.alt.split()) > 5 for s in deck(slug).slides)


def test_colors_have_contrast():
    css = STYLE.read_text(encoding="utf-8")
    assert not (found := accessible.contrast_faults(css)), found
    known = accessible.variables(css)
    for theme in accessible.THEMES:
        for ink in ("--ink", "--soft", "--head", "--attack", "--defense"):
            for paper in ("--paper", "--box", "--ask", "--code"):
                ratio = accessible.contrast(known[theme][ink], known[theme][paper])
                assert ratio >= accessible.ENOUGH, f"{theme}: {ink} on {paper} has {ratio:.2f}"


def test_letters_are_large():
    css = STYLE.read_text(encoding="utf-8")
    sizes = [float(s) * 10 for s in re.findall(r"font(?:-size)?:[^;]*?([\d.]+)rem", css)]
    assert len(sizes) > 15 and min(sizes) >= SMALLEST and min(SIZES) >= SMALLEST
    assert {int(n) for n in re.findall(r"\.size-(\d+)", css)} == {*SIZES}


@ALL
def test_deck_asks_for_nothing(slug):
    page = soup(slug)
    for part in page.select("[src], link[href]"):
        assert (part.get("src") or part.get("href")).startswith("data:")
    css = page.style.get_text()
    assert "url(" not in css and "@import" not in css
    assert not page.select("script[src], iframe, object")


# --- cutting ---


def test_long_text_is_cut_and_nothing_lost():
    setter = Setter(INDEX, CHAPTERS[0])
    text = "\n\n".join(f"Sentence {n}: " + "some words of a long text " * 12 for n in range(9))
    pieces = tuple(setter.pieces(text))
    slide = Slide("text", "A heading", 9, pieces=pieces)
    parts = fit(slide)
    assert len(parts) > 2 and [p.count for p in parts] == [
        (n, len(parts)) for n in range(1, len(parts) + 1)
    ]
    assert [p for part in parts for p in part.pieces] == [*pieces]
    (short,) = fit(Slide("text", "A heading", 9, pieces=pieces[:1]))
    assert short.size > parts[0].size >= SMALLEST


def test_lists_go_on_with_their_numbers():
    pieces = Setter(INDEX, CHAPTERS[0]).pieces("1. one\n2. two\n3. three")
    assert len(pieces) == 3 and 'start="3"' in joined(pieces[2:])
    assert joined(pieces).count("<ol") == 1 and joined(pieces).count("<li>") == 3


def test_sentences_keep_what_belongs_together():
    text = "It follows Eq. 3 of $a. B$ here. See `x. Y` (one. Two) now. **Bold. Still** bold."
    assert sentences(text) == [
        "It follows Eq. 3 of $a. B$ here.",
        "See `x. Y` (one. Two) now.",
        "**Bold. Still** bold.",
    ]


def test_a_longer_text_takes_longer():
    pieces = [Setter(INDEX, CHAPTERS[0]).pieces("word " * n)[0] for n in (130, 1300)]
    few, many = (timing.timed(Slide("text", "x", 1, pieces=(p,))) for p in pieces)
    assert few.minutes == 1 and many.minutes == 10
    assert timing.timed(Slide("question", "x", 1, pieces=(pieces[0],))).minutes == 2.5


# --- steering ---


def test_file_of_steering_names_what_is_there():
    for slug, told in pick.steering().items():
        names = set(INDEX.targets) | {s.title for s in sections(slug)}
        assert slug in CHAPTERS and set(told) <= {"skip", "take", "notes"}
        named = [*told.get("skip", []), *told.get("take", []), *told.get("notes", {})]
        assert not (wrong := [n for n in named if n not in names]), wrong


def test_steering_skips_takes_and_speaks():
    slug = "noise-and-epsilon"
    shown = [s.label for s in deck(slug).slides if s.label]
    candidates = {t for t, target in INDEX.targets.items() if target.slug == slug}
    left = sorted(t for t in candidates - {*shown} if t.startswith("lem-"))[0]
    told = {"skip": [shown[2]], "take": [left], "notes": {shown[0]: "Wait for $x$ here."}}
    steered = {s.label: s for s in pick.deck(slug, INDEX, {slug: told}).slides}
    assert shown[2] not in steered and left in steered
    assert re.search("Wait for .*<math><mi>x<", steered[shown[0]].notes[0])


def test_unknown_chapter_is_one_sentence():
    with pytest.raises(EditionError, match="no chapter 'nowhere'"):
        pick.find(["nowhere"], INDEX)


# --- formulas ---


@pytest.mark.parametrize("slug", CHAPTERS)
def test_every_formula_of_the_book_can_be_set(slug):
    writer = Writer(INDEX, slug, "instructor")
    for cell in read(SOURCES / f"{slug}.md"):
        for block in (b for b in walk(cell.blocks) if b.kind == "text"):
            for tex in formulas(writer.text(block.raw)):
                assert mathml(tex).startswith("<math")


def test_formulas_by_hand():
    assert mathml(r"\frac12") == "<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>"
    assert mathml("x_i^2") == "<math><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup></math>"
    assert "<munderover>" in mathml(r"\sum_{i=1}^n i", display=True)
    assert "ℝ" in mathml(r"\mathbb R^d") and "𝒩" in mathml(r"\mathcal N(0, 1)")
    assert mathml(r"\text{two words}") == "<math><mtext>two\u00a0words</mtext></math>"
    assert mathml("a < b").count("&lt;") == 1


@pytest.mark.parametrize(
    ("tex", "says"),
    [(r"\nonsense", "know no"), (r"\frac{1}", "ends too early"), ("x}", "out of place"),
     (r"\begin{cases} a \end{cases}", "know no 'cases'")],
)  # fmt: skip
def test_formula_that_cannot_be_set_is_refused(tex, says):
    with pytest.raises(EditionError, match=says):
        mathml(tex)
