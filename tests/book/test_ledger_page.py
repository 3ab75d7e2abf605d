"""The parts of the ledger's page, without a build: values, bars, the form."""

import re
import sys
from collections import Counter

import pytest
from checkout import BOOK, ROOT

from privfl_lite.teach import ledger

sys.path.insert(0, str(BOOK / "_ext"))
import ledger_page as page

ENTRIES = ledger.load(ROOT / "privfl_lite" / "results" / "ledger.yml")


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a/b.json#/cells/part=x&of=2~13/gs/psnr", ("a/b", "part=x&of=2/3", "gs psnr")),
        ("a/b.json#/settings/model", ("a/b", "", "settings model")),
        ("a/b.json#/cells/part=x/rows/net=a/n", ("a/b", "part=x", "rows net a n")),
    ],
)
def test_a_path_is_told_in_words(path, parts):
    assert page.split(path) == parts


def test_values_of_one_cell_stand_in_one_line():
    (entry,) = [e for e in ENTRIES if e["id"] == "dcs2/table-4"]
    lines = list(page.measured(entry["ours"]))
    assert len(lines) == 4 and len(entry["ours"]) == 8
    assert "part table · defense none · attack GS, class average: psnr_mean" in lines[0]
    shown = re.findall(r"<strong>(.*?)</strong>", "".join(lines))
    assert shown == [page.value_of(path) for path in entry["ours"]]


def test_a_long_value_is_counted_and_a_text_escaped():
    (path,) = [p for e in ENTRIES for p in e["ours"] or [] if e["id"] == "dcs2/equation-6-9"][-1:]
    assert page.value_of(path) == "16 values"
    assert page.words("a <b>\n  & c") == "a &lt;b&gt; &amp; c" and page.words(None) == ""


def test_every_test_that_the_ledger_names_has_a_place():
    places = page.places_of_tests()
    for name in {name for e in ENTRIES for name in e.get("tests") or []}:
        file, line = places[name]
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8").splitlines()[line - 1]


@pytest.mark.parametrize("paper", page.PAPERS)
def test_a_bar_has_a_part_for_each_verdict(paper):
    entries = [e for e in ENTRIES if e["id"].startswith(f"{paper}/")]
    count = Counter(e["verdict"] for e in entries)
    parts = re.findall(r'flex-grow: (\d+)".*?data-verdict="(.*?)"', page.bar(paper, entries))
    assert {verdict: int(number) for number, verdict in parts} == count


def test_the_form_offers_what_there_is_and_waits_for_the_script():
    form = page.form(len(ENTRIES))
    assert "hidden" in form.partition(">")[0]
    offered = set(re.findall(r'option value="([^"]+)"', form))
    used = {e[key] for e in ENTRIES for key in ("verdict", "strength")} - {"none"}
    assert used | set(page.PAPERS) <= offered
