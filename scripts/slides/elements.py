"""Elements of MathML as text, and what the commands without arguments become."""

from __future__ import annotations

from html import escape

from . import symbols as known


def row(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def mo(text: str, **given: object) -> str:
    told = "".join(f' {key}="{value}"' for key, value in given.items())
    return f"<mo{told}>{escape(text)}</mo>"


def _upright(text: str) -> str:
    return f'<mi mathvariant="normal">{text}</mi>'


TABLES = (
    (known.GREEK | known.SLANTED, lambda text: f"<mi>{text}</mi>"),
    (known.UPRIGHT | {"%": "%", "#": "#", "$": "$", "_": "_"}, _upright),
    (known.OPERATORS, lambda text: mo(text, stretchy="false")),
    (known.BIG, lambda text: f'<mo data-limits="1" movablelimits="true">{text}</mo>'),
    (known.INTEGRALS, mo),
    (known.OPENING, lambda text: mo(text, stretchy="false", form="prefix")),
    (known.CLOSING, lambda text: mo(text, stretchy="false", form="postfix")),
    (known.FENCES, lambda text: mo(text, stretchy="false", lspace="0.17em", rspace="0.17em")),
    (known.SPACES, lambda width: f'<mspace width="{width}em"></mspace>'),
)
