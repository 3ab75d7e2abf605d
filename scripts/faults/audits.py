"""The audits of tests/unit/test_audit.py, and the totals of its bad inputs, as rows and a line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS / "unit"), str(TESTS)]

import test_audit as cases  # noqa: E402

from privfl_lite.privacy import Audit, Epsilon, Training, account, audit  # noqa: E402

ABOUT = f"""One-run audits (Steinke, Nasr and Jagielski 2023) of a linear network with {cases.M}
inputs: canary i lights pixel i and its label is a coin, so gradients of canaries are orthogonal,
and clipped at C = {cases.CLIP}. "ε at least" holds with 95 % confidence at δ = 1e-5. p: at most
so probable are that many right guesses if the claim is true. One seed (0) each. Settings are
those of the claim; what was done in place of it stands in the first column."""
GUESSES = 100  # of the coins, where a claim is right


def rows() -> Iterator[tuple[str, ...]]:
    """Claims of the package, then claims that are wrong by construction."""
    for name, (release, defense, run) in cases.CLAIMS.items():
        claim = account(defense, run)
        yield _row(name, defense, claim, audit(release, cases.M, GUESSES, seed=0), True)
    cloak = cases.ModelCloak(cases.CLIP, 2.0, where="server")
    release = cases.GlobalModel(cloak, 3)
    found = audit(release, cases.M, GUESSES, seed=0)
    yield _row("ModelCloak at the server, 3 rounds", cloak, release.claimed, found, True)
    for name, (release, defense, guesses) in cases.WRONG.items():
        claim = account(defense, Training(1))
        yield _row(
            f"wrong: {name}", defense, claim, audit(release, cases.M, guesses, seed=0), False
        )


def _row(name: str, defense: object, claim: Epsilon, found: Audit, true: bool) -> tuple[str, ...]:
    """One line; bold where an audit refutes what is right, or does not refute what is wrong."""
    assert claim.value is not None, claim.reason
    p = found.p_value(claim.value)
    stands = found.epsilon <= claim.value and p > 0.05
    verdict = "not refuted" if stands else "refuted"
    verdict = verdict if stands == true else f"**{verdict}**"
    guessed = f"{found.epsilon:.3g} ({found.right} of {found.guesses} right)"
    value = f"{claim.value:.4g} per {claim.unit}, {claim.neighbors}"
    return name, f"`{defense}`", value, guessed, f"{p:.2g}", verdict


def bad_inputs() -> str:
    """What the table-driven test says of itself."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    files = [str(TESTS / "unit" / f"test_{name}.py") for name in ("bad_inputs", "named_bad_inputs")]
    told = subprocess.run([*command, *files], capture_output=True, text=True).stdout
    line = re.search(r"[\d,]+ bad inputs for \d+ calls; .*", told)
    end = told.strip().splitlines()[-1]
    return f"`tests/unit/test_bad_inputs.py`: {line[0] if line else '**no totals**'}\n\nBoth: {end}"
