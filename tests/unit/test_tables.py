"""Tables of results: what is in a cell, what is marked, and that text cannot break the page."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from privfl_lite.runtime import PrivflError
from privfl_lite.teach.tables import Spread, table

ROWS = [
    {"defense": "none", "PSNR": 41.234, "named": 0.97, "ε": None},
    {"defense": "a < b", "PSNR": Spread(9.5, 8.0, 11.0), "named": 0.5, "ε": float("inf")},
]


def test_numbers_units_and_formats_stand_in_their_places():
    html = table(ROWS, units={"PSNR": "dB"}, formats={"named": ".0%"})._repr_html_()
    assert '<th scope="col" class="pf-number">PSNR <small>dB</small></th>' in html
    assert '<td class="pf-number">41.2</td><td class="pf-number">97%</td>' in html
    assert "9.5 <small>8 to 11</small>" in html
    assert "–" in html and "∞" in html


def test_numbers_may_come_from_torch_and_numpy():
    html = table([{"a": "x", "b": torch.tensor(0.25), "c": np.float32(0.5), "d": np.int64(4)}])
    assert [f">{v}</td>" in html._repr_html_() for v in ("0.25", "0.5", "4")] == [True] * 3


def test_text_is_escaped_also_in_the_caption():
    html = table(ROWS, caption='<script>"x"')._repr_html_()
    assert "<script>" not in html and 'label="&lt;script&gt;&quot;x&quot;"' in html
    assert '<th scope="row">a &lt; b</th>' in html


@pytest.mark.parametrize(("which", "cell"), [("high", "41.2"), ("low", "9.5")])
def test_the_best_cell_is_marked_in_bold_and_in_words(which, cell):
    html = table(ROWS, best={"PSNR": which})._repr_html_()
    assert html.count("<strong>") == 1
    assert f"<strong>{cell}" in html and "(best)" in html


def test_ties_are_all_best_and_one_number_alone_is_none():
    tied = [{"a": "x", "b": 1.0}, {"a": "y", "b": 1.0}]
    assert table(tied, best={"b": "high"})._repr_html_().count("<strong>") == 2
    assert "<strong>" not in table(tied[:1], best={"b": "high"})._repr_html_()


def test_without_html_it_is_columns_of_text():
    lines = repr(table(ROWS, units={"PSNR": "dB"})).splitlines()
    assert lines[0].split() == ["defense", "PSNR", "(dB)", "named", "ε"]
    assert lines[2].startswith("a < b") and "9.5 (8 to 11)" in lines[2]
    assert len({line.index("named") if "named" in line else 0 for line in lines}) == 2


@pytest.mark.parametrize(
    ("rows", "options", "word"),
    [
        ([], {}, "at least one row"),
        ([{}], {}, "at least one value"),
        (ROWS, {"best": {"PSNR": "most"}}, "most"),
        (ROWS, {"best": {"nothing": "high"}}, "nothing"),
        (ROWS, {"units": {"nothing": "dB"}}, "nothing"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(rows, options, word):
    with pytest.raises(PrivflError, match=word):
        table(rows, **options)


def test_a_table_that_sorts_has_its_numbers_beside_the_text():
    html = table(ROWS, sort=True)._repr_html_()
    assert 'class="pf-table pf-sortable"' in html
    assert html.count("data-value=") >= 2 and "data-value" not in table(ROWS)._repr_html_()
