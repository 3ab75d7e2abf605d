"""The map of the book: every chapter once, in order, with times of its own; two ways through it."""

from __future__ import annotations

import shutil

import pytest
import yaml
from chapters import INDEX, SLUGS, SOURCES, read, student, text
from checkout import ROOT
from editions import paths, times
from editions.myst import EditionError
from editions.plain import Writer

STOPS = paths.stops(INDEX)


def test_the_map_has_every_chapter_in_order():
    assert [s.slug for s in STOPS] == [slug for slug in SLUGS if slug != "intro"]
    assert [s.number for s in STOPS] == [str(i + 1) for i in range(len(STOPS))]


def test_times_are_those_of_the_chapters():
    for stop in STOPS:
        skim, study = map(times.rounded, times.reading(read(SOURCES / f"{stop.slug}.md")))
        assert (stop.skim, stop.study) == (skim, study)
        assert stop.in_course == {"": 0, "skim": skim, "study": study}[stop.course]


def test_the_short_course_takes_about_six_hours_and_the_book_much_longer():
    assert 5 <= sum(s.in_course for s in STOPS) / 60 <= 7, "change `course` in book/map.yml"
    assert paths.hours(STOPS, "course") < paths.hours(STOPS, "book")
    assert len({s.part for s in STOPS if s.course}) >= 3, "it goes through all of the book"


def test_chapters_need_earlier_ones_and_the_course_has_all_that_it_needs():
    known = {s.number: s for s in STOPS}
    for stop in STOPS:
        assert all(int(n) < int(stop.number) for n in stop.needs)
        assert all(stop.number in known[n].leads for n in stop.needs)
        assert stop.needs or stop.slug == "federated-learning"
        assert not stop.course or all(known[n].course for n in stop.needs), stop.slug


@pytest.fixture
def root(tmp_path):
    """A book like ours, whose map can be changed."""
    (tmp_path / "book").mkdir()
    for name in ("_toc.yml", "_config.yml", "book/map.yml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def change(root, key: str, value: dict) -> None:
    path = root / "book" / "map.yml"
    known = yaml.safe_load(path.read_text(encoding="utf-8"))
    known[key] = {**known.get(key, {}), **value}
    path.write_text(yaml.safe_dump(known), encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("course", {"nowhere": "study"}, "names 'nowhere', which is no chapter"),
        ("needs", {"dcs2": ["gone"]}, "names 'gone'"),
        ("needs", {"why-gradients-leak": ["dcs2"]}, "needs 'dcs2', which comes later"),
    ],
)
def test_a_wrong_map_is_refused(root, key: str, value: dict, says: str):
    paths.read_map(root)
    change(root, key, value)
    with pytest.raises(EditionError, match=says):
        paths.read_map(root)


def test_a_part_is_coming_until_the_table_of_contents_has_it(root):
    change(root, "coming", {"V · Later": "more"})
    assert paths.coming(root)["V · Later"] == "more"
    toc = (root / "_toc.yml").read_text(encoding="utf-8")
    part = "  - caption: V · Later\n    numbered: 1\n    chapters:\n      - file: book/more\n"
    (root / "_toc.yml").write_text(toc + part, encoding="utf-8")
    assert "V · Later" not in paths.coming(root)
    assert paths.parts(root)["V · Later"] == ["more"]


def test_the_notebook_has_the_map_as_a_list_and_nothing_that_only_a_page_shows():
    whole = text(student("intro"))
    for stop in STOPS:
        assert f"{stop.number}. [{stop.title}]({INDEX.page(stop.slug)})" in whole
    assert "Start here" not in whole and "Take it along" not in whole


def test_a_term_is_a_link_to_the_glossary():
    writer, page = Writer(INDEX, "dcs2"), INDEX.page("glossary")
    assert writer.text("a {term}`PSNR`") == f"a [PSNR]({page}#term-PSNR)"
    said = writer.text("{term}`Lone units <lone unit>`")
    assert said == f"[Lone units]({page}#term-lone-unit)"
    with pytest.raises(EditionError, match="the glossary has no term 'nothing'"):
        writer.text("{term}`nothing`")
