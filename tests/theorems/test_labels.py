"""A theorem is tied to a test: label ``prop-x-leaks`` needs a function ``test_prop_x_leaks``."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Statements that can be true or false. Definitions, remarks, examples and proofs need no test.
STATEMENTS = {
    *("theorem", "proposition", "lemma", "corollary", "claim"),
    *("conjecture", "criterion", "property", "observation"),
}
FENCE = re.compile(r"^[\s>]*(?P<marks>`{3,}|~{3,}|:{3,})\s*(?P<info>.*?)\s*$")
DIRECTIVE = re.compile(r"^\{(?P<name>[\w:-]+)\}")
LABEL = re.compile(r"^[\s>]*:?label:\s*(?P<label>\S+)\s*$")
LITERAL = ("code", "code-block", "code-cell", "literalinclude", "math", "raw", "mermaid")


def statements(text: str) -> Iterator[tuple[str, str | None, int]]:
    """(kind, label or None, line) of every ``prf:`` statement in Markdown, code blocks left out."""
    lines = text.splitlines()
    open_fences: list[tuple[str, bool]] = []  # (marks, literal): literal ones hold no directives
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if not fence or "`" in fence["info"]:
            continue
        marks, info = fence["marks"], fence["info"]
        top, literal = open_fences[-1] if open_fences else ("", False)
        if top and not info and marks[0] == top[0] and len(marks) >= len(top):
            open_fences.pop()
        elif not literal:
            directive = DIRECTIVE.match(info)
            name = directive["name"] if directive else ""
            open_fences.append((marks, not name or name in LITERAL))
            if name.startswith("prf:") and name[4:] in STATEMENTS:
                yield name[4:], _label(lines[number + 1 :]), number + 1


def _label(body: list[str]) -> str | None:
    """The label among a directive's options: ``:label: x`` lines, or YAML between ``---``."""
    yaml = bool(body) and body[0].strip() == "---"
    for line in body[yaml:]:
        if found := LABEL.match(line):
            return found["label"]
        if line.strip() == "---" or not (yaml or line.lstrip("> ").startswith(":")):
            return None
    return None


def problems(pages: dict[str, str], tests: set[str]) -> list[str]:
    """One sentence for each statement that has no label, no test, or another one's label."""
    found, seen = [], {}
    for page, text in pages.items():
        for kind, label, line in statements(text):
            where = f"{page}, line {line}: {kind}"
            if label is None:
                found.append(f"{where} has no label")
                continue
            if label in seen:
                found.append(f"{where} repeats the label {label} of {seen[label]}")
            seen[label] = page
            if (name := "test_" + label.replace("-", "_")) not in tests:
                found.append(f"{where} {label} has no test named {name}")
    return found


def book_pages() -> dict[str, str]:
    """The Markdown of every page: of notebooks, their Markdown cells."""
    pages = {}
    for path in sorted((ROOT / "book").rglob("*")):
        if {"_vendor", ".ipynb_checkpoints", "src", "student"} & set(path.parts):
            continue  # sources and student copies hold the same statements
        if path.suffix == ".md":
            pages[path.name] = path.read_text(encoding="utf-8")
        elif path.suffix == ".ipynb":
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
            pages[path.name] = "\n\n".join(texts)
    return pages


def names_of_tests() -> set[str]:
    """The names of all test functions under tests/."""
    names = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.add(node.name)
    return names


def test_every_statement_has_a_test_of_its_name():
    assert not (found := problems(book_pages(), names_of_tests())), "\n".join(found)


GOOD = """
```{prf:proposition} A linear layer leaks its input
:label: prop-linear-layer-leaks

Text.
```
"""


def test_label_with_its_test_passes():
    assert problems({"a.md": GOOD}, {"test_prop_linear_layer_leaks"}) == []


def test_label_without_a_test_fails():
    assert "no test named test_prop_linear_layer_leaks" in problems({"a.md": GOOD}, set())[0]


def test_statement_without_label_fails():
    text = "```{prf:theorem}\n\nNo label, though the text says\n:label: thm-late\n```\n"
    assert problems({"a.md": text}, {"test_thm_late"}) == ["a.md, line 1: theorem has no label"]


def test_label_in_a_yaml_block_or_colon_fence_is_read():
    text = "::::{note}\n:::{prf:lemma} Title\n---\nnonumber:\nlabel: lem-a\n---\nText\n:::\n::::\n"
    assert [s[:2] for s in statements(text)] == [("lemma", "lem-a")]


def test_options_before_the_label_are_skipped():
    text = "```{prf:corollary} Title\n:nonumber:\n:label: cor-a\n\nText\n```\n"
    assert [s[:2] for s in statements(text)] == [("corollary", "cor-a")]


def test_repeated_label_fails():
    found = problems({"a.md": GOOD, "b.md": GOOD}, {"test_prop_linear_layer_leaks"})
    assert found == ["b.md, line 2: proposition repeats the label prop-linear-layer-leaks of a.md"]


def test_definitions_and_code_blocks_need_no_test():
    definition = "```{prf:definition} Upload\n:label: def-upload\n```\n"
    for info in ("md", "", "{code-block} md"):
        shown = f"````{info}\n```{{prf:theorem}}\n:label: thm-shown\n```\n````\n"
        assert problems({"a.md": definition + shown}, set()) == []
        assert problems({"a.md": definition + shown + GOOD}, set())  # the scan goes on behind
