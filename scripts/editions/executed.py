"""The executed edition: outputs are kept as long as no code cell changes.

Ids of cells and widgets follow from what they belong to, so that making a chapter again without a
change gives the same file.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from .chapter import ROOT, Cell, identify
from .times import fill, running

WIDGETS = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}
QUIET = {"PRIVFL_OFFLINE": "1", "PRIVFL_PROGRESS": "0", "OMP_NUM_THREADS": "1"}


def make(slug: str, cells: list[Cell], old: dict | None, rerun: bool = False) -> dict:
    """The notebook of a chapter; ``old`` is the one that exists, whose outputs may be kept."""
    code = [c for c in cells if c.kind == "code"]
    old = old or {"cells": [], "metadata": {}}
    ran, state = _outputs(old)
    seconds = old["metadata"].get("privfl", {}).get("seconds", 0)  # 0: not measured yet
    if rerun or not seconds or not fits(code, ran):
        fresh, took = execute(code)
        ran, state = _outputs(fresh)
        seconds = took if running(took) != running(seconds) else seconds
    made, done = [], iter(ran)
    for cell in cells:
        new = {"cell_type": cell.kind, "metadata": cell.metadata, "source": cell.source}
        if cell.kind == "code":
            result = next(done)
            new |= {key: result[key] for key in ("execution_count", "outputs")}
        else:
            new["source"] = text(cell, cells, seconds)
        if new["source"]:
            made.append(new)
    identify(slug, made)
    metadata = {"kernelspec": KERNEL, "language_info": LANGUAGE, "privfl": {"seconds": seconds}}
    if state:
        metadata["widgets"] = stable(slug, state, made)
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _outputs(notebook: dict) -> tuple[list[dict], dict]:
    """The code cells of a notebook that was run, and the state of its widgets."""
    ran = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    return ran, notebook["metadata"].get("widgets", {})


def fits(code: list[Cell], ran: list[dict]) -> bool:
    """Whether these cells, and no others, were run."""
    return [c.source for c in code] == ["".join(c["source"]) for c in ran]


def text(cell: Cell, cells: list[Cell], seconds: float) -> str:
    """A Markdown cell with its times, and without what only instructors read."""
    blocks = cell.blocks
    if any(b.name == "grading" for b in blocks):
        kept = "\n\n".join(b.raw.strip("\n") for b in blocks if b.name != "grading")
    else:
        kept = cell.source
    return fill(kept, cells, seconds)


def execute(code: list[Cell], folder: Path = ROOT / "book") -> tuple[dict, int]:
    """Run code cells from top to bottom; the notebook, and the seconds that it took."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": KERNEL})
    for cell in code:
        notebook.cells.append(nbformat.v4.new_code_cell(cell.source, metadata=cell.metadata))
    begin = time.monotonic()
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=900, resources=where, record_timing=False)
    client.execute(env={**os.environ, **QUIET})
    return json.loads(nbformat.writes(notebook)), round(time.monotonic() - begin)


def stable(slug: str, widgets: dict, cells: list[dict]) -> dict:
    """Widget state with ids that follow from the panel's name and the place in its tree."""
    state = widgets[WIDGETS]["state"]
    names: dict[str, str] = {}

    def name(model: str, panel: str) -> None:
        names[model] = hashlib.sha256(f"{slug}/{panel}/{len(names)}".encode()).hexdigest()[:32]
        for other in references(state[model]["state"]):
            if other in state and other not in names:
                name(other, panel)

    for view, panel in views(cells):
        if view["model_id"] in state and view["model_id"] not in names:
            name(view["model_id"], panel)
    for model in sorted(state.keys() - names.keys(), key=lambda m: _known(state[m], names)):
        if model not in names:
            name(model, "links")
    renamed = {names[m]: _renamed(state[m], names) for m in names}
    for view, _ in views(cells):
        view["model_id"] = names.get(view["model_id"], view["model_id"])
    return {WIDGETS: {**widgets[WIDGETS], "state": renamed}}


def views(cells: list[dict]) -> Iterator[tuple[dict, str]]:
    """Each widget that a cell shows, and the words that name it."""
    for cell in cells:
        for output in cell.get("outputs", []):
            if VIEW in (data := output.get("data", {})):
                yield data[VIEW], "".join(data.get("text/plain", ""))


def references(value: object) -> Iterator[str]:
    """The models that a state refers to, in the order of its sorted keys."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from references(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, str) and value.startswith("IPY_MODEL_"):
        yield value.removeprefix("IPY_MODEL_")


def _renamed(value: object, names: dict[str, str]) -> object:
    if isinstance(value, dict):
        return {key: _renamed(value[key], names) for key in sorted(value)}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, str) and value.startswith("IPY_MODEL_"):
        model = value.removeprefix("IPY_MODEL_")
        return f"IPY_MODEL_{names.get(model, model)}"
    return value


def _known(model: dict, names: dict[str, str]) -> str:
    """A model as text, with those ids that are settled; the others are left out."""
    unknown = {m: "" for m in references(model["state"]) if m not in names}
    return json.dumps(_renamed(model, {**names, **unknown}), sort_keys=True)
