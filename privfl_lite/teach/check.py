"""Exercises that answer at once: a check says "Right", or what is wrong and where to look."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from torch import Tensor

TRIALS = 5  # random cases that a check puts to the reader's function


class Wrong(Exception):
    """Raised by a check: one sentence on what is wrong and where to look."""


def exercise(praise: str) -> Callable[[Callable[..., None]], Callable[..., bool]]:
    """Turn a function that raises ``Wrong`` into a check that prints its verdict and returns it.

    Any other exception comes from the reader's own code and is told in one line, without a trace.
    """

    def decorate(check: Callable[..., None]) -> Callable[..., bool]:
        @wraps(check)
        def verdict(*answers: object) -> bool:
            try:
                if any(a is None or a is ... for a in answers):
                    raise Wrong("there is no answer yet; replace the dots")
                check(*answers)
            except Wrong as wrong:
                print(f"Not yet: {wrong}.")
                return False
            except Exception as error:
                print(f"Not yet: your code raised {type(error).__name__}: {error}")
                return False
            print(f"Right. {praise}")
            return True

        return verdict

    return decorate


def begun(answer: Any) -> Any:
    """The answer as it is, or Wrong where the reader's function still returns nothing."""
    if answer is None or answer is ...:
        raise Wrong("your function returns nothing yet; replace the dots")
    return answer


def tensor(
    answer: Any,
    shape: tuple[int, ...] | None,
    what: str,
    nan: str = "does something divide by zero?",
) -> Tensor:
    """The answer in double precision, or Wrong: no finite tensor of this shape (None: of any)."""
    if not torch.is_tensor(begun(answer)):
        raise Wrong(f"return a tensor for {what}, not a {type(answer).__name__}")
    if shape is not None and tuple(answer.shape) != shape:
        raise Wrong(f"{what} has shape {shape}, but yours has shape {tuple(answer.shape)}")
    if not answer.isfinite().all():
        raise Wrong(f"there is NaN or infinity in {what}: {nan}")
    return answer.detach().double()


def number(answer: Any, what: str) -> float:
    """The answer as a float, or Wrong: not a number, or not a finite one."""
    try:
        value = float(begun(answer))
    except (TypeError, ValueError, RuntimeError):  # the last one: a tensor of several numbers
        raise Wrong(f"{what} is one number, not a {type(answer).__name__}") from None
    if not math.isfinite(value):
        raise Wrong(f"{what} came out as {value}")
    return value


def close(a: Any, b: Any, rtol: float = 1e-4, atol: float = 1e-6) -> bool:
    """Whether two numbers, tensors of one shape, or tensors by name are the same up to rounding."""
    if isinstance(b, Mapping):
        return all(close(a[name], b[name], rtol, atol) for name in b)
    a, b = (torch.as_tensor(v).double() for v in (a, b))
    return a.shape == b.shape and torch.allclose(a, b, rtol=rtol, atol=atol)


def hint(found: Tensor, wrongs: Mapping[str, Tensor], otherwise: str) -> Wrong:
    """The hint for the wrong answer (hint -> answer) that was found, else the one for any other."""
    return Wrong(next((hint for hint, wrong in wrongs.items() if close(found, wrong)), otherwise))
