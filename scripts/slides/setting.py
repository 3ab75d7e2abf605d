"""Text of a source as HTML for slides, in pieces that can be moved from slide to slide."""

from __future__ import annotations

import re
from dataclasses import dataclass

from editions.numbers import Index
from editions.plain import INLINE, LITERAL, Writer
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from .mathml import mathml

ON_PAGE = re.compile(
    r"^(The (next )?(table|panel)|Below|Here (is|are)|\*\*Predict|This cell)|\bbelow\b"
)
HIGH = re.compile(r"\\(t?frac|sum|int|binom|prod)(?![A-Za-z])")
WIDE = re.compile(r"[=+<>-]|\\(le|ge|ne|to|in|cdot|times|approx|sim|pm|mapsto)(?![A-Za-z])")
KEPT = re.compile(  # on one line: a formula and the mark behind it
    r'(<span class="math inline">(?:(?!</span>).)*</span>)(-\w+|[.,;:!?)]+)', re.S
)
COMMENT = re.compile(r"<!--.*?-->", re.S)
END = re.compile(r"(?<=[.!?])[”\"’)*]*(?=\s+[\"“(*]*[A-ZΑ-Ωεδσ\0`])")
SHORT = re.compile(r"\b(?:Eq|Eqs|Fig|Figs|Sec|No|vs|al|e\.g|i\.e|approx|Ch|p)\.[*”]*$")
COMMAND = re.compile(
    r"\\(?:bigl?|bigr|Bigl?|Bigr|left|right|text|operatorname|math\w+|tfrac|frac)\b"
)


@dataclass(frozen=True)
class Piece:
    """A block of HTML. ``signs`` is about how many characters it shows, ``tall`` what formulas add.

    ``kind``: "p", "item", "math", "table" or "code"; ``rows``: its lines, where they are given.
    ``box``: stands in a statement's box. ``step``: shown on the next press of a key.
    """

    html: str
    kind: str = "p"
    signs: int = 0
    rows: int = 1
    tall: float = 0.0
    box: bool = False
    step: bool = False


def signs(text: str) -> int:
    """About how many characters of a Markdown text are seen."""
    text = re.sub(r"[*`]", "", INLINE.sub(lambda m: visible(m["tex"]), text))
    return len(re.sub(r"\]\([^)]*\)|\[", "", text))


def visible(tex: str) -> str:
    """A formula in about as many characters as it is wide."""
    tex = re.sub(r"\\(?:frac|tfrac)\{([^{}]*)\}\{[^{}]*\}", r"\1", COMMAND.sub("", tex))
    spread = 2 * len(WIDE.findall(tex))
    spread += 3 * (len(tex) > 25)  # a long formula may leave the end of a line empty
    return re.sub(r"[{}_^\s]|\\[,;! ]", "", re.sub(r"\\[A-Za-z]+", "x", tex)) + "x" * spread


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown paragraph; formulas, code and links are not cut."""
    kept: list[str] = []

    def keep(found: re.Match) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\1"

    text = re.sub(r"\[[^\[\]]+\]\([^()]+\)", keep, LITERAL.sub(keep, text))
    text = re.sub(r"\$[^$]+\$", keep, " ".join(text.split()))
    found, begin = [], 0
    for end in END.finditer(text):
        if not SHORT.search(text[begin : end.end()]):
            found.append(text[begin : end.end()].strip())
            begin = end.end()
    found.append(text[begin:].strip())
    while any("\0" in s for s in found):
        found = [re.sub("\0(\\d+)\1", lambda m: kept[int(m[1])], s) for s in found]
    return balanced([s for s in found if s])


def balanced(found: list[str]) -> list[str]:
    """Sentences with their bold marks in pairs: a mark that is open goes on in the next one."""
    made: list[str] = []
    for sentence in found:
        if made and (made[-1].count("**") % 2 or made[-1].count("(") > made[-1].count(")")):
            made[-1] += f" {sentence}"
        else:
            made.append(sentence)
    return made


def lead(text: str, count: int = 1, most: int = 400) -> str:
    """The first sentences of a paragraph, at most ``count``, and no more signs than ``most``."""
    taken: list[str] = []
    for sentence in sentences(text)[:count]:
        if taken and signs(" ".join([*taken, sentence])) > most:
            break
        taken.append(sentence)
    return " ".join(taken)


def spoken(text: str) -> str:
    """The first two sentences of a paragraph, without those that point to something on the page."""
    said = [s for s in sentences(text)[:3] if not ON_PAGE.search(s) and not s.endswith(":")]
    return " ".join(said[:2])


class Setter:
    """Sets the texts of one chapter. References become their names; a slide has few links."""

    def __init__(self, index: Index, slug: str):
        self.index, self.slug = index, slug
        self.writer = Writer(index, slug, "student")
        self.reader = MarkdownIt("commonmark", {"html": False}).enable("table")
        self.reader.use(
            dollarmath_plugin,
            double_inline=True,
            renderer=lambda tex, how: mathml(tex, how["display_mode"]),
        )

    def plain(self, text: str) -> str:
        """Markdown without directives, roles and comments."""
        return COMMENT.sub("", self.writer.text(text)).strip()

    def tokens(self, text: str) -> list[Token]:
        tokens = self.reader.parse(self.plain(text))
        for token in tokens:
            if token.children:
                token.children = [c for c in token.children if not c.type.startswith("link_")]
        return tokens

    def inline(self, text: str) -> str:
        """HTML of a paragraph without the paragraph."""
        html = self.html(text)
        return re.sub(r"^<p>|</p>$", "", html.strip()).replace("</p>\n<p>", "<br>")

    def html(self, text: str) -> str:
        return self.render(self.tokens(text)).strip()

    def render(self, tokens: list[Token]) -> str:
        html = self.reader.renderer.render(tokens, self.reader.options, {})
        return KEPT.sub(r'<span class="kept">\1\2</span>', html)

    def pieces(self, text: str, box: bool = False, step: bool = False) -> list[Piece]:
        """A Markdown text as pieces: paragraphs, items of lists, formulas, tables."""
        tokens, found, at = self.tokens(text), [], 0
        while at < len(tokens):
            end = at + 1
            if tokens[at].nesting == 1:
                while tokens[end].level != tokens[at].level or tokens[end].nesting != -1:
                    end += 1
                end += 1
            found += self.piece(tokens[at:end], box, step)
            at = end
        return found

    def piece(self, tokens: list[Token], box: bool, step: bool) -> list[Piece]:
        first = tokens[0]
        if first.type in ("bullet_list_open", "ordered_list_open"):
            return self.items(tokens, box, step)
        shown = sum(signs(t.content) for t in tokens if t.type == "inline")
        html = self.render(tokens).strip()
        if first.type == "table_open":
            rows = sum(t.type == "tr_open" for t in tokens)
            return [Piece(html, "table", shown, rows, box=box, step=step)]
        if first.type in ("fence", "code_block"):
            return [Piece(html, "code", 0, first.content.count("\n") + 1, box=box, step=step)]
        if (tex := alone(tokens)) is not None:
            rows = tex.count("\\\\") + 1
            tall = 1.0 if HIGH.search(tex) else 0.3
            return [Piece(html, "math", len(visible(tex)), rows, tall * rows, box, step)]
        return [Piece(html, "p", shown, 1, extra(tokens), box, step)]

    def items(self, tokens: list[Token], box: bool, step: bool) -> list[Piece]:
        """Each item of a list as a list of its own, so that a slide may end between them."""
        name, found, at = tokens[0].tag, [], 1
        number = int(tokens[0].attrs.get("start", 1))
        while at < len(tokens) - 1:
            end = at + 1
            while tokens[end].level != tokens[at].level or tokens[end].nesting != -1:
                end += 1
            inside = tokens[at : end + 1]
            start = f' start="{number}"' if name == "ol" else ""
            html = f"<{name}{start}>{self.render(inside).strip()}</{name}>"
            shown = sum(signs(t.content) for t in inside if t.type == "inline")
            rows = sum(t.type in ("paragraph_open", "math_block") for t in inside)
            found.append(Piece(html, "item", shown, max(rows, 1), extra(inside), box, step))
            number, at = number + 1, end + 1
        return found


def alone(tokens: list[Token]) -> str | None:
    """The formula, if a block is nothing but a displayed one."""
    if tokens[0].type.startswith("math_block"):
        return tokens[0].content
    if len(tokens) == 3 and tokens[1].children and len(tokens[1].children) == 1:
        only = tokens[1].children[0]
        return only.content if only.type == "math_inline_double" else None
    return None


def extra(tokens: list[Token]) -> float:
    """Lines that formulas in a text take besides: displayed ones, and high fractions."""
    found = 0.0
    for token in (t for outer in tokens for t in (outer, *(outer.children or []))):
        if token.type in ("math_inline_double", "math_block"):
            rows = token.content.count("\\\\") + 1
            found += 0.5 + 1.5 * rows + 0.5 * rows * bool(HIGH.search(token.content))
        elif token.type == "math_inline":
            found += 0.35 * bool(HIGH.search(token.content))
    return found
