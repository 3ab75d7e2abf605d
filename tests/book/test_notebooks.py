"""What a committed notebook must look like. That it still runs is nbval's part (`make test`).

nbval runs every notebook in book/ with book/ as working directory and the kernel of this Python;
cells tagged ``nbval-check-output`` must print the same again (after nbval_sanitize.cfg).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import BOOK, NOTEBOOKS, ROOT, toc_files

LIMIT_MB = 2.5
MACHINE_PATH = re.compile(
    r"/home/\w|/root/|/Users/\w|/tmp/\w|/var/folders/|/site-packages/|[A-Za-z]:\\+Users|ipykernel_\d"
)
MARKDOWN_IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\(|<img(?![^>]*\balt=\"[^\"]+\")[^>]*>")


def problems(notebook: dict) -> list[str]:
    """One sentence for each fault of a notebook's JSON."""
    found = []
    code = [
        c for c in notebook["cells"] if c["cell_type"] == "code" and "".join(c["source"]).strip()
    ]
    counts = [c.get("execution_count") for c in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"cells are not executed once each, in order: {counts}; run all and save")
    for number, cell in enumerate(code, start=1):
        found += [f"code cell {number}: {fault}" for fault in _output_faults(cell)]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            for image in MARKDOWN_IMAGE.finditer("".join(cell["source"])):
                if not image["alt"]:
                    found.append(f"an image in the text has no alt text: {image[0][:60]}")
    widgets = json.dumps(notebook["metadata"].get("widgets", {}))
    if path := MACHINE_PATH.search(widgets):
        found.append(f"widget state holds a path of one machine: {path[0]}")
    return found


def _output_faults(cell: dict) -> list[str]:
    found = []
    outputs = cell.get("outputs", [])
    alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
    images = [m for o in outputs for m in o.get("data", {}) if m.startswith("image/")]
    if images and len(alt.split()) < 3:
        found.append('a figure has no alt text (cell metadata {"mystnb": {"image": {"alt": "…"}}})')
    tags = cell["metadata"].get("tags", [])
    if any(o["output_type"] == "error" for o in outputs) and "raises-exception" not in tags:
        found.append("its output is an error")
    if any(o.get("name") == "stderr" for o in outputs):
        found.append("it stores standard error (a warning or a progress bar)")
    shown = [{k: v for k, v in o.get("data", {}).items() if "image/" not in k} for o in outputs]
    text = json.dumps([*shown, *(o.get("text", "") for o in outputs)])
    if path := MACHINE_PATH.search(text):
        found.append(f"its output holds a path of one machine: {path[0]}")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_is_clean(path: Path):
    assert not (found := problems(json.loads(path.read_text(encoding="utf-8")))), "\n".join(found)
    assert path.stat().st_size < LIMIT_MB * 1e6, f"larger than {LIMIT_MB} MB"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_uses_the_plain_kernel(path: Path):
    kernel = json.loads(path.read_text(encoding="utf-8"))["metadata"].get("kernelspec", {})
    assert kernel.get("name") == "python3", "every environment has a kernel named python3"


def test_toc_and_files_agree():
    files = toc_files()
    missing = [f for f in files if not any((ROOT / f"{f}{s}").is_file() for s in _SUFFIXES)]
    assert not missing, f"_toc.yml names files that do not exist: {missing}"
    assert len(files) == len(set(files)), "_toc.yml names a file twice"
    pages = [*NOTEBOOKS, *BOOK.glob("*.md")]
    hidden = {p.relative_to(ROOT).with_suffix("").as_posix() for p in pages} - set(files)
    assert not hidden, f"pages that _toc.yml does not name: {sorted(hidden)}"


_SUFFIXES = (".md", ".ipynb")


def test_notebooks_stand_only_in_the_book():
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git working tree")
    listed = subprocess.run(
        ["git", "ls-files", "*.ipynb"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    outside = [f for f in listed.stdout.split() if not f.startswith("book/")]
    assert not outside, f"notebooks outside book/: {outside}"


def test_kernel_is_the_one_of_this_python():
    """nbval's --nbval-current-env starts this interpreter, whatever kernels are installed."""
    from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager

    spec = NbvalKernelspecManager().get_kernel_spec(CURRENT_ENV_KERNEL_NAME)
    assert spec.argv[0] == sys.executable


# --- the checker itself can fail ---


def notebook(*cells: dict) -> dict:
    return {"cells": list(cells), "metadata": {}}


def code(count: int | None = 1, outputs: tuple = (), **metadata) -> dict:
    return {
        "cell_type": "code",
        "source": ["1 + 1"],
        "execution_count": count,
        "outputs": list(outputs),
        "metadata": metadata,
    }


FIGURE = {"output_type": "display_data", "data": {"image/png": "aGk="}}
ALT = {"image": {"alt": "accuracy against rounds, rising to 0.9"}}


def test_clean_notebook_passes():
    text = {"output_type": "stream", "name": "stdout", "text": ["12.5 dB"]}
    assert problems(notebook(code(1, [text]), code(2, [FIGURE], mystnb=ALT))) == []


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (notebook(code(None)), "not executed"),
        (notebook(code(2), code(1)), "in order"),
        (notebook(code(1, [FIGURE])), "no alt text"),
        (notebook(code(1, [{"output_type": "error", "ename": "E"}])), "is an error"),
        (notebook(code(1, [{"output_type": "stream", "name": "stderr", "text": "x"}])), "standard"),
        (
            notebook(
                code(1, [{"output_type": "stream", "name": "stdout", "text": ["/home/ada/x"]}])
            ),
            "path of one machine",
        ),
        (
            notebook({"cell_type": "markdown", "source": ["![](figures/a.png)"], "metadata": {}}),
            "no alt text",
        ),
    ],
)
def test_faulty_notebook_is_refused(bad: dict, says: str):
    assert any(says in fault for fault in problems(bad))
