"""What clients remember from round to round. A run owns it, and no defense."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor

from ..checking import checked
from ..gradients import Tensors


class Notes(dict[str, Tensor]):
    """What one client remembers; ``part(i)`` is what it remembers for part i of a chain."""

    def __init__(self, memory: Memory, client: int):
        super().__init__()
        self.memory, self.client = memory, client

    def part(self, i: int) -> Notes:
        return self.memory.part(i)[self.client]


class Memory:
    """What is remembered from round to round, owned by a run and saved with it.

    ``private[client]``: the tensors of the model that this client has for itself; the run trains
    them and puts them back. ``memory[client]``: tensors that a defense writes. ``memory.run``:
    numbers about the whole run. Each part of a chain has notes of its own (``part``). ``secure``,
    a setting of the run: noise comes from the operating system, not from seeded generators.
    """

    @checked
    def __init__(self, secure: bool = False) -> None:
        self.secure = secure
        self.private: dict[int, Tensors] = {}
        self.clients: dict[int, Notes] = {}
        self.run: dict = {}
        self.parts: dict[int, Memory] = {}

    def __getitem__(self, client: int) -> Notes:
        return self.clients.setdefault(client, Notes(self, client))

    def part(self, i: int) -> Memory:
        """The notes of part i of a chain; private tensors are common to all parts."""
        mine = self.parts.setdefault(i, Memory())
        mine.private, mine.secure = self.private, self.secure
        return mine

    def only(self, who: Sequence[int]) -> Memory:
        """What these clients remember, and the run's own numbers; to be read elsewhere."""
        mine = Memory(self.secure)
        mine.private = {c: self.private[c] for c in who if c in self.private}
        for c in who:
            if c in self.clients:
                mine[c].update(self.clients[c])
        mine.run, mine.parts = self.run, {i: part.only(who) for i, part in self.parts.items()}
        return mine

    def take(self, other: Memory) -> None:
        """Put in what clients remember elsewhere (``only``)."""
        self.private |= other.private
        for client, notes in other.clients.items():
            self.clients[client] = Notes(self, client)
            self[client].update(notes)
        for i, part in other.parts.items():
            self.part(i).take(part)

    def runs(self) -> list[dict]:
        """Numbers about the whole run: our own, and those of parts that have some."""
        return [self.run, *(part.run for part in self.parts.values() if part.run)]

    def state_dict(self) -> dict:
        """For a checkpoint; never on the wire."""
        parts = {i: {**m.state_dict(), "private": {}} for i, m in self.parts.items()}
        clients = {c: dict(notes) for c, notes in self.clients.items()}
        return {"private": self.private, "clients": clients, "run": self.run, "parts": parts}

    def load_state_dict(self, state: dict) -> None:
        """Remember what the state says; the state itself stays as it is, whatever comes next."""
        self.private, self.run = (copy.deepcopy(state[name]) for name in ("private", "run"))
        self.clients = {}
        for client, notes in state["clients"].items():
            self[client].update(copy.deepcopy(notes))
        for i, part in state["parts"].items():
            self.part(i).load_state_dict(part)
            self.part(i)  # shares the private tensors again
