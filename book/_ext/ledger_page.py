"""Two directives that show the ledger at build time, so that the page is never stale.

``{ledger-dashboard}``: a bar of verdicts for each paper, and the form that ``ledger.js`` brings to
life. ``{ledger} modelcloak``: the entries of one paper, each folded (HTML's ``details``), so that
the page also works without a script. Our values are read from the stored results by the ledger's
own code (privfl_lite/teach/ledger.py).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import privfl_lite
from privfl_lite.teach import ledger

RESULTS = Path(privfl_lite.__file__).parent / "results"
ROOT = Path(__file__).resolve().parents[2]
Entry = dict[str, Any]
PAPERS = {
    "modelcloak": "ModelCloak",
    "dcs2": "DCS²",
    "fedkl": "FedKL",
    "model_entanglement": "Model Entanglement",
    "loda": "LODA",
}
SHOWN = 60  # characters of one of our values; of longer ones (lists) the length is shown


def html(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


def badge(kind: str, value: str) -> str:
    """A small word in a frame, of kind "verdict" or "strength"; book.css colors it."""
    return f'<span class="{kind} {kind}-{value.replace(" ", "-")}">{value}</span>'


def words(value: str | None) -> str:
    """The ledger's texts are plain text, folded over several lines."""
    return escape(" ".join((value or "").split()))


def breakable(path: str) -> str:
    """A path or a test's name as code, which may break after slashes and underscores."""
    return "<code>" + re.sub(r"([/_])", r"\1<wbr>", escape(path)) + "</code>"


def value_of(path: str) -> str:
    value = ledger.resolve(path, RESULTS)
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return shown if len(shown) <= SHOWN else f"{len(value)} values"


def split(path: str) -> tuple[str, str, str]:
    """Study, settings of the cell, and name of the value, from one path of the ledger."""
    name, _, pointer = path.partition("#/")
    tokens = [t.replace("~1", "/").replace("~0", "~") for t in pointer.split("/")]
    cell, rest = (tokens[1], tokens[2:]) if tokens[0] == "cells" else ("", tokens)
    return name.removesuffix(".json"), cell, " ".join(rest).replace("=", " ")


def measured(paths: Iterable[str]) -> Iterator[str]:
    """Our values, one list item for each run of values of one cell."""
    for (study, cell), group in itertools.groupby(paths, lambda path: split(path)[:2]):
        values = ", ".join(
            f"{escape(split(path)[2])} <strong>{escape(value_of(path))}</strong>" for path in group
        )
        at = " · ".join(part.replace("=", " ", 1) for part in cell.split("&") if part)
        yield f"<li>{breakable(study)} {escape(at)}: {values}</li>"


@cache
def places_of_tests() -> dict[str, tuple[str, int]]:
    """Name of a test -> its file in the checkout, and the line."""
    found = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if match := re.match(r"\s*def (test_\w+)\(", line):
                found[match[1]] = (file.relative_to(ROOT).as_posix(), number)
    return found


class Directive(SphinxDirective):
    """Common to both: read the ledger, and rebuild the page when it or a result changes."""

    def entries(self) -> list[Entry]:
        path = RESULTS / "ledger.yml"
        for file in (path, *sorted(RESULTS.glob("*/*.json"))):
            self.env.note_dependency(str(file))
        return ledger.load(path)


class LedgerEntries(Directive):
    """``{ledger} paper``: every entry of one paper, folded."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        paper = self.arguments[0]
        found = [e for e in self.entries() if e["id"].startswith(f"{paper}/")]
        if not found:
            raise self.error(f"the ledger has no entry for {paper!r}")
        start = html(f'<div class="ledger-list" id="{nodes.make_id(f"ledger-{paper}")}">')
        return [start, *(node for e in found for node in self.row(paper, e)), html("</div>")]

    def row(self, paper: str, entry: Entry) -> list[nodes.Node]:
        label, title = self.target(paper, entry)
        scope = f'<span class="ledger-scope">{words(entry.get("scope"))}</span>'
        strength = badge("strength", entry["strength"]) if entry["strength"] != "none" else ""
        head = (
            f'<details class="ledger-entry" id="{label}" data-paper="{paper}"'
            f' data-verdict="{entry["verdict"]}" data-strength="{entry["strength"]}">'
            f'<summary><span class="ledger-item">{title}</span>'
            f'<span class="ledger-what">{words(entry["what"])}</span>'
            f'<span class="ledger-marks">{badge("verdict", entry["verdict"])}'
            f" {scope} {strength}</span></summary>"
            f'<div class="ledger-more">{self.evidence(entry)}'
        )
        return [html(head), *self.chapter(entry), html("</div></details>")]

    def target(self, paper: str, entry: Entry) -> tuple[str, str]:
        """The item is a target: {ref}`ledger-modelcloak-table-3` links here from any chapter."""
        kind, _, number = entry["id"].partition("/")[2].partition("-")
        title = f"{kind.capitalize()} {number.replace('-', '–')}"
        label = nodes.make_id(f"ledger-{entry['id']}")
        domain = self.env.get_domain("std")
        domain.note_hyperlink_target(label, self.env.docname, label, f"{PAPERS[paper]}, {title}")
        return label, title

    def evidence(self, entry: Entry) -> str:
        """What the paper says, what we found and on what, and how to run it again."""
        ours = "".join(measured(entry.get("ours") or []))
        parts = {
            "The paper says": words(entry["paper"]),
            "Ours": f"<ul>{ours}</ul>" if ours else "",
            "Our sizes": words(entry["sizes"]),
            "Why": words(entry["why"]),
            "Tests": "".join(self.test(name) for name in entry.get("tests") or []),
            "Run it": "".join(self.commands(entry)),
        }
        rows = (f"<dt>{name}</dt><dd>{text}</dd>" for name, text in parts.items() if text)
        return f"<dl>{''.join(rows)}</dl>"

    def link(self, place: str, text: str) -> str:
        """A file of the repository."""
        options = self.config.html_theme_options
        home = f"{options['repository_url']}/blob/{options['repository_branch']}"
        return f'<a href="{home}/{place}">{text}</a>'

    def test(self, name: str) -> str:
        file, line = places_of_tests()[name]
        return f"<p>{self.link(f'{file}#L{line}', breakable(name))}</p>"

    def commands(self, entry: Entry) -> Iterator[str]:
        for study in dict.fromkeys(split(path)[0] for path in entry.get("ours") or []):
            stored = self.link(f"privfl_lite/results/{study}.json", "what it stored")
            command = ledger.resolve(f"{study}.json#/command", RESULTS)
            yield f"<p>{breakable(command)} ({stored})</p>"
        named = entry.get("tests") or []
        for file in dict.fromkeys(places_of_tests()[name][0] for name in named):
            yield f"<p>{breakable(f'python -m pytest {file}')}</p>"

    def chapter(self, entry: Entry) -> list[nodes.Node]:
        """A link to the chapter, once it is written."""
        if entry["chapter"] not in self.env.found_docs:
            return []
        link = addnodes.pending_xref(
            "", nodes.inline(), refdomain="std", reftype="doc", refexplicit=False
        )
        link["reftarget"], link["refdoc"] = f"/{entry['chapter']}", self.env.docname
        return [nodes.paragraph("", "", nodes.Text("Chapter: "), link)]


class LedgerDashboard(Directive):
    """``{ledger-dashboard}``: a bar for each paper, and the form that narrows the entries."""

    def run(self) -> list[nodes.Node]:
        entries = self.entries()
        of = {p: [e for e in entries if e["id"].startswith(f"{p}/")] for p in PAPERS}
        bars = "".join(bar(paper, found) for paper, found in of.items())
        total = Counter(e["verdict"] for e in entries)
        legend = "".join(
            f"<li>{badge('verdict', v)} {total[v]}</li>" for v in ledger.VERDICTS if total[v]
        )
        board = f'<div class="ledger-bars">{bars}</div><ul class="ledger-legend">{legend}</ul>'
        return [html(f'<div class="ledger-board">{board}</div>'), html(form(len(entries)))]


def bar(paper: str, entries: list[Entry]) -> str:
    """Verdicts of one paper side by side, each as wide as it is frequent, and a link."""
    count = Counter(entry["verdict"] for entry in entries)
    name, target = escape(PAPERS[paper]), nodes.make_id(f"ledger-{paper}")
    parts = "".join(
        f'<li style="flex-grow: {n}"><a class="verdict-{v.replace(" ", "-")}" href="#{target}"'
        f' data-paper="{paper}" data-verdict="{v}" title="{n} {v}" aria-label="{n} {v}">{n}</a>'
        "</li>"
        for v in ledger.VERDICTS
        if (n := count[v])
    )
    head = f'<a href="#{target}">{name}</a>'
    return f'<p>{head}</p><ul class="ledger-bar" aria-label="Verdicts on {name}">{parts}</ul>'


def form(number: int) -> str:
    """Hidden where no script runs."""
    asked = {
        "paper": PAPERS,
        "verdict": {v: v for v in ledger.VERDICTS},
        "strength": {s: s for s in ledger.STRENGTHS if s != "none"},
    }
    fields = "".join(
        f'<label>{key.capitalize()} <select name="{key}"><option value="">all</option>'
        + "".join(f'<option value="{v}">{escape(text)}</option>' for v, text in values.items())
        + "</select></label>"
        for key, values in asked.items()
    )
    return (
        f'<form class="ledger-filter" hidden>{fields}'
        '<label>Text <input type="search" name="text" placeholder="any words"></label>'
        '<button type="reset">Show all</button><button type="button" name="unfold">Unfold</button>'
        f'<output aria-live="polite">{number} of {number} entries</output></form>'
    )


def add_script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree) -> None:
    """On the ledger's page alone."""
    if doctree is not None and "ledger-board" in context.get("body", ""):
        app.add_js_file("ledger.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("ledger", LedgerEntries)
    app.add_directive("ledger-dashboard", LedgerDashboard)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
