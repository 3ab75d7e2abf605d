"""What only notebooks need: figures, widgets, exercise checks. Comes with ``privfl_lite[book]``."""

from importlib import import_module

from ..errors import needs

with needs("book"):
    import_module("matplotlib")
