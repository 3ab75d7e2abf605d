"""Tables that sort, in a real browser: by head, by words, by keyboard; plain without a script."""

from __future__ import annotations

import pytest
from chromium import ROOT

from privfl_lite.teach.tables import Spread, table

pytestmark = [pytest.mark.book, pytest.mark.browser]
ROWS = [
    {"defense": "b", "named": Spread(0.9, 0.8, 1.0), "time": 10.0, "evidence": "read"},
    {"defense": "a", "named": Spread(0.05, 0.0, 0.2), "time": 9.0, "evidence": "proved"},
    {"defense": "c", "named": None, "time": 2.0, "evidence": "not found"},
]


@pytest.fixture
def page(chromium):
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    page.set_content(table(ROWS, "Judged", sort=True)._repr_html_())
    yield page
    page.close()


def names(page) -> list[str]:
    """First cells of the rows that are shown, top down."""
    rows = page.locator("tbody tr").evaluate_all("all => all.filter(r => r.checkVisibility())"
        ".map(r => r.cells[0].textContent)")  # fmt: skip
    return list(rows)


def script(page) -> None:
    page.add_script_tag(path=str(ROOT / "book" / "_assets" / "tables.js"))


def test_without_the_script_it_is_a_plain_table(page):
    assert names(page) == ["b", "a", "c"]
    assert page.locator("button, input").count() == 0


def test_a_head_sorts_by_numbers_both_ways_and_dashes_come_last(page):
    script(page)
    head = page.locator("thead button", has_text="named")
    head.focus()
    page.keyboard.press("Enter")
    assert names(page) == ["a", "b", "c"]
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("named")
    page.keyboard.press("Space")
    assert names(page) == ["b", "a", "c"]
    page.locator("thead button", has_text="time").click()
    assert names(page) == ["c", "a", "b"]  # 2 before 9 before 10


def test_words_narrow_the_rows_and_the_count_is_said(page):
    script(page)
    page.locator("input[type=search]").fill("not")
    assert names(page) == ["c"] and page.locator("output").inner_text() == "1 of 3 rows"
    page.locator("input[type=search]").fill("")
    assert len(names(page)) == 3


def test_a_head_that_says_so_gets_a_list_of_its_choices(page):
    page.evaluate("""() => {
        document.querySelector("thead th:last-child").dataset.choose = "";
        document.querySelector("tbody tr td:last-child").dataset.choice = "read|twice";
    }""")
    script(page)
    chosen = page.locator("select")
    assert chosen.locator("option").all_inner_texts() == [
        "all", "read", "twice", "proved", "not found"
    ]  # fmt: skip
    chosen.select_option("twice")
    assert names(page) == ["b"] and page.locator("output").inner_text() == "1 of 3 rows"
    page.locator("input[type=search]").fill("proved")
    assert names(page) == []
    chosen.select_option("")
    assert names(page) == ["a"]
