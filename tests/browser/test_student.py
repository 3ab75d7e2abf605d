"""The student edition of three chapters in a real JupyterLab: all is rendered, nothing is raw."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from checkout import ROOT
from lab_server import PATIENCE, TOKEN, assert_rendered, open_edition

pytestmark = pytest.mark.browser
HINT = "<details><summary>Hint</summary>\n\nLook at $x$.\n\n</details>"


@pytest.mark.parametrize("slug", ["federated-learning", "why-gradients-leak", "dcs2"])
def test_student_edition_in_jupyterlab(chromium, lab: tuple[str, Path], slug: str):
    url, folder = lab
    shutil.copy(ROOT / "book" / "student" / f"{slug}.ipynb", folder)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    notebook = open_edition(page, url, folder / f"{slug}.ipynb")
    assert_rendered(page, notebook)
    folded = page.locator(".jp-RenderedMarkdown details")
    proof = folded.filter(has=page.locator("summary", has_text=re.compile("^Proof"))).first
    inside = proof.locator("p").first
    assert not inside.is_visible()
    after = proof.locator("xpath=following-sibling::*[not(self::p[not(node())])][1]")
    gap = after.bounding_box()["y"] - rim(proof)
    assert gap >= 10, f"{gap} px between a closed proof and what follows"
    proof.locator("summary").click()
    assert inside.is_visible()
    folded = page.locator(".jp-CodeCell .jp-InputPlaceholder").count()
    hidden = [c for c in notebook["cells"] if "jupyter" in c["metadata"]]
    assert folded == len(hidden) > 0


def rim(element) -> float:
    """The lower edge of an element."""
    box = element.bounding_box()
    return box["y"] + box["height"]


def test_hint_opens_on_click(chromium, lab: tuple[str, Path]):
    url, folder = lab
    cell = {"cell_type": "markdown", "metadata": {}, "id": "hint", "source": HINT}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
    whole = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "hint.ipynb").write_text(json.dumps(whole), encoding="utf-8")
    page = chromium.new_page()
    page.goto(f"{url}lab/tree/hint.ipynb?token={TOKEN}&reset")
    hint = page.locator(".jp-RenderedMarkdown details")
    hint.wait_for(timeout=PATIENCE * 1000)
    assert not hint.locator("p").is_visible()
    hint.get_by_text("Hint", exact=True).click()
    hint.locator("p mjx-container").wait_for(timeout=15_000)
