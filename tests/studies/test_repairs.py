"""What the chapter "The red team" says of repairs is what ``red-team/repairs`` has stored."""

from __future__ import annotations

import pytest

from privfl_lite.teach.plots import red_team_repairs as plots

WEAK = {("fedkl", "chained, 16 bits"): 4, ("loda", "fresh starts"): 8}
WEAK[("cloak", "private norm, sigma 5")] = 0


def hits(cell: dict) -> int:
    return round(plots.named(cell).value * 9)


@pytest.mark.parametrize(("family", "plain", "name"), plots.repairs())
def test_who_is_named_before_and_after(family, plain, name):
    assert hits(plots.informed(family, plain)) == (0 if name.endswith("sigma 5") else 9)
    assert hits(plots.informed(family, name)) == WEAK.get((family, name), 9)
    assert plots.blind(plots.informed(family, name)) == 0


def test_who_knew_the_plain_defense_only_is_turned_away_by_three():
    knew = {n: hits(plots.find("attack", f, n, "knew")) for f, n in (
        ("dcs2", "pruned"), ("fedkl", "16 bits"), ("entangle", "noise"),
    )}  # fmt: skip
    assert knew == {"pruned": 0, "16 bits": 6, "noise": 1}


def test_chained_locks_in_16_bits_show_no_digit_to_algebra_or_search():
    for who in ("knows", "searches"):
        cell = plots.find("attack", "fedkl", "chained, 16 bits", who)
        assert hits(cell) == 4 and max(v for row in cell["networks"] for v in row["psnr"]) < 12


def test_pruned_pairs_know_which_of_them_arrived():
    rows = plots.find("attack", "dcs2", "pruned")["networks"]
    pairs = [p for row in rows for p in zip(row["cost"], row["psnr"], strict=True)]
    assert sum(cost < 1e-6 for cost, _ in pairs) == 8
    assert all((cost < 1e-6) is (psnr > 20) for cost, psnr in pairs)


def test_prices_that_the_chapter_quotes():
    def price(family: str, name: str) -> float:
        return 100 * (plots.lost(family, name) - plots.lost(family, "plain"))

    assert 3 < price("dcs2", "pruned") < 4 and 20 < price("dcs2", "boxed, rescaled") < 21
    assert 49 < price("fedkl", "chained") < 50
    assert abs(price("entangle", "every tensor")) < 3 and abs(price("entangle", "noise")) < 3
    accuracy = plots.find("cost", "cloak", "private norm, sigma 5")["accuracy"]
    assert max(accuracy) < 0.11  # chance


def test_norms_are_read_behind_noise_that_follows_and_not_behind_a_private_clip():
    def errors(name: str) -> list[float]:
        rows = plots.find("attack", "cloak", name)["networks"]
        return [row["norm_error"] for row in rows]

    assert max(errors("plain, sigma 5")) < 0.01
    assert min(errors("private norm, sigma 5")) >= 1.0
