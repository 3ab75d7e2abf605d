"""Terms of the glossary: a link at the first use on a page, and what ``glossary.js`` shows there.

Chapters need no markup. A term is found in running text; headings, code, formulas, links, tables
and outputs are left alone. Words of everyday language are linked only where a text has ``{term}``.
The meanings that a page needs stand on it as JSON; without the script a term is a plain link.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

PAGE = "book/glossary"
EVERYDAY = {"client", "round", "study", "update", "granted", "restart", "clip", "guard", "door"}
EVERYDAY |= {"ledger", "reconstruction", "representation", "epsilon", "pruning", "upload"}
OUTSIDE = (
    nodes.reference,
    addnodes.pending_xref,
    nodes.literal,
    nodes.math,
    nodes.title,
    nodes.caption,
    nodes.strong,
    nodes.table,
    nodes.raw,
    nodes.term,
    nodes.citation,
)
USED = re.compile(r'class="pf-term [^"]*" href="[^"]*#(?P<id>[\w.-]+)"')


@dataclass(frozen=True)
class Term:
    id: str
    name: str
    meaning: str


def collect(app: Sphinx, doctree: nodes.document) -> None:
    """Keep the glossary's terms, and let every page depend on it."""
    if PAGE in app.env.found_docs:
        app.env.note_dependency(app.env.doc2path(PAGE))
    if app.env.docname != PAGE:
        return
    app.env.glossary_terms = [
        Term(term["ids"][0], term.astext(), meaning(item))
        for item in doctree.findall(nodes.definition_list_item)
        for term in item.findall(nodes.term)
    ]


def meaning(item: nodes.definition_list_item) -> str:
    """The explanation, without the last sentence, which names a chapter."""
    text = " ".join(next(iter(item.findall(nodes.definition))).astext().split())
    return re.sub(r"\s*See [\w-]+\.$", "", text)


def pattern(terms: list[Term]) -> re.Pattern:
    """Any term, longer ones first: names such as DLG as they are, words also at the beginning of a
    sentence and in the plural."""

    def one(term: Term) -> str:
        words = re.escape(term.name).replace(r"\ ", r"\s+")
        if term.name != term.name.lower():
            return words
        first = term.name[0]
        return f"[{first}{first.upper()}]{words[1:]}s?"

    found = sorted(terms, key=lambda term: -len(term.name))
    groups = "|".join(f"(?P<t{terms.index(term)}>{one(term)})" for term in found)
    return re.compile(rf"(?<![\w-])(?:{groups})(?![\w-])")


def texts(doctree: nodes.document) -> Iterator[nodes.Text]:
    """Running text."""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        for text in list(paragraph.findall(nodes.Text)):
            above, node = [], text.parent
            while node is not None:
                above.append(node)
                node = node.parent
            output = any("cell_output" in n.get("classes", []) for n in above)
            if not output and not any(isinstance(n, OUTSIDE) for n in above):
                yield text


def explain(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Make the first use of each term on a chapter's page a link."""
    terms: list[Term] = getattr(app.env, "glossary_terms", [])
    if not terms or page == PAGE:
        return
    seen = set(asked_for(doctree))
    if not str(app.env.doc2path(page)).endswith(".ipynb"):
        return
    searched, address = pattern(terms), app.builder.get_relative_uri(page, PAGE)

    def cut(text: str) -> list[nodes.Node]:
        made, end = [], 0
        for match in searched.finditer(text):
            term = terms[int(match.lastgroup[1:])]
            if term.id in seen or term.name in EVERYDAY:
                continue
            seen.add(term.id)
            target = f"{address}#{term.id}"
            link = nodes.reference("", match[0], internal=True, refuri=target, classes=["pf-term"])
            made += [nodes.Text(text[end : match.start()]), link]
            end = match.end()
        return [*made, nodes.Text(text[end:])] if made else []

    for text in texts(doctree):
        if made := cut(text.astext()):
            text.parent.replace(text, made)


def asked_for(doctree: nodes.document) -> Iterator[str]:
    """Mark the links of ``{term}``; the ids of their terms."""
    for link in doctree.findall(nodes.reference):
        if any("std-term" in n.get("classes", []) for n in link.findall(nodes.inline)):
            link["classes"].append("pf-term")
            yield link.get("refuri", "").rpartition("#")[2] or link.get("refid", "")


def give_meanings(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree) -> None:
    used = {match["id"] for match in USED.finditer(context.get("body", ""))}
    if not used:
        return
    terms = [t for t in getattr(app.env, "glossary_terms", []) if t.id in used]
    told = {t.id: {"name": t.name, "meaning": t.meaning} for t in terms}
    whole = json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
    context["body"] += f'<script type="application/json" class="pf-terms">{whole}</script>'


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_js_file("glossary.js", loading_method="defer")
    app.connect("doctree-read", collect)
    app.connect("doctree-resolved", explain)
    app.connect("html-page-context", give_meanings)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
