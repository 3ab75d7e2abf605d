"""Processes that train groups of clients beside each other: ``FedAvg(…, workers=2)``.

A worker is started once a run, as a fresh Python ("spawn"), and is given all that stays the same.
It then takes one group of clients after the other: the global weights and what these clients
remember go in, their updates, their notes and the states of their random streams come back. The
update door and all sums stay with the run, in the order of groups, so that the bits do not depend
on how many workers there are.
"""

from __future__ import annotations

import io
import pickle
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from .batches import Data
from .defenses.base import Memory
from .gradients import Tensors
from .models import Net
from .runtime import PrivflError
from .training import Local, Trained
from .wire import Plan

CANNOT = (
    "worker processes could not be given this run ({why}): a script needs its run under "
    'if __name__ == "__main__":, and models and defenses must be defined in a module that can be '
    "imported, not in a notebook's cell; or take workers=1"
)
Job = tuple[Tensors, list[int], Plan, int, Memory]  # weights, who, plan, round, what they remember
Answer = tuple[Trained, dict[int, Data], Memory]  # without data, but for those that a door changed


class Workers:
    """So many processes that train clients of one run by its rules."""

    def __init__(self, count: int, local: Local, model: Net):
        self.local = local
        begin = _packed((local, model, torch.get_num_threads()))
        spawn = get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for _ in range(count):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=work, args=(theirs,), daemon=True)
            try:
                process.start()
            except RuntimeError:  # we are a worker that imports a script without a main guard
                raise SystemExit(1) from None
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        for pipe in self.pipes:
            self._send(pipe, begin)

    def train_all(
        self, model: Net, parts: Sequence[list[int]], plan: Plan, r: int, memory: Memory
    ) -> Iterator[Trained]:
        """All groups at once, in their order; what clients remember is put into ``memory``."""
        weights = model.state_dict()
        jobs = [(weights, who, plan, r, memory.only(who)) for who in parts]
        for who, (trained, changed, notes) in zip(parts, self._answers(jobs), strict=True):
            memory.take(notes)
            yield trained._replace(data=[changed.get(c, self.local.clients[c]) for c in who])

    def _answers(self, jobs: Sequence[Job]) -> Iterator[Answer]:
        """Hand a job to whoever is idle; give back the answers in the order of jobs."""
        todo, idle = deque(enumerate(jobs)), list(self.pipes)
        busy: dict[Connection, int] = {}
        done: dict[int, Any] = {}

        def hand_out() -> None:
            while idle and todo:
                (i, job), pipe = todo.popleft(), idle.pop()
                self._send(pipe, _packed(job))
                busy[pipe] = i

        hand_out()
        for i in range(len(jobs)):
            while i not in done:
                for pipe in [p for p in busy if p in set(wait(busy))]:
                    done[busy.pop(pipe)] = self._receive(pipe)
                    idle.append(pipe)
                hand_out()
            yield done.pop(i)

    def _send(self, pipe: Connection, content: bytes) -> None:
        try:
            pipe.send_bytes(content)
        except OSError:
            raise PrivflError(CANNOT.format(why="one has ended")) from None

    def _receive(self, pipe: Any) -> Any:
        try:
            found = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            raise PrivflError(CANNOT.format(why="one has ended")) from None
        if isinstance(found, Exception):
            raise found
        return found

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes at once, also in the middle of a group."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()
        for pipe in self.pipes:
            pipe.close()


def work(pipe: Connection) -> None:
    """A worker's life; it ends with the run, since the pipe is then closed at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the run, which ends its workers
    try:
        local, model, threads = _unpacked(pipe.recv_bytes())
        torch.set_num_threads(threads)  # the bits may depend on it
        while True:
            job = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(_packed(_answer(local, model, *job)))
    except (EOFError, OSError):
        return
    except PrivflError as error:
        pipe.send_bytes(pickle.dumps(error))


def _answer(
    local: Local, model: Net, weights: Tensors, who: list[int], plan: Plan, r: int, memory: Memory
) -> Answer | Exception:
    model.load_state_dict(weights)
    before = _packed(memory.runs())
    try:
        trained = local.train(model, who, plan, r, memory)
    except PrivflError as error:
        return error
    except Exception as error:
        return RuntimeError(f"a worker failed with {type(error).__name__}: {error}")
    if _packed(memory.runs()) != before:
        return PrivflError(
            "the defense writes about the whole run (memory.run) while clients train, which "
            "workers cannot put together; take workers=1"
        )
    held = zip(trained.data, who, strict=True)
    changed = {c: d for d, c in held if any(map(is_not, d, local.clients[c]))}
    return trained._replace(data=[]), changed, memory


class _Pickler(pickle.Pickler):
    """Tensors as arrays: of a view its own numbers only, and no shared memory to be left over."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and value.dtype != torch.bfloat16:
            return torch.from_numpy, (value.detach().cpu().contiguous().numpy(),)
        return NotImplemented


def _packed(content: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(content)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PrivflError(CANNOT.format(why=str(error))) from None
    return buffer.getvalue()


def _unpacked(content: bytes) -> Any:
    try:
        return pickle.loads(content)
    except (AttributeError, ImportError) as error:
        raise PrivflError(CANNOT.format(why=str(error))) from None
