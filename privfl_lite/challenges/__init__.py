"""Capture the flag: twelve uploads, from one that a glance reads to two that nobody has read.

``privfl challenge list | get | hint | submit``. A challenge is an upload with what its attacker is
granted; its flag is what the client wanted to keep. Answers are checked offline, by a salted, slow
digest of what was recovered. Page: challenges.
"""

from .base import Challenge, Hint, Private
from .board import Board, merged
from .handing import Handed, hand_out, load
from .registry import CHALLENGES
from .sets import Set, make, open_set

__all__ = [
    "CHALLENGES",
    "Board",
    "Challenge",
    "Handed",
    "Hint",
    "Private",
    "Set",
    "hand_out",
    "load",
    "make",
    "merged",
    "open_set",
]
