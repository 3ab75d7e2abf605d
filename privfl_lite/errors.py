"""Bad input and missing packages, each answered by one sentence. Imports nothing that is slow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

PACKAGES = {"skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml"}  # others: same


class PrivflError(ValueError):
    """Bad input, in one sentence: what was wrong and what is allowed.

    IPython asks an exception for ``_render_traceback_``; ours answers with the sentence alone, so
    a notebook shows no stack trace. The command line prints the same sentence and exits with 2.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def choose(kind: str, name: str, options: Iterable[str]) -> str:
    """Return ``name`` if it is one of ``options``; else say which ones there are."""
    options = list(options)
    if name not in options:
        raise PrivflError(f"unknown {kind} {name!r}; choose one of: {', '.join(options)}")
    return name


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around imports of packages that only ``privfl_lite[extra]`` brings: says so where they miss.

    ``with needs("dp"): from opacus.accountants import RDPAccountant``
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "a package").partition(".")[0]
        package = PACKAGES.get(module, module).lower().replace("_", "-")
        raise PrivflError(
            f"this needs {package}, which is not installed: pip install 'privfl_lite[{extra}]'"
        ) from None
