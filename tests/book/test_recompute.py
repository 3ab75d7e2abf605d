"""Every study that a chapter of Parts II and III shows can be computed again in that chapter."""

from __future__ import annotations

import re

import pytest
import yaml
from chapters import SOURCES
from checkout import ROOT

from privfl_lite.studies import NAMES

PENDING: set[str] = set()
PARTS = ("II ", "III ")


def chapters() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [part for part in toc["parts"] if part["caption"].startswith(PARTS)]
    return [c["file"].removeprefix("book/") for part in parts for c in part["chapters"]]


@pytest.mark.parametrize("slug", [slug for slug in chapters() if slug not in PENDING])
def test_each_study_of_a_chapter_has_a_panel(slug):
    text = (SOURCES / f"{slug}.md").read_text(encoding="utf-8")
    shown = {name for name in NAMES if name.startswith(f"{slug}/")}
    shown |= set(re.findall(r'STUDIES\["([^"]+)"\]', text))
    assert shown and not shown - set(
        re.findall(r'^\s*(?:display\()?recompute\("([^"]+)"', text, re.M)
    )
