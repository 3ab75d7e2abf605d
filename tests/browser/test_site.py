"""Every built page in a real browser: it loads, its formulas are typeset, its widgets answer.

Marker ``browser``: skipped, with the reason, where there is no Chromium. Where the site brings its
own scripts (book/_ext/offline.py), a page may not ask another host for anything. The machinery is
itself tried on a small book whose widgets work, and on one whose faults must be found.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import toc_files
from chromium import ROOT, build, is_offline, serve, shared_site

pytestmark = [pytest.mark.book, pytest.mark.browser]
PAGES = [*toc_files(), "search", "genindex"]
PHONE, LAPTOP = 360, 1280
CDN = "the site was built without book/_vendor, so its scripts come from a CDN"


# --- pages ---
class Visit:
    """One page in the browser, with everything that went wrong on the way.

    Requests to other hosts are cut off, and kept in ``outside``.
    """

    def __init__(self, browser, url: str, width: int = 1280, home: str | None = None):
        self.errors: list[str] = []
        self.failed: list[str] = []
        self.outside: list[str] = []
        home = home or "/".join(url.split("/")[:3])
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("response", self._answered)
        self.page.on("requestfailed", lambda r: self._lost(r) if r.url.startswith(home) else None)
        self.page.route(lambda u: not u.startswith((home, "data:", "blob:")), self._refuse)
        self.page.goto(url, wait_until="load")
        self.page.wait_for_function(
            "!window.MathJax || window.MathJax.startup === undefined"
            " || MathJax.startup.promise.then(() => true)"
        )
        self.page.add_style_tag(content="* { transition: none !important; }")
        self.draw_widgets()

    def _answered(self, response) -> None:
        if response.status > 399:
            self.failed.append(f"{response.status} {response.url}")

    def _lost(self, request) -> None:
        self.failed.append(f"{request.failure} {request.url}")

    def _refuse(self, route) -> None:
        self.outside.append(route.request.url)
        route.abort()

    def draw_widgets(self) -> None:
        """Wait until each stored widget view is drawn, where the manager is at hand."""
        if self.page.evaluate(HAS_MANAGER):
            self.page.wait_for_function(ALL_DRAWN, timeout=20_000)
        self.page.wait_for_timeout(150)  # late scripts

    def close(self) -> None:
        self.page.close()


HAS_MANAGER = "() => typeof requirejs === 'function' && requirejs.defined !== undefined"
ALL_DRAWN = """() => {
  const views = document.querySelectorAll('script[type$="jupyter.widget-view+json"]');
  return [...views].every(v => v.parentElement.querySelector('.widget-subarea > *'));
}"""

# Elements of the text that stick out of the window, unless something around them scrolls.
STICKS_OUT = """() => {
  const scrolls = e => e && e !== document.body &&
    (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const wide = document.documentElement.clientWidth + 1;
  return [...document.querySelectorAll('article *')]
    .filter(e => e.getBoundingClientRect().right > wide && !scrolls(e.parentElement)
                 && e.checkVisibility() && !e.closest('svg, mjx-assistive-mml'))
    .map(e => e.tagName + '.' + e.className + ': ' + e.textContent.trim().slice(0, 50));
}"""

# Everything that a reader could open: dropdowns, hidden cells, solutions.
OPEN_ALL = """() => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  document.querySelectorAll('.toggle-hidden').forEach(e => e.classList.remove('toggle-hidden'));
}"""

# TeX that was not typeset: delimiters left in the visible text (code may hold them).
RAW_TEX = r"""() => {
  const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  const raw = [];
  while (walk.nextNode()) {
    const text = walk.currentNode.data, e = walk.currentNode.parentElement;
    if (e.closest('pre, code, script, style, mjx-container')) continue;
    if (/\$\$|\\\(|\\\[|\\begin\{|\\(frac|lVert|theta|sum)\b/.test(text))
      raw.push(text.trim().slice(0, 60));
  }
  return raw;
}"""
MATH = "() => [document.querySelectorAll('article .math').length,\
 document.querySelectorAll('article .math mjx-container').length,\
 document.querySelectorAll('article mjx-merror, article [data-mjx-error]').length]"

# Visible text whose contrast with what lies behind it is below WCAG AA.
PALE_TEXT = r"""() => {
  const parse = c => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const over = (top, below) => {
    const a = top[3] ?? 1;
    return [0, 1, 2].map(i => top[i] * a + below[i] * (1 - a));
  };
  const behind = e => {
    const layers = [];
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      layers.push(c);
      if ((c[3] ?? 1) === 1) break;
    }
    return layers.reverse().reduce((below, c) => over(c, below), [255, 255, 255]);
  };
  const light = c => c.map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const found = new Map();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (!text || !e.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    if (e.closest('script, style, svg, mjx-container, :disabled, #pst-skip-link')) continue;
    const box = e.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const ground = behind(e), ink = over(parse(style.color), ground);
    const [hi, lo] = [light(ink), light(ground)].sort((a, b) => b - a);
    const ratio = (hi + 0.05) / (lo + 0.05);
    const big = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (big ? 3 : 4.5) - 0.01) {
      const name = e.tagName.toLowerCase() + '.' + [...e.classList].join('.');
      const key = name + ' ' + style.color + ' on ' + ground.map(Math.round);
      if (!found.has(key)) found.set(key, ratio.toFixed(2) + ' ' + key + ': ' + text.slice(0, 40));
    }
  }
  return [...found.values()];
}"""

# Pictures of the text that have no light, opaque ground of their own (a transparent plot has black
# axes on a dark page), or that shine at full white.
GLARING = """() => [...document.querySelectorAll('article img')]
  .filter(e => e.checkVisibility())
  .filter(e => {
    const ground = getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number);
    const dims = e => e && (/brightness\\(0?\\.[5-9]/.test(getComputedStyle(e).filter)
                            || dims(e.parentElement));
    return (ground[3] ?? 1) < 1 || Math.min(...ground.slice(0, 3)) < 200 || !dims(e);
  })
  .map(e => e.src.slice(-60) + ' ' + getComputedStyle(e).backgroundColor)"""


# Figures that a phone shows at under 0.45 of their size: 11 pt at 110 dpi is then under 8 px.
TINY = """() => [...document.querySelectorAll('article img')]
  .filter(e => e.checkVisibility() && e.naturalWidth > 0
               && e.clientWidth < 0.45 * e.naturalWidth)
  .map(e => `${e.naturalWidth} px wide, shown at ${e.clientWidth}: ${e.alt.slice(0, 60)}`)"""


# Parts of the ledger whose text runs over their edge, into the next column.
RUNS_OVER = """() => [...document.querySelectorAll(
    '.ledger-entry summary > span, .ledger-more dd, .ledger-bars > *, .ledger-bar li')]
  .filter(cell => {
    const box = cell.getBoundingClientRect(), text = document.createRange();
    text.selectNodeContents(cell);
    return cell.checkVisibility() && [...text.getClientRects()]
      .some(r => r.left < box.left - 1 || r.right > box.right + 1);
  })
  .map(cell => cell.textContent.trim().slice(0, 60))"""


# --- widgets ---

# What a panel shows, without its controls: visible pictures and visible text.
SHOWN = """panel => JSON.stringify([
  [...panel.querySelectorAll('img, canvas')].filter(e => e.checkVisibility()).map(e => e.src),
  [...panel.querySelectorAll('.widget-html-content, .jp-OutputArea-output, .widget-output')]
    .filter(e => e.checkVisibility()).map(e => e.innerText),
])"""

CONTROLS = {  # kind: what to operate inside a panel
    "slider": ".widget-slider .noUi-handle, .widget-hslider .noUi-handle",
    "dropdown": ".widget-dropdown select",
    "play": ".widget-play button:first-child",
    "buttons": ".widget-toggle-buttons",
    "toggle": ".widget-toggle-button:not(.widget-toggle-buttons *)",
    "checkbox": ".widget-checkbox input",
    "radio": ".widget-radio-box",
    "select": ".widget-select select",
}


class Panel:
    """A drawn widget on a page: operate its controls, and see whether the picture changes."""

    def __init__(self, page, root):
        self.page, self.root = page, root

    def controls(self) -> Iterator[tuple[str, object]]:
        for kind, selector in CONTROLS.items():
            for control in self.root.locator(selector).all():
                if control.is_visible() and control.is_enabled():
                    yield kind, control

    def shown(self) -> str:
        return self.root.evaluate(SHOWN)

    def changes(self, act, times: int = 1, patience: int = 1500) -> bool:
        """Act up to so many times; True as soon as something else is shown."""
        before = self.shown()
        for _ in range(times):
            act()
            for _ in range(max(1, patience // 50)):
                if self.shown() != before:
                    return True
                self.page.wait_for_timeout(50)
        return False

    def by_keyboard(self, kind: str, control) -> bool:
        def press(key: str, target) -> None:
            target.focus()
            self.page.keyboard.press(key)

        if kind in ("play", "toggle", "checkbox"):
            return self.changes(lambda: press("Space", control), patience=3000)
        if kind == "buttons":
            buttons = control.locator("button").all()
            return any(self.changes(lambda b=b: press("Space", b), 1, 400) for b in buttons)
        keys = ("ArrowRight", "ArrowLeft") if kind == "slider" else ("ArrowDown", "ArrowUp")
        target = control.locator("input:checked") if kind == "radio" else control
        return any(self.changes(lambda k=k: press(k, target), 3, 400) for k in keys)

    def by_mouse(self, kind: str, control) -> bool:
        if kind in ("play", "toggle", "checkbox"):
            return self.changes(control.click, patience=3000)
        if kind == "slider":
            box = control.locator(
                "xpath=ancestor::*[contains(@class, 'noUi-target')]"
            ).bounding_box()
            acts = [lambda p=part: self._click(box, p) for part in (0.97, 0.03, 0.5, 0.25, 0.75)]
        elif kind in ("buttons", "radio"):
            acts = [item.click for item in control.locator("button, input").all()]
        else:  # the list itself is drawn by the operating system
            count = control.locator("option").count()
            acts = [lambda i=i: control.select_option(index=i) for i in range(count)]
        return any(self.changes(act, patience=400) for act in acts)

    def _click(self, box: dict, part: float) -> None:
        self.page.mouse.click(box["x"] + part * box["width"], box["y"] + box["height"] / 2)


def try_panels(page) -> tuple[int, list[str]]:
    """Operate every control on a page: how many there were, and which did nothing."""
    page.evaluate(OPEN_ALL)
    count, silent = 0, []
    for number, root in enumerate(page.locator(".widget-subarea").all(), start=1):
        panel = Panel(page, root)
        root.scroll_into_view_if_needed()
        for kind, control in list(panel.controls()):
            count += 1
            for how in ("keyboard", "mouse"):
                control.scroll_into_view_if_needed()
                if kind == "play":
                    stop(root)
                if not getattr(panel, f"by_{how}")(kind, control):
                    silent.append(f"widget {number}: a {kind} does not answer to the {how}")
            if kind == "play":
                stop(root)
    return count, silent


def stop(root) -> None:
    """Bring a Play to rest at its first value: its second button does that."""
    button = root.locator(".widget-play button").nth(1)
    if button.count() and button.is_enabled():
        button.click()


# --- the book's own pages ---


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_site(tmp_path_factory)


@pytest.fixture(scope="session")
def address(site: Path):
    with serve(site) as address:
        yield address


@pytest.fixture(scope="module", params=PAGES)
def visit(request: pytest.FixtureRequest, chromium, address: str):
    """Each page is loaded once; the tests below share it, in this order."""
    found = Visit(chromium, f"{address}/{request.param}.html", LAPTOP)
    yield found
    found.close()


def test_page_loads(visit: Visit, site: Path):
    assert not visit.errors, f"script errors: {visit.errors}"
    assert not visit.failed, f"failed requests: {visit.failed}"
    assert visit.page.locator("h1").count() >= 1, "no heading"
    if is_offline(site):
        assert not visit.outside, f"requests to other hosts: {visit.outside}"


def test_formulas_are_typeset(visit: Visit, site: Path):
    if not is_offline(site):
        pytest.skip(CDN)
    formulas, typeset, errors = visit.page.evaluate(MATH)
    assert typeset >= formulas, f"{typeset} of {formulas} formulas are typeset"
    assert not errors, f"{errors} formulas have a TeX error"
    assert not (raw := visit.page.evaluate(RAW_TEX)), f"TeX in the text: {raw}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable(visit: Visit, theme: str):
    visit.page.evaluate(OPEN_ALL)
    visit.page.evaluate("t => { document.documentElement.dataset.theme = t; }", theme)
    pale = visit.page.evaluate(PALE_TEXT)
    glaring = visit.page.evaluate(GLARING) if theme == "dark" else []
    visit.page.evaluate("() => { document.documentElement.dataset.theme = 'light'; }")
    assert not pale, f"below WCAG AA in the {theme} theme:\n" + "\n".join(pale)
    assert not glaring, "pictures on a dark page:\n" + "\n".join(glaring)


def test_widgets_answer(visit: Visit, site: Path):
    views = visit.page.locator('script[type$="jupyter.widget-view+json"]').count()
    if views and not is_offline(site):
        pytest.skip(CDN)
    assert visit.page.locator(".widget-subarea").count() == views
    count, silent = try_panels(visit.page)
    assert not silent, "\n".join(silent)
    assert count or not views, f"{views} widgets without any control"
    assert not visit.errors, f"script errors: {visit.errors}"


@pytest.mark.parametrize("width", [PHONE, 768, LAPTOP])
def test_nothing_sticks_out(visit: Visit, width: int):
    visit.page.set_viewport_size({"width": width, "height": 800})
    visit.page.evaluate(OPEN_ALL)
    visit.page.wait_for_timeout(200)
    size = visit.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert size[0] <= size[1], f"{size[0]} px wide in a window of {size[1]} px"
    assert not (out := visit.page.evaluate(STICKS_OUT)), "\n".join(out)


def test_figures_are_large_enough_on_a_phone(visit: Visit):
    visit.page.set_viewport_size({"width": PHONE, "height": 800})
    tiny = visit.page.evaluate(TINY)
    visit.page.set_viewport_size({"width": LAPTOP, "height": 900})
    assert not tiny, "draw narrower figures (figsize):\n" + "\n".join(tiny)


@pytest.mark.parametrize("width", [PHONE, 390, 768, 1024, LAPTOP])
def test_ledger_text_stays_in_its_place(chromium, address: str, width: int):
    visit = Visit(chromium, f"{address}/book/ledger.html", width)
    visit.page.evaluate("document.querySelectorAll('.ledger-entry').forEach(e => e.open = true)")
    over = visit.page.evaluate(RUNS_OVER)
    visit.page.add_style_tag(content=".ledger-entry * { white-space: nowrap !important; }")
    unbroken = visit.page.evaluate(RUNS_OVER)
    visit.close()
    assert not over, "\n".join(over)
    assert unbroken, "text that cannot break went unnoticed"


def test_theme_button_makes_the_page_dark(chromium, address: str):
    visit = Visit(chromium, f"{address}/{PAGES[0]}.html")
    theme = "() => document.documentElement.dataset.theme"
    seen = [visit.page.evaluate(theme)]
    for _ in range(3):
        visit.page.locator(".theme-switch-button:visible").first.click()
        seen.append(visit.page.evaluate(theme))
    visit.close()
    assert seen[0] == "light" and "dark" in seen


def test_site_opens_from_a_disk(chromium, site: Path):
    """Without a server, at both depths: the root page leads to the first chapter."""
    if not is_offline(site):
        pytest.skip(CDN)
    for name in ("index", PAGES[0], "search"):
        visit = Visit(chromium, (site / f"{name}.html").as_uri(), home="file://")
        visit.page.locator("h1").first.wait_for(state="attached")  # the root page leads on
        assert not visit.errors and not visit.failed and not visit.outside, vars(visit)
        visit.close()


# --- the machinery itself, on a small book ---


def picture(shade: int) -> str:
    """A square of one shade, as a frame of a widget."""
    color = f"rgb({shade},{shade},{shade})"
    svg = "%3Csvg xmlns='http://www.w3.org/2000/svg' width='80' height='40'%3E%3Crect width='80' "
    svg += f"height='40' fill='{color}'/%3E%3C/svg%3E"
    return f'<img alt="a square of shade {shade}" src="data:image/svg+xml,{svg}">'


def sample_panels() -> tuple[list, list]:
    """One panel for each kind of control, and the links that make it answer in the browser."""
    import ipywidgets as w

    panels, links = [], []
    for control, trait in (
        (w.IntSlider(max=2, description="slider"), "value"),
        (w.SelectionSlider(options=["a", "b", "c"], description="values"), "index"),
        (w.Dropdown(options=["a", "b", "c"], description="list"), "index"),
        (w.ToggleButtons(options=["a", "b", "c"], description="buttons"), "index"),
        (w.RadioButtons(options=["a", "b", "c"], description="radio"), "index"),
        (w.Play(max=2, interval=200), "value"),
    ):
        frames = [w.HTML(picture(40)), w.HTML(picture(120)), w.HTMLMath(r"so $x^2 = 2$ holds")]
        stack = w.Stack(frames, selected_index=0)
        links.append(w.jslink((control, trait), (stack, "selected_index")))
        panels.append(w.VBox([control, stack]))
    return panels, links


def markdown(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def output(data: dict, **metadata) -> dict:
    """An executed code cell with one output."""
    shown = {"output_type": "display_data", "data": {"text/plain": "a", **data}, "metadata": {}}
    cell = {"cell_type": "code", "source": "show()", "execution_count": 1, "outputs": [shown]}
    return {**cell, "metadata": metadata}


def notebook(cells: list[dict], panels: list) -> dict:
    """A notebook as nbclient stores it: views in the outputs, models in the metadata."""
    from ipywidgets.embed import dependency_state, embed_data

    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}
    if panels:
        stored = embed_data(panels, state=dependency_state(panels))
        mime = "application/vnd.jupyter.widget-{}+json".format
        made["metadata"]["widgets"] = {mime("state"): stored["manager_state"]}
        made["cells"] = [*cells, *(output({mime("view"): v}) for v in stored["view_specs"])]
    for number, cell in enumerate(made["cells"]):
        cell["id"] = f"cell-{number}"
    return made


def small_book(folder: Path, page: dict, offline: bool) -> tuple[int, list[str], Path]:
    """Build a book of one notebook with our own configuration, extensions and styles."""
    book = folder / "book"
    for name in ("_ext", "_assets"):
        shutil.copytree(ROOT / "book" / name, book / name)
    (folder / "privfl_lite" / "teach").mkdir(parents=True)
    for name in ("_config.yml", "book/references.bib"):
        shutil.copy(ROOT / name, folder / name)
    if offline:
        (book / "_vendor").symlink_to(ROOT / "book" / "_vendor")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    (book / "page.ipynb").write_text(json.dumps(page))
    return *build(folder, folder / "out"), folder / "out" / "_build" / "html"


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
ALT = {"image": {"alt": "one pixel of no color"}}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory, chromium):
    """A page with every kind of control, offline, in the browser."""
    if not is_offline(ROOT / "book" / "_vendor"):
        pytest.skip(f"{CDN}: run scripts/vendor.py")
    caption = {"figure": {"caption": "A pixel with $x^2$.", "name": "fig-pixel"}, **ALT}
    cells = [markdown("# A page\n\n$$ x^2 = 2 $$\n\n{numref}`fig-pixel` is small.")]
    cells.append(output({"image/png": PIXEL}, mystnb=caption))
    panels, links = sample_panels()
    code, warnings, html = small_book(
        tmp_path_factory.mktemp("small"), notebook(cells, panels), offline=True
    )
    del links  # kept until the state was stored
    assert code == 0 and not warnings, warnings
    with serve(html) as address:
        visit = Visit(chromium, f"{address}/book/page.html")
        yield visit
        visit.close()


def test_every_kind_of_control_answers(sample: Visit):
    count, silent = try_panels(sample.page)
    assert not silent, "\n".join(silent)
    assert count == 6
    assert not sample.errors and not sample.failed and not sample.outside, vars(sample)


def test_widgets_typeset_formulas(sample: Visit):
    sample.page.locator(".noUi-handle").first.focus()
    sample.page.keyboard.press("End")
    sample.page.wait_for_selector(".widget-htmlmath mjx-container", timeout=5000)


def test_sliders_and_players_have_names(sample: Visit):
    handles = sample.page.locator(".noUi-handle").all()
    assert [h.get_attribute("aria-label") for h in handles] == ["slider", "values"]
    buttons = sample.page.locator(".widget-play button").all()
    assert [b.get_attribute("aria-label") for b in buttons][:2] == ["play or pause", "stop"]


def test_figures_have_numbers_and_captions(sample: Visit):
    assert sample.page.locator("figcaption .caption-number").inner_text().startswith("Fig. 1")
    assert sample.page.locator("a[href='#fig-pixel'] .std-numref").inner_text() == "Fig. 1"


def test_faults_are_found(tmp_path: Path, chromium):
    """A page with one of each fault: the build warns, and the browser sees the rest."""
    import ipywidgets as w

    dead = w.VBox([w.IntSlider(description="dead"), w.HTML(picture(40))])
    cells = [markdown('# A page\n\n## Part\n\n<h5 style="color: #ccc">skipped</h5>')]
    cells += [output({"image/png": PIXEL})]
    cells += [markdown('<div style="width: 2000px">wide and $$raw</div>')]
    code, warnings, html = small_book(tmp_path, notebook(cells, [dead]), offline=False)
    said = "\n".join(warnings)
    assert code != 0, "a strict build accepted the faults"
    assert "level 5 follows one of level 2" in said and "alt text" in said
    page = (html / "book/page.html").read_text(encoding="utf-8")
    assert re.search(r'src="https://[^"]+/embed-amd\.js"', page), "no CDN without book/_vendor"
    if is_offline(ROOT / "book" / "_vendor"):  # the same page, with scripts at hand
        shutil.copytree(ROOT / "book" / "_vendor" / "vendor", html / "vendor")
        page = re.sub(r'https://[^"]+/require\.min\.js" *', '../vendor/require.js"', page)
        page = re.sub(r'https://[^"]+/embed-amd\.js', "../vendor/embed-amd.js", page)
        page = re.sub(r' (integrity|crossorigin)="[^"]*"', "", page)
        (html / "book/page.html").write_text(page, encoding="utf-8")
    with serve(html) as address:
        visit = Visit(chromium, f"{address}/book/page.html", PHONE)
        if is_offline(ROOT / "book" / "_vendor"):
            _, silent = try_panels(visit.page)
            assert len(silent) == 2, silent
        assert visit.page.evaluate(STICKS_OUT)
        assert visit.page.evaluate(RAW_TEX)
        assert any("#ccc" in line or "204" in line for line in visit.page.evaluate(PALE_TEXT))
        visit.close()
