"""Moving pictures in a real browser: on the book's page, opened from a disk, and in JupyterLab."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from accessible_page import faint_words
from chromium import serve, shared_site
from lab_server import PATIENCE, run_all, write_notebook

from privfl_lite.teach.explorables import catalog
from privfl_lite.teach.modules import JS

pytestmark = [pytest.mark.book, pytest.mark.browser]
NAMES = [*catalog()]
PAGE = "book/explorables.html"
LOOK = """e => [e, e.querySelector("svg").innerHTML,
  e.querySelector(".pfx-readouts").textContent]"""
CHANGED = """([el, picture, words]) => el.querySelector("svg").innerHTML !== picture
  && el.querySelector(".pfx-readouts").textContent !== words"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_site(tmp_path_factory)


@pytest.fixture(scope="module")
def home(site: Path) -> Iterator[str]:
    with serve(site) as url:
        yield url


class Open:
    """The page, with what went wrong and what was asked of other hosts."""

    def __init__(self, browser, url: str, width: int = 1280, theme: str = "light", script=True):
        self.errors: list[str] = []
        self.outside: list[str] = []
        context = browser.new_context(
            viewport={"width": width, "height": 844},
            java_script_enabled=script,
            reduced_motion="reduce",
        )
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        inside = (url.partition("/book/")[0], "data:", "blob:")
        self.page.on(
            "request",
            lambda r: self.outside.append(r.url) if not r.url.startswith(inside) else None,
        )
        mode = f"for (const k of ['mode', 'theme']) localStorage.setItem(k, '{theme}')"
        self.page.add_init_script(mode)
        self.page.goto(url, wait_until="load")
        if script:
            self.page.locator(".pfx svg > g").nth(len(NAMES) - 1).wait_for(timeout=20_000)

    def one(self, name: str):
        return self.page.locator(f"#explorable-{name} .pfx")

    def close(self) -> None:
        self.page.context.close()
        assert not self.errors, self.errors


@pytest.fixture
def visit(chromium, home: str) -> Iterator:
    made: list[Open] = []

    def go(**options) -> Open:
        made.append(Open(chromium, f"{home}/{PAGE}", **options))
        return made[-1]

    yield go
    for one in made:
        one.close()


def press(page, slider, key: str, times: int = 3) -> None:
    slider.focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_every_picture_moves_by_keyboard(visit):
    """Each slider changes picture and readout, and Reset brings both back."""
    seen = visit()
    assert not seen.outside
    for name in NAMES:
        el, page = seen.one(name), seen.page
        first = el.evaluate(LOOK)[1:]
        for slider in el.locator("input[type=range]").all():
            before = el.evaluate(LOOK)
            value = slider.get_attribute("aria-valuetext")
            low = slider.evaluate("e => Number(e.value) > e.max / 2")
            press(page, slider, "PageDown" if low else "PageUp", 2)
            assert slider.get_attribute("aria-valuetext") != value, (name, value)
            page.wait_for_function(
                CHANGED,
                arg=[el.element_handle(), *before[1:]],
                timeout=5000,
            )
        el.get_by_role("button", name="Reset").click()
        page.wait_for_function(
            "([el, words]) => el.querySelector('.pfx-readouts').textContent === words",
            arg=[el.element_handle(), first[1]],
        )


def test_words_tell_what_the_picture_shows(visit):
    seen = visit()
    for name in NAMES:
        el = seen.one(name)
        svg, told = el.locator("svg.pfx-stage"), el.locator("[role=status]")
        assert svg.get_attribute("aria-label") == el.locator(".pfx-say").inner_text()
        assert svg.get_attribute("role") in ("img", "group") and not told.inner_text()
        press(seen.page, el.locator("input").first, "ArrowRight", 1)
        seen.page.wait_for_function("e => e.textContent.length > 40", arg=told.element_handle())
        for slider in el.locator("input").all():
            assert slider.evaluate("e => e.labels[0].textContent.trim().length > 0")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_fit_and_can_be_read(visit, theme, width):
    seen = visit(width=width, theme=theme)
    assert seen.page.evaluate("document.documentElement.dataset.theme") == theme
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    for name in NAMES:
        el = seen.one(name)
        box = el.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        outside = el.evaluate(STICKS_OUT)
        assert not outside, (name, outside)
        assert not (faint := faint_words(el)), (name, faint)


STICKS_OUT = """e => {
  const svg = e.querySelector("svg.pfx-stage").getBoundingClientRect();
  return [...e.querySelectorAll("svg.pfx-stage text")].filter((t) => {
    const box = t.getBoundingClientRect();
    return box.left < svg.left - 1 || box.right > svg.right + 1;
  }).map((t) => t.textContent);
}"""


def test_handles_are_dragged_and_moved_by_arrows(visit):
    seen = visit()
    page, el = seen.page, seen.one("imprint-staircase")
    handle = el.locator("[data-handle='2']")
    handle.scroll_into_view_if_needed()
    place, before = handle.bounding_box(), handle.get_attribute("aria-valuenow")
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 10, y, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "([e, v]) => e.querySelector('[data-handle=\"2\"]').getAttribute('aria-valuenow') > v",
        arg=[el.element_handle(), before],
    )
    dragged = handle.get_attribute("aria-valuenow")
    press(page, handle, "ArrowLeft", 4)  # keeps the focus although the picture is drawn anew
    assert float(dragged) - float(handle.get_attribute("aria-valuenow")) == pytest.approx(0.008)


def test_the_text_says_it_without_scripts(visit):
    seen = visit(script=False)
    for name, entry in catalog().items():
        assert entry["about"] in seen.page.locator(f"#explorable-{name}").inner_text()


def test_pictures_move_on_a_page_from_a_disk(chromium, site: Path):
    seen = Open(chromium, (site / PAGE).as_uri())
    assert not seen.outside and seen.page.locator(".pfx").count() == len(NAMES)
    seen.close()


def test_only_pages_that_show_one_load_it(site: Path):
    asks = re.compile(r"js/page/explore-([\w-]+)\.js")
    found = {
        p.stem: {*asks.findall(p.read_text(encoding="utf-8"))}
        for p in (site / "book").glob("*.html")
    }
    assert found["explorables"] == set(NAMES)
    for stem, names in found.items():
        shown = re.findall(
            r'data-explorable="([\w-]+)"', (site / "book" / f"{stem}.html").read_text()
        )
        assert names == set(shown), stem


# --- JupyterLab ---

CELLS = (
    """
import privfl_lite as pf
moving = pf.teach.explore("two-gaussians", mu=2)
moving
""",
    """
import ipywidgets
seen = ipywidgets.Label("nothing yet")
moving.observe(lambda c: setattr(seen, "value", f"python has mu {c.new['mu']}"), "settings")
seen
""",
)


def test_a_picture_in_a_running_notebook(chromium, lab: tuple[str, Path]):
    url, folder = lab
    write_notebook(folder / "moving.ipynb", *CELLS)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    run_all(page, url, "moving.ipynb")
    el = page.locator(".jp-OutputArea .pfx")
    el.locator("svg > g").wait_for(timeout=PATIENCE * 1000)
    assert "Two Gaussians" in el.inner_text()
    slider = el.locator("input[data-key=mu]")
    assert slider.get_attribute("aria-valuetext") == "2"
    page.locator(".jp-OutputArea .widget-label").wait_for(timeout=PATIENCE * 1000)
    press(page, slider, "ArrowRight", 2)
    page.get_by_text(re.compile(r"python has mu 2\.1")).wait_for(timeout=15_000)
    assert not errors, errors


LABORATORY = (
    """
import privfl_lite as pf
lab = pf.teach.lab()
lab
""",
    """
import ipywidgets
seen = ipywidgets.Label("nothing yet")
def tell(change):
    seen.value = f"{tuple(lab.image.shape)}, {lab.image.sum():.2f}, {lab.label}"
lab.observe(tell, "picture")
seen
""",
)


def test_the_laboratory_hands_its_picture_to_python(chromium, lab: tuple[str, Path]):
    """The tensor in Python is what stands on the grid, and follows when it is changed."""
    if not (JS / "lab" / "lab.js").is_file():
        pytest.skip("this checkout does not hold the laboratory (privfl_lite/teach/js/lab)")
    url, folder = lab
    write_notebook(folder / "laboratory.ipynb", *LABORATORY)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    run_all(page, url, "laboratory.ipynb")
    page.locator(".jp-OutputArea .pfl canvas").first.wait_for(timeout=PATIENCE * 1000)
    told = page.locator(".jp-OutputArea .widget-label")
    told.wait_for(timeout=PATIENCE * 1000)
    pad = page.locator(".jp-OutputArea .pfl").get_by_role("application").first
    pad.scroll_into_view_if_needed()
    pad.focus()
    for key in ("Space", "ArrowRight", "Space"):
        page.keyboard.press(key)
    page.wait_for_function(
        "e => /^\\(1, 28, 28\\), \\d/.test(e.textContent)",
        arg=told.element_handle(),
        timeout=15_000,
    )
    first = told.inner_text()
    box = pad.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=8)
    page.mouse.up()
    page.wait_for_function(
        "([e, before]) => e.textContent !== before",
        arg=[told.element_handle(), first],
        timeout=15_000,
    )
    assert not errors, errors
