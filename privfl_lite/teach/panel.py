"""The widget kit: controls over a grid of frames, in a notebook and on a page without a kernel.

A frame (figure, picture or table) for each point of the grid sits in an ``HTML`` widget, and those
in nested ``Stack``s, one level an axis. A control drives all Stacks of its level by links that run
in the browser. So one widget tree serves both: a published page answers from the frames stored in
the notebook, and a kernel fills in missing ones when a control asks for them.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import product
from typing import Any

import ipywidgets as widgets
import matplotlib.pyplot as plt
from IPython import display, get_ipython
from ipywidgets.embed import dependency_state
from markdown_it import MarkdownIt
from matplotlib.figure import Figure
from PIL import Image

from ..runtime import PrivflError, choose, progress

BUDGET = 1_500_000  # bytes of widget state in one notebook
MOST = 150  # stored frames in one panel
DELAY = 0.15  # seconds without a move before a kernel computes
DPI = 110
THIN = "drop values from an axis, draw smaller figures, or keep fewer with stored={axis: values}"
Frame = Figure | Image.Image | bytes | str  # a string is HTML or a Markdown table
Point = dict[str, Any]  # a value on each axis

# Labels take the page's text color, frames stand on a light card: both hold in the dark as well.
CSS = """<style>.pf-panel{--jp-widgets-label-color:currentColor;
--jp-widgets-readout-color:currentColor}.pf-frame{box-sizing:border-box;width:fit-content;
max-width:100%;overflow-x:auto;padding:8px;border-radius:6px;background:#fff;color:#1a1a1a;
line-height:1.4}.pf-frame img{display:block;max-width:100%;height:auto;margin:0;background:#fff}
.pf-frame table{border-collapse:collapse;margin:0 0 .5em;color:inherit;width:auto}
.pf-frame :is(td,th){padding:.25em .6em;border:1px solid #c8ccd2;text-align:right;color:inherit}
.pf-frame p{margin:.3em 0;color:inherit}</style>"""


class Panel(widgets.VBox):
    """Controls over named axes, and the frame that ``make(**point)`` gives for their values.

    ``axes``: name -> values; numbers get a slider, anything else a drop-down list. ``alt``: what
    a frame shows, a sentence or a function of the point that gives one. ``play``: an axis to run
    through by itself. ``start``: values to begin with (default: the first). ``stored``: name ->
    values that the published page keeps (default: all); others say that they need a running
    notebook. ``hints``: name -> tooltip. A PrivflError of ``make`` is shown as its sentence.

    Executed by nbclient or nbval, a panel makes all its stored frames at once; in a browser, where
    someone works, it makes the first and then those that are asked for.
    """

    def __init__(
        self,
        make: Callable[..., Frame],
        axes: Mapping[str, Sequence],
        *,
        title: str,
        alt: str | Callable[..., str],
        play: str | None = None,
        start: Mapping[str, Any] | None = None,
        stored: Mapping[str, Sequence] | None = None,
        hints: Mapping[str, str] | None = None,
    ):
        self._make, self._alt, self._title, stored = make, alt, title, stored or {}
        self.axes = {name: list(values) for name, values in axes.items()}
        for name in (*stored, *(hints or {}), *([play] if play else [])):
            choose("axis", name, self.axes)
        self.controls = {n: _control(n, v, (hints or {}).get(n)) for n, v in self.axes.items()}
        for name, value in self._full(start or {}).items():
            self.controls[name].value = value
        grid = product(*(stored.get(name, values) for name, values in self.axes.items()))
        points = [self._full({}), *(self._full(dict(zip(self.axes, g, strict=True))) for g in grid)]
        self.kept = {tuple(point.values()): point for point in points}
        self.frames: dict[tuple, widgets.HTML] = {}  # by the values of the point
        self.links: list[widgets.Widget] = []
        self._done: set[tuple] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio._get_running_loop()  # the kernel's, or None
        self._wide = widgets.Layout(width="100%", margin="0")  # one for all: each takes 1 kB
        head = widgets.HTML(f"{CSS}<strong>{escape(title)}</strong>", layout=self._wide)
        self._look = {"layout": self._wide, "style": head.style}
        # The longest axis goes innermost: there are as many links as Stacks.
        stack = self._nest(sorted(self.axes, key=lambda n: len(self.axes[n])), {})
        row = widgets.Layout(flex_flow="row wrap", align_items="center", width="100%")
        players = [self._player(play)] if play else []
        bar = widgets.Box([*players, *self.controls.values()], layout=row)
        super().__init__([head, bar, stack], layout=self._wide)
        self.add_class("pf-panel")
        self._store()
        for control in self.controls.values():
            control.observe(self._asked, "value")

    def alt(self, **point: object) -> str:
        """What the frame at a point shows, for readers who do not see it."""
        text = self._alt(**point) if callable(self._alt) else f"{self._alt} ({_say(point)})"
        if len(text.split()) < 3:
            raise ValueError(f"alt text {text!r} says too little; write a sentence")
        return text

    def twin(self, points: Sequence[Point] = (), columns: int = 2) -> Figure | display.HTML:
        """Some frames side by side, for print and previews; default: three along the longest axis.

        A point may leave axes out: those are taken where the controls stand.
        """
        axis, v = max(self.axes.items(), key=lambda item: len(item[1]))
        default = [{axis: value} for value in (v[0], v[(len(v) - 1) // 2], v[-1])]
        shown = {_say(p): self._fill(p) for p in map(self._full, points or default)}
        if all("base64," in frame for frame in shown.values()):
            return _sheet(shown, columns)
        return display.HTML("".join(f"<p><b>{name}</b></p>{f}" for name, f in shown.items()))

    def __repr__(self) -> str:
        return f"Interactive panel: {self._title}"[:100]  # all that GitHub's preview shows

    def _full(self, some: Mapping[str, Any]) -> Point:
        """A whole point: axes that are left out stand where the controls stand."""
        for name, value in some.items():
            if value not in self.axes[choose("axis", name, self.axes)]:
                values = ", ".join(map(_label, self.axes[name]))
                raise PrivflError(f"axis {name!r} has no value {value!r}; it has {values}")
        return {name: control.value for name, control in self.controls.items()} | dict(some)

    def _nest(self, names: list[str], fixed: Point) -> widgets.Widget:
        """The Stack of the first named axis with all inside it; without names, a frame."""
        if not names:
            point = {name: fixed[name] for name in self.axes}
            note = f"{_say(point)} is not stored here; run the notebook to see it."
            late = " pf-unmade" if (key := tuple(point.values())) in self.kept else ""
            self.frames[key] = widgets.HTML(_card(note, late), **self._look)
            return self.frames[key]
        control = self.controls[names[0]]
        inner = [self._nest(names[1:], {**fixed, names[0]: v}) for v in self.axes[names[0]]]
        stack = widgets.Stack(inner, selected_index=control.index, layout=self._wide)
        self.links.append(widgets.jsdlink((control, "index"), (stack, "selected_index")))
        return stack

    def _player(self, name: str) -> widgets.Play:
        control, last = self.controls[name], len(self.axes[name]) - 1
        play = widgets.Play(max=last, value=control.index, interval=500, show_repeat=False)
        self.links.append(widgets.jslink((play, "value"), (control, "index")))
        return play

    def _store(self) -> None:
        points = list(self.kept.values())
        if len(points) > MOST:
            raise PrivflError(
                f"panel {self._title!r} has {len(points)} frames, over {MOST}; {THIN}"
            )
        for point in progress(points[:1] if _someone_works_here() else points, self._title):
            self._fill(point)
            if sum(len(self.frames[key].value) for key in self._done) > BUDGET:
                count = f"{len(self._done)} of {len(points)} frames"
                raise PrivflError(f"panel {self._title!r}: {count} exceed {BUDGET:,} bytes; {THIN}")

    def _asked(self, _: object) -> None:
        """A control moved. JupyterLab has such messages handled in a thread, and pyplot is not safe
        in threads: so frames are made in the main one, between the kernel's other messages."""
        if self._loop is None:
            self._catch_up()
        else:
            self._loop.call_soon_threadsafe(self._wait)

    def _wait(self) -> None:
        """Wait for a pause: each move of a fast drag puts the work off."""
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(DELAY, self._catch_up)

    def _catch_up(self) -> None:
        point = self._full({})  # where the controls stand now, not where they stood when they asked
        try:
            self._fill(point)
        except Exception as error:  # a bug in make; not kept, so that it can be asked for again
            note = _card(escape(f"{type(error).__name__}: {error}"))
            self.frames[tuple(point.values())].value = note

    def _fill(self, point: Point) -> str:
        """Make the frame of a point, once."""
        frame = self.frames[key := tuple(point.values())]
        if key not in self._done:
            frame.value = _card(f"Computing {_say(point)} …")
            try:
                with plt.ioff():  # or the next message of a control would flush the open figure
                    made = self._make(**point)
                frame.value = _encode(made, self.alt(**point))
            except PrivflError as error:
                frame.value = _card(escape(str(error)))
            self._done.add(key)
        return frame.value


panel = Panel  # chapters write panel(make, axes, title=…, alt=…)


def size(shown: widgets.Widget) -> int:
    """Bytes that a panel adds to the notebook that stores it."""
    return len(json.dumps(dependency_state(shown, drop_defaults=False)))


def stored_faults(notebook: dict) -> list[str]:
    """What is wrong with the widgets in a notebook's JSON, one sentence each."""
    state = json.dumps(notebook["metadata"].get("widgets", {}))
    found = [f"its widgets take {len(state):,} bytes, over {BUDGET:,}"] * (len(state) > BUDGET)
    return found + ["a panel lacks frames; execute it with nbclient"] * ("pf-unmade" in state)


def _someone_works_here() -> bool:
    """A browser sends the id of the cell that it runs; nbclient and nbval do not."""
    kernel = getattr(get_ipython(), "kernel", None)
    return bool(kernel) and "cellId" in kernel.get_parent().get("metadata", {})


def _control(name: str, values: list, hint: str | None) -> widgets.Widget:
    labels = [_label(v) for v in values]
    if not labels or len(set(labels)) < len(labels):
        raise PrivflError(f"axis {name!r} needs values that differ, not {labels}")
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    kind = widgets.SelectionSlider if numbers and len(values) > 1 else widgets.Dropdown
    return kind(
        options=list(zip(labels, values, strict=True)),
        description=name,
        tooltip=hint or f"choose {name}",
        style={"description_width": "initial"},
        layout={"flex": "1 1 15em", "width": "auto", "max_width": "26em", "min_width": "0"},
    )


def _label(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _say(point: Mapping[str, object]) -> str:
    return escape(", ".join(f"{name} = {_label(value)}" for name, value in point.items()))


def _card(inner: str, more: str = "") -> str:
    return f'<div class="pf-frame{more}">{inner}</div>'


def _encode(frame: Frame, alt: str) -> str:
    """A frame as HTML; pictures as lossless WebP of at most 128 colors."""
    if isinstance(frame, str):
        if not frame.lstrip().startswith("<"):
            frame = MarkdownIt().enable("table").render(frame)
        return _card(f'<div role="group" aria-label="{escape(alt)}">{frame}</div>')
    if isinstance(frame, Figure):
        figure, frame = frame, io.BytesIO()
        figure.savefig(frame, dpi=DPI, facecolor="white")
        plt.close(figure)
    elif isinstance(frame, bytes):
        frame = io.BytesIO(frame)
    picture = (frame if isinstance(frame, Image.Image) else Image.open(frame)).convert("RGB")
    packed, (w, h) = io.BytesIO(), picture.size
    picture.quantize(128, dither=Image.Dither.NONE).convert("RGB").save(
        packed, "WEBP", lossless=True
    )
    src = f"data:image/webp;base64,{base64.b64encode(packed.getvalue()).decode()}"
    return _card(f'<img alt="{escape(alt)}" width="{w}" height="{h}" src="{src}">')


def _sheet(frames: dict[str, str], columns: int) -> Figure:
    """Pictures with their names, in a grid."""
    data = (base64.b64decode(f.partition("base64,")[2].split('"')[0]) for f in frames.values())
    images = [Image.open(io.BytesIO(d)) for d in data]
    rows, (w, h) = (
        -(-len(images) // columns),
        (max(i.size[k] for i in images) / DPI for k in (0, 1)),
    )
    fig = Figure(figsize=(columns * w, rows * (h + 0.3)), dpi=DPI, layout="constrained")
    for k, (name, image) in enumerate(zip(frames, images, strict=True)):
        ax = fig.add_subplot(rows, columns, k + 1)
        ax.imshow(image)
        ax.set_title(name, fontsize=11)
        ax.set_axis_off()
    return fig
