"""What the browser tests share: a Chromium, the built site, and a server.

As a script (the Makefile's use) it says where a Chromium is, and exits with 1 if there is none.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def find_chromium() -> str | None:
    """PRIVFL_CHROMIUM if set, else the first browser on the path, else None."""
    if named := os.environ.get("PRIVFL_CHROMIUM"):
        return named if Path(named).is_file() else None
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or (str(MAC) if MAC.is_file() else None)


def why_not() -> str | None:
    """The reason why browser tests cannot run here, or None."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "the Python package playwright is not installed"
    if not find_chromium():
        return f"no Chromium: set PRIVFL_CHROMIUM, or put one of {', '.join(NAMES)} on the path"
    return None


@contextmanager
def open_browser() -> Iterator:
    """A headless Chromium with a profile of its own; the calling test is skipped without one."""
    if reason := why_not():
        import pytest

        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*FLAGS])
        try:
            yield browser
        finally:
            browser.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """A folder on a free port of this machine; yields its address."""
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# --- the site ---


def build(source: Path, out: Path) -> tuple[int, list[str]]:
    """Build a book strictly; returns the exit code and the warnings."""
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "--path-output", out]
    command += ["-n", "-W", "--keep-going", "-q"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    lines = [line for line in said.splitlines() if re.search("WARNING|ERROR|CRITICAL", line)]
    return done.returncode, lines or ([said[-4000:]] if done.returncode else [])


def shared_site(tmp_path_factory) -> Path:
    """The book, built once a run into a fresh folder, whichever worker comes first.

    An incremental build would hide the warnings of pages that did not change. PRIVFL_SITE names
    a site that is already built.
    """
    from filelock import FileLock

    if ready := os.environ.get("PRIVFL_SITE"):
        return Path(ready).resolve()
    base = tmp_path_factory.getbasetemp()
    base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base  # common to all workers
    report = base / "book.log"
    with FileLock(base / "book.lock"):
        if not report.exists():
            code, warnings = build(ROOT, base / "book")
            report.write_text("\n".join(warnings or [f"exit code {code}"] * (code != 0)))
    assert not (said := report.read_text()), said
    return base / "book" / "_build" / "html"


def is_offline(site: Path) -> bool:
    """True if the site brings its own scripts (book/_ext/offline.py)."""
    return (site / "vendor" / "pins.txt").is_file()


if __name__ == "__main__":
    print(find_chromium() or "none")
    sys.exit(find_chromium() is None)
