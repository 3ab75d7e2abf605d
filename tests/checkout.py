"""The repository as tests see it: where it lies, its notebooks, its table of contents, imports."""

from __future__ import annotations

import ast
from pathlib import Path

import yaml

import privfl_lite as pf

PACKAGE = Path(pf.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
NOTEBOOKS = sorted(BOOK.glob("*.ipynb"))  # executed; student copies are in book/student
STUDENT = sorted((BOOK / "student").glob("*.ipynb"))


def toc_files() -> list[str]:
    """Every file that _toc.yml names, without its ending."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def walk(node: object) -> list[str]:
        if isinstance(node, dict):
            own = [node[key] for key in ("root", "file") if key in node]
            return own + [f for value in node.values() for f in walk(value)]
        return [f for item in node for f in walk(item)] if isinstance(node, list) else []

    return walk(toc)


def imports(path: Path) -> set[str]:
    """The package's own modules that a file imports, as dotted names below the package."""
    here = path.relative_to(PACKAGE).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = list(here[: len(here) - node.level]) + (node.module or "").split(".")
            base = [b for b in base if b]
            found |= {".".join([*base, a.name]) for a in node.names} | {".".join(base)}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("privfl_lite"):
            base = node.module.split(".")[1:]
            found |= {".".join([*base, a.name]) for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name[len("privfl_lite.") :] for a in node.names if "privfl_lite." in a.name}
    return found
