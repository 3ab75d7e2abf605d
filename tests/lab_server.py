"""A JupyterLab for browser tests, with folders of its own, ended by its id; and its notebooks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from checkout import ROOT

TOKEN = "test"
PATIENCE = 45  # seconds for the server, and for the kernel
RAW = re.compile(
    r":::+|```|\{[\w:-]+\}`|\{(prf|cite|solution|exercise|hint|explorable|laboratory)[:}]|:label:|\{\{"
    r"|Unknown Directive"
)
SETTINGS = {
    "notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none"},
    "apputils-extension/notification.jupyterlab-settings": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "docmanager-extension/plugin.jupyterlab-settings": {"autosave": False},
}


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """A JupyterLab on folder/notebooks; yields its address. Its other folders are beside that."""
    settings = folder / "config" / "lab" / "user-settings" / "@jupyterlab"
    for name, value in SETTINGS.items():
        (settings / name).parent.mkdir(parents=True, exist_ok=True)
        (settings / name).write_text(json.dumps(value))
    kinds = {"CONFIG": "config", "DATA": "data", "RUNTIME": "runtime"}
    env = {**os.environ, **{f"JUPYTER_{k}_DIR": str(folder / v) for k, v in kinds.items()}}
    env |= {"JUPYTERLAB_SETTINGS_DIR": str(settings.parent), "IPYTHONDIR": str(folder / "ipython")}
    env |= {"JUPYTER_CONFIG_PATH": str(ROOT / "scripts" / "lab")}  # as in make lab
    env |= {"JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += ["--port=0", f"--IdentityProvider.token={TOKEN}", "--LabApp.news_url=None"]
    command += [f"--ServerApp.root_dir={folder / 'notebooks'}"]
    log = folder / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=folder)
    try:
        yield wait_for(server, log, folder / "runtime")
    finally:
        server.terminate()  # ends its kernels too
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()


def wait_for(server: subprocess.Popen, log: Path, runtime: Path) -> str:
    """The server's address, once it answers; it stands in its runtime file."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and server.poll() is None:
        for file in runtime.glob("jpserver-*.json"):
            url = json.loads(file.read_text() or "{}").get("url")
            try:
                urlopen(f"{url}api/status?token={TOKEN}", timeout=2).close()
                return url
            except (OSError, ValueError):
                pass
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook of code cells, not executed."""
    empty = {"cell_type": "code", "execution_count": None, "outputs": [], "metadata": {}}
    made = [{**empty, "id": f"cell-{i}", "source": c.strip()} for i, c in enumerate(cells)]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(whole), encoding="utf-8")


def open_edition(page, url: str, path: Path) -> dict:
    """Open an edition of a chapter; the notebook, once all texts and formulas are rendered."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    page.goto(f"{url}lab/tree/{path.name}?token={TOKEN}&reset")
    texts = page.locator(".jp-MarkdownCell .jp-RenderedMarkdown")
    count = sum(c["cell_type"] == "markdown" for c in notebook["cells"])
    texts.nth(count - 1).wait_for(state="attached", timeout=PATIENCE * 1000)
    page.wait_for_function(
        "n => document.querySelectorAll('.jp-RenderedMarkdown mjx-container').length >= n",
        arg=dollars(notebook),
        timeout=PATIENCE * 1000,
    )
    return notebook


def assert_rendered(page, notebook: dict) -> None:
    """Every formula is typeset, none with a fault; no directive and no role is left."""
    assert page.locator(".jp-RenderedMarkdown mjx-container").count() == dollars(notebook)
    assert not page.locator(
        ".jp-RenderedMarkdown mjx-merror, mjx-container [data-mjx-error]"
    ).count()
    shown = "\n".join(page.locator(".jp-MarkdownCell .jp-RenderedMarkdown").all_text_contents())
    assert not (found := RAW.search(shown)), shown[found.start() - 40 : found.end() + 40]
    titles = re.findall(
        r"\*\*((?:Proposition|Exercise|Definition) [\d.]+)\*\*", json.dumps(notebook)
    )
    bold = set(page.locator(".jp-RenderedMarkdown blockquote strong").all_text_contents())
    assert titles and set(titles) <= bold


def dollars(notebook: dict) -> int:
    """The formulas of a notebook's Markdown cells, by their dollars."""
    cells = [c for c in notebook["cells"] if c["cell_type"] == "markdown"]
    whole = re.sub(r"`[^`\n]*`|^```.*?^```$", "", "\n\n".join("".join(c["source"]) for c in cells))
    marks = whole.count("$$") + len(re.findall(r"(?<!\\)\$", whole.replace("$$", "")))
    return marks // 2


def run_all(page, url: str, name: str) -> None:
    """Open a notebook and run it from top to bottom."""
    page.goto(f"{url}lab/tree/{name}?token={TOKEN}&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=PATIENCE * 1000)
    status = page.locator(".jp-StatusBar-Right, #jp-main-statusbar").get_by_text(re.compile("Idle"))
    status.first.wait_for(timeout=PATIENCE * 1000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
