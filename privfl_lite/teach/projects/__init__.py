"""Four projects, one for each part of the book, and their scores (page: Four projects).

    pf.teach.projects.score("part-1", attack)      # 0 to 100 points, with what they are for

What is scored on is drawn afresh each time, from ``seed`` if one is given.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from ...runtime import choose
from .auditing import judge_audit
from .points import Score
from .surviving import judge_defense
from .training import judge_plan
from .uploads import judge_attack

PROJECTS: dict[str, Callable[[Any, int], Score]] = {
    "part-1": judge_attack,
    "part-2": judge_plan,
    "part-3": judge_defense,
    "part-4": judge_audit,
}


def score(project: str, answer: Any, seed: int | None = None) -> Score:
    """Score an answer to a project: "part-1" to "part-4".

    An answer that is none of the kind that the project asks for is refused in one sentence. Code
    that raises gets no points where it raised, and its line is named.
    """
    choose("project", project, PROJECTS)
    draw = secrets.randbelow(2**31) if seed is None else seed
    return PROJECTS[project](answer, draw)


__all__ = ["PROJECTS", "Score", "score"]
