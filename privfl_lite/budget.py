"""How much memory one piece of work may take, and how work that takes more is cut.

The budget is three quarters of what is free when the work begins (of the machine, its container,
the limit of the process, or the GPU), or what ``PRIVFL_MEMORY`` says: ``500MB``, ``4GB``. Clients
and uploads are independent, so cutting changes results by rounding at most; only a network that
draws random numbers itself draws other ones. What is needed is estimated from the network's own
sizes.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from .runtime import PrivflError, device

Tensors = dict[str, Tensor]
UNITS = {"": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
UNKNOWN = 4 * 2**30  # taken for free where nothing tells


def budget() -> int:
    """Bytes that one piece of work may take, now."""
    said = os.environ.get("PRIVFL_MEMORY")
    if not said:
        return free() * 3 // 4
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)?", said.strip().upper())
    if not found or not float(found[1]):
        raise PrivflError(f"PRIVFL_MEMORY is {said!r}; write a number with MB or GB, as 4GB")
    return int(float(found[1]) * UNITS[found[2] or ""])


def free() -> int:
    """Bytes that are free: the least of what the machine, a container and a limit leave."""
    if device().type == "cuda":
        return torch.cuda.mem_get_info()[0]
    return min([*_machine(), *_container(), *_limit()], default=UNKNOWN)


def _machine() -> Iterator[int]:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable"))
        yield 1024 * int(line.split()[1])


def _container() -> Iterator[int]:
    with suppress(OSError, ValueError):  # "max" is no limit
        most, used = (
            int(Path("/sys/fs/cgroup", f"memory.{n}").read_text()) for n in ("max", "current")
        )
        yield max(0, most - used)


def _limit() -> Iterator[int]:
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            yield max(0, most - pages * resource.getpagesize())


def at_once(count: int, each: int, what: str, kept: int = 0) -> int:
    """How many of ``count`` fit into the budget, each of which takes ``each`` bytes while it is
    computed and leaves ``kept``; a sentence where not even one does.
    """
    room, whole = budget(), kept * count + each
    if whole > room:
        raise PrivflError(
            f"{count:,} {what} need about {size(whole)} of memory, and {size(room)} may be taken "
            "here; take fewer, a smaller network or a smaller batch (PRIVFL_MEMORY sets the limit)"
        )
    return min(count, (room - kept * count) // max(1, each))


def joined(parts: Iterable[Tensors], count: int) -> Tensors:
    """Rows of tensors that come part after part as one, (count, *shape), with no second copy."""
    out: Tensors = {}
    first = 0
    for part in parts:
        rows = len(next(iter(part.values()), ()))
        if rows == count:
            return part
        for name, t in part.items():
            if name not in out:
                out[name] = t.new_empty(count, *t.shape[1:])
            out[name][first : first + rows] = t.detach()
        first += rows
    return out


def size(count: float) -> str:
    """Bytes, for people."""
    for unit, one in reversed(UNITS.items()):
        if count >= one and unit:
            return f"{count / one:.3g} {unit}"
    return f"{count:.0f} bytes"


def footprint(model: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    """Numbers that a network holds: weights, and outputs of all layers for one image."""
    outputs: list[int] = []
    net = copy.deepcopy(model).eval()
    for m in net.modules():
        if not list(m.children()):
            m.register_forward_hook(lambda _m, _i, out: outputs.append(out.numel()))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        net(torch.zeros(1, *shape).to(next(model.parameters())))
    return sum(p.numel() for p in model.parameters()), sum(outputs)


@contextmanager
def refused_if_full(what: str) -> Iterator[None]:
    """Inside, memory that runs out all the same is one sentence."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_full(error):
            raise
        raise PrivflError(
            f"{what} ran out of memory; take fewer images or clients at a time, or let it cut its "
            "work finer with PRIVFL_MEMORY, as 500MB"
        ) from None


def is_full(error: Exception) -> bool:
    """Whether this says that memory has run out."""
    words = ("not enough memory", "out of memory", "bad_alloc", "cannot allocate memory")
    return isinstance(error, MemoryError) or any(w in str(error).lower() for w in words)
