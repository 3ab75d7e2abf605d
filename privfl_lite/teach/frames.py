"""Frames of a panel: a figure, picture or table as a small piece of HTML; several as a sheet."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from html import escape

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

DPI = 110
Frame = Figure | Image.Image | bytes | str  # a string is HTML or a Markdown table
# Labels take the page's text color, frames stand on a light card: both hold in the dark as well.
CSS = """<style>.pf-panel{--jp-widgets-color:currentColor;--jp-widgets-label-color:currentColor;
--jp-widgets-readout-color:currentColor}.pf-frame{box-sizing:border-box;width:fit-content;
max-width:100%;overflow-x:auto;padding:8px;border:1px solid #c8ccd2;border-radius:6px;
background:#fff;color:#1a1a1a;line-height:1.4}.pf-frame img{display:block;max-width:100%;
height:auto;margin:0;background:#fff}.pf-frame p{margin:.3em 0;color:inherit}
.pf-frame table{border-collapse:collapse;margin:0 0 .5em;color:inherit;width:auto}
.pf-frame :is(td,th){padding:.25em .6em;border:1px solid #c8ccd2;text-align:right;color:inherit}
</style>"""


def label(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def say(point: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {label(value)}" for name, value in point.items())


def card(inner: str, more: str = "") -> str:
    return f'<div class="pf-frame{more}">{inner}</div>'


def encode(frame: Frame, alt: str) -> str:
    """A frame as HTML; pictures as lossless WebP of at most 128 colors."""
    if isinstance(frame, str):
        table = frame if frame.lstrip().startswith("<") else _table(frame)
        return card(f'<div role="group" aria-label="{escape(alt)}">{table}</div>')
    if isinstance(frame, Figure):
        figure, file = frame, io.BytesIO()
        figure.savefig(file, dpi=DPI, facecolor="white")
        plt.close(figure)
        frame = file.getvalue()
    picture = Image.open(io.BytesIO(frame)) if isinstance(frame, bytes) else frame
    if not isinstance(picture, Image.Image):
        raise TypeError(f"make returned {type(frame).__name__}, not a figure, picture or table")
    picture, packed = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE), io.BytesIO()
    picture.convert("RGB").save(packed, "WEBP", lossless=True)
    src = f"data:image/webp;base64,{base64.b64encode(packed.getvalue()).decode()}"
    box = f'width="{picture.width}" height="{picture.height}"'  # keeps the page from jumping
    return card(f'<img alt="{escape(alt)}" {box} src="{src}">')


def _table(markdown: str) -> str:
    """A Markdown table of plain text as HTML."""
    html = ""
    for i, line in enumerate(markdown.strip().splitlines()):
        tag, cells = "td" if i else "th", line.strip().strip("|").split("|")
        row = "".join(f"<{tag}>{escape(cell.strip())}</{tag}>" for cell in cells)
        html += f"<tr>{row}</tr>" if i != 1 else ""  # the second line only separates
    return f"<table>{html}</table>"


def sheet(frames: dict[str, str], columns: int) -> Figure:
    """Pictures with their names, in a grid."""
    data = (base64.b64decode(f.partition("base64,")[2].split('"')[0]) for f in frames.values())
    images = [Image.open(io.BytesIO(d)) for d in data]
    rows, w, h = -(-len(images) // columns), *(max(i.size[k] for i in images) / DPI for k in (0, 1))
    fig = Figure(figsize=(columns * w, rows * (h + 0.3)), dpi=DPI, layout="constrained")
    for k, (name, image) in enumerate(zip(frames, images, strict=True), start=1):
        ax = fig.add_subplot(rows, columns, k)
        ax.imshow(image)
        ax.set_title(name, fontsize=11)
        ax.set_axis_off()
    return fig
