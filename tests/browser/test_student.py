"""The student edition of three chapters in a real JupyterLab: all is rendered, nothing is raw."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from checkout import ROOT
from lab_server import PATIENCE, TOKEN

pytestmark = pytest.mark.browser
RAW = re.compile(r":::+|```|\{[\w:-]+\}`|\{(prf|cite|solution|exercise|hint)[:}]|:label:|\{\{")
HINT = "<details><summary>Hint</summary>\n\nLook at $x$.\n\n</details>"


def dollars(notebook: dict) -> int:
    """The formulas of a notebook's Markdown cells, by their dollars."""
    cells = [c for c in notebook["cells"] if c["cell_type"] == "markdown"]
    whole = re.sub(r"`[^`\n]*`|^```.*?^```$", "", "\n\n".join("".join(c["source"]) for c in cells))
    marks = whole.count("$$") + len(re.findall(r"(?<!\\)\$", whole.replace("$$", "")))
    return marks // 2


@pytest.mark.parametrize("slug", ["federated-learning", "why-gradients-leak", "dcs2"])
def test_student_edition_in_jupyterlab(chromium, lab: tuple[str, Path], slug: str):
    url, folder = lab
    notebook = json.loads((ROOT / "book" / "student" / f"{slug}.ipynb").read_text(encoding="utf-8"))
    shutil.copy(ROOT / "book" / "student" / f"{slug}.ipynb", folder)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{url}lab/tree/{slug}.ipynb?token={TOKEN}&reset")
    texts = page.locator(".jp-MarkdownCell .jp-RenderedMarkdown")
    count = sum(c["cell_type"] == "markdown" for c in notebook["cells"])
    texts.nth(count - 1).wait_for(state="attached", timeout=PATIENCE * 1000)
    page.wait_for_function(
        "n => document.querySelectorAll('.jp-RenderedMarkdown mjx-container').length >= n",
        arg=dollars(notebook),
        timeout=PATIENCE * 1000,
    )
    assert page.locator(".jp-RenderedMarkdown mjx-container").count() == dollars(notebook)
    assert not page.locator(
        ".jp-RenderedMarkdown mjx-merror, mjx-container [data-mjx-error]"
    ).count()
    shown = "\n".join(texts.all_text_contents())
    assert not (found := RAW.search(shown)), shown[found.start() - 40 : found.end() + 40]
    titles = re.findall(
        r"\*\*((?:Proposition|Exercise|Definition) [\d.]+)\*\*", json.dumps(notebook)
    )
    bold = set(page.locator(".jp-RenderedMarkdown blockquote strong").all_text_contents())
    assert titles and set(titles) <= bold
    folded = page.locator(".jp-RenderedMarkdown details")
    proof = folded.filter(has=page.locator("summary", has_text=re.compile("^Proof"))).first
    inside = proof.locator("p").first
    assert not inside.is_visible()
    proof.locator("summary").click()
    assert inside.is_visible()
    folded = page.locator(".jp-CodeCell .jp-InputPlaceholder").count()
    hidden = [c for c in notebook["cells"] if "jupyter" in c["metadata"]]
    assert folded == len(hidden) > 0


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
