"""Where is a Chromium? Used by the browser tests, and by the Makefile as a script."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

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


if __name__ == "__main__":
    print(find_chromium() or "none")
    sys.exit(find_chromium() is None)
