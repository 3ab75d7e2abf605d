"""How much is measured: all of it (about 10 minutes on two quiet cores), or a minute of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Repetitions and sizes; the names of rows say the full ones."""

    name: str
    repeats: int
    few: int  # repetitions where one takes over ten seconds
    step_scale: float  # times the steps of a GS run
    images: int  # searched at once
    digits: int  # searched one by one until 30 dB
    cap: int  # evaluations of such a search
    clients: tuple[int, int, int]  # "100", "1,000", and "10" of a wide network
    flower: tuple[int, int]  # times, and rounds each; no Flower with 0
    flower_many: tuple[int, int]  # with 1,000 clients, where a round takes long
    growth: int  # points of each curve, from the smallest on


FULL = Effort("full", 7, 3, 1.0, 32, 12, 600, (100, 1000, 10), (2, 6), (1, 4), 9)
QUICK = Effort("quick", 2, 1, 0.1, 4, 1, 8, (4, 8, 2), (0, 0), (0, 0), 1)
