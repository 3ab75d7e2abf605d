"""The full edition of three chapters in a real JupyterLab: rendered, folded, and moving."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from lab_server import PATIENCE, assert_rendered, open_edition

sys.path.append(str(ROOT / "scripts"))
from editions.__main__ import built
from editions.numbers import read_index

pytestmark = pytest.mark.browser
CHAPTERS = ["dcs2", "why-gradients-leak", "malicious-server"]


@pytest.fixture(scope="module")
def copies(lab: tuple[str, Path]) -> dict[str, Path]:
    """Chapters in the folder of a JupyterLab, signed as `make lab-full` signs them."""
    import nbformat
    from nbformat.sign import NotebookNotary

    folder, index = lab[1], read_index()
    notary, made = NotebookNotary(data_dir=str(folder.parent / "data")), {}
    (folder.parent / "data").mkdir(exist_ok=True)
    for slug in CHAPTERS:
        (whole,) = built(slug, index, "full").values()
        made[slug] = folder / f"{slug}.ipynb"
        made[slug].write_text(whole, encoding="utf-8")
        notary.sign(nbformat.read(made[slug], 4))
    return made


@pytest.mark.parametrize("slug", CHAPTERS)
def test_full_edition_in_jupyterlab(chromium, lab, copies: dict[str, Path], slug: str):
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    notebook = open_edition(page, lab[0], copies[slug])
    assert_rendered(page, notebook)
    cited = page.locator('.jp-RenderedMarkdown a[href*="/bibliography.html#cite-"]')
    links = json.dumps(notebook["cells"], ensure_ascii=False).count("/bibliography.html#cite-")
    assert cited.count() == links > 0
    assert all(re.search(r"(19|20)\d\d", words) for words in cited.all_text_contents())
    # plumbing and solutions are folded, and what is shut on the page is shut here
    folds = [c["metadata"].get("jupyter", {}) for c in notebook["cells"]]
    for kind, key in {"Input": "source_hidden", "Output": "outputs_hidden"}.items():
        shut = page.locator(f".jp-CodeCell .jp-{kind}Placeholder")
        assert shut.count() == sum(key in fold for fold in folds) > 0
    answer = page.locator("details", has_text="Solution to Exercise").first
    assert not answer.locator("p").first.is_visible()
    answer.locator("summary").click()
    assert answer.locator("p").first.is_visible()
    page.close()


@pytest.mark.parametrize("slug", CHAPTERS)
def test_what_moves_on_the_page_moves_in_jupyterlab(chromium, lab, copies, slug: str):
    """No cell is run: the stored widgets answer."""
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    notebook = open_edition(page, lab[0], copies[slug])
    whole = json.dumps(notebook["cells"])
    pictures = page.locator(".jp-OutputArea .pfx:not(.pfl)")
    pictures.first.wait_for(timeout=PATIENCE * 1000)
    assert pictures.count() == whole.count("pf.teach.explore(") // 2  # source and output
    assert page.locator(".jp-OutputArea .pfl").count() == whole.count("pf.teach.lab(") // 2
    picture = pictures.first
    picture.scroll_into_view_if_needed()
    before = picture.inner_text()
    picture.locator('input[type="range"]').first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "([e, before]) => e.innerText !== before", arg=[picture.element_handle(), before]
    )
    chains = """() => [...document.querySelectorAll(".jupyter-widgets-disconnected")]
        .map(e => getComputedStyle(e, "::before").content)"""
    assert set(page.evaluate(chains)) <= {"none"}
    assert not errors, errors
    page.close()
