"""MyST to Markdown that Jupyter, Colab and GitHub all render: no directive and no role is left.

Statements and exercises become quoted, titled, numbered blocks; proofs, hints and drop-downs become
``<details>``; roles become links to the published pages. A displayed formula stands on one line:
inside a quotation, viewers take the marks of further lines for part of it.
"""

from __future__ import annotations

import re

from .myst import Block, EditionError
from .numbers import ANCHOR, Index
from .paths import listed

LITERAL = re.compile(r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)", re.DOTALL)
ROLE = re.compile(r"\{(?P<role>[\w:]+)\}`(?P<body>[^`]+)`")
DISPLAY = re.compile(r"\$\$(?P<tex>.+?)\$\$(?:[ \t]*\((?P<label>[\w-]+)\)$)?", re.DOTALL | re.M)
INLINE = re.compile(r"(?<![\\$])\$(?=[^\s$])(?P<tex>[^$]*[^\s$])\$(?!\$)")
LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<to>[\w-]+)\)")
FOLDED = {"dropdown": "Details", "hint": "Hint", "prf:proof": "Proof"}
GATES = ("solution-start", "solution-end", "exercise-end")


class Writer:
    """Writes the blocks of one chapter for an edition: "student", "instructor" or "full"."""

    def __init__(self, index: Index, slug: str, edition: str = "student"):
        self.index, self.slug, self.edition = index, slug, edition
        self.solutions = edition != "student"

    def blocks(self, blocks: list[Block] | tuple[Block, ...]) -> str:
        """Plain Markdown of blocks, with an empty line between them."""
        parts = [self.block(block) for block in blocks]
        return "\n\n".join(part for part in parts if part)

    def block(self, block: Block) -> str:
        if block.kind == "code":
            return block.raw
        if block.kind == "text":
            return self.text(block.raw)
        if block.name in (*GATES, "page-only"):
            return ""
        inside = self.blocks(block.body)
        if block.name in FOLDED:
            return folded(self.text(block.title) or FOLDED[block.name], inside)
        if block.name == "admonition":
            title = self.text(block.title)
            if "dropdown" in block.options.get("class", ""):
                return folded(title, inside)
            return quoted(f"**{title}**\n\n{inside}")
        if block.name in ("exercise", "exercise-start") or block.name.startswith("prf:"):
            return quoted(f"{self.heading(block)}\n\n{inside}".strip())
        if block.name in ("solution", "solution-start", "grading"):
            return self.answer(block, inside)
        if block.name == "explorable":
            return self.moving(block, inside)
        if block.name == "laboratory":
            page = self.index.page("laboratory")
            return f"[**Attack your own picture**]({page}) in your browser, {self.here(block)}."
        if block.name == "reading-map":
            return listed(self.index)
        raise EditionError(f"{self.slug}: no edition knows the directive {block.name!r}")

    def moving(self, block: Block, caption: str) -> str:
        """A moving picture: its caption, where it moves, and how to have it in a notebook."""
        page = self.index.page(self.slug, f"explorable-{block.title}")
        seen = f"[See it on the page]({page}), {self.here(block)}."
        return quoted(f"**A picture that moves.** {caption} {seen}")

    def here(self, block: Block) -> str:
        """How to have it in a notebook; in the full edition the next cell does."""
        return "or below" if self.edition == "full" else f"or run `{call(block)}`"

    def heading(self, block: Block) -> str:
        """**Proposition 3.4** (Title)."""
        title = f" ({self.text(block.title)})" if block.title else ""
        return f"**{self.index.find(block.label).name}**{title}."

    def answer(self, block: Block, inside: str) -> str:
        """A solution or a rubric, for those who may see it."""
        kind = "Rubric for" if block.name == "grading" else "Solution to"
        name = f"{kind} {self.index.find(block.title).name}"
        if not self.solutions or (block.name == "grading" and self.edition == "full"):
            return ""
        if block.name == "solution" and self.edition == "full":
            return folded(name, inside)
        return quoted(f"**{name}.**\n\n{inside}".strip())

    def text(self, text: str) -> str:
        """Text without roles, anchors and line breaks in formulas; code spans stay as they are."""
        kept: list[str] = []

        def keep(found: str) -> str:
            kept.append(found)
            return f"\0{len(kept) - 1}\0"

        text = ANCHOR.sub("", text)
        text = ROLE.sub(lambda m: keep(self.role(m["role"], m["body"])), text)
        text = LITERAL.sub(lambda m: keep(m[0]), text)
        text = DISPLAY.sub(lambda m: keep(self.formula(m["tex"], m["label"])), text)
        text = INLINE.sub(lambda m: keep(f"${one_line(m['tex'])}$"), text)
        text = LINK.sub(self.link, text)
        while "\0" in text:
            text = re.sub("\0(\\d+)\0", lambda m: kept[int(m[1])], text)
        return text.strip("\n")

    def formula(self, tex: str, label: str | None) -> str:
        """A displayed formula, with its number if it has a label."""
        tag = f" \\tag{{{self.index.find(label).number}}}" if label else ""
        return f"$${one_line(tex)}{tag}$$"

    def link(self, found: re.Match) -> str:
        to = found["to"]
        if to in self.index.titles:
            return f"[{found['text']}]({self.index.page(to)})"
        return f"[{found['text']}]({self.index.page(self.index.find(to).slug, to)})"

    def role(self, role: str, body: str) -> str:
        """A role as a link, with the words that the page has."""
        given = re.fullmatch(r"(?P<text>.+?)\s*<(?P<to>[^<>]+)>", body, re.DOTALL)
        text, to = (given["text"], given["to"]) if given else ("", body)
        if role in ("cite", "cite:p", "cite:t"):
            return self.citation(role == "cite:t", to)
        if role == "doc":
            return f"[{text or self.index.titles[to]}]({self.index.page(to)})"
        if role == "term":
            if to.lower() not in self.index.terms:
                raise EditionError(f"{self.slug}: the glossary has no term {to!r}")
            return f"[{text or to}]({self.index.page('glossary', self.index.terms[to.lower()])})"
        if role == "eq":
            target = self.index.find(to)
            return f"[({target.number})]({self.index.page(target.slug, f'equation-{to}')})"
        if role in ("prf:ref", "ref", "numref"):
            target = self.index.find(to)
            anchor = "" if target.kind == "Chapter" else to
            plain = (
                target.title
                if role == "ref" and target.kind in ("Fig.", "Section")
                else target.name
            )
            return f"[{text or plain}]({self.index.page(target.slug, anchor)})"
        raise EditionError(f"{self.slug}: no edition knows the role {role!r}")

    def citation(self, in_text: bool, keys: str) -> str:
        """Wu *et al.* ([2024](…)) in a sentence, else ([Wu *et al.*, 2024](…))."""
        found = []
        for key in (k.strip() for k in keys.split(",")):
            work = self.index.works[key]
            address = self.index.page("bibliography", work.anchor)
            if in_text:
                found.append(f"{work.authors} ([{work.year}]({address}))")
            else:
                found.append(f"[{work.authors}, {work.year}]({address})")
        return ", ".join(found) if in_text else f"({', '.join(found)})"


def call(block: Block) -> str:
    """The line of Python that shows a moving picture or the laboratory, with its settings."""
    if block.name == "explorable":
        settings = block.options.get("set", "")
        return f'pf.teach.explore("{block.title}"{settings and ", " + settings})'
    kept = {k: v or "1" for k, v in block.options.items() if k not in ("small", "hash")}
    given = ", ".join(f'"{key}": "{value}"' for key, value in kept.items())
    return f"pf.teach.lab(setting={{{given}}})" if given else "pf.teach.lab()"


def one_line(tex: str) -> str:
    return " ".join(tex.split())


def quoted(text: str) -> str:
    """A quotation: a mark before each line."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def folded(summary: str, inside: str) -> str:
    """A part that opens on a click; the empty lines let viewers read it as Markdown.

    A summary is HTML, in which Markdown has no formulas: a title with one stands before it. The
    empty paragraph keeps a distance in JupyterLab, where a closed part has none of its own.
    """
    before = f"**{summary}**\n\n" if "$" in summary else ""
    summary = "Show" if before else summary
    return f"{before}<details><summary>{summary}</summary>\n\n{inside}\n\n</details>\n<p></p>"
