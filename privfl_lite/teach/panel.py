"""The widget kit: controls over a grid of frames, in a notebook and on a page without a kernel.

A frame (figure, picture or table) for each point of the grid sits in an ``HTML`` widget, and those
in nested ``Stack``s, one level an axis. A control drives all Stacks of its level by links that run
in the browser. So one widget tree serves both: a published page answers from the frames stored in
the notebook, and a kernel fills in missing ones when a control asks for them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from ..runtime import PrivflError, choose, needs, progress
from .frames import CSS, Frame, card, encode, label, say, sheet

with needs("book"):
    import ipywidgets as widgets
    from IPython import display, get_ipython
    from ipywidgets.embed import dependency_state

BUDGET = 1_500_000  # bytes of widget state in one notebook
MOST = 150  # stored frames in one panel
THIN = "drop values from an axis, draw smaller figures, or keep fewer with stored={axis: values}"
DELAY = 0.15  # seconds without a move before a kernel computes
Key = tuple  # the values of one point, in the order of the axes


class Panel(widgets.VBox):
    """Controls over named axes, and the frame that ``make(**point)`` gives for their values.

    ``axes``: name -> values; numbers get a slider, anything else a drop-down list. ``alt``: what a
    frame shows, a sentence or a function of the point that gives one. ``play``: an axis to run
    through by itself. ``start``: values to begin with (default: the first). ``stored``: name ->
    values that the published page keeps (default: all); others say that they need a running
    notebook. A PrivflError of ``make`` is shown as its sentence. Executed by nbclient or nbval, a
    panel makes all its stored frames at once; in a browser, where someone works, it makes the first
    and then those that are asked for.
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
    ):
        self._make, self._alt, self._title = make, alt, title
        self.axes, stored = {name: list(values) for name, values in axes.items()}, stored or {}
        for name in (*stored, *([play] if play else [])):
            choose("axis", name, self.axes)
        self.controls = {name: _control(name, values) for name, values in self.axes.items()}
        for control, value in zip(self.controls.values(), self._key(start or {}), strict=True):
            control.value = value
        every = product(*(stored.get(name, values) for name, values in self.axes.items()))
        grid = [self._key(self._point(key)) for key in every]  # refuses values that are not there
        self.kept = list(dict.fromkeys([self._key({}), *grid]))
        if len(self.kept) > MOST:
            raise PrivflError(f"panel {title!r} has {len(self.kept)} frames, over {MOST}; {THIN}")
        self.frames: dict[Key, widgets.HTML] = {}
        self.links: list[widgets.Widget] = []
        self._made: dict[Key, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio._get_running_loop()  # the kernel's, or None
        wide = widgets.Layout(width="100%", margin="0")
        head = widgets.HTML(f"{CSS}<strong>{escape(title)}</strong>", layout=wide)
        self._look = {"layout": wide, "style": head.style}  # shared: each one takes up to 1 kB
        # The longest axis goes innermost: there are as many links as Stacks.
        stack = self._nest(sorted(self.axes, key=lambda n: len(self.axes[n])), {})
        row = widgets.Layout(flex_flow="row wrap", align_items="center", width="100%")
        bar = [self._player(play)] if play else []
        bar += [control for control in self.controls.values() if len(control.options) > 1]
        super().__init__([head, widgets.Box(bar, layout=row), stack], layout=wide)
        self.add_class("pf-panel")
        plt.close(plt.figure())  # loads the backend: inside ioff() it would stay off for good
        self._store()
        for control in self.controls.values():
            control.observe(self._asked, "value")

    def alt(self, **point: object) -> str:
        """What the frame at a point shows, for readers who do not see it."""
        text = self._alt(**point) if callable(self._alt) else f"{self._alt} ({say(point)})"
        if len(text.split()) < 3:
            raise ValueError(f"alt text {text!r} says too little; write a sentence")
        return text

    def twin(self, points: Sequence[Mapping] = (), columns: int = 2) -> Figure | display.HTML:
        """Some frames side by side, for print and previews; default: three along the longest axis.

        A point may leave axes out: those are taken where the controls stand.
        """
        axis, v = max(self.axes.items(), key=lambda item: len(item[1]))
        default = [{axis: value} for value in (v[0], v[(len(v) - 1) // 2], v[-1])]
        keys = [self._key(point) for point in points or default]
        shown = {say(self._point(key)): self._fill(key) for key in keys}
        if all("base64," in frame for frame in shown.values()):
            return sheet(shown, min(columns, len(shown)))
        parts = [f"<p><b>{escape(name)}</b></p>{frame}" for name, frame in shown.items()]
        return display.HTML("".join(parts))

    def __repr__(self) -> str:
        return f"Interactive panel: {self._title}"[:100]  # all that GitHub's preview shows

    def _key(self, some: Mapping[str, Any]) -> Key:
        """The values of a point; axes that it leaves out stand where the controls stand."""
        for name, value in some.items():
            if value not in self.axes[choose("axis", name, self.axes)]:
                values = ", ".join(map(label, self.axes[name]))
                raise PrivflError(f"axis {name!r} has no value {value!r}; it has {values}")
        return tuple(some.get(name, control.value) for name, control in self.controls.items())

    def _point(self, key: Key) -> dict[str, Any]:
        return dict(zip(self.axes, key, strict=True))

    def _nest(self, names: list[str], fixed: dict[str, Any]) -> widgets.Widget:
        """The Stack of the first named axis with all inside it; without names, a frame."""
        if not names:
            key = tuple(fixed[name] for name in self.axes)
            note = f"{say(self._point(key))} is not stored here; run the notebook to see it."
            note = card(escape(note), " pf-unmade" if key in self.kept else "")
            self.frames[key] = widgets.HTML(note, **self._look)
            return self.frames[key]
        name, control = names[0], self.controls[names[0]]
        inner = [self._nest(names[1:], {**fixed, name: value}) for value in self.axes[name]]
        stack = widgets.Stack(inner, selected_index=control.index, layout=self._look["layout"])
        self.links.append(widgets.jsdlink((control, "index"), (stack, "selected_index")))
        return stack

    def _player(self, name: str) -> widgets.Play:
        control, last = self.controls[name], len(self.axes[name]) - 1
        play = widgets.Play(max=last, value=control.index, interval=500, show_repeat=False)
        self.links.append(widgets.jslink((play, "value"), (control, "index")))
        return play

    def _store(self) -> None:
        for key in progress(self.kept[:1] if _someone_works_here() else self.kept, self._title):
            self._fill(key)
            if sum(map(len, self._made.values())) > BUDGET:  # no need to make the rest
                count = f"{len(self._made)} of {len(self.kept)} frames"
                raise PrivflError(
                    f"panel {self._title!r}: {count} take over {BUDGET:,} bytes; {THIN}"
                )

    def _asked(self, _: object) -> None:
        """A control moved. JupyterLab has such messages handled in a thread, and pyplot is not safe
        in threads: so frames are made in the main one, between the kernel's other messages."""
        if (key := self._key({})) not in self._made:
            note = escape(f"Computing {say(self._point(key))} …")
            self.frames[key].value = card(note, " pf-unmade")
            if self._loop:
                self._loop.call_soon_threadsafe(self._wait)
            else:
                self._catch_up()

    def _wait(self) -> None:
        """Wait for a pause: each move of a fast drag puts the work off."""
        if self._timer:
            self._timer.cancel()
        assert self._loop  # it called this
        self._timer = self._loop.call_later(DELAY, self._catch_up)

    def _catch_up(self) -> None:
        key = self._key({})  # where the controls stand now, not where they stood when they asked
        try:
            self._fill(key)
        except Exception as error:  # a bug in make; not kept, so that it can be asked for again
            note = escape(f"{type(error).__name__}: {error}")
            self.frames[key].value = card(note, " pf-unmade")

    def _fill(self, key: Key) -> str:
        """Show the frame at a key, made once."""
        if key not in self._made:
            try:
                # Off, or a control's next message would flush the figure; pixels stay pixels.
                with plt.ioff(), plt.rc_context({"image.interpolation": "nearest"}):
                    frame = self._make(**self._point(key))
                self._made[key] = encode(frame, self.alt(**self._point(key)))
            except PrivflError as error:
                self._made[key] = card(escape(str(error)))
        self.frames[key].value = self._made[key]
        return self._made[key]


panel = Panel  # chapters write panel(make, axes, title=…, alt=…)


def size(shown: widgets.Widget) -> int:
    """Bytes that a panel adds to the notebook that stores it."""
    return len(json.dumps(dependency_state(shown, drop_defaults=False)))


def _someone_works_here() -> bool:
    """A browser sends the id of the cell that it runs; nbclient and nbval do not."""
    kernel = getattr(get_ipython(), "kernel", None)
    return kernel is not None and "cellId" in kernel.get_parent().get("metadata", {})


def _control(name: str, values: list) -> widgets.Widget:
    labels = [label(v) for v in values]
    if not labels or len(set(labels)) < len(labels):
        raise PrivflError(f"axis {name!r} needs values that differ, not {labels}")
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    kind = widgets.SelectionSlider if numbers and len(values) > 1 else widgets.Dropdown
    looks = {"flex": "1 1 15em", "width": "auto", "max_width": "26em", "min_width": "0"}
    control = kind(options=[*zip(labels, values, strict=True)], description=name, layout=looks)
    control.style.description_width, control.tooltip = "initial", f"choose {name}"
    return control
