"""The full edition, for JupyterLab: a copy with the outputs of the executed notebook.

Solutions and plumbing are folded, as on the page; a moving picture and the laboratory are cells of
their own, which move as soon as the notebook is open.
"""

from __future__ import annotations

from . import copies
from .chapter import Cell
from .executed import VIEW, WIDGETS, fits, stable
from .myst import EditionError
from .numbers import Index

# Stored widgets answer in the browser. JupyterLab draws a red broken chain beside each, because no
# kernel made it yet; a cell that is run again has one, and loses this output.
STYLE = "<style>.jupyter-widgets-disconnected::before { content: none }</style>"
SHUT = {"hide-cell", "hide-output", "remove-cell", "remove-output", "solution"}


def make(slug: str, cells: list[Cell], index: Index, ran: dict) -> dict:
    """The full copy of a chapter; ``ran`` is its executed notebook."""
    notebook = copies.make(slug, cells, index, ran["metadata"]["privfl"]["seconds"], "full")
    state = ran["metadata"].get("widgets", {}).get(WIDGETS, {}).get("state", {})
    results = [c for c in ran["cells"] if c["cell_type"] == "code"]
    if not fits([c for c in cells if c.kind == "code"], results):
        raise EditionError(f"code of book/src/{slug}.md changed: make chapters CHAPTER={slug}")
    done = iter(results)
    for cell in notebook["cells"]:
        if cell["metadata"].get("tags") == ["moving"]:
            cell["outputs"], new = show(cell["source"])
            state = state | new
        elif cell["cell_type"] == "code":
            result = next(done)
            cell |= {key: result[key] for key in ("execution_count", "outputs")}
            if cell["outputs"] and SHUT & set(result["metadata"].get("tags", [])):
                cell["metadata"].setdefault("jupyter", {})["outputs_hidden"] = True
        if any(VIEW in o.get("data", {}) for o in cell.get("outputs", [])):
            cell["outputs"] = [*cell["outputs"], output({"text/html": STYLE, "text/plain": ""})]
    if state:
        whole = {WIDGETS: {"version_major": 2, "version_minor": 0, "state": state}}
        notebook["metadata"]["widgets"] = stable(slug, whole, notebook["cells"])
    return notebook


def show(code: str) -> tuple[list[dict], dict]:
    """The output of a line of Python that makes a widget, and the states of its models."""
    from ipywidgets.embed import dependency_state

    import privfl_lite as pf

    widget = eval(code, {"pf": pf})
    view = {"model_id": widget.model_id, "version_major": 2, "version_minor": 0}
    data = {VIEW: view, "text/plain": f"{code}: run this cell to see it"}
    return [output(data)], dependency_state([widget], drop_defaults=False)


def output(data: dict) -> dict:
    return {"output_type": "display_data", "data": data, "metadata": {}}
