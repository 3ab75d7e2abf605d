"""Exercises that answer at once: a check says "Right", or what is wrong and where to look."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps


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
