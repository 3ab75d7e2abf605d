"""Random numbers that nobody can replay: from the operating system's cryptographic generator.

A seeded generator, however good its statistics, is no secret: who knows or guesses the seed
subtracts the noise. torch's and numpy's generators are not cryptographic even with a secret seed
(their state follows from their output). Here every number is made of fresh bytes of
``secrets.token_bytes``, by the inverse of its distribution function.
"""

from __future__ import annotations

import secrets

import numpy as np


def system_uniform(count: int) -> np.ndarray:
    """``count`` numbers from (0, 1): 52 random bits each, at the middle of their step.

    So none is 0 or 1 (with 53 bits the last middle would round to 1).
    """
    bits = np.frombuffer(secrets.token_bytes(8 * count), np.uint64) >> np.uint64(12)
    return (bits + 0.5) / 2.0**52


def system_normal(count: int) -> np.ndarray:
    """Standard normal numbers, Φ⁻¹(u); the largest possible is 8.2."""
    from scipy.special import ndtri  # slow to import

    return ndtri(system_uniform(count))


def system_laplace(count: int) -> np.ndarray:
    """Laplace numbers of scale 1: ∓log(1 − |2u − 1|), the sign that of 2u − 1."""
    u = 2 * system_uniform(count) - 1
    return -np.sign(u) * np.log1p(-np.abs(u))
