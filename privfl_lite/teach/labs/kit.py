"""What all labs share: keys and random cases, hidden tests, tensors inside a notebook.

A **key** decides which cases a check draws. ``PRACTICE`` is everybody's; that of a class follows
from its secret and stands in the autograder only.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from .. import classroom
from ..check import Wrong, fault

PRACTICE = "practice"  # the key of the checks that students see
PACKAGE = Path(__file__).parents[2]


def lab_key(secret: str, slug: str) -> str:
    """The key of one lab in one class, as text; nobody can go back from it to the secret."""
    return classroom.digest(secret, "lab", slug).hex()


def draws(key: str, *path: str) -> torch.Generator:
    """Random numbers for one purpose: ``draws(key, "q2", "dust")``."""
    return torch.Generator().manual_seed(classroom.seed(key, *path))


def demand(check: Callable[..., bool], *answers: object, **settings: object) -> None:
    """A test of the autograder: the check passes, or AssertionError with its sentence."""
    wrong = fault(check, *answers, **settings)
    assert wrong is None, wrong


@contextmanager
def withheld(*rooms: str) -> Iterator[None]:
    """Inside, a call into these rooms of the package (``"attacks"``) is noticed: Wrong.

    Also if the caller catches what is raised. Importing a room is no call.
    """
    folders = tuple(str(PACKAGE / room) for room in rooms)
    noticed: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(folders) and not _imports(frame):
            inside = Path(file).relative_to(PACKAGE).parts[0].removesuffix(".py")
            noticed.append(f"privfl_lite.{inside}")
            raise Wrong(_by_hand(noticed[0]))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    except Exception:
        if not noticed:
            raise
    finally:
        sys.setprofile(before)
    if noticed:
        raise Wrong(_by_hand(noticed[0]))


def _imports(frame: FrameType | None) -> bool:
    """Whether this frame runs because a module is being imported."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _by_hand(room: str) -> str:
    return f"your function calls {room}; this question asks for your own lines, without it"


def own(answer: Callable[..., Any], *rooms: str) -> Callable[..., Any]:
    """The student's function, with these rooms withheld while it runs."""
    if not callable(answer):
        raise Wrong(f"this is a {type(answer).__name__}; it should be a function")

    @wraps(answer)
    def call(*args: Any, **kwargs: Any) -> Any:
        with withheld(*rooms):
            return answer(*args, **kwargs)

    return call


def pack(tensors: dict[str, Tensor]) -> str:
    """Tensors as lines of text that fit into a cell."""
    text = base64.b85encode(save({k: t.contiguous() for k, t in tensors.items()})).decode()
    return "\n".join(text[i : i + 78] for i in range(0, len(text), 78))


def unpack(text: str) -> dict[str, Tensor]:
    """The tensors of ``pack``."""
    return load(base64.b85decode("".join(text.split())))
