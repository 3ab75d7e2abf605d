"""A class's secret: the seeds of its data and hidden cases, drawn from one word by HMAC.

The repository is public, and so is everything that follows from it. A class therefore sets a word
of its own, ``PRIVFL_CLASS_SECRET``; without one, ``PUBLIC`` stands for it, and then all numbers are
the same for everybody. A seed says nothing about the secret, nor about any other seed.
"""

from __future__ import annotations

import hashlib
import hmac
import os

PUBLIC = "privfl_lite"  # the secret of nobody: for reading, and for tests
VARIABLE = "PRIVFL_CLASS_SECRET"


def secret() -> str:
    """The secret of this class, from the environment; ``PUBLIC`` where none is set."""
    return os.environ.get(VARIABLE) or PUBLIC


def digest(secret: str, *path: str) -> bytes:
    """32 bytes that belong to a path such as ``("read-off", "q2", "hidden")``: HMAC-SHA-256.

    Each part goes in with its length, so that ("ab", "c") and ("a", "bc") differ.
    """
    parts = [part.encode() for part in path]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.new(secret.encode(), message, hashlib.sha256).digest()


def seed(secret: str, *path: str) -> int:
    """The first 63 bits of the digest: a seed for any generator."""
    return int.from_bytes(digest(secret, *path)[:8], "big") >> 1
