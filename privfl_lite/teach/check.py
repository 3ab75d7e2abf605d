"""Exercises that answer at once: a check says "Right", or what is wrong and where to look."""

from __future__ import annotations

import inspect
import math
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

TRIALS = 5  # random cases that a check puts to the reader's function
_PLACES = ("stdlib", "platstdlib", "purelib", "platlib")
FOREIGN = (  # where code that the reader did not write lies
    "<frozen",
    "<__array_function__",
    str(Path(__file__).parents[1]),
    str(Path(str(torch.__file__)).parents[1]),
    *(sysconfig.get_path(place) for place in _PLACES),
)


class Wrong(Exception):
    """Raised by a check: one sentence on what is wrong and where to look."""


def exercise(praise: str) -> Callable[[Callable[..., None]], Callable[..., bool]]:
    """Turn a function that raises ``Wrong`` into a check that prints its verdict and returns it.

    Any other exception comes from the reader's own code and is told in one sentence that names the
    line, without a trace; ``exit()`` too. Only Ctrl-C still interrupts.
    """

    def decorate(check: Callable[..., None]) -> Callable[..., bool]:
        @wraps(check)
        def verdict(*answers: object, **settings: object) -> bool:
            wrong = fault(verdict, *answers, **settings)
            print(f"Not yet: {wrong}" if wrong else f"Right. {praise}")
            return wrong is None

        return verdict

    return decorate


def fault(verdict: Callable[..., bool], *answers: object, **settings: object) -> str | None:
    """What is wrong with the answers, in the sentence that this check would print, or None."""
    try:
        if any(a is None or a is ... for a in answers):
            raise Wrong("there is no answer yet; replace the dots")
        inspect.unwrap(verdict)(*answers, **settings)
    except Wrong as wrong:
        return f"{wrong}."
    except (Exception, SystemExit) as error:
        return _told(error)
    return None


def _told(error: BaseException) -> str:
    """What happened, and the last line of the reader's own code on the way there."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    own = next((f for f in frames if not f.filename.startswith(FOREIGN)), None)
    where = f", in line {own.lineno}: `{own.line}`" if own and own.line else ""
    if isinstance(error, SystemExit):
        return f"your code called exit(){where}; return the answer instead"
    first = "".join(f": {line}" for line in str(error).splitlines()[:1])
    what = "your code raised" if own else "your answer could not be used:"
    return f"{what} {type(error).__name__}{first}{where}"


def begun(answer: Any) -> Any:
    """The answer as it is, or Wrong where the reader's function still returns nothing."""
    if answer is None or answer is ...:
        raise Wrong("your function returns nothing yet; replace the dots")
    return answer


def as_tensor(answer: Any) -> Any:
    """A number, an array, or a list of these (or of tensors) as a tensor; other things as they are.

    Python's and NumPy's numbers stay in double precision.
    """
    try:
        if isinstance(answer, np.ndarray | np.generic | int | float):
            return torch.as_tensor(np.array(answer))  # a copy: torch takes no reversed array
        if isinstance(answer, list | tuple) and answer:
            return torch.stack([as_tensor(part) for part in answer])
    except (TypeError, ValueError, RuntimeError):  # words, or rows of different lengths
        pass
    return answer


def tensor(
    answer: Any,
    shape: tuple[int, ...] | None,
    what: str,
    nan: str = "does something divide by zero?",
) -> Tensor:
    """The answer in double precision, or Wrong: no finite tensor of this shape (None: of any)."""
    found = as_tensor(begun(answer))
    if not torch.is_tensor(found) or type(answer) in (bool, int, float):
        raise Wrong(f"return a tensor for {what}, not a {type(answer).__name__}")
    if found.is_complex():
        raise Wrong(f"{what} is made of real numbers; yours has complex ones")
    if shape is not None and tuple(found.shape) != shape:
        raise Wrong(f"{what} has shape {shape}, but yours has shape {tuple(found.shape)}")
    found = found.detach().double()
    if not found.isfinite().all():
        raise Wrong(f"there is NaN or infinity in {what}: {nan}")
    return found


def mask(answer: Any, shape: tuple[int, ...], otherwise: str) -> Tensor:
    """The answer as truth values of this shape (0 and 1 count as such), or Wrong: otherwise."""
    found = as_tensor(begun(answer))
    if not torch.is_tensor(found) or tuple(found.shape) != shape:
        raise Wrong(otherwise)
    if not torch.equal(found.double(), found.bool().double()):
        raise Wrong(otherwise)
    return found.bool()


def pair(answer: Any) -> bool:
    """Whether the answer is two things: a tuple, list, array or tensor of length 2."""
    shaped = isinstance(answer, np.ndarray | Tensor) and answer.ndim > 0
    return (shaped or isinstance(answer, tuple | list)) and len(answer) == 2


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
    a, b = (as_tensor(v).double() for v in (a, b))
    return a.shape == b.shape and torch.allclose(a, b, rtol=rtol, atol=atol)


def hint(found: Tensor, wrongs: Mapping[str, Tensor], otherwise: str) -> Wrong:
    """The hint for the wrong answer (hint -> answer) that was found, else the one for any other."""
    return Wrong(next((hint for hint, wrong in wrongs.items() if close(found, wrong)), otherwise))
