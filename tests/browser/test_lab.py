"""A widget in a real JupyterLab: run all, move a control by keyboard, see the kernel's answer.

The server (lab_server.py) runs on a copy of a small notebook.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_server import PATIENCE, run_all, write_notebook

pytestmark = pytest.mark.browser
CELL = """
import ipywidgets as widgets

slider = widgets.IntSlider(max=9, description="n")
shown = widgets.HTML("0 squared is 0", layout={"width": "20em"})


def answer(change):
    shown.value = f"{change.new} squared is {change.new ** 2}"


slider.observe(answer, "value")
widgets.VBox([slider, shown])
"""


def test_kernel_answers_a_widget(chromium, lab: tuple[str, Path]):
    url, folder = lab
    write_notebook(folder / "widget.ipynb", CELL)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    run_all(page, url, "widget.ipynb")
    handle = page.locator(".jp-OutputArea .noUi-handle")
    handle.wait_for(timeout=PATIENCE * 1000)
    handle.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.get_by_text("3 squared is 9").wait_for(timeout=15_000)
    assert not errors, errors


PANELS = (
    """
import privfl_lite as pf
from privfl_lite.teach import panels

digits = pf.load("mnist")
x, y = digits.sample(2)
net = pf.models.build("lenet", digits)
plain, pruned = (pf.share(net, x, y, d, each=1) for d in (None, pf.defenses.Prune(0.9)))
found = pf.attacks.IDLG(steps=40, frames=4, show=False).run(plain)
cells = [{"sigma": s, "C": c, "accuracy": 1 / (s + c)} for s in (1, 2, 3) for c in (0.5, 1)]
""",
    "panels.reconstruction_player(found, x)",
    """
panels.tradeoff_explorer(cells, ["sigma", "C"], {"accuracy": "high"})
""",
    """
both = {"none": plain, "prune": pruned}
panels.side_by_side({k: {"upload": u, "found": {"idlg": found}} for k, u in both.items()}, x)
""",
    "panels.gradient_xray(plain)",
)


def test_kernel_answers_every_kind_of_panel(chromium, lab: tuple[str, Path]):
    """Each panel stores one frame and computes the next one when its first control moves."""
    url, folder = lab
    write_notebook(folder / "panels.ipynb", *PANELS)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    run_all(page, url, "panels.ipynb")
    kinds = page.locator(".jp-OutputArea .pf-panel")
    kinds.nth(3).locator(".pf-frame:visible").wait_for(timeout=PATIENCE * 1000)
    assert kinds.count() == 4
    for kind in kinds.all():
        frame = kind.locator(".pf-frame:visible").first
        before = frame.inner_html()
        control = kind.locator(".noUi-handle, select").first
        if control.evaluate("e => e.tagName") == "SELECT":
            control.select_option(index=1)  # a native list has no window in headless mode
        else:
            control.focus()
            page.keyboard.press("ArrowRight")
        page.wait_for_function(
            """([panel, before]) => [...panel.querySelectorAll(".pf-frame")]
              .some(f => f.checkVisibility() && f.innerHTML !== before
                         && !f.classList.contains("pf-unmade"))""",
            arg=[kind.element_handle(), before],
            timeout=20_000,
        )


SMALL = {  # a small cell of each of the five papers
    "modelcloak-fixed/epsilon": {"sigma": 6, "rounds": 100},
    "dcs2/photos": {"part": "imprint", "data": "photos", "defense": "DP-Gaussian 0.5"},
    "fedkl/training": {"part": "share"},
    "entanglement/attack": {"part": "wire", "format": "float16", "variant": "β 0.9"},
    "loda/extractor": {"cell": "scale", "images": "photos"},
}


def test_a_cell_of_each_paper_is_computed_again_by_a_press_of_run(chromium, lab: tuple[str, Path]):
    url, folder = lab
    panels = [f"recompute({name!r}, **{cell!r})" for name, cell in SMALL.items()]
    first = "from privfl_lite.teach.recompute import recompute"
    write_notebook(folder / "again.ipynb", first, *panels)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    run_all(page, url, "again.ipynb")
    runs = page.get_by_role("button", name="Run", exact=True).and_(page.locator(".jupyter-button"))
    runs.nth(len(SMALL) - 1).wait_for(timeout=PATIENCE * 1000)
    for i in range(len(SMALL)):
        runs.nth(i).click()
        page.get_by_text("Done.").nth(i).wait_for(timeout=60_000)
    assert page.get_by_role("columnheader", name="now", exact=True).count() == len(SMALL)
    keep = page.locator(".jupyter-button", has_text="Keep")
    keep.first.click()
    page.get_by_text("tables prefer it from now on").wait_for(timeout=10_000)
