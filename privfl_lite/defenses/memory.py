"""What clients remember from round to round; it belongs to a run, not to a defense."""

from __future__ import annotations

import copy

from ..gradients import Tensors


class Memory:
    """What is remembered from round to round, owned by a run and saved with it.

    ``private[client]``: the tensors of the model that this client has for itself; the run trains
    them and puts them back. ``memory[client]``: tensors that a defense writes. ``memory.run``:
    numbers about the whole run. Each part of a chain has notes of its own (``part``). ``secure``,
    a setting of the run: noise comes from the operating system, not from seeded generators.
    """

    def __init__(self, secure: bool = False) -> None:
        self.secure = secure
        self.private: dict[int, Tensors] = {}
        self.clients: dict[int, Tensors] = {}
        self.run: dict = {}
        self.parts: dict[int, Memory] = {}

    def __getitem__(self, client: int) -> Tensors:
        return self.clients.setdefault(client, {})

    def part(self, i: int) -> Memory:
        """The notes of part i of a chain; private tensors are common to all parts."""
        mine = self.parts.setdefault(i, Memory())
        mine.private, mine.secure = self.private, self.secure
        return mine

    def state_dict(self) -> dict:
        """For a checkpoint; never on the wire."""
        parts = {i: {**m.state_dict(), "private": {}} for i, m in self.parts.items()}
        own = {"private": self.private, "clients": self.clients, "run": self.run}
        return {**own, "parts": parts}

    def load_state_dict(self, state: dict) -> None:
        """Remember what the state says; the state itself stays as it is, whatever comes next."""
        names = ("private", "clients", "run")
        self.private, self.clients, self.run = (copy.deepcopy(state[name]) for name in names)
        for i, part in state["parts"].items():
            self.part(i).load_state_dict(part)
            self.part(i)  # shares the private tensors again
