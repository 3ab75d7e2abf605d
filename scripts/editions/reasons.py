"""What the check of an exercise says to wrong answers, read from its source."""

from __future__ import annotations

import ast
import re

from .chapter import ROOT
from .plain import quoted

CHECKS = ROOT / "privfl_lite" / "teach" / "checks"


def reasons(slug: str, code: str) -> str:
    """For the check that a solution calls: what it asks for, and its answers to common mistakes."""
    called = re.search(r"checks\.(check_\w+)", code)
    if not called:
        return ""
    tree = ast.parse((CHECKS / f"{slug.replace('-', '_')}.py").read_text(encoding="utf-8"))
    check = next(n for n in ast.walk(tree) if getattr(n, "name", "") == called[1])
    asks = " ".join((ast.get_docstring(check) or "").replace("``", "`").split())
    sentences = dict.fromkeys(re.sub(r"([*_])", r"\\\1", words) for words in _sentences(check))
    said = "\n".join(f"* {words}" for words in sentences)
    return quoted(f"**What the check asks.** {asks}\n\nIt says to wrong answers:\n\n{said}")


def _sentences(check: ast.AST) -> list[str]:
    """Texts given to ``Wrong``, directly or as the keys of a table of known mistakes."""
    found = []
    for node in ast.walk(check):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Wrong":
            found += [a.value for a in node.args if isinstance(a, ast.Constant)]
        elif isinstance(node, ast.Dict):
            keys = [k.value for k in node.keys if isinstance(k, ast.Constant)]
            found += [k for k in keys if isinstance(k, str) and " " in k]
    return found
