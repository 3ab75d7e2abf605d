"""The widget kit and the ready panels: the right frame at every point, in Python and in a browser.

Marker ``browser``: panels of one, two and three axes in an executed notebook, drawn by the widget
manager without a kernel. Its scripts come from book/_vendor (scripts/vendor.py), or from the folder
that PRIVFL_VENDOR names.
"""

from __future__ import annotations

import asyncio
import html
import io
import itertools
import json
import os
import threading
from pathlib import Path

import ipywidgets as widgets
import matplotlib.pyplot as plt
import pytest
import torch
from checkout import NOTEBOOKS, ROOT
from matplotlib.figure import Figure
from PIL import Image

from privfl_lite import models
from privfl_lite.attacks.base import Reconstruction
from privfl_lite.client import share
from privfl_lite.runtime import PrivflError, generator
from privfl_lite.teach import panel as kit
from privfl_lite.teach import panels
from privfl_lite.teach.panel import BUDGET, panel, size

AXES = {"step": [0, 10, 20, 30], "σ": [1, 2.5, 5], "defense": ["none", "prune"]}
TEXT = {"title": "A test", "alt": "A frame of the test"}


def words(**point: object) -> str:
    """The cheapest frame."""
    return f"<p>{'/'.join(map(str, point.values()))}</p>"


def stored_faults(notebook: dict) -> list[str]:
    """What is wrong with the widgets stored in a notebook's JSON, one sentence each."""
    state = json.dumps(notebook["metadata"].get("widgets", {}))
    found = [f"its widgets take {len(state):,} bytes, over {BUDGET:,}"] * (len(state) > BUDGET)
    return found + ["a panel lacks frames; execute with nbclient"] * ("pf-unmade" in state)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_stored_widgets_of_the_book(path: Path):
    assert not stored_faults(json.loads(path.read_text(encoding="utf-8")))


def test_stored_faults_are_noticed():
    def stored(text: str) -> list[str]:
        return stored_faults({"metadata": {"widgets": {"value": text}}})

    assert stored("fine") == [] == stored_faults({"metadata": {}})
    assert "over 1,500,000" in stored("x" * BUDGET)[0]
    assert "lacks frames" in stored('<div class="pf-frame pf-unmade">')[0]


# --- the kit ---


@pytest.mark.parametrize("names", [["step"], ["step", "defense"], ["step", "defense", "σ"]])
def test_links_lead_to_the_right_frame(names: list[str]):
    """Go through the Stacks by their links alone, as a browser does, from every stand."""
    shown = panel(words, {name: AXES[name] for name in names}, **TEXT)
    drivers = {link.target[0]: link.source for link in shown.links}
    assert len(drivers) == len(shown.links), "a Stack has two drivers"
    for key in itertools.product(*shown.axes.values()):
        for control, value in zip(shown.controls.values(), key, strict=True):
            control.value = value
        node = shown.children[-1]
        while isinstance(node, widgets.Stack):
            control, trait = drivers[node]
            node = node.children[getattr(control, trait)]
        assert node is shown.frames[key]
        assert words(**dict(zip(names, key, strict=True))) in node.value


def test_longest_axis_is_innermost():
    assert len(panel(words, AXES, **TEXT).links) == 1 + 2 + 2 * 3


def test_play_drives_its_axis_both_ways():
    shown = panel(words, AXES, play="step", start={"step": 20}, **TEXT)
    (link,) = (link for link in shown.links if isinstance(link.source[0], widgets.Play))
    assert link.target == (shown.controls["step"], "index")
    assert link._model_name == "LinkModel", "a dragged slider takes the player along"
    assert (link.source[0].value, link.source[0].max) == (2, 3)


def test_every_point_is_made_once():
    made = []
    shown = panel(lambda **p: made.append(tuple(p.values())) or "<p>x</p>", AXES, **TEXT)
    assert sorted(made, key=str) == sorted(itertools.product(*AXES.values()), key=str)
    for control in shown.controls.values():
        for index in (1, 0, 1):
            control.index = index
    shown.twin()
    assert len(made) == len(shown.frames) == 24


def drag(shown: panel, values: list) -> None:
    for value in values:
        shown.controls["σ"].value = value


def test_fast_drag_makes_only_the_latest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kit, "DELAY", 0.02)
    made = []

    def make(σ: int) -> str:
        made.append(σ)
        if σ == 5:  # moves on while the frame of 5 is being made
            drag(shown, [6, 7, 8])
        return words(σ=σ)

    async def main() -> None:
        await asyncio.sleep(0)
        nonlocal shown
        shown = panel(make, {"σ": range(10)}, stored={"σ": [0]}, **TEXT)
        drag(shown, [1, 2, 3, 4, 5])
        assert "Computing σ = 5" in shown.frames[5,].value
        assert made == [0], "a control's message must not compute"
        await asyncio.sleep(0.2)

    shown = None
    asyncio.run(main())
    assert made == [0, 5, 8]
    assert words(σ=8) in shown.frames[8,].value
    assert "pf-unmade" in shown.frames[7,].value


def test_messages_in_a_thread_are_answered_from_the_main_one(monkeypatch: pytest.MonkeyPatch):
    """JupyterLab lets a subshell, which is a thread, handle the messages of widgets."""
    monkeypatch.setattr(kit, "DELAY", 0.01)
    threads = []

    async def main() -> None:
        make = lambda σ: threads.append(threading.current_thread()) or words(σ=σ)  # noqa: E731
        shown = panel(make, {"σ": [0, 1]}, stored={"σ": [0]}, **TEXT)
        await asyncio.to_thread(drag, shown, [1])
        await asyncio.sleep(0.1)
        assert words(σ=1) in shown.frames[1,].value

    asyncio.run(main())
    assert threads == [threading.main_thread()] * 2


def test_someone_at_work_waits_for_one_frame_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kit, "_someone_works_here", lambda: True)
    made = []
    shown = panel(lambda **p: made.append(p) or words(**p), AXES, start={"σ": 5}, **TEXT)
    assert made == [{"step": 0, "σ": 5, "defense": "none"}]
    assert "pf-unmade" in shown.frames[10, 5, "none"].value
    shown.controls["step"].value = 10
    assert (
        len(made) == 2 and words(step=10, σ=5, defense="none") in shown.frames[10, 5, "none"].value
    )


def test_no_kernel_means_nobody_works_here():
    assert kit._someone_works_here() is False


def test_points_that_are_not_stored_say_so():
    shown = panel(words, AXES, stored={"step": [0, 30]}, **TEXT)
    note = shown.frames[10, 1, "none"].value
    assert "step = 10, σ = 1, defense = none is not stored here" in note
    assert "pf-unmade" not in note, "left out on purpose"
    assert len(shown.kept) == 2 * 3 * 2


def test_error_of_make_is_one_sentence():
    def make(σ: int) -> str:
        if σ == 2:
            raise PrivflError("σ must not be <2>")
        return words(σ=σ)

    shown = panel(make, {"σ": [1, 2]}, **TEXT)
    assert shown.frames[2,].value == '<div class="pf-frame">σ must not be &lt;2&gt;</div>'


def test_bug_in_make_stops_the_build_but_not_the_reader():
    bugs = ["bug"]

    def make(σ: int) -> str:
        return words(σ=σ) if σ == 1 or not bugs else bugs[0] / 0

    with pytest.raises(TypeError):
        panel(make, {"σ": [1, 2]}, **TEXT)
    shown = panel(make, {"σ": [1, 2]}, stored={"σ": [1]}, **TEXT)
    drag(shown, [2])
    assert "TypeError: unsupported" in shown.frames[2,].value
    bugs.clear()
    drag(shown, [1, 2])
    assert words(σ=2) in shown.frames[2,].value


def test_alt_text():
    def alt(σ: int) -> str:
        return f'Noise "{σ}" <hides> it'

    shown = panel(picture, {"σ": [1, 2]}, title="Noise", alt=alt)
    assert f'<img alt="{html.escape(alt(2))}"' in shown.frames[2,].value
    shown = panel(picture, {"σ": [1, 2]}, title="Noise", alt="How noise hides a digit")
    assert 'alt="How noise hides a digit (σ = 2)"' in shown.frames[2,].value
    with pytest.raises(ValueError, match="says too little"):
        panel(picture, {"σ": [1]}, title="Noise", alt=lambda σ: "noise")


def picture(**_: object) -> Image.Image:
    return Image.new("RGB", (8, 6), (0, 114, 178))


def test_frames_of_every_kind():
    def draw() -> Figure:
        fig, ax = plt.subplots(figsize=(2, 1))
        ax.plot([1, 2])
        return fig

    def png() -> bytes:
        buffer = io.BytesIO()
        picture().save(buffer, "PNG")
        return buffer.getvalue()

    kinds = {
        "figure": draw,
        "bytes": png,
        "image": picture,
        "html": lambda: "<b>x</b>",
        "table": lambda: "| a | b |\n|---|--:|\n| 1 | <2 |",
    }
    before, mode = plt.get_fignums(), plt.isinteractive()
    shown = panel(lambda kind: kinds[kind](), {"kind": list(kinds)}, **TEXT)
    assert plt.get_fignums() == before, "a figure stays open and would be shown again"
    assert plt.isinteractive() == mode
    value = {kind: shown.frames[kind,].value for kind in kinds}
    assert 'width="220" height="110" src="data:image/webp;base64,' in value["figure"]
    assert value["bytes"].partition("src=")[2] == value["image"].partition("src=")[2]
    assert "<tr><th>a</th><th>b</th></tr><tr><td>1</td><td>&lt;2</td></tr>" in value["table"]
    assert 'aria-label="A frame of the test (kind = html)"><b>x</b>' in value["html"]
    with pytest.raises(TypeError, match="returned NoneType"):
        panel(lambda σ: None, {"σ": [1]}, **TEXT)


def test_controls():
    axes = {"σ": [1, 2.0], "defense": ["none", "prune"], "on": [True, False], "only": [3]}
    shown = panel(words, axes, start={"on": False}, **TEXT)
    kinds = [type(control).__name__ for control in shown.controls.values()]
    assert kinds == ["SelectionSlider", "Dropdown", "Dropdown", "Dropdown"]
    assert [c.description for c in shown.children[1].children] == ["σ", "defense", "on"]
    assert shown.controls["defense"].tooltip == "choose defense"
    assert shown.controls["on"].value is False
    assert repr(shown) == "Interactive panel: A test"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"play": "t"}, "unknown axis 't'; choose one of: σ"),
        ({"start": {"C": 1}}, "unknown axis 'C'"),
        ({"start": {"σ": 3}}, "axis 'σ' has no value 3; it has 1, 2"),
        ({"stored": {"σ": [1, 4]}}, "axis 'σ' has no value 4"),
        ({"stored": {"C": [1]}}, "unknown axis 'C'"),
        ({"axes": {"σ": []}}, "needs values that differ"),
        ({"axes": {"σ": [1.00000001, 1]}}, "needs values that differ"),
        ({"axes": {"a": range(20), "b": range(10)}}, "200 frames, over 150; drop values"),
    ],
)
def test_bad_input_is_one_sentence(options: dict, says: str):
    with pytest.raises(PrivflError, match=says):
        panel(words, **{"axes": {"σ": [1, 2]}, **TEXT, **options})


def test_large_frames_are_refused_early(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kit, "BUDGET", 1000)
    made = []
    with pytest.raises(PrivflError, match=r"3 of 10 frames take over 1,000 bytes; drop values"):
        panel(lambda σ: made.append(σ) or "<p>" + "x" * 400, {"σ": range(10)}, **TEXT)
    assert len(made) == 3


def test_size_is_small():
    def draw(**point: object) -> Figure:
        fig, ax = plt.subplots(figsize=(4, 3))
        ax.plot(torch.randn(50, generator=generator(0)).cumsum(0))
        return fig

    small, large = (panel(words, {"σ": range(n)}, **TEXT) for n in (2, 102))
    assert (size(large) - size(small)) / 100 < 900, "a frame's own overhead in bytes"
    assert size(panel(draw, {"σ": [1, 2]}, **TEXT)) < 40_000


def test_twin_of_pictures_is_a_figure():
    shown = panel(picture, AXES, **TEXT)
    assert plt.get_fignums() == []
    fig = shown.twin()
    assert isinstance(fig, Figure) and plt.get_fignums() == [], "pyplot would show it twice"
    assert [ax.get_title().partition(",")[0] for ax in fig.axes] == [
        "step = 0",
        "step = 10",
        "step = 30",
    ]
    fig = shown.twin([{"σ": 5}, {"σ": 2.5, "defense": "prune"}], columns=1)
    assert fig.axes[1].get_title() == "step = 0, σ = 2.5, defense = prune"
    assert fig.axes[0].images[0].get_array()[0, 0].tolist() == [0, 114, 178]
    with pytest.raises(PrivflError, match="has no value 7"):
        shown.twin([{"σ": 7}])


def test_twin_of_tables_is_html():
    twin = panel(words, AXES, **TEXT).twin([{"step": 30}])
    assert "<b>step = 30, σ = 1, defense = none</b>" in twin.data
    assert words(step=30, σ=1, defense="none") in twin.data


# --- ready panels ---


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return 0.2 + 0.5 * torch.rand(2, 1, 12, 12, generator=generator(0))


def rebuilt(x: torch.Tensor, error: float, ticks: tuple[int, ...] = ()) -> Reconstruction:
    """Images with this error in every pixel; on the way it falls as 1 / tick."""
    history = [(tick, x + 10 * error / tick) for tick in ticks]
    zeros = torch.zeros(len(x))
    return Reconstruction(x + error, zeros, zeros, history=history)


def test_reconstruction_player(x: torch.Tensor):
    shown = panels.reconstruction_player(rebuilt(x, 0.1, (10, 100, 1000)), x)
    assert shown.axes == {"evaluations": [10, 100, 1000]}
    assert any(isinstance(w, widgets.Play) for w in shown.children[1].children)
    assert "After 100 evaluations" in shown.alt(evaluations=100)
    assert "PSNR of 40 dB, 40 dB" in shown.alt(evaluations=100)
    with pytest.raises(PrivflError, match="frames=20"):
        panels.reconstruction_player(rebuilt(x, 0.1), x)


CELLS = [
    {
        "sigma": s,
        "C": c,
        "where": w,
        "accuracy": 1 - s * c / 10,
        "psnr": [9 - s, 11 - s],
        "eps": 8 / s,
    }
    for s, c, w in itertools.product([1, 2], [0.5, 1], ["client", "server"])
    if (s, c, w) != (2, 1, "server")
]


def test_tradeoff_explorer():
    shown = panels.tradeoff_explorer(
        CELLS,
        ["sigma", "C", "where"],
        {"accuracy": "high", "psnr": "low", "eps": "low"},
        names={"sigma": "σ", "eps": "ε"},
    )
    assert list(shown.axes) == ["show", "σ", "C", "where"]
    assert shown.axes["show"] == ["accuracy", "psnr", "ε"]
    table = shown.frames["accuracy", 2, 0.5, "client"].value
    assert table.count("★") == 2 and ">0.95 ★</td>" in table  # the best, and the legend
    (chosen,) = (cell for cell in table.split("<td")[1:] if "aria-current" in cell)
    assert ">0.9</td>" in chosen and "outline" in chosen
    assert "σ = 2, C = 0.5, where = client: accuracy 0.9; psnr 8 (7 to 9, n = 2); ε 4" in table
    low = shown.frames["ε", 1, 1, "client"].value
    assert low.count(">4 ★</td>") == 2
    gap = shown.frames["psnr", 2, 1, "server"].value
    assert "not run" in gap and ">–</td>" in gap


@pytest.mark.parametrize(
    ("cells", "axes", "better", "says"),
    [
        ([], ["sigma", "C"], {}, "at least one cell"),
        (CELLS, ["sigma"], {}, "two settings"),
        (CELLS, ["sigma", "clip"], {}, "unknown key of a cell 'clip'"),
        (CELLS, ["sigma", "C"], {}, "several cells have the same setting"),
        (CELLS, ["sigma", "C", "where"], {"eps": "small"}, "unknown direction 'small'"),
    ],
)
def test_tradeoff_explorer_refuses(cells: list, axes: list, better: dict, says: str):
    with pytest.raises(PrivflError, match=says):
        panels.tradeoff_explorer(cells, axes, better)


@pytest.fixture(scope="module")
def mlp(x: torch.Tensor) -> torch.nn.Module:
    return models.build("mlp", tuple(x.shape[1:]), classes=3, hidden=(8,), act="tanh")


def test_side_by_side(x: torch.Tensor, mlp: torch.nn.Module):
    upload = share(mlp, x, torch.tensor([0, 1]), each=1)
    found = {"GS": rebuilt(x, 0.1), "DLG": rebuilt(x, 0.01)}
    rows = {"none": {"upload": upload, "found": found}, "prune": {"upload": upload, "found": {}}}
    shown = panels.side_by_side(rows, x)
    assert shown.axes == {"defense": ["none", "prune"]}
    assert "under none: GS finds images of 20 dB, 20 dB; DLG finds images of 40" in shown.alt(
        defense="none"
    )


def test_gradient_xray_shows_the_image_behind_a_first_layer(x: torch.Tensor, mlp: torch.nn.Module):
    upload = share(mlp, x, torch.tensor([0, 1]), each=1)
    first = next(iter(upload.tensors))
    assert torch.allclose(panels._quotient(upload, 1, first), x[1], atol=1e-3)
    shown = panels.gradient_xray(upload, i=1)
    assert shown.axes["tensor"] == list(upload.tensors)
    alts = [shown.alt(tensor=name) for name in upload.tensors]
    assert [("gives an image" in alt) for alt in alts] == [True] + [False] * (len(alts) - 1)
    shares = [float(alt.partition("% of the squared")[0].split()[-1]) for alt in alts]
    assert sum(shares) == pytest.approx(100, abs=0.2)


# --- in a browser, without a kernel ---

WIDGETS = "application/vnd.jupyter.widget-{}+json"
CODE = """
from PIL import Image
from privfl_lite.teach.panel import panel

AXES = {axes}

def picture(**point):  # a color that tells the point
    at = [AXES[name].index(value) for name, value in point.items()]
    return Image.new("RGB", (900, 300), tuple(60 * i for i in at) + (0,) * (3 - len(at)))

def show(*names):
    axes = {{name: AXES[name] for name in names}}
    return panel(picture, axes, title="Axes", alt="A plain color", play=names[0])
"""
CELLS_OF = [["step"], ["step", "defense"], ["step", "σ", "defense"]]


@pytest.fixture(scope="module")
def executed() -> dict:
    """A notebook with a panel a cell, then a figure, as nbclient leaves it."""
    import nbformat
    from nbclient import NotebookClient

    code = [CODE.format(axes=AXES), *(f"show(*{names})" for names in CELLS_OF)]
    code += ["import matplotlib.pyplot as plt\nplt.plot([1, 2]);"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in code])
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    return notebook


@pytest.mark.notebook
def test_executed_notebook_holds_all_frames(executed: dict):
    assert stored_faults(executed) == []
    state = executed["metadata"]["widgets"][WIDGETS.format("state")]["state"].values()
    frames = [s["state"]["value"] for s in state if s["model_name"] == "HTMLModel"]
    assert sum("<img" in frame for frame in frames) == 4 + 4 * 2 + 4 * 3 * 2
    here = [
        panel(picture, {n: AXES[n] for n in names}, play=names[0], **TEXT) for names in CELLS_OF
    ]
    assert len(json.dumps(list(state))) == pytest.approx(sum(map(size, here)), rel=0.05)
    shown = [list(output.get("data", {})) for output in executed["cells"][-1]["outputs"]]
    assert any("image/png" in kinds for kinds in shown), "figures after a panel are still shown"


@pytest.fixture(scope="module")
def scripts() -> list[Path]:
    """require.js and the widget manager."""
    folder = Path(os.environ.get("PRIVFL_VENDOR", ROOT / "book" / "_vendor"))
    found = [next(folder.rglob(name), None) for name in ("require.js", "embed-amd.js")]
    if None in found:
        pytest.skip("no widget manager: run scripts/vendor.py, or set PRIVFL_VENDOR")
    return found


@pytest.fixture(scope="module")
def static_page(executed: dict, scripts: list[Path], tmp_path_factory: pytest.TempPathFactory):
    """The notebook's panels on a page of their own, dark, as sphinx or nbconvert embed them."""

    def script(kind: str, content: object) -> str:
        text = json.dumps(content).replace("</", "<\\/")
        return f'<script type="{WIDGETS.format(kind)}">{text}</script>'

    outputs = [o for cell in executed["cells"] for o in cell["outputs"]]
    views = [o["data"].get(WIDGETS.format("view")) for o in outputs if "data" in o]
    body = "".join(f"<section>{script('view', view)}</section>" for view in views if view)
    load = "".join(f'<script src="{path.as_uri()}"></script>' for path in scripts)
    state = script("state", executed["metadata"]["widgets"][WIDGETS.format("state")])
    page = tmp_path_factory.mktemp("page") / "page.html"
    page.write_text(
        '<!doctype html><html><head><meta charset="utf-8"></head>'
        f'<body style="background: #121212; color: #eeeeee">{load}{state}{body}</body></html>',
        encoding="utf-8",
    )
    return page


# The color of the picture that is shown, and its alt text.
SHOWN = """async section => {
  const img = section.querySelector('.pf-frame img');
  if (!img) return null;
  await img.decode();
  const canvas = document.createElement('canvas');
  const pen = canvas.getContext('2d');
  pen.drawImage(img, 0, 0);
  return [[...pen.getImageData(5, 5, 1, 1).data].slice(0, 3), img.alt];
}"""


class Static:
    """One panel on the page."""

    def __init__(self, page, number: int):
        self.page, self.axes = page, {name: AXES[name] for name in CELLS_OF[number]}
        self.section = page.locator("section").nth(number)
        self.at = [0] * len(self.axes)

    def control(self, name: str):
        if name == "defense":
            return self.section.locator("select")
        slider = self.section.locator(".widget-hslider", has_text=name)
        return slider.locator(".noUi-handle")

    def expect(self, **moved: int) -> None:
        """The picture of this point is shown within a second; axes not named have not moved."""
        self.at = [moved.get(name, i) for name, i in zip(self.axes, self.at, strict=True)]
        color = [60 * i for i in self.at] + [0] * (3 - len(self.at))
        point = (f"{n} = {v[i]}" for (n, v), i in zip(self.axes.items(), self.at, strict=True))
        want = [color, f"A plain color ({', '.join(point)})"]
        for _ in range(20):
            if (got := self.section.evaluate(SHOWN)) == want:
                return
            self.page.wait_for_timeout(50)
        assert got == want


@pytest.fixture(params=[1280, 360])
def page(request: pytest.FixtureRequest, chromium, static_page: Path):
    page = chromium.new_page(viewport={"width": request.param, "height": 900})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route(
        lambda url: not url.startswith("file:"), lambda route: errors.append(route.request.url)
    )
    page.goto(static_page.as_uri())
    page.locator(".pf-frame img").nth(2).wait_for()
    yield page
    page.close()
    assert not errors, "script errors, or requests to other hosts"


@pytest.mark.browser
def test_static_panels_answer(page):
    for number in range(len(CELLS_OF)):
        shown = Static(page, number)
        shown.expect(step=0)
        operate(shown, page.keyboard, page.mouse)


def operate(shown: Static, keyboard, mouse) -> None:
    """Move every control of a panel, with keys and with the mouse, and look at the picture."""
    step = shown.control("step")
    for key, i in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 3)):
        step.focus()
        keyboard.press(key)
        shown.expect(step=i)
    if "defense" in shown.axes:
        shown.control("defense").focus()
        keyboard.press("ArrowDown")
        shown.expect(defense=1)
        shown.control("defense").select_option("none")
        shown.expect(defense=0)
        shown.control("defense").select_option("prune")
        shown.expect(defense=1)
    if "σ" in shown.axes:
        shown.control("σ").focus()
        keyboard.press("ArrowRight")
        shown.expect(σ=1)
    step.scroll_into_view_if_needed()
    track = step.locator("xpath=ancestor::*[contains(@class, 'noUi-target')]").bounding_box()
    spots = [
        (track["x"] + part * track["width"], track["y"] + track["height"] / 2)
        for part in (0.34, 0.02, 0.98)
    ]
    for spot, i in zip(spots, (1, 0, 3), strict=True):
        mouse.click(*spot)
        shown.expect(step=i)
        shown.page.wait_for_timeout(400)  # the handle glides there, and is deaf meanwhile
    mouse.move(*spots[2])
    mouse.down()
    mouse.move(*spots[1], steps=20)
    shown.expect(step=0)
    mouse.move(*spots[0], steps=20)
    mouse.up()
    shown.expect(step=1)
    if "σ" in shown.axes:
        shown.control("σ").focus()
        keyboard.press("End")
        shown.expect(σ=2)


@pytest.mark.browser
def test_static_panel_plays(page):
    shown = Static(page, 2)
    shown.control("σ").focus()
    page.keyboard.press("ArrowRight")
    shown.expect(σ=1)
    shown.section.locator(".widget-play button").first.click()
    page.wait_for_timeout(2500)  # four frames, half a second each
    shown.expect(step=3)


@pytest.mark.browser
def test_static_panel_fits_and_is_readable(page):
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1], f"{wide[0]} px wide in a window of {wide[1]} px"
    color = "e => getComputedStyle(e).color"
    for part in (".widget-label:visible", ".widget-readout", ".pf-panel strong"):
        for found in page.locator(part).all():
            assert found.evaluate(color) == "rgb(238, 238, 238)", f"{part} vanishes in the dark"
