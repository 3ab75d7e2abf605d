"""Questions in a real browser: a wrong choice is told why, a right one is praised and counted.

By mouse, by keyboard alone, at 390 px, without a script, on paper. And the table of all exercises.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chapters import INDEX
from chromium import serve, shared_site
from editions.exercises import exercises

pytestmark = [pytest.mark.book, pytest.mark.browser]
ALL = list(exercises(INDEX))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[str]:
    with serve(shared_site(tmp_path_factory)) as address:
        yield address


@pytest.fixture
def open_page(chromium, site):
    opened = []

    def open_one(name: str, **how):
        page = chromium.new_page(**{"viewport": {"width": 1280, "height": 900}, **how})
        opened.append(page)
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.route(lambda url: not url.startswith(site), lambda route: route.abort())
        page.goto(f"{site}/book/{name}.html", wait_until="load")
        return page

    yield open_one
    for page in opened:
        page.close()


def first(page):
    """The first question of Part I."""
    return page.locator(".pf-quiz").first.locator(".pf-question").first


def button(question, kind: str, which: int = 0):
    return question.locator(f"li[data-kind={kind}] > button").nth(which)


def score(page) -> str:
    return page.locator(".pf-score").first.inner_text()


def test_a_wrong_choice_is_told_why_and_a_right_one_is_praised(open_page):
    page = open_page("quizzes")
    question = first(page)
    told = question.locator("[role=status]")
    assert not question.locator("details").is_visible() and told.inner_text() == ""
    button(question, "wrong", 1).click()
    assert told.inner_text().startswith("Not (b).") and "Encryption" in told.inner_text()
    assert "not this one" in button(question, "wrong", 1).inner_text()
    assert score(page).startswith("0 of 11 answered")
    button(question, "right").click()
    assert told.inner_text().startswith("Right.")
    assert score(page).startswith("1 of 11 answered, 0 at the first try")
    before = question.inner_html()
    button(question, "wrong", 0).dispatch_event("click")  # settled
    assert question.inner_html() == before and not page.errors


def test_all_right_is_praised_and_mistakes_say_what_to_read(open_page):
    page = open_page("quizzes")
    quiz = page.locator(".pf-quiz").nth(1)
    for answer in quiz.locator("li[data-kind=right] > button").all():
        answer.click()
    said = quiz.locator(".pf-score").inner_text()
    assert said == "10 of 10 answered, 10 at the first try. All right at the first try."
    quiz.locator(".pf-again").click()
    assert "0 of 10" in quiz.locator(".pf-score").inner_text()
    assert quiz.locator(".pf-yes, .pf-no, .pf-mark").count() == 0
    assert quiz.locator(".pf-question button").first.evaluate("b => b === document.activeElement")
    quiz.locator("li[data-kind=wrong] > button").first.click()
    for answer in quiz.locator("li[data-kind=right] > button").all():
        answer.click()
    links = quiz.locator(".pf-score a")
    assert "Well done. Read again:" in quiz.locator(".pf-score").inner_text()
    assert links.evaluate_all("all => all.map(a => a.getAttribute('href'))") == [
        "first-answers.html"
    ]


def test_questions_are_answered_by_keyboard_alone(open_page):
    page = open_page("quizzes")
    question = first(page)
    first_button = question.locator("button").first
    for _ in range(400):  # through the sidebar, to the first question
        page.keyboard.press("Tab")
        if first_button.evaluate("b => b === document.activeElement"):
            break
    outline = first_button.evaluate("b => getComputedStyle(b).outlineStyle")
    assert outline == "solid", "where the focus is can be seen"
    page.keyboard.press("Enter")
    assert "Not (a)." in question.locator("[role=status]").inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert "Right." in question.locator("[role=status]").inner_text()
    assert button(question, "right").get_attribute("aria-disabled") == "true"
    name = question.get_attribute("aria-labelledby")
    assert page.locator(f"#{name}").inner_text().startswith("1.")


def test_questions_fit_a_phone(open_page):
    page = open_page("quizzes", viewport={"width": 390, "height": 800})
    button(first(page), "wrong").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for box in first(page).locator("button").all():
        size = box.bounding_box()
        assert size["x"] >= 0 and size["x"] + size["width"] <= 390 and size["height"] >= 24


def test_without_a_script_answers_are_folded_below(open_page):
    page = open_page("quizzes", java_script_enabled=False)
    question = first(page)
    assert question.locator("button").count() == 0
    question.locator("summary").click()
    folded = question.locator("details").inner_text()
    assert "Right is (c)." in folded and "Encryption of the line" in folded
    assert question.locator("details a").count() == 3


def test_on_paper_questions_have_their_answers(open_page):
    page = open_page("quizzes")
    button(first(page), "wrong").click()
    page.emulate_media(media="print")
    question = first(page)
    assert question.locator("details").is_visible()
    assert not question.locator("[role=status]").is_visible()
    assert not page.locator(".pf-score").first.is_visible()


def test_the_last_chapter_of_a_part_leads_to_its_questions(open_page):
    page = open_page("membership")
    links = page.locator(".pf-part-end a")
    found = links.evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert found == ["quizzes.html#quiz-part-1", "projects.html#project-part-1"]


# --- all exercises ---


def rows(page) -> int:
    return page.evaluate(
        "[...document.querySelectorAll('.pf-exercises tbody tr')].filter(r => r.checkVisibility())"
        ".length"
    )


def choose(page, head: str, value: str) -> None:
    page.locator(".ledger-filter label", has_text=head).locator("select").select_option(value)


def test_exercises_are_narrowed_by_kind_stars_and_topic(open_page):
    page = open_page("exercises")
    assert rows(page) == len(ALL)
    choose(page, "Kind", "Code")
    choose(page, "Stars", "★★★")
    hard = [e for e in ALL if e.kind == "Code" and e.stars == 3]
    assert rows(page) == len(hard) > 20
    topic = hard[0].topics[0]
    choose(page, "Topic", topic)
    assert rows(page) == sum(topic in e.topics for e in hard)
    assert page.locator("output").inner_text() == f"{rows(page)} of {len(ALL)} rows"


def test_exercises_sort_by_minutes_and_lead_to_their_places(open_page):
    page = open_page("exercises")
    page.locator("thead button", has_text="Minutes").click()
    page.locator("thead button", has_text="Minutes").click()
    cells = page.locator(".pf-exercises tbody tr").first.locator("td").all_inner_texts()
    assert cells[3] == str(max(e.minutes for e in ALL))
    page.locator(".pf-exercises tbody tr").first.locator("a").first.click()
    page.wait_for_url("**#ex-*")
    target = page.locator(f"[id='{page.url.partition('#')[2]}']")
    assert "exercise" in target.get_attribute("class") and not page.errors


def test_exercises_are_a_plain_table_without_a_script(open_page):
    page = open_page("exercises", java_script_enabled=False)
    assert rows(page) == len(ALL) and page.locator(".pf-exercises :is(button, select)").count() == 0


def test_exercises_fit_a_phone(open_page):
    page = open_page("exercises", viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
