"""Exercise checks: whatever a reader's answer does is told in one sentence, with its line."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from privfl_lite.teach.check import Wrong, as_tensor, close, exercise, mask, number, pair, tensor
from privfl_lite.teach.checks.entanglement import check_foreign_columns
from privfl_lite.teach.checks.noise_and_epsilon import check_private_mean
from privfl_lite.teach.checks.why_gradients_leak import check_read_off


def told(answer, capsys, check=check_read_off) -> str:
    """What the check says of a wrong answer, without "Not yet: "."""
    assert check(answer) is False
    said = capsys.readouterr().out
    assert said.startswith("Not yet: ") and said.count("\n") == 1
    return said[len("Not yet: ") : -1]


def line_of(function, more: int) -> int:
    return function.__code__.co_firstlineno + more


def divides_by_zero(g_weight, g_bias):
    rows = len(g_bias)
    return rows / 0


def leaves(g_weight, g_bias):
    sys.exit()


def misuses_torch(g_weight, g_bias):
    return torch.nn.functional.cross_entropy(g_weight, "labels")


def misuses_numpy(g_weight, g_bias):
    return np.concatenate([g_weight.numpy(), g_bias.numpy()])


def asserts(g_weight, g_bias):
    raise AssertionError


def test_the_line_of_the_readers_code_is_named(capsys):
    said = told(divides_by_zero, capsys)
    assert said == (
        "your code raised ZeroDivisionError: division by zero, "
        f"in line {line_of(divides_by_zero, 2)}: `return rows / 0`"
    )
    for answer, kind in ((misuses_torch, "TypeError"), (misuses_numpy, "ValueError")):
        said = told(answer, capsys)
        assert f"your code raised {kind}: " in said and f"in line {line_of(answer, 1)}: `re" in said
    assert f"AssertionError, in line {line_of(asserts, 1)}: `raise" in told(asserts, capsys)


def test_exit_is_told_like_any_other_error(capsys):
    says = f"your code called exit(), in line {line_of(leaves, 1)}: `sys.exit()`"
    assert told(leaves, capsys) == f"{says}; return the answer instead"


def test_code_of_a_notebook_cell_is_named_by_its_line(capsys):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell("def answer(g, b):\n    a = 1\n    return a / 0\n")
    assert "in line 3: `return a / 0`" in told(shell.user_ns["answer"], capsys)


def test_ctrl_c_still_interrupts():
    def slow(g_weight, g_bias):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_read_off(slow)


def test_an_error_outside_the_readers_code_does_not_blame_it(capsys):
    @exercise("")
    def check(answer: object) -> None:
        len(answer)

    check.__wrapped__.__code__ = check.__wrapped__.__code__.replace(
        co_filename=tensor.__code__.co_filename
    )
    said = told(3, capsys, check)
    assert said.startswith("your answer could not be used: TypeError") and "line" not in said


def right_mean(g, clip, sigma, z):
    total = (g * (clip / g.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
    return (total + sigma * clip * z) / len(g)


@pytest.mark.parametrize(
    "dress",
    [
        lambda t: t.numpy(),
        lambda t: t.numpy()[::-1].copy()[::-1],  # torch takes no negative strides
        lambda t: t.tolist(),
        lambda t: tuple(t),
        lambda t: list(t.numpy()),
        lambda t: t.double(),
        lambda t: t.requires_grad_(),
        lambda t: torch.nn.Parameter(t),
    ],
)
def test_right_numbers_are_right_in_every_dress(dress, capsys):
    assert check_private_mean(lambda *given: dress(right_mean(*given))) is True
    assert check_private_mean(lambda *given: dress(right_mean(*given) + 1)) is False


def foreign(weight, bias):
    part = weight / bias[:, None]
    return ~torch.isclose(part, part[:1], rtol=1e-6).all(0)


@pytest.mark.parametrize("dress", ["bool", "numpy", "tolist", "int", "double"])
def test_masks_of_every_kind(dress, capsys):
    assert check_foreign_columns(lambda *given: getattr(foreign(*given), dress)()) is True
    assert check_foreign_columns(lambda *given: foreign(*given).double() * 0.5) is False
    assert "30 truth values" in capsys.readouterr().out


@pytest.mark.parametrize("answer", ["text", ["a"], [[1], [1, 2]], [], {}, object(), 1j, [1j, 2]])
def test_what_is_no_tensor_is_said(answer):
    with pytest.raises(Wrong, match=r"return a tensor for it|real numbers|has shape"):
        tensor(answer, (2,), "it")
    with pytest.raises(Wrong, match="truth values"):
        mask(answer, (2,), "truth values")


def test_numbers_keep_their_digits():
    assert as_tensor(0.1).item() == 0.1 and as_tensor([0.1, 2]).tolist() == [0.1, 2.0]
    assert tensor(np.float32(0.5), (), "it") == 0.5
    with pytest.raises(Wrong, match="return a tensor for it, not a float"):
        tensor(0.5, (), "it")
    assert tensor(np.arange(3, dtype=np.uint16), (3,), "it").tolist() == [0, 1, 2]
    assert number(np.float64(2.5), "it") == 2.5
    assert close([1.0, 2.0], torch.tensor([1.0, 2.0])) and close({"a": [1]}, {"a": torch.ones(1)})
    assert pair(np.ones(2)) and pair(torch.ones(2, 3)) and pair((1, 2))
    assert not pair(np.ones(3)) and not pair(torch.tensor(1.0)) and not pair("ab")
