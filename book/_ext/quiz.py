"""Questions to test oneself: ``{quiz} part-1`` makes them from book/quiz/part-1.yml.

Each question has one right answer and several wrong ones, each with its reason in MyST. The page
has all of it as plain text, with the reasons folded (HTML's ``details``), so that it is read and
printed without a script; quiz.js makes answers into buttons and counts.

At the end of each part's last chapter a line leads to its questions and its project.
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import Any

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
QUIZZES = ROOT / "book" / "quiz"
KINDS = ("right", "wrong")


def html(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


def load(name: str) -> dict[str, Any]:
    """A quiz; ValueError says in one sentence what its file lacks."""
    found = yaml.safe_load((QUIZZES / f"{name}.yml").read_text(encoding="utf-8"))
    for question in found["questions"]:
        kinds = [k for answer in question["answers"] for k in KINDS if k in answer]
        if len(kinds) != len(question["answers"]) or kinds.count("right") != 1:
            raise ValueError(f"one answer is right, and each is right or wrong: {question['ask']}")
        if not all(answer.get("why") for answer in question["answers"]):
            raise ValueError(f"each answer has a reason: {question['ask']}")
    return found


class Quiz(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        self.env.note_dependency(str(QUIZZES / f"{name}.yml"))
        try:
            quiz = load(name)
        except (OSError, ValueError) as error:
            raise self.error(str(error)) from error
        about = quiz["about"]
        made = [html(f'<div class="pf-quiz" role="group" aria-label="Questions on {about}">')]
        for number, question in enumerate(quiz["questions"], 1):
            made += self.question(f"{name}-{number}", number, question)
        return [*made, html("</div>")]

    def question(self, label: str, number: int, question: dict[str, Any]) -> list[nodes.Node]:
        ask, answers = f"quiz-{label}", question["answers"]
        made = [
            html(f'<div class="pf-question" role="group" aria-labelledby="{ask}">'),
            html(f'<p class="pf-ask" id="{ask}"><strong>{number}.</strong> '),
            *self.text(question["ask"]),
            html('</p><ol class="pf-choices" type="a">'),
        ]
        for answer in answers:
            kind = "right" if "right" in answer else "wrong"
            made += [html(f'<li data-kind="{kind}">'), *self.text(answer[kind]), html("</li>")]
        right = next(i for i, answer in enumerate(answers) if "right" in answer)
        made.append(
            html(
                '</ol><details class="pf-answers"><summary>Answers, with reasons</summary>'
                f'<p>Right is ({ascii_lowercase[right]}).</p><ol type="a">'
            )
        )
        for answer in answers:
            made += [html("<li>"), *self.text(answer["why"]), html("</li>")]
        return [*made, html("</ol></details></div>")]

    def text(self, source: str) -> list[nodes.Node]:
        """A line of MyST, with its roles and formulas."""
        found, _ = self.state.inline_text(source, self.lineno)
        return [nodes.inline("", "", *found)]


def last_chapters() -> dict[str, int]:
    """Last page of each numbered part of _toc.yml -> number of the part."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [part for part in toc.get("parts", []) if part.get("numbered")]
    return {part["chapters"][-1]["file"]: number for number, part in enumerate(parts, 1)}


def link(label: str, words: str, page: str) -> nodes.Node:
    found = addnodes.pending_xref(
        "", nodes.inline("", words), refdomain="std", reftype="ref", refexplicit=True
    )
    found["reftarget"], found["refdoc"], found["refwarn"] = label, page, True
    return found


def end_part(app: Sphinx, doctree: nodes.document) -> None:
    """A line below the last chapter of a part."""
    page = app.env.docname
    if (number := last_chapters().get(page)) is None:
        return
    section = next(iter(doctree.findall(nodes.section)))
    line = nodes.paragraph("", "This was the last chapter of its part. ", classes=["pf-part-end"])
    line += link(f"quiz-part-{number}", "Test yourself", page)
    line += nodes.Text(", or take an afternoon for ")
    line += link(f"project-part-{number}", "its project", page)
    line += nodes.Text(".")
    section += line


def add_script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree) -> None:
    if doctree is not None and "pf-quiz" in context.get("body", ""):
        app.add_js_file("quiz.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("quiz", Quiz)
    app.connect("doctree-read", end_part)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
