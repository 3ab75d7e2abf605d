"""A panel that computes any cell of a stored table again, on the reader's own machine.

On a published page, without a kernel, it shows the stored cell and the command that makes it. In a
running notebook the reader also picks a profile and a seed and presses Run: the cell is computed in
a process of its own, so that Stop ends it at once and loses nothing else, and the new numbers stand
beside the stored ones and what the paper says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from html import escape
from pathlib import Path
from typing import Any

import torch

from ..names import PROFILES
from ..runtime import PrivflError, needs
from ..studies import STUDIES, one_cell
from . import ledger
from .frames import CSS, card, say
from .tables import table

with needs("book"):
    import ipywidgets as widgets

WIDE = {"width": "100%", "margin": "0"}


class Recompute(widgets.VBox):
    """Stored cells of a study with these settings, each to be computed again."""

    def __init__(self, study: str, **where: Any):
        self.study = STUDIES[study]
        result = self.study.show()
        rows = [row for row in result["cells"] if where.items() <= row.items()]
        if not rows:
            raise PrivflError(f"{study} has no stored cell with {say(where)}")
        cells = self.study.cells(self.study.settings("cpu"))
        self.cells = [c for c in cells if any(c.items() <= row.items() for row in rows)]
        self.stored = [next(r for r in rows if c.items() <= r.items()) for c in self.cells]
        self._each = result["seconds"] / len(result["cells"])
        self._work: subprocess.Popen | None = None
        self._found: dict | None = None
        super().__init__(self._children(), layout=widgets.Layout(**WIDE))
        self.add_class("pf-panel")

    def _children(self) -> list[widgets.Widget]:
        names = [say(cell) for cell in self.cells]
        looks = widgets.Layout(width="100%", max_width="40em")
        self.choice = widgets.Dropdown(
            options=[*zip(names, range(len(names)), strict=True)], description="cell", layout=looks
        )
        head = widgets.HTML()
        look = {"layout": head.layout, "style": head.style}  # shared: each one takes up to 1 kB
        shown = [widgets.HTML(self._stored_card(i), **look) for i in range(len(self.cells))]
        stack = widgets.Stack(shown, selected_index=0)
        self.link = widgets.jslink((self.choice, "index"), (stack, "selected_index"))
        self.profile = widgets.Dropdown(
            options=PROFILES, value="gpu" if torch.cuda.is_available() else "cpu"
        )
        self.profile.description = "profile"
        self.seed = widgets.Text(description="seed", placeholder="the study's own")
        self.start, self.stop, self.save = (
            widgets.Button(description=d) for d in ("Run", "Stop", "Keep")
        )
        self.stop.disabled = self.save.disabled = True
        for button, act in (
            (self.start, self._run),
            (self.stop, self._end),
            (self.save, self._keep),
        ):
            button.on_click(act)
        self.status, self.answer = widgets.HTML(self._expected()), widgets.HTML()
        row = widgets.Layout(flex_flow="row wrap", align_items="center", width="100%")
        bar = [self.profile, self.seed, self.start, self.stop, self.save]
        live = widgets.VBox([widgets.Box(bar, layout=row), self.status, self.answer])
        live.add_class("pf-kernel")
        head = widgets.HTML(
            f"{CSS}<strong>Compute a cell again: {escape(self.study.name)}</strong>"
        )
        return [head, self.choice, stack, live]

    def command(self, i: int, profile: str = "cpu", seed: str = "") -> list[str]:
        """What a reader would type to compute cell i."""
        settings = [f"{k}={_text(v)}" for k, v in self.cells[i].items()]
        more = ["--profile", profile] * (profile != "cpu") + ["--seed", seed] * bool(seed)
        return ["study", "cell", self.study.name, *settings, *more]

    def _stored_card(self, i: int) -> str:
        values = one_cell.scores(self.stored[i], self.cells[i])
        rows = [{"score": name, "stored": value} for name, value in values.items()]
        words = " ".join(_quoted(word) for word in ["privfl", *self.command(i)])
        inner = table(rows)._repr_html_() if rows else "<p>This cell holds no single numbers.</p>"
        return card(f"{inner}<p>Make it again: <code>{escape(words)}</code></p>")

    def _expected(self) -> str:
        return (
            f"<p>About {self._each:.0f} s a cell with the profile cpu, on the two busy cores that "
            "made the table. The profile gpu has the papers' sizes; its time was not measured.</p>"
        )

    def _run(self, _: object) -> None:
        seed = self.seed.value.strip()
        if seed and not seed.isdigit():
            self.status.value = "<p>A seed is a whole number, or nothing for the study's own.</p>"
            return
        i, folder = self.choice.index, tempfile.mkdtemp()
        words = [*self.command(i, self.profile.value, seed), "--json", f"{folder}/cell.json"]
        gpu = self.profile.value == "gpu"  # chapters hold themselves to the CPU; this need not
        env = {k: v for k, v in os.environ.items() if not (gpu and k == "PRIVFL_DEVICE")}
        self._work = subprocess.Popen(
            [sys.executable, "-m", "privfl_lite.cli", *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        self.start.disabled, self.stop.disabled = True, False
        self.status.value = "<p>Computing …</p>"
        threading.Thread(target=self._watch, args=(self._work, i, folder), daemon=True).start()

    def _watch(self, work: subprocess.Popen, i: int, folder: str) -> None:
        """Show what the process says of its progress, then what it found."""
        last = ""
        for line in work.stderr or ():
            last = line.strip().split("\r")[-1] or last
            self.status.value = f"<p>Computing … {escape(last)}</p>"
        code, file = work.wait(), Path(folder, "cell.json")
        self.start.disabled, self.stop.disabled = False, True
        if code == 0 and file.exists():
            self._found = {"cell": self.cells[i], **json.loads(file.read_text(encoding="utf-8"))}
            self.answer.value, self.save.disabled = self._answer(i), False
            self.status.value = "<p>Done.</p>"
        else:
            stopped = code < 0
            said = "Stopped; nothing was kept." if stopped else escape(last or "It failed.")
            self.status.value = f"<p>{said}</p>"

    def _answer(self, i: int) -> str:
        """Now, stored, and the paper's words on it."""
        assert self._found
        before = one_cell.scores(self.stored[i], self.cells[i])
        now = one_cell.scores(self._found["now"], self.cells[i])
        rows = [{"score": k, "now": v, "stored": before.get(k)} for k, v in now.items()]
        said = [
            f"<p>{escape(e['id'])}, the paper: {escape(e['paper'])}</p>"
            for e in ledger.about(self.study.name, self.stored[i])
        ]
        return card((table(rows)._repr_html_() if rows else "") + "".join(said))

    def _end(self, _: object) -> None:
        if self._work and self._work.poll() is None:
            self._work.terminate()

    def _keep(self, _: object) -> None:
        """Keep the new cell among the reader's own results, which are preferred from now on."""
        assert self._found
        place = one_cell.keep(self.study, self._found["cell"], self._found["now"])
        self.status.value = f"<p>Kept in {escape(place)}; tables prefer it from now on.</p>"
        self.save.disabled = True

    def __repr__(self) -> str:
        return f"Panel that computes cells of {self.study.name} again"


recompute = Recompute  # chapters write recompute("dcs2/attack", part="table")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word
