"""Every drawing can be drawn, keeps inside its paper, and is readable on a phone."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import matplotlib.pyplot as plt
import pytest

from privfl_lite.teach import drawings

NAMES = [m.name for m in iter_modules(drawings.__path__) if m.name != "kit"]


@pytest.mark.parametrize("name", NAMES)
def test_words_are_on_the_paper_and_large_enough(name):
    fig = import_module(f"privfl_lite.teach.drawings.{name}").draw()
    fig.canvas.draw()
    sheet = fig.bbox.padded(1)
    for ax in fig.axes:
        for words in (t for t in ax.texts if t.get_text().strip()):
            inside = words.get_window_extent()
            assert sheet.containsx(inside.x0) and sheet.containsx(inside.x1), words
            assert sheet.containsy(inside.y0) and sheet.containsy(inside.y1), words
            assert words.get_fontsize() >= 9, words
    assert fig.get_figwidth() <= 7.2
    plt.close(fig)
