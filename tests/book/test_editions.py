"""Editions: every committed notebook is what its source gives, with the numbers of the pages."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path

import pytest
from chapters import INDEX, SLUGS, SOURCES, read, text
from checkout import BOOK, NOTEBOOKS, ROOT, STUDENT, toc_files
from editions import copies, executed, times
from editions.__main__ import dump, editions, load
from editions.chapter import Cell
from editions.myst import EditionError
from editions.numbers import Index, Target, named
from editions.plain import Writer

# --- up to date ---


@pytest.mark.parametrize("slug", SLUGS)
def test_notebooks_are_what_the_source_gives(slug, monkeypatch):
    def refuse(*_):
        pytest.fail(f"code of book/src/{slug}.md changed: make chapters CHAPTER={slug}")

    monkeypatch.setattr(executed, "execute", refuse)
    for path, whole in editions(slug, INDEX).items():
        same = path.is_file() and path.read_text(encoding="utf-8") == whole
        assert same, f"{path.relative_to(ROOT)} is out of date: make chapters CHAPTER={slug}"


def test_every_notebook_has_a_source():
    assert {p.stem for p in NOTEBOOKS} == {p.stem for p in STUDENT} == set(SLUGS)
    assert {p.stem for p in SOURCES.glob("*.md")} == set(SLUGS)


def test_generated_files_are_marked():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git working tree")
    for name in ("book/dcs2.ipynb", "book/student/dcs2.ipynb", "book/src/dcs2.md"):
        command = ["git", "check-attr", "linguist-generated", "diff", "--", name]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
        marked = "linguist-generated: set" in said and "diff: unset" in said
        assert marked == name.endswith(".ipynb"), said


SAMPLE = """\
# A title

```{exercise} ★ Think, 5 min. A question
:label: ex-dcs2-alarm

Why?
```

:::{hint}
Look at $x$.
:::

```{solution} ex-dcs2-alarm
Because.
```

:::{grading} ex-dcs2-alarm
One point for the reason.
:::

```{code-cell}
1 + 1
```
"""


def chapter(folder: Path, whole: str = SAMPLE) -> list:
    (folder / "sample.md").write_text(whole, encoding="utf-8")
    return read(folder / "sample.md")


def test_hint_is_folded_and_rubric_is_for_instructors_only(tmp_path):
    cells = chapter(tmp_path)
    plain = text(copies.make("dcs2", cells, INDEX, 1, "student"))
    name = INDEX.find("ex-dcs2-alarm").name
    assert f"> **{name}** (★ Think, 5 min. A question).\n>\n> Why?" in plain
    assert "<details><summary>Hint</summary>\n\nLook at $x$.\n\n</details>" in plain
    assert "Because" not in plain and "One point" not in plain
    whole = text(copies.make("dcs2", cells, INDEX, 1, "instructor"))
    assert f"> **Rubric for {name}.**\n>\n> One point for the reason." in whole
    assert "Because." in whole and "Not written yet" not in whole
    page = executed.text(cells[0], cells, 1)
    assert "One point" not in page and "Because." in page


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{hint}", "{seealso}", "knows the directive 'seealso'"),
        ("Look at $x$", "{download}`x`", "knows the role 'download'"),
        ("ex-dcs2-alarm", "ex-nowhere", "no chapter has the label 'ex-nowhere'"),
        ("{code-cell}\n", "{code-cell}\n:tags: [solution]\n", "solution-start disagree"),
        (":::\n\n```{sol", "\n```{sol", "does not end"),
        (":label: ex-dcs2-alarm", "---\nlabel: ex-dcs2-alarm\n---", "as lines `:key: value`"),
    ],
)
def test_faulty_source_is_refused(tmp_path, old, new, says):
    with pytest.raises(EditionError, match=says):
        copies.make("dcs2", chapter(tmp_path, SAMPLE.replace(old, new)), INDEX, 1, "student")


def test_equations_and_sections_become_links():
    whole = "(sec-a)=\n## Why\n\n$$\nx\n$$ (eq-x)\n\nBy {eq}`eq-x` in {ref}`sec-a`."
    assert named(Cell("markdown", whole)) == [("Section", "sec-a", "Why"), ("Eq.", "eq-x", "")]
    index = Index("https://a.org")
    index.targets["eq-x"] = Target("Eq.", "3.1", "", "page")
    index.targets["sec-a"] = Target("Section", "", "Why", "page")
    page = "https://a.org/book/page.html"
    said = f"By [(3.1)]({page}#equation-eq-x) in [Why]({page}#sec-a)."
    assert Writer(index, "page").text(whole).strip() == f"## Why\n\n$$x \\tag{{3.1}}$$\n\n{said}"


# --- small diffs ---


def changed(slug: str, whole: str, folder: Path) -> dict[str, str]:
    """The three committed files of a chapter with this source."""
    (folder / f"{slug}.md").write_text(whole, encoding="utf-8")
    cells = read(folder / f"{slug}.md")
    full = executed.make(slug, cells, load(BOOK / f"{slug}.ipynb"))
    copied = copies.make(slug, cells, INDEX, full["metadata"]["privfl"]["seconds"], "student")
    return {f"{slug}.md": whole, f"{slug}.ipynb": dump(full), f"student/{slug}.ipynb": dump(copied)}


def test_ten_changed_lines_make_a_small_diff(tmp_path, monkeypatch):
    """Ten lines of text in two places: 20 lines to review, and outputs stay as they are."""
    monkeypatch.setattr(executed, "execute", lambda *_: pytest.fail("text only: nothing to run"))
    (tmp_path / "student").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    before = (SOURCES / "dcs2.md").read_text(encoding="utf-8")
    lines = before.split("\n")
    places = [i for i, line in enumerate(lines) if line.startswith("* ")]
    for i in (*places[:5], *places[-5:]):
        lines[i] += " And so on."
    attributes = "*.ipynb -diff\n"
    for whole in (before, "\n".join(lines)):
        for name, file in changed("dcs2", whole, tmp_path).items():
            (tmp_path / name).write_text(file, encoding="utf-8")
        (tmp_path / ".gitattributes").write_text(attributes)
        if whole == before:
            subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)

    def diff(*options: str) -> list[str]:
        command = ["git", "diff", "-U0", *options]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return re.findall(r"(?m)^[+-](?![+-]{2} ).*", said.stdout)

    assert len(diff()) == 20
    everything = diff("--text")
    assert sum(line[0] == "+" for line in everything) < 60
    assert sum(line[0] == "-" for line in everything) < 60
    assert not [line for line in everything if "image/png" in line or '"text"' in line]


@pytest.mark.parametrize(("before", "after"), [(50, 50), (20, 60), (0, 60)])
def test_changed_code_is_run_and_its_time_kept_while_it_reads_the_same(
    tmp_path, monkeypatch, before, after
):
    """50 and 60 seconds are both "about a minute": the stored number stays, so does the file."""
    said = {"output_type": "stream", "name": "stdout", "text": ["2"]}
    ran = {"cell_type": "code", "execution_count": 1, "outputs": [said], "source": "1 + 1"}
    calls = []

    def execute(code):
        calls.append([c.source for c in code])
        return {"cells": [ran], "metadata": {}}, 60

    monkeypatch.setattr(executed, "execute", execute)
    old = {"cells": [{**ran, "source": "1 + 0"}], "metadata": {"privfl": {"seconds": before}}}
    made = executed.make("dcs2", cells := chapter(tmp_path), old)
    assert calls == [["1 + 1"]] and made["cells"][-1]["outputs"] == [said]
    assert made["metadata"]["privfl"]["seconds"] == after
    assert executed.make("dcs2", cells, made) == made and len(calls) == 1
    assert executed.make("dcs2", cells, made, rerun=True) == made and len(calls) == 2


def test_times_are_computed():
    words = " ".join(["word"] * 2000)
    proof = "```{prf:proof}\nNot a word of it.\n```"
    cells = [Cell("markdown", f"{words}\n\n{proof}"), Cell("code", "x = 1\n" * 30)]
    cells += [Cell("code", "y = 1\n" * 99, {"tags": ["hide-input"]})]
    cells += [Cell("markdown", f"## Exercises\n\n{words}"), Cell("code", "z = 1\n" * 99)]
    assert times.reading(cells) == (10, 10 + 3 + 2)
    said = "{{skim}} {{study}} {{running}}"
    assert times.fill(said, cells, 61) == "10 15 about a minute"
    spoken = [times.running(s) for s in (3, 30, 89, 130)]
    assert spoken == ["seconds", "under a minute", "about 1 ½ minutes", "about 2 minutes"]


# --- ids ---


def shuffled(notebook: dict, salt: str) -> dict:
    """The notebook as another run would leave it: other widget ids, in another order."""
    state = notebook["metadata"]["widgets"][executed.WIDGETS]["state"]
    found = json.dumps(notebook)
    for model in state:
        found = found.replace(model, f"{hash((salt, model)) & (2**128 - 1):032x}")
    made = json.loads(found)
    state = made["metadata"]["widgets"][executed.WIDGETS]["state"]
    made["metadata"]["widgets"][executed.WIDGETS]["state"] = dict(sorted(state.items()))
    return made


@pytest.mark.parametrize("slug", ["intro", "dcs2"])
def test_widget_ids_do_not_depend_on_the_run(slug):
    notebook = load(BOOK / f"{slug}.ipynb")
    for salt in "ab":
        other = shuffled(copy.deepcopy(notebook), salt)
        state = executed.stable(slug, other["metadata"]["widgets"], other["cells"])
        assert state == notebook["metadata"]["widgets"]
        assert other["cells"] == notebook["cells"]


def test_cell_ids_are_unique_and_follow_from_the_text():
    for path in (*NOTEBOOKS, *STUDENT):
        ids = [c["id"] for c in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        assert len(ids) == len(set(ids))


# --- the same numbers on the pages ---


@pytest.mark.book
def test_pages_have_the_same_numbers(tmp_path_factory):
    from chromium import shared_site

    site = shared_site(tmp_path_factory)
    compared = 0
    pages = {s: (site / "book" / f"{s}.html").read_text(encoding="utf-8") for s in SLUGS}
    for label, target in INDEX.targets.items():
        if target.kind in ("Section", "Chapter", "Eq."):
            continue
        block = re.search(
            rf'id="{label}".*?caption-number">(?P<name>[^<]+)<', pages[target.slug], re.S
        )
        assert block and " ".join(block["name"].split()) == target.name, (label, target)
        compared += 1
    assert compared > 350
    for slug, number in INDEX.chapters.items():
        if number:
            assert re.search(rf'<h1><span class="section-number">{number}\.', pages[slug])
    links = re.findall(
        r'href="([\w-]+)\.html#[\w-]+"><span class="std std-numref">Chapter (\d+)<',
        "".join(pages.values()),
    )
    assert links and all(INDEX.chapters[slug] == number for slug, number in links)


def test_chapters_are_numbered_in_the_order_of_the_book():
    order = [f.removeprefix("book/") for f in toc_files()]
    numbered = [slug for slug in order if INDEX.chapters[slug]]
    assert [INDEX.chapters[slug] for slug in numbered] == [str(i + 1) for i in range(len(numbered))]
    assert set(numbered) == set(SLUGS) - {"intro"}
