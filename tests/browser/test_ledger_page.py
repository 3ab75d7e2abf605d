"""The ledger's dashboard in a real browser: its bars, its form, its folded entries, its links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from chromium import ROOT, serve, shared_site

from privfl_lite.teach import ledger

pytestmark = [pytest.mark.book, pytest.mark.browser]
ENTRIES = ledger.load(ROOT / "privfl_lite" / "results" / "ledger.yml")
ROWS = ".ledger-entry"


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    with serve(shared_site(tmp_path_factory)) as address:
        yield f"{address}/book/ledger.html"


@pytest.fixture
def page(chromium, url):
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.route(lambda u: not u.startswith(url.rpartition("/book")[0]), lambda route: route.abort())
    page.goto(url, wait_until="load")
    page.locator(".ledger-filter").wait_for(state="visible")
    yield page
    page.close()


def label(entry: dict) -> str:
    """The entry's id in the page."""
    return "ledger-" + re.sub("[/_.]", "-", entry["id"])


def shown(page) -> set[str]:
    """Ids of the visible entries, as in the ledger."""
    rows = f"[...document.querySelectorAll('{ROWS}')].filter(e => e.checkVisibility())"
    ids = set(page.evaluate(f"{rows}.map(e => e.id)"))
    return {e["id"] for e in ENTRIES if label(e) in ids}


def test_each_bar_counts_its_papers_verdicts(page):
    parts = page.locator(".ledger-bar a").evaluate_all(
        "all => all.map(a => [a.dataset.paper, a.dataset.verdict, a.firstChild.data,"
        " a.getBoundingClientRect().width])"
    )
    want = Counter((e["id"].partition("/")[0], e["verdict"]) for e in ENTRIES)
    assert {(p, v): int(n) for p, v, n, _ in parts} == want
    widths = {(p, v): width for p, v, _, width in parts}
    assert widths["fedkl", "differs"] > 1.5 * widths["fedkl", "refuted"]


def test_form_narrows_by_paper_verdict_strength_and_words(page):
    form = page.locator(".ledger-filter")
    assert shown(page) == {e["id"] for e in ENTRIES}
    form.locator("[name=paper]").select_option("dcs2")
    form.locator("[name=verdict]").select_option("differs")
    want = {e["id"] for e in ENTRIES if e["id"].startswith("dcs2/") and e["verdict"] == "differs"}
    assert shown(page) == want
    form.locator("[name=strength]").select_option("theory")
    want = {e["id"] for e in ENTRIES if e["id"] in want and e["strength"] == "theory"}
    assert shown(page) == want
    assert form.locator("output").inner_text() == f"{len(want)} of {len(ENTRIES)} entries"
    form.locator("[name=text]").fill("misprint QUADRATIC")  # in the folded part, any case
    assert shown(page) == {"dcs2/equation-11-12"}
    form.locator("[name=text]").fill("no such words")
    assert shown(page) == set() and "0 of" in form.locator("output").inner_text()
    form.get_by_role("button", name="Show all").click()
    page.wait_for_function(f"document.querySelectorAll('{ROWS}[hidden]').length === 0")


def test_a_bar_is_worked_by_the_keyboard(page):
    part = page.locator(".ledger-bar a[data-paper=loda][data-verdict=refuted]")
    part.focus()
    page.keyboard.press("Enter")
    want = {e["id"] for e in ENTRIES if e["id"].startswith("loda/") and e["verdict"] == "refuted"}
    assert shown(page) == want
    page.locator(f"{ROWS}:not([hidden]) > summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(f"{ROWS}[open]").count() == 1


def test_unfold_opens_what_is_left_and_folds_it_again(page):
    page.locator(".ledger-filter [name=verdict]").select_option("reproduced")
    number = sum(e["verdict"] == "reproduced" for e in ENTRIES)
    for name, opened in (("Unfold", number), ("Fold", 0)):
        page.get_by_role("button", name=name, exact=True).click()
        assert page.locator(f"{ROWS}[open]").count() == opened


def test_a_link_to_an_entry_opens_it_even_where_it_was_hidden(page):
    page.locator(".ledger-filter [name=paper]").select_option("loda")
    page.evaluate("location.hash = '#ledger-modelcloak-table-3'")
    entry = page.locator("#ledger-modelcloak-table-3[open]")
    entry.wait_for(state="visible")
    assert "0.678" in entry.inner_text()


def test_every_entry_leads_to_its_chapter_its_tests_and_its_command(page):
    """Folded or not, the links are in the page."""
    for e in ENTRIES:
        row = page.locator(f"#{label(e)}")
        links = row.locator("a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
        chapter = e["chapter"].removeprefix("book/")
        assert f"{chapter}.html" in links, e["id"]
        text = row.evaluate("e => e.textContent")
        for path in e["ours"] or []:
            study = path.partition(".json")[0]
            assert f"privfl study run {study} --profile" in text, e["id"]
            assert any(link.endswith(f"privfl_lite/results/{study}.json") for link in links)
        for test in e.get("tests") or []:
            assert test in text and any("/tests/" in link for link in links), e["id"]


def test_without_a_script_all_entries_and_bars_are_there(chromium, url):
    context = chromium.new_context(
        java_script_enabled=False, viewport={"width": 390, "height": 800}
    )
    page = context.new_page()
    page.goto(url, wait_until="domcontentloaded")
    assert page.locator(f"{ROWS} > summary").count() == len(ENTRIES)
    assert page.locator(".ledger-filter").is_hidden() and page.locator(".ledger-bar").count() == 5
    entry = page.locator("#ledger-dcs2-table-1")
    assert entry.locator(".ledger-more").is_hidden()
    entry.locator("summary").click()
    assert entry.locator(".ledger-more").is_visible()
    context.close()
