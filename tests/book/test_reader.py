"""What the built site offers a reader: previews of links, the glossary, an edit link, a way on.

The same in a browser: tests/browser/test_reader.py.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from bs4 import BeautifulSoup
from chapters import INDEX, SLUGS
from checkout import BOOK, ROOT, STUDENT, toc_files
from chromium import shared_site
from docutils import nodes
from docutils.utils import new_document
from PIL import Image

sys.path.insert(0, str(BOOK / "_ext"))
import glossary_links
import slides_link
import social
import take_along

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
HOME = CONFIG["html"]["baseurl"]
CHAPTERS = [slug for slug in SLUGS if slug != "intro"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BeautifulSoup]:
    """Every page of the table of contents, by name."""
    site = shared_site(tmp_path_factory)
    texts = {name: (site / f"{name}.html").read_text(encoding="utf-8") for name in toc_files()}
    return {name: BeautifulSoup(text, "html.parser") for name, text in texts.items()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_site(tmp_path_factory)


# --- a shared link ---


@pytest.mark.book
def test_every_page_says_what_it_is(pages, site: Path):
    seen = {}
    for name, page in pages.items():
        tags = {t["property"]: t["content"] for t in page.select("meta[property^='og:']")}
        (about,) = page.select("meta[name=description]")
        assert tags["og:description"] == about["content"] and len(about["content"]) <= 200, name
        assert tags["og:title"] in page.title.get_text() and tags["og:site_name"] == CONFIG["title"]
        assert tags["og:url"] == f"{HOME}/{name}.html"
        assert tags["og:image"].startswith(f"{HOME}/"), "previews need an absolute address"
        with Image.open(site / tags["og:image"].removeprefix(f"{HOME}/")) as picture:
            assert picture.size == (1200, 630)
        seen[about["content"]] = name
    assert len(seen) == len(pages), "two pages have the same description"


@pytest.mark.book
def test_the_picture_of_a_chapter_is_its_own(site: Path):
    """Not that of the book, which stands in where a page has no figure."""
    cards = site / social.FOLDER
    other = {path.stem: path.read_bytes() for path in cards.glob("*.png")}
    assert len(set(other.values())) == len(other)
    for slug in CHAPTERS:
        made = social.card(f"{INDEX.chapters[slug]}. {INDEX.titles[slug]}", social.FALLBACK)
        with Image.open(cards / f"{slug}.png") as card:
            assert card.tobytes() != made.tobytes(), slug


def test_descriptions_end_well():
    assert social.shortened("Short.") == "Short."
    sentence = "A sentence of more than forty letters stands here, and ends. "
    assert social.shortened(sentence + "x" * 300) == sentence.strip()
    assert social.shortened("word " * 100).endswith("word …")


# --- buttons and ways ---


@pytest.mark.book
def test_suggest_edit_leads_to_the_text_that_people_edit(pages):
    for name, page in pages.items():
        (button,) = page.select("a.btn-source-edit-button")
        path = button["href"].removeprefix(f"{CONFIG['repository']['url']}/edit/main/")
        assert (ROOT / path).is_file() and path.endswith(".md"), button["href"]
        assert path == (f"book/src/{slug}.md" if (slug := name[5:]) in SLUGS else f"{name}.md")


@pytest.mark.book
def test_next_leads_a_reader_through_the_chapters(pages):
    order = ["intro", *CHAPTERS]
    for slug, after in zip(order, [*CHAPTERS, "exercises"], strict=True):
        assert pages[f"book/{slug}"].select_one("a.right-next")["href"] == f"{after}.html"
    button = pages["book/intro"].select_one(".pf-strip a")
    assert button["href"].startswith("federated-learning.html") and "Start here" in button.text


@pytest.mark.book
def test_the_map_leads_to_every_chapter_and_says_so_in_words(pages):
    stops = pages["book/intro"].select(".pf-map a.pf-stop")
    assert [a["href"] for a in stops] == [f"{slug}.html" for slug in CHAPTERS]
    for slug, stop in zip(CHAPTERS, stops, strict=True):
        name = f"Chapter {INDEX.chapters[slug]}: {INDEX.titles[slug]}. Skim "
        assert stop["aria-label"].startswith(name), stop["aria-label"]
        drawn = " ".join(t.get_text() for t in stop.select(".pf-title"))
        assert drawn == INDEX.titles[slug]


# --- to take along ---


@pytest.mark.book
def test_the_notebooks_are_one_file(pages, site: Path):
    (link,) = pages["book/intro"].select("article a[href$='.zip']")
    with zipfile.ZipFile(site / "book" / link["href"]) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for path in STUDENT:
        assert files[f"privfl_lite/{path.name}"] == path.read_bytes()
    licenses = {"privfl_lite/LICENSE", "privfl_lite/LICENSE-text"}
    assert set(files) == {f"privfl_lite/{p.name}" for p in STUDENT} | licenses
    assert f"all {len(STUDENT)} notebooks" in link.get_text()


@pytest.mark.book
def test_no_link_leads_to_a_pdf_that_is_not_there(pages, site: Path):
    links = [a["href"] for a in pages["book/intro"].select("article a[href$='.pdf']")]
    there = (site / take_along.PDF).is_file()
    assert links == [f"../{take_along.PDF}"] * there
    assert there or "make pdf" in pages["book/intro"].article.get_text()


def test_a_pdf_is_linked_as_soon_as_there_is_one(tmp_path: Path):
    app = SimpleNamespace(outdir=tmp_path / "html", builder=SimpleNamespace(format="html"))
    app.config = SimpleNamespace(root_doc="book/intro")
    env = SimpleNamespace(all_docs={"book/intro": 0})
    app.outdir.mkdir()
    states = [take_along.outdated(app, env, set(), set(), set())]
    words = "".join(n.astext() for n in take_along.link(app, "book/intro", "pdf"))
    assert "make pdf" in words
    (tmp_path / take_along.PDF).write_bytes(b"%PDF" + bytes(3_000_000))
    states += [take_along.outdated(app, env, set(), set(), set()) for _ in range(2)]
    assert states == [[], ["book/intro"], []], "the page is made anew once"
    (link,) = take_along.link(app, "book/intro", "pdf")
    assert link["refuri"] == "../privfl_lite.pdf" and link.astext() == "as a PDF, 3 MB"
    take_along.bring(app, None)
    assert (app.outdir / take_along.PDF).is_file() and (app.outdir / take_along.ZIP).is_file()
    (tmp_path / take_along.PDF).unlink()
    take_along.bring(app, None)
    assert not (app.outdir / take_along.PDF).exists(), "an old copy stays behind"


@pytest.mark.book
def test_no_link_leads_to_slides_that_are_not_there(pages, site: Path):
    for name, page in pages.items():
        for link in page.select("article a[href*='slides/']"):
            assert (site / name).parent.joinpath(link["href"]).resolve().is_file()
    linked = [n for n, p in pages.items() if p.select("article a[href*='slides/'][href$='.html']")]
    there = (site / slides_link.LIST).is_file()
    assert len(linked) == there * (1 + sum(map(bool, INDEX.chapters.values())))
    assert there or "make slides" in pages["book/intro"].article.get_text()


def test_slides_are_linked_as_soon_as_there_are_some(tmp_path: Path):
    app = SimpleNamespace(outdir=tmp_path / "html", builder=SimpleNamespace(format="html"))
    app.config = SimpleNamespace(root_doc="book/intro")
    env = SimpleNamespace(all_docs={"book/intro": 0, "book/dcs2": 0, "book/loda": 0})
    made = tmp_path / "slides"
    made.mkdir()
    app.outdir.mkdir()
    states = [slides_link.outdated(app, env, set(), set(), set())]
    assert "make slides" in "".join(
        n.astext() for n in take_along.link(app, "book/intro", "slides")
    )
    (made / "dcs2.html").write_text('<section data-minutes="1.5"><section data-minutes="30">')
    assert not slides_link.decks(app), "decks without their list are not whole"
    (made / "index.html").write_text("all")
    states += [slides_link.outdated(app, env, set(), set(), set()) for _ in range(2)]
    assert states == [[], ["book/dcs2", "book/intro"], []], "two pages are made anew once"
    (link,) = take_along.link(app, "book/intro", "slides")
    assert link["refuri"] == "../slides/index.html" and link.astext() == "slides for 1 lecture"
    assert top(app, "book/dcs2") == ("../slides/dcs2.html", "for a lecture of 32 minutes")
    assert top(app, "book/loda") is None
    slides_link.bring(app, None)
    assert {p.name for p in (app.outdir / "slides").iterdir()} == {"dcs2.html", "index.html"}
    (made / "index.html").unlink()
    slides_link.bring(app, None)
    assert not (app.outdir / "slides").exists(), "old copies stay behind"


def top(app: SimpleNamespace, page: str) -> tuple[str, str] | None:
    """Address and words of the link behind what a chapter needs."""
    doctree = new_document("page")
    doctree += nodes.paragraph(
        "", "", nodes.Text(""), nodes.strong("", "You need"), nodes.Text(" patience.")
    )
    slides_link.link(app, doctree, page)
    found = list(doctree.findall(nodes.reference))
    return (found[0]["refuri"], found[0].astext()) if found else None


def test_packing_again_gives_the_same_file(tmp_path: Path):
    (tmp_path / "a.ipynb").write_text("{}")
    for name in ("one.zip", "two.zip"):
        take_along.pack(tmp_path, tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


# --- the glossary ---


@pytest.mark.book
def test_the_glossary_explains_its_terms(pages):
    terms = {dt["id"]: dt for dt in pages["book/glossary"].select("dl.glossary dt")}
    assert set(INDEX.terms.values()) == set(terms) and len(terms) >= 40
    for name, dt in terms.items():
        meaning = dt.find_next_sibling("dd")
        words = meaning.get_text().split()
        assert 10 <= len(words) <= 60, f"{name}: one or two sentences"
        assert meaning.select_one("a[href$='.html']"), f"{name} names no chapter"


@pytest.mark.book
def test_terms_are_linked_once_on_a_page_and_only_in_running_text(pages):
    linked = set()
    for slug in SLUGS:
        page = pages[f"book/{slug}"]
        found = [a["href"].rpartition("#")[2] for a in page.select("a.pf-term")]
        explicit = [a for a in page.select("a.pf-term") if a.select_one(".std-term")]
        assert len(found) - len(explicit) <= len(set(found)), "a term is linked twice"
        inside = "h1, h2, h3, h4, h5, pre, code, table, .cell_output, .math, a a"
        assert not [a for part in page.select(inside) for a in part.select("a.pf-term")], slug
        (data,) = page.select("script.pf-terms") if found else [None]
        assert not found or set(json.loads(data.string)) == set(found)
        linked |= set(found)
    assert len(linked) >= 20
    assert "term-PSNR" in {a["href"][-9:] for a in pages["book/intro"].select("a.pf-term")}


def test_terms_are_found_as_words():
    names = ("DLG", "iDLG", "lone unit", "total variation")
    terms = [glossary_links.Term(f"term-{n}", n, "") for n in names]
    found = glossary_links.pattern(terms)
    text = "Lone units, iDLG and DLG, a total\nvariation; not DLGs, dlg or a lone-unit."
    assert [m[0] for m in found.finditer(text)] == ["Lone units", "iDLG", "DLG", "total\nvariation"]


def test_everyday_words_are_in_the_glossary_but_not_linked_everywhere():
    assert set(INDEX.terms) >= glossary_links.EVERYDAY
