"""What book/_ext/looks.py makes of a text."""

from __future__ import annotations

import sys

import pytest
from checkout import ROOT
from docutils import nodes
from docutils.utils import new_document

sys.path.append(str(ROOT / "book" / "_ext"))
import looks


@pytest.mark.parametrize(
    ("after", "kept", "rest"),
    [
        (", then", ",", " then"),
        (").", ").", ""),
        (" and", None, " and"),
        ("-th", None, "-th"),
    ],
)
def test_a_comma_stays_on_the_line_of_its_formula(after, kept, rest):
    formula = nodes.math("x", "x")
    line = nodes.paragraph("", "", nodes.Text("let "), formula, nodes.Text(after), nodes.emphasis())
    document = new_document("a")
    document += line
    looks.keep_marks(None, document)
    assert line.astext() == f"let x{after}" and isinstance(line[-1], nodes.emphasis)
    assert line[2].astext() == rest and isinstance(line[2], nodes.Text)
    if kept:
        assert line[1]["classes"] == ["pf-keep"] and line[1][0] is formula
        assert line[1].astext() == f"x{kept}"
    else:
        assert line[1] is formula
