"""Moving pictures: the book's explorables in a notebook, by anywidget.

The ES modules in ``teach/js/explore`` are the same that the pages of the book run
(``book/_ext/explorable.py``).
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from ..errors import PrivflError, choose
from .modules import JS, bundle


@cache
def catalog() -> dict[str, dict[str, Any]]:
    """Name -> title, about (what it shows, in words) and settings."""
    return json.loads((JS / "explore" / "index.json").read_text(encoding="utf-8"))


def check_settings(name: str, settings: dict[str, Any]) -> None:
    """Refuse unknown names and values that are no numbers."""
    choose("explorable", name, catalog())
    for key, value in settings.items():
        choose(f"setting of {name}", key, catalog()[name]["settings"])
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PrivflError(f"{key} is {value!r}; it must be a number")


def page_script(name: str) -> str:
    """A plain script that mounts the explorable in its places on a page."""
    choose("explorable", name, catalog())
    entry = f'import {{ explorable }} from "./explore/{name}.js";\n'
    entry += 'import { bring } from "./explore/kit/page.js";\n'
    entry += f"bring({json.dumps(name)}, explorable);"
    return f'"use strict";\n(() => {{\n{bundle(entry)}}})();\n'


def notebook_module(name: str) -> str:
    """An ES module for anywidget."""
    choose("explorable", name, catalog())
    entry = f'import {{ explorable }} from "./explore/{name}.js";\n'
    entry += 'import { renderer } from "./explore/kit/notebook.js";\n'
    return bundle(entry + "export default { render: renderer(explorable) };")


def explore(name: str, **settings: float) -> Any:
    """A moving picture in the notebook: ``pf.teach.explore("two-gaussians", mu=2)``.

    ``settings``: where its sliders start; ``.settings`` of what is returned: where they stand.
    The page "All moving pictures" of the book shows every one.
    """
    check_settings(name, settings)
    from .bridge import Moving

    return Moving(notebook_module(name), catalog()[name]["title"], settings)
