"""The instructor guide keeps step with the book: goals, plans, misconceptions, labs, the exam."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest
from chapters import INDEX, SLUGS
from checkout import BOOK, ROOT
from editions import teaching
from exam.__main__ import exam, page

import privfl_lite as pf
from privfl_lite.challenges.registry import CHALLENGES
from privfl_lite.teach.classroom import PUBLIC

DATA = teaching.read_teaching()
EXERCISES = teaching.exercises()
LABS = teaching.labs()
PLANS = teaching.plans()
GUIDE = (BOOK / "instructors.md").read_text(encoding="utf-8")


def test_every_chapter_and_every_lab_serves_a_goal_that_exists():
    chapters = {slug for goal in DATA["goals"] for slug in goal["chapters"]}
    assert chapters == {slug for slug in SLUGS if slug != "intro"}
    labs = {slug for goal in DATA["goals"] for slug in goal["labs"]}
    assert labs == set(LABS)
    played = [name for goal in DATA["goals"] for name in goal.get("challenges", [])]
    assert sorted(played) == sorted(CHALLENGES)


@pytest.mark.parametrize("goal", DATA["goals"], ids=lambda g: g["can"][:40])
def test_a_goal_is_practiced_in_its_own_chapters_and_climbs(goal):
    tasks = [EXERCISES[label] for label in goal["exercises"]]
    known = {*goal["chapters"]}
    assert sum(task.slug in known for task in tasks) >= len(tasks) - 1  # one may come from beside
    assert max(task.stars for task in tasks) >= 2 and goal["labs"]
    assert len(tasks) >= 3


def test_every_exercise_of_the_book_is_read():
    written = re.compile(r"\{exercise(?:-start)?\} ★")
    count = sum(
        len(written.findall((BOOK / "src" / f"{slug}.md").read_text(encoding="utf-8")))
        for slug in SLUGS
    )
    assert len(EXERCISES) == count > 150
    assert {task.kind for task in EXERCISES.values()} == {"Think", "Prove", "Code"}


@pytest.mark.parametrize("plan", PLANS.values(), ids=lambda p: p.label)
def test_a_plan_fits_its_time_and_stands_in_the_guide(plan):
    assert f"```{{plan}} {plan.label}" in GUIDE
    for unit in plan.units:
        assert 0 < unit.together <= unit.minutes <= plan.most, (unit.name, unit.minutes)


def test_the_guest_lecture_takes_exactly_ninety_minutes_and_the_term_ten_weeks():
    assert sum(unit.together for unit in PLANS["guest-lecture"].units) == 90
    assert len(PLANS["ten-weeks"].units) == 10


def test_the_term_reads_chapters_in_an_order_in_which_each_has_what_it_needs():
    numbers = [int(s.number) for unit in PLANS["ten-weeks"].units for s in (*unit.read, *unit.skim)]
    assert len(set(numbers)) == len(numbers)
    seen: set[str] = set()
    for unit in PLANS["ten-weeks"].units:
        now = {*unit.read, *unit.skim}
        seen |= {stop.number for stop in now}
        assert all(set(stop.needs) <= seen for stop in now), unit.name


@pytest.mark.parametrize("wrong", DATA["misconceptions"], ids=lambda w: w["thinks"][:40])
def test_a_misconception_is_caught_by_the_words_of_its_check(wrong, capsys):
    exec(compile(teaching.believed(wrong), wrong["exercise"], "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("Not yet") and wrong["says"] in said, said


def test_a_misconception_must_be_in_the_solution():
    wrong = DATA["misconceptions"][0] | {"instead": [["no such words", ""]]}
    with pytest.raises(teaching.EditionError, match="is not once in its solution"):
        teaching.believed(wrong)


def read(pattern: str, text: str) -> tuple[float, ...]:
    """The numbers of a question as a student reads them."""
    found = re.search(pattern, text)
    assert found, text
    return tuple(map(float, found.groups()))


@pytest.mark.parametrize("word", ["a class", "another class"])
def test_the_exam_takes_two_hours_and_its_answers_are_those_of_the_package(word):
    made = exam(word)
    assert sum(q.minutes for q in made) == 120
    assert all(q.points == sum(n for n, _ in q.rubric) > 0 for q in made)
    assert {q.chapter for q in made} <= set(SLUGS)
    found = {q.name: q for q in made}
    naming = found["How often can anybody name it?"]
    sigma, of = read(r"deviation ([\d.]+) C.* has (\d+)", naming.text)
    assert naming.numbers[0] == pytest.approx(pf.privacy.success_bound(1 / of, sigma), abs=1e-6)
    zeros = found["Nothing found"]
    (tries,) = read(r"0 of (\d+) pictures", zeros.text)
    assert zeros.numbers[0] == pytest.approx(pf.metrics.wilson(0, int(tries))[1])
    update = found["An update is no gradient"]
    steps, momentum = read(r"takes (\d+) steps.*momentum ([\d.]+),? ", update.text)
    plan = pf.Plan(steps=int(steps), momentum=momentum)
    assert update.numbers[0] == pytest.approx(sum(plan.step_weights(int(steps))))
    clients, away = read(r"(\d+) clients use.*Up to (\d+) ", found["A share of the noise"].text)
    mine, owed = found["A share of the noise"].numbers
    assert owed / mine == pytest.approx(math.sqrt(clients / (clients - away)))


def test_labels_and_pixels_of_the_exam_follow_from_what_is_printed():
    found = {q.name: q for q in exam("a class")}
    labels = found["Count the labels"]
    batch = int(re.findall(r"A batch of (\d+)", labels.text)[0])
    bias = [float(v) for v in re.findall(r"gradient \(([^)]*)\)", labels.text)[0].split(",")]
    assert [round(batch * (0.25 - b)) for b in bias] == list(labels.numbers)
    division = found["One division"]
    first = [float(v) for v in re.findall(r"are \(([^)]*)\)", division.text)[0].split(",")]
    slope = float(re.findall(r"gradient is \(([-\d.]+)", division.text)[0])
    assert [v / slope for v in first] == pytest.approx(list(division.numbers), abs=0.01)


def test_a_class_has_numbers_of_its_own_and_the_questions_hide_the_answers():
    mine, theirs = exam("a class"), exam("another class")
    assert [q.text for q in mine] != [q.text for q in theirs]
    assert [q.text for q in mine] == [q.text for q in exam("a class")]
    questions, rubric = page(mine, False), page(mine, True)
    assert not any(q.answer[:40] in questions for q in mine)
    assert all(q.rubric[0][1].split("'")[0] in rubric for q in mine)
    assert "a class" not in rubric and "http" not in questions + rubric


def test_the_exam_is_written_for_a_class(tmp_path):
    said = subprocess.run(
        [sys.executable, "-m", "exam", str(tmp_path)],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}", "PRIVFL_CLASS_SECRET": PUBLIC},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "SECRET=" in said
    assert {p.name for p in tmp_path.iterdir()} == {"exam.html", "exam-rubric.html"}


def test_the_exam_is_not_on_the_site():
    for slug in INDEX.chapters:
        pages = [BOOK / f"{slug}.md", BOOK / "src" / f"{slug}.md"]
        text = "".join(p.read_text(encoding="utf-8") for p in pages if p.is_file())
        assert not any(q.answer in text for q in exam(PUBLIC))
