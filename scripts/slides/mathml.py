"""Formulas as MathML, which browsers set by themselves: no script, no font, nothing to fetch.

It reads the part of TeX that the book uses, and refuses a command that it does not know. A test
compares every formula of the book with what MathJax makes of it.
"""

from __future__ import annotations

from html import escape

from editions.myst import EditionError

from . import symbols as known
from .elements import TABLES, mo, row
from .tex import Tokens

NO_LIMITS = "nolimits"
PRIME = '<mo class="prime" lspace="0" rspace="0">′</mo>'  # stands raised in the font of the text


def mathml(tex: str, display: bool = False) -> str:
    """A formula as a ``<math>`` element."""
    inside = Formula(tex).whole()
    shown = ' display="block"' if display else ""
    return f"<math{shown}>{inside}</math>"


SIDES = 'columnalign="right left"'  # for browsers that do not take it from the style


class Formula(Tokens):
    """A formula that is read once, from left to right."""

    # --- rows ---

    def whole(self) -> str:
        inside = self.run()
        if self.at < len(self.tokens):
            raise EditionError(f"{self.peek()[1]!r} is out of place in the formula ${self.tex}$")
        return row(inside)

    def run(self) -> list[str]:
        """Elements up to a closing brace, the end of a table's cell, or the end."""
        made: list[str] = []
        while (token := self.peek())[0] and token not in (
            ("char", "}"), ("char", "&"), ("command", "\\"), ("command", "end"),
        ):  # fmt: skip
            if made and token[1] in ("_", "^", "'") and token[0] == "char":
                base = made.pop()
            else:
                base = self.atom()
            if base or self.peek()[1] in ("_", "^"):
                made.append(self.scripts(base or "<mrow></mrow>"))
        return made

    def group(self) -> str:
        """What a command or a script takes: the braces that come next, or one element."""
        kind, text = self.peek()
        if kind == "number" and len(text) > 1:  # of \\frac12 the 1
            self.tokens[self.at] = (kind, text[1:])
            return f"<mn>{text[0]}</mn>"
        if (kind, text) != ("char", "{"):
            return self.atom()
        self.next()
        inside = self.run()
        self.expect("}")
        return row(inside)

    def scripts(self, base: str) -> str:
        """An element with what hangs below and above it."""
        low = high = ""
        beside = "data-limits" not in base
        while self.peek() == ("char", "'"):
            self.next()
            base = f"<mrow>{base}{PRIME}</mrow>"
        while self.peek() in (("char", "_"), ("char", "^"), ("char", "'"), ("command", NO_LIMITS)):
            mark = self.next()[1]
            if mark == "_":
                low = self.group()
            elif mark == "^":
                high += self.group()
            elif mark == "'":
                high += PRIME
            else:
                beside = True
        base = base.replace(' data-limits="1"', "")
        high = f"<mrow>{high}</mrow>" if PRIME in high and high != PRIME else high
        under, over = ("msub", "msup") if beside else ("munder", "mover")
        both = under + over[1:]
        if low and high:
            return f"<{both}>{base}{low}{high}</{both}>"
        if low or high:
            name = under if low else over
            return f"<{name}>{base}{low or high}</{name}>"
        return base

    # --- elements ---

    def atom(self) -> str:
        kind, text = self.next()
        if kind == "command":
            return self.command(text)
        if kind == "number":
            return f"<mn>{text}</mn>"
        if text == "{":
            self.at -= 1
            return self.group()
        if text == "~":
            return '<mspace width="0.33em"></mspace>'
        if text.isalpha():
            return f"<mi>{escape(text)}</mi>"
        return self.sign(text)

    def sign(self, text: str) -> str:
        if text in "([":
            return mo(text, stretchy="false", form="prefix")
        if text in ")]":
            return mo(text, stretchy="false", form="postfix")
        if text == "/":
            return mo("/", lspace="0", rspace="0", stretchy="false")
        if text == "|":
            return mo("|", lspace="0", rspace="0", stretchy="false")
        if text in "∞%…⊤":
            return f"<mi>{text}</mi>"
        sign = {"-": "−", "*": "∗"}.get(text, text)
        return mo(sign, form="prefix", lspace="0", rspace="0") if self.leads(text) else mo(sign)

    def leads(self, text: str) -> bool:
        """Whether a plus or minus stands before a number, and not between two."""
        kind, before = self.tokens[self.at - 2] if self.at > 1 else ("", "")
        after = before in known.OPERATORS if kind == "command" else before in tuple("([{,=<>&")
        return text in "+-" and (after or not kind)

    def command(self, name: str) -> str:
        for table, make in TABLES:
            if name in table:
                return make(table[name])
        if name in known.FUNCTIONS:
            return mo(name, form="prefix", lspace="0.1em", rspace=self.space_after())
        if name in known.LIMITS:
            space = self.space_after()
            return f'<mo data-limits="1" movablelimits="true" rspace="{space}">{name}</mo>'
        if name in known.ACCENTS:
            return self.accent(name)
        if name in known.ALPHABETS:
            inside = self.word() if self.peek() == ("char", "{") else self.next()[1]
            letters = "".join(known.letter(name, c) for c in inside)
            return f'<mi mathvariant="normal">{letters}</mi>'
        if name.rstrip("lrm") in known.SIZES:
            return self.big(name)
        if name in known.STYLES:
            return ""
        if method := getattr(self, f"make_{name.rstrip('*')}", None):
            return method(name)
        raise EditionError(f"slides know no \\{name}, in the formula ${self.tex}$")

    def space_after(self) -> str:
        """Behind the name of a function; none before a bracket."""
        opens = self.peek()[1] in ("(", "[", "{") or self.peek()[1].rstrip("l") in known.SIZES
        return "0" if opens else "0.17em"

    def accent(self, name: str) -> str:
        inside, wide = self.group(), name in ("overline", "widehat", "widetilde")
        mark = mo(known.ACCENTS[name], stretchy="true" if wide else "false")
        return f'<mover accent="true">{inside}{mark}</mover>'

    def big(self, name: str) -> str:
        """A bracket of a given size: \\bigl( and the like."""
        size = known.SIZES[name.rstrip("lrm")]
        kind, text = self.next()
        if kind == "command":
            text = (known.OPENING | known.CLOSING | known.FENCES)[text]
        form = {"l": "prefix", "r": "postfix"}.get(name[-1], "infix")
        height = f"{size}em"
        return mo(text, stretchy="true", symmetric="true", minsize=height, maxsize=height,
                  form=form, lspace="0", rspace="0")  # fmt: skip

    def make_frac(self, name: str) -> str:
        return f"<mfrac>{self.group()}{self.group()}</mfrac>"

    def make_tfrac(self, name: str) -> str:
        return f'<mstyle displaystyle="false">{self.make_frac(name)}</mstyle>'

    def make_dfrac(self, name: str) -> str:
        return f'<mstyle displaystyle="true">{self.make_frac(name)}</mstyle>'

    def make_binom(self, name: str) -> str:
        inside = f'<mfrac linethickness="0">{self.group()}{self.group()}</mfrac>'
        return f"<mrow>{mo('(')}{inside}{mo(')')}</mrow>"

    def make_sqrt(self, name: str) -> str:
        if self.peek() != ("char", "["):
            return f"<msqrt>{self.group()}</msqrt>"
        self.next()
        root = self.atom()
        self.expect("]")
        return f"<mroot>{self.group()}{root}</mroot>"

    def make_text(self, name: str) -> str:
        words = self.word().replace("\\%", "%").replace(" ", "\u00a0")
        return f"<mtext>{escape(words)}</mtext>"

    def make_mathrm(self, name: str) -> str:
        if self.peek() != ("char", "{"):
            return f'<mi mathvariant="normal">{self.next()[1]}</mi>'
        words = self.word().replace("\\,", "\u2009").replace("\\", "").strip()
        return f'<mi mathvariant="normal">{escape(words)}</mi>'

    def make_operatorname(self, name: str) -> str:
        limits = ' data-limits="1" movablelimits="true"' if name.endswith("*") else ""
        word = self.word().replace("\\,", "\u2009")
        space = self.space_after()
        return f'<mo{limits} lspace="0.1em" rspace="{space}">{escape(word)}</mo>'

    def make_underbrace(self, name: str) -> str:
        brace = mo("⏟", stretchy="true")
        return f'<munder data-limits="1">{self.group()}{brace}</munder>'

    def make_tag(self, name: str) -> str:
        return f'<mspace width="2em"></mspace><mtext>({escape(self.word())})</mtext>'

    def make_begin(self, name: str) -> str:
        """A table: aligned lines, or a matrix."""
        kind, rows = self.word(), [[]]
        while True:
            rows[-1].append(row(self.run()))
            _, end = self.next()
            if end == "end":
                break
            if end == "\\":
                rows.append([])
        if self.word() != kind or kind not in ("aligned", "pmatrix"):
            raise EditionError(f"slides know no {kind!r} in the formula ${self.tex}$")
        rows = [line for line in rows if line != ["<mrow></mrow>"]]
        cells = [[f"<mtd>{cell}</mtd>" for cell in line] for line in rows]
        lines = "".join(f"<mtr>{''.join(line)}</mtr>" for line in cells)
        if kind == "aligned":
            return f'<mtable displaystyle="true" class="aligned" {SIDES}>{lines}</mtable>'
        return f"<mrow>{mo('(')}<mtable>{lines}</mtable>{mo(')')}</mrow>"
