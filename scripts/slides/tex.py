"""The tokens of a formula in TeX: commands, numbers and characters."""

from __future__ import annotations

import re

from editions.myst import EditionError

TOKEN = re.compile(r"\\(?P<command>[A-Za-z]+\*?|.)|(?P<number>\d+(?:\.\d+)?)|(?P<char>\S)", re.S)


class Tokens:
    """The tokens of a formula, taken one after the other."""

    def __init__(self, tex: str):
        self.tex = tex
        self.tokens = [(m.lastgroup or "", m[m.lastgroup]) for m in TOKEN.finditer(tex)]
        self.spots = [m.end() for m in TOKEN.finditer(tex)]
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("", "")

    def next(self) -> tuple[str, str]:
        token = self.peek()
        if not token[0]:
            raise EditionError(f"the formula ${self.tex}$ ends too early")
        self.at += 1
        return token

    def word(self) -> str:
        """The characters in the braces that come next, as they stand."""
        self.expect("{")
        begin, depth = self.spots[self.at - 1], 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.next()[1], 0)
        return self.tex[begin : self.spots[self.at - 1] - 1]

    def expect(self, char: str) -> None:
        if self.next()[1] != char:
            raise EditionError(f"expected {char!r} in the formula ${self.tex}$")
