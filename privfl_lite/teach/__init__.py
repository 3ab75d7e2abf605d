"""What only notebooks need: figures, widgets, exercise checks. Comes with ``privfl_lite[book]``.

``explore(name)`` shows a moving picture, ``lab()`` the laboratory "Attack your own picture", and
``projects.score(name, answer)`` scores the project of a part.
"""

from importlib import import_module
from typing import Any

from ..errors import needs

with needs("book"):
    import_module("matplotlib")

HOMES = {"explore": ".explorables", "lab": ".bridge"}
PLACES = ("projects",)  # modules that are found without an import of their own


def __getattr__(name: str) -> Any:
    """``explore`` and ``lab``, imported when they are asked for."""
    if name in HOMES:
        return getattr(import_module(HOMES[name], __name__), name)
    if name in PLACES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
