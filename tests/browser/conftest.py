"""A running JupyterLab, one for each module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import why_not
from lab_server import jupyterlab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("lab")
    (folder / "notebooks").mkdir()
    with jupyterlab(folder) as url:
        yield url, folder / "notebooks"
