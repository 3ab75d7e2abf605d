"""Every exercise has kind, stars, minutes, a short hint and a solution, and chapters climb.

Sources are read through scripts/editions/exercises.py, as the page "All exercises" is, so that a
new chapter of _toc.yml is tested as soon as it is there.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest
from chapters import INDEX, SLUGS
from checkout import BOOK, PACKAGE, ROOT
from editions.exercises import EditionError, exercises, lines, read_topics, told
from editions.paths import parts

CHAPTERS = [slug for slugs in parts().values() for slug in slugs]
ALL = list(exercises(INDEX))
WORDS, LINES = 55, 10  # of a hint, at most; of code that solves a ★★★ Code exercise, at least


def of(slug: str) -> list:
    return [e for e in ALL if e.slug == slug]


def built_something(found: list) -> bool:
    """Whether a chapter asks for ten lines of code, or more, that a check then looks at."""
    return any(e.stars == 3 and e.kind == "Code" and len(e.code) >= LINES for e in found)


def climbs(found: list) -> bool:
    return [e.stars for e in found] == sorted(e.stars for e in found)


@pytest.mark.parametrize("slug", CHAPTERS)
def test_each_exercise_has_one_short_hint_and_one_solution(slug):
    for e in of(slug):
        assert len(e.hints) == 1, f"{e.label} has {len(e.hints)} hints"
        assert 2 <= len(e.hints[0].split()) <= WORDS, f"{e.label}: the hint is for a glance"
        assert len(e.solutions) == 1, f"{e.label} has {len(e.solutions)} solutions"
        assert 1 <= e.minutes <= 60, e.label


@pytest.mark.parametrize("slug", CHAPTERS)
def test_code_is_answered_at_once_and_solved_by_code(slug):
    """A stub that calls a check, and a solution in cells of its own, which the notebook runs."""
    for e in of(slug):
        if e.kind == "Code":
            assert e.stubs, f"{e.label} has no cell that asks a check"
            assert e.solutions == ("cells",) and e.code, f"{e.label} is not solved by code"


@pytest.mark.parametrize("slug", CHAPTERS)
def test_exercises_climb_to_one_that_builds_something(slug):
    found = of(slug)
    assert len(found) >= 3
    assert climbs(found), [f"{'★' * e.stars} {e.title}" for e in found]
    assert built_something(found), f"{slug}: no ★★★ Code exercise of {LINES} lines or more"
    assert {e.kind for e in found} > {"Code"}, "something to think about, too"


def messages(check: str, slug: str) -> set[str]:
    """The sentences to wrong answers that a check's module holds: what a reader may be told."""
    path = PACKAGE / "teach" / "checks" / f"{slug.replace('-', '_')}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    reached, todo = set(), [check]
    while todo:
        if (name := todo.pop()) in functions and name not in reached:
            reached.add(name)
            called = (n for n in ast.walk(functions[name]) if isinstance(n, ast.Name))
            todo += [n.id for n in called]
    told = (n for name in reached for n in ast.walk(_without_docstring(functions[name])))
    texts = (n.value for n in told if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return {text for text in texts if len(text.split()) >= 4}


def _without_docstring(function: ast.FunctionDef) -> ast.Module:
    return ast.Module(function.body[1:] if ast.get_docstring(function) else function.body, [])


def texts_on(slug: str) -> str:
    """The text of all tests that import the checks of this chapter."""
    module = slug.replace("-", "_")
    asks = re.compile(rf"checks import {module} as checks|checks\.{module} import")
    texts = (p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests").rglob("test_*.py")))
    return "\n".join(text for text in texts if asks.search(text))


@pytest.mark.parametrize("slug", CHAPTERS)
def test_checks_tell_mistakes_apart_and_are_tested(slug):
    """Two sentences for wrong answers or more, and tests that put answers to the check."""
    text = texts_on(slug)
    for e in of(slug):
        for check in re.findall(r"checks\.(check_\w+)", "\n".join(e.stubs)):
            assert len(messages(check, slug)) >= 2, check
            short = check.removeprefix("check_")
            assert re.search(rf"\b{check}\b|\"{short}\"", text), f"nothing is put to {check}"


def test_no_exercise_is_lost_on_the_way():
    """As many as Sphinx counts, each with its number and with topics."""
    counted = {k for k, t in INDEX.targets.items() if t.kind == "Exercise"}
    assert {e.label for e in ALL} == counted and len(ALL) == len(counted)
    assert all(e.number and e.topics for e in ALL)
    assert {e.slug for e in ALL} == {slug for slug in SLUGS if slug in CHAPTERS}


def test_topics_name_what_exists_and_are_all_used():
    named = set(read_topics())
    assert not (gone := named - {e.label for e in ALL} - set(CHAPTERS)), gone
    source = (BOOK / "topics.yml").read_text(encoding="utf-8")
    topics = re.findall(r"^  \w+: (\w.*)$", source.partition("chapters:")[0], re.M)
    assert not (idle := set(topics) - {t for e in ALL for t in e.topics}), idle


# --- the test notices what it is for ---


@pytest.mark.parametrize("heading", ["★ Think. A word", "Code, 5 min. Sum", "★★ Guess, 5 min. X"])
def test_a_heading_without_kind_stars_or_minutes_is_refused(heading):
    with pytest.raises(EditionError, match="write the exercise"):
        told(replace(ALL[0], heading=heading))


def test_a_chapter_that_does_not_climb_is_noticed():
    some = of(CHAPTERS[0])
    assert climbs(some) and not climbs(some[::-1])
    assert not built_something([e for e in some if e.stars < 3])
    short = [replace(e, code=e.code[:9]) for e in some]
    assert not built_something(short)
    assert lines("# note\n\nx = 1\n_ = checks.check_x(x)") == ["x = 1"]
