"""Checks for the exercises of "At a million clients": right, or what to look at."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Generator

from ...planning import Federation
from ...privacy import epsilon
from ...runtime import generator
from ..check import Wrong, begun, close, exercise, number

Mask = Callable[[int, int], int]
Sent = tuple[dict[int, int], int]  # what each client sends, what the server has in the end


@exercise("That is the line that grows with the cohort.")
def check_round_bytes(round_bytes: Callable[[int, int, int], float]) -> None:
    """``round_bytes(cohort, numbers, bits)``: into the server, in one round, nothing left out."""
    for cohort, numbers, bits in ((10, 1000, 32), (1000, 13_426, 16), (10**6, 10**6, 48)):
        found = number(round_bytes(cohort, numbers, bits), "the number of bytes")
        if close(found, right := cohort * numbers * bits / 8, 1e-9):
            continue
        if close(found, 8 * right, 1e-9):
            raise Wrong("these are bits; eight of them are a byte")
        if close(found, right / cohort, 1e-9):
            raise Wrong("that is one client's upload; the server gets one from each")
        raise Wrong(f"{cohort:,} uploads of {numbers:,} numbers of {bits} bits are not {found:.6g}")


@exercise("The package's plan counts the same bytes.")
def check_masked_bytes(masked_bytes: Callable[[int, int], float]) -> None:
    """``masked_bytes(cohort, numbers)``: up, from one client of a secure sum in pairs."""
    for cohort, numbers in ((10, 1000), (100, 13_426), (3, 7)):
        found = number(masked_bytes(cohort, numbers), "the number of bytes")
        right = Federation(cohort, cohort, numbers=numbers, summing="pairs").bytes_up
        if close(found, right, 1e-9):
            continue
        if close(found, right - 2 * (numbers + 1), 1e-9):
            raise Wrong("masked numbers have 48 bits, which are 6 bytes")
        if close(found, right - 6, 1e-9):
            raise Wrong("the client's weight is masked and sent, too: one number more")
        if found < right - 66 * cohort:
            shares = "two for each other client, and at the end one of each client's secrets"
            raise Wrong(f"too few: look at the shares, {shares}")
        raise Wrong(f"{cohort} clients and {numbers:,} numbers: {found:.6g} bytes it is not")


def fewest(target: float, s: float, population: int, rounds: int, delta: float) -> int:
    """The least cohort with ε ≤ target at noise s C on the mean, by bisection."""
    low, high = 0, population
    while high - low > 1:
        middle = (low + high) // 2
        if s * middle < 0.3 or _spent(middle, s, population, rounds, delta) > target:
            low = middle
        else:
            high = middle
    return high


def _spent(cohort: int, s: float, population: int, rounds: int, delta: float) -> float:
    return epsilon(s * cohort, cohort / population, rounds, delta)


@exercise("Noise on the model, ε and cohort: two of them fix the third.")
def check_least_cohort(least_cohort: Callable[..., float]) -> None:
    """``least_cohort(target, s, population, rounds, delta)``: within 2 % above the least."""
    cases: list[Any] = [(4.0, 1e-3, 10**6, 1000, 1e-7), (2.0, 2e-3, 10**5, 20, 1e-6)]
    for case in cases:
        target, s, *rest = case
        found, right = number(least_cohort(*case), "the cohort"), fewest(*case)
        if s * found < 0.3:
            raise Wrong(
                f"a cohort of {found:.0f} has σ = {s * found:.2g} and is far over the target "
                "of ε; begin where s K is at least 0.3"
            )
        if (spent := _spent(int(found), s, *rest)) > target * 1.001:
            raise Wrong(f"K = {found:.0f} has ε = {spent:.3g}, over the target of {target:g}")
        if found > 1.02 * right:
            raise Wrong(f"K = {found:.0f} holds, but fewer would do: {right}")


@exercise("k masks each, not K − 1: that is how a sum of a million is taken.")
def check_graph_sum(graph_sum: Callable[..., Sent]) -> None:
    """``graph_sum(values, k, lost, mask, modulus, rng)``: what was sent, and the sum."""
    rng, modulus = random.Random(7), 2**32
    for n, k, gone in ((12, 4, 0), (40, 6, 3), (60, 10, 9)):
        values = [rng.randrange(1000) for _ in range(n)]
        lost = set(rng.sample(range(n), gone))
        book = {(i, j): rng.randrange(modulus) for i in range(n) for j in range(i + 1, n)}
        asked: set[tuple[int, int]] = set()

        def mask(i: int, j: int, book: dict = book, asked: set = asked) -> int:
            if (i, j) not in book:
                raise Wrong(f"ask for mask(i, j) with i < j, not for mask({i}, {j})")
            asked.add((i, j))
            return book[i, j]

        given = values, k, lost, mask, modulus, generator(n)
        sent, total = begun(graph_sum(*given))
        _judge(dict(sent), int(total), values, k, lost, book, asked, modulus)


def _judge(
    sent: dict[int, int],
    total: int,
    values: list[int],
    k: int,
    lost: Collection[int],
    book: dict[tuple[int, int], int],
    asked: set[tuple[int, int]],
    modulus: int,
) -> None:
    there = [c for c in range(len(values)) if c not in lost]
    if sorted(sent) != there or any(sent[c] == values[c] for c in there):
        raise Wrong("a number was left bare or not sent; all but the lost ones send a masked one")
    for c in there:
        near = {i + j - c for i, j in asked if c in (i, j)}
        if len(near) != k:
            raise Wrong(f"client {c} has {len(near)} neighbors, not {k}")
        signed = sum(book[min(c, o), max(c, o)] * (1 if c < o else -1) for o in near)
        if (sent[c] - values[c] - signed) % modulus:
            raise Wrong(f"client {c} does not send its value, plus masks as first, minus as second")
    if (total - sum(values[c] for c in there)) % modulus:
        what = "masks of the lost are still in it" if lost else "masks do not cancel"
        raise Wrong(f"the sum is not that of those who sent: {what}")


def example(
    values: list[int], k: int, lost: Collection[int], mask: Mask, modulus: int, rng: Generator
) -> Sent:
    """A right answer, as the chapter's solution has it."""
    n, gone = len(values), set(lost)
    ring = torch.randperm(n, generator=rng).tolist()
    near: dict[int, set[int]] = {c: set() for c in range(n)}
    for a in range(n):
        for step in range(1, k // 2 + 1):
            one, other = ring[a], ring[(a + step) % n]
            near[one].add(other)
            near[other].add(one)

    def masks(c: int, others: Collection[int]) -> int:
        return sum(mask(min(c, o), max(c, o)) * (1 if c < o else -1) for o in others)

    sent = {c: (values[c] + masks(c, near[c])) % modulus for c in range(n) if c not in gone}
    total = sum(sent.values()) + sum(masks(c, near[c] - gone) for c in gone)
    return sent, total % modulus
