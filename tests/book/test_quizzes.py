"""Questions on each part: their form, what wrong answers are told, and the numbers in them."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter

import pytest
from chapters import INDEX
from checkout import BOOK, ROOT, toc_files
from editions.paths import parts

from privfl_lite.metrics import wilson
from privfl_lite.privacy.one_run import audit_p_value

sys.path.insert(0, str(BOOK / "_ext"))
import quiz

PARTS = {f"part-{number}": caption for number, caption in enumerate(parts(), 1)}
CHAPTER = re.compile(r"\{doc\}`([\w-]+)`")


def questions(name: str) -> list[dict]:
    return quiz.load(name)["questions"]


def wrong(question: dict) -> list[dict]:
    return [answer for answer in question["answers"] if "wrong" in answer]


@pytest.mark.parametrize("name", PARTS)
def test_each_part_has_its_questions_on_the_page(name):
    assert 8 <= len(questions(name)) <= 12
    about, caption = quiz.load(name)["about"], PARTS[name]
    assert about == "Part " + caption.replace(" · ", ", ")
    page = (BOOK / "quizzes.md").read_text(encoding="utf-8")
    assert f"```{{quiz}} {name}\n" in page and f"(quiz-{name})=\n" in page
    projects = (BOOK / "projects.md").read_text(encoding="utf-8")
    assert f"(project-{name})=\n" in projects  # the line below a part's last chapter leads there


@pytest.mark.parametrize("name", PARTS)
def test_a_wrong_answer_says_what_is_wrong_and_where_to_read(name):
    told = []
    for question in questions(name):
        assert len(wrong(question)) >= 2
        for answer in wrong(question):
            read = CHAPTER.findall(answer["why"])
            assert read, answer["wrong"]
            assert all(INDEX.chapters.get(slug) for slug in read), read
            assert len(answer["why"].split()) >= 8, answer["why"]
        told += [answer["why"] for answer in question["answers"]]
    assert len(set(told)) == len(told), "every answer has a reason of its own"


@pytest.mark.parametrize("name", PARTS)
def test_a_quiz_is_about_its_part_and_the_right_answer_has_no_place(name):
    part = list(parts().values())[list(PARTS).index(name)]
    read = {s for q in questions(name) for a in wrong(q) for s in CHAPTER.findall(a["why"])}
    assert len(read & set(part)) >= len(part) / 2
    places = Counter(
        next(i for i, a in enumerate(q["answers"]) if "right" in a) for q in questions(name)
    )
    assert len(places) == 4 and max(places.values()) <= len(questions(name)) / 2


@pytest.mark.parametrize("name", PARTS)
def test_answers_can_be_buttons(name):
    """No link and no formula in an answer: what the keyboard reaches stands in no button."""
    for question in questions(name):
        for answer in question["answers"]:
            text = answer.get("right") or answer.get("wrong")
            assert not re.search(r"\$|\{\w+\}`", text), text


def test_a_quiz_without_a_right_answer_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(quiz, "QUIZZES", tmp_path)
    whole = "about: x\nquestions:\n- ask: Why?\n  answers:\n"
    for answers, says in (
        ("  - {wrong: a, why: b}\n  - {wrong: c, why: d}\n", "one answer is right"),
        ("  - {right: a, why: b}\n  - {wrong: c, why: ''}\n", "has a reason"),
    ):
        (tmp_path / "bad.yml").write_text(whole + answers, encoding="utf-8")
        with pytest.raises(ValueError, match=says):
            quiz.load("bad")


def test_the_last_chapter_of_each_part_leads_to_its_questions():
    last = quiz.last_chapters()
    assert list(last.values()) == list(range(1, len(PARTS) + 1))
    assert set(last) <= set(toc_files()) and "book/quizzes" in toc_files()
    assert [p.removeprefix("book/") for p in last] == [slugs[-1] for slugs in parts().values()]


def test_numbers_in_questions_are_right():
    text = "".join((ROOT / f"book/quiz/{name}.yml").read_text(encoding="utf-8") for name in PARTS)

    def said(words: str) -> bool:
        return words in text

    assert said("about 28 % of such") and round(100 * wilson(0, 10)[1]) == 28
    assert said("up to 24 %") and round(100 * wilson(0, 12)[1]) == 24
    assert said("one in five has nothing to show in one of ten") and 0.09 < 0.8**10 < 0.12
    assert said("up to about 3,000") and round(math.exp(8), -3) == 3000
    assert said("σ = 8") and 8 / math.sqrt(64) == 1
    assert said("at least about 1.05")
    assert audit_p_value(1.04, 10, 10, 10, 0.0) < 0.05 < audit_p_value(1.06, 10, 10, 10, 0.0)
    assert said("right on all training images and on 80 %") and 0.5 + (1 - 0.8) / 2 == 0.6
