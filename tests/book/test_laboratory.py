"""The laboratory's directive, its link in notebooks, and its place in the wheel."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from chapters import INDEX
from editions.myst import parse
from editions.plain import Writer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
import laboratory  # noqa: E402

SETTINGS = (ROOT / "privfl_lite/teach/js/lab/settings.js").read_text(encoding="utf-8")


def test_a_notebook_has_a_link_in_its_place():
    written = Writer(INDEX, "intro").blocks(parse("```{laboratory}\n:small:\n```"))
    link = r"\[.+\]\(https://.+/book/laboratory\.html\) in your browser"
    assert re.fullmatch(link + r", or run `pf\.teach\.lab\(\)`\.", written)


@pytest.mark.parametrize("option", ["net", "act", "defense", "attacker", "solver"])
def test_options_are_those_that_the_page_knows(option):
    """Every name that the directive takes is a key of the page's choices, and the reverse."""
    kinds = {"net": "NETS", "act": "ACTS", "defense": "DEFENSES", "attacker": "ATTACKERS"}
    name = kinds.get(option, "SOLVERS")
    block = re.search(rf"export const {name} = \{{(.*?)\n?\}};", SETTINGS, re.DOTALL)[1]
    if "\n" in block:
        known = re.findall(r"^  (\w+):", block, re.MULTILINE)
    else:
        known = re.findall(r"(\w+): \"", block)
    check = laboratory.Laboratory.option_spec[option]
    assert known and [check(k) for k in known] == known
    with pytest.raises(ValueError, match="choose"):
        check("something else")


def test_the_place_holds_its_settings_and_a_sentence_without_scripts():
    html = laboratory.place("book/intro", {"small": True, "rate": 0.9})
    assert "&quot;small&quot;: true" in html and "&quot;rate&quot;: 0.9" in html
    assert "if scripts are on" in html and '"../_static/js/lab/page.js"' in html


def test_chapters_that_it_leads_to_exist():
    named = set(re.findall(r'chapter: "([\w-]+)"', SETTINGS))
    assert len(named) > 2 and not [n for n in named if not (ROOT / f"book/src/{n}.md").is_file()]


def test_the_wheel_carries_the_modules():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "teach/js/**/*" in project["tool"]["setuptools"]["package-data"]["privfl_lite"]
