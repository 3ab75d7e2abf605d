"""Write the exam of a class: ``PYTHONPATH=scripts python -m exam FOLDER`` (`make instructor`).

The class's word is ``PRIVFL_CLASS_SECRET``; without one the numbers are those of everybody.
"""

from __future__ import annotations

import random
import sys
from html import escape
from pathlib import Path

from editions.numbers import read_index

from privfl_lite.teach.classroom import PUBLIC, secret, seed

from .questions import MAKERS, Question

ROOT = Path(__file__).resolve().parents[2]
STYLE = """
  body { font: 11.5pt/1.5 Georgia, serif; color: #1b2733; }
  body { max-width: 42em; margin: 2em auto; padding: 0 1em; }
  h1 { font-size: 1.5em; margin: 0 0 0.3em; } h2 { font-size: 1.1em; margin: 1.6em 0 0.3em; }
  .about { color: #51606d; } .space { height: 9em; border-bottom: 1px dotted #9aa7b3; }
  section { break-inside: avoid; } .answer { background: #eef3f7; padding: 0.6em 0.9em; }
  ul { margin: 0.4em 0 0; } @page { size: A4; margin: 20mm; }
"""


def exam(word: str) -> list[Question]:
    """All questions with the numbers that follow from a class's word."""
    return [make(random.Random(seed(word, "exam", make.__name__))) for make in MAKERS]


def section(number: int, question: Question, chapter: str, rubric: bool) -> str:
    head = f"{number}. {escape(question.name)} ({question.points} points, {question.minutes} min)"
    parts = [f"<h2>{head}</h2><p>{escape(question.text)}</p>"]
    if rubric:
        lines = "".join(
            f"<li>{n} point{'s' * (n > 1)}: {escape(s)}</li>" for n, s in question.rubric
        )
        about = f"<p class='about'>Taught in Chapter {chapter}.</p>"
        answer = f"<p><strong>Answer.</strong> {escape(question.answer)}</p><ul>{lines}</ul>"
        parts.append(f"<div class='answer'>{answer}{about}</div>")
    else:
        parts.append("<div class='space'></div>")
    return f"<section>{''.join(parts)}</section>"


def page(questions: list[Question], rubric: bool) -> str:
    """One self-contained page, for paper: the questions, or these with answers and points."""
    chapters = read_index(ROOT).chapters
    points, minutes = sum(q.points for q in questions), sum(q.minutes for q in questions)
    title = "Exam: what gradients give away" + (", with answers" if rubric else "")
    about = f"{minutes} minutes, {points} points. A calculator and a sheet of notes are allowed."
    normal = "Φ is the normal distribution function; bring its table." if not rubric else ""
    body = "".join(section(i, q, chapters[q.chapter], rubric) for i, q in enumerate(questions, 1))
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>"
        f'<p class="about">{about} {normal}</p>{body}</body></html>\n'
    )


def main(folder: Path) -> int:
    word, made = secret(), []
    folder.mkdir(parents=True, exist_ok=True)
    for name, rubric in (("exam", False), ("exam-rubric", True)):
        path = folder / f"{name}.html"
        path.write_text(page(exam(word), rubric), encoding="utf-8")
        made.append(path.name)
    print(f"{' and '.join(made)} are in {folder}; a browser prints them")
    if word == PUBLIC:
        print("Their numbers are those of everybody: SECRET=… draws numbers of your own.")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:2] or ["_build/instructor"])))
