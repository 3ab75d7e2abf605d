"""Two directives that show the ledger at build time, so that the page is never stale.

``{ledger} modelcloak`` is the table of one paper, ``{ledger-summary}`` counts verdicts and
strengths by paper.
Our values are read from the stored results by the ledger's own code (privfl_lite/teach/ledger.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import privfl_lite
from privfl_lite.teach import ledger

RESULTS = Path(privfl_lite.__file__).parent / "results"
Entry = dict[str, Any]
PAPERS = {
    "modelcloak": "ModelCloak",
    "dcs2": "DCS²",
    "fedkl": "FedKL",
    "model_entanglement": "Model Entanglement",
    "loda": "LODA",
}
SHOWN = 60  # characters of one of our values; longer ones (lists, cells) are shown by their path


def badge(kind: str, value: str, text: str) -> nodes.inline:
    """A small word in a frame, of kind "verdict" or "strength"; book.css colors it by its value."""
    return nodes.inline("", text, classes=[kind, f"{kind}-{value.replace(' ', '-')}"])


def path_of(path: str) -> nodes.literal:
    """A path or a test's name as code, which may break at #, slashes and underscores."""
    code = nodes.literal()
    for part in re.split(r"(?=#)|(?<=[/_])", path):
        code += [nodes.inline("", part), nodes.raw("", "<wbr>", format="html")]
    return code


def paragraph(value: object, *classes: str) -> nodes.paragraph:
    """The ledger's texts are plain text, folded over several lines."""
    return nodes.paragraph("", " ".join(str(value).split()), classes=[*classes])


def build_table(
    head: list[str], rows: Iterable[list[list[nodes.Node]]], widths: list[int], name: str
) -> nodes.table:
    """A docutils table with one header row; each cell is a list of block nodes."""
    group = nodes.tgroup("", cols=len(head))
    group += [nodes.colspec(colwidth=width) for width in widths]
    titles = [nodes.entry("", paragraph(title)) for title in head]
    body = [nodes.row("", *(nodes.entry("", *cell) for cell in row)) for row in rows]
    group += [nodes.thead("", nodes.row("", *titles)), nodes.tbody("", *body)]
    return nodes.table("", group, classes=[name, "colwidths-given"])


def ours(entry: Entry) -> list[nodes.Node]:
    """Our side: stored values with their paths, tests by name, and the sizes that differ."""
    lines = []
    for path in entry.get("ours") or []:
        value = ledger.resolve(path, RESULTS)
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        lead = [nodes.strong("", shown), nodes.Text(" ")] if len(shown) <= SHOWN else []
        lines.append(nodes.paragraph("", "", *lead, path_of(path)))
    for name in entry.get("tests") or []:
        lines.append(nodes.paragraph("", "", nodes.Text("test "), path_of(name)))
    if entry.get("sizes"):
        lines.append(paragraph(entry["sizes"], "ledger-sizes"))
    return lines or [paragraph("–", "ledger-none")]


class Directive(SphinxDirective):
    """Common to both: read the ledger, and rebuild the page when it or a result changes."""

    def entries(self) -> list[Entry]:
        path = RESULTS / "ledger.yml"
        for file in (path, *sorted(RESULTS.glob("*.json"))):
            self.env.note_dependency(str(file))
        return ledger.load(path)


class LedgerTable(Directive):
    """``{ledger} paper``: every entry of one paper."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        paper = self.arguments[0]
        found = [e for e in self.entries() if e["id"].startswith(f"{paper}/")]
        if not found:
            raise self.error(f"the ledger has no entry for {paper!r}")
        head = ["Item", "The paper says", "Ours", "Verdict"]
        return [build_table(head, map(self.row, found), [18, 25, 26, 31], "ledger")]

    def row(self, entry: Entry) -> list[list[nodes.Node]]:
        shown = ["verdict"] + ["strength"] * (entry["strength"] != "none")
        badges = [n for f in shown for n in (badge(f, entry[f], entry[f]), nodes.Text(" "))]
        verdict = [nodes.paragraph("", "", *badges)]
        if entry.get("why"):
            verdict.append(paragraph(entry["why"]))
        item = [self.name_of(entry), paragraph(entry["what"])]
        return [item, [paragraph(entry["paper"])], [*ours(entry), *self.chapter(entry)], verdict]

    def name_of(self, entry: Entry) -> nodes.paragraph:
        """The item as a target: {ref}`ledger-modelcloak-table-3` links here from any chapter."""
        paper, _, item = entry["id"].partition("/")
        kind, _, number = item.partition("-")
        title = f"{kind.capitalize()} {number.replace('-', '–')}"
        label = nodes.make_id(f"ledger-{entry['id']}")
        domain = self.env.get_domain("std")
        domain.note_hyperlink_target(label, self.env.docname, label, f"{PAPERS[paper]}, {title}")
        return nodes.paragraph("", "", nodes.strong("", title), ids=[label])

    def chapter(self, entry: Entry) -> list[nodes.Node]:
        """A link to the chapter, once it is written."""
        if entry["chapter"] not in self.env.found_docs:
            return []
        link = addnodes.pending_xref(
            "", nodes.inline("", "chapter"), refdomain="std", reftype="doc", refexplicit=True
        )
        link["reftarget"], link["refdoc"] = f"/{entry['chapter']}", self.env.docname
        return [nodes.paragraph("", "", link)]


class LedgerSummary(Directive):
    """``{ledger-summary}``: how many entries of each paper have which verdict and strength."""

    def run(self) -> list[nodes.Node]:
        entries = self.entries()
        of = {p: [e for e in entries if e["id"].startswith(f"{p}/")] for p in PAPERS}
        rows = [[[paragraph(PAPERS[p])], *counts(found)] for p, found in of.items()]
        rows.append([[paragraph("All five")], *counts(entries)])
        head = ["Paper", "Verdicts", "Found on"]
        return [build_table(head, rows, [20, 40, 40], "ledger-summary")]


def counts(entries: list[Entry]) -> list[list[nodes.Node]]:
    """Two cells: badges with the number of entries of each verdict, and of each strength."""
    cells = []
    for kind, values in (("verdict", ledger.VERDICTS), ("strength", ledger.STRENGTHS)):
        count = Counter(entry[kind] for entry in entries)
        line = nodes.paragraph()
        for value in (v for v in values if count[v] and v != "none"):
            line += [badge(kind, value, f"{count[value]} {value}"), nodes.Text(" ")]
        cells.append([line])
    return cells


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("ledger", LedgerTable)
    app.add_directive("ledger-summary", LedgerSummary)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
