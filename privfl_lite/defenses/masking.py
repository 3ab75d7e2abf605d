"""The protocol behind a secure sum: agreed masks that cancel, and shares that bring back lost ones.

After Bonawitz et al. (2017). Numbers are whole, modulo 2^bits. Every two clients i < j agree on a
seed by Diffie and Hellman's exchange; i adds the mask that grows from it, j subtracts it. Each adds
a mask of its own besides. Both secrets of a client, its key and the seed of its own mask, are cut
into Shamir's shares, so that any ``threshold`` others can bring back one of the two: its own mask
where its numbers arrived, its key where they did not. Never both: with both masks a client is open.

For teaching. Whoever runs this for real takes an elliptic curve, encrypts shares for those who
receive them, signs public keys, and sees to it that a server cannot ask for both secrets.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

PRIME, BASE = 2**521 - 1, 3  # a Mersenne prime: the field of the shares, and of the exchange
BYTES = 66  # of a number below PRIME


def derived(seed: bytes, what: str, size: int = BYTES) -> bytes:
    """So many bytes that nobody can tell from random ones, for one purpose, by SHAKE-256."""
    return hashlib.shake_256(seed + what.encode()).digest(size)


def number(seed: bytes, what: str) -> int:
    """A number below ``PRIME``, uniform up to 2⁻⁷."""
    return int.from_bytes(derived(seed, what), "big") % PRIME


def stream(seed: int, count: int, bits: int) -> np.ndarray:
    """A mask: ``count`` uniform whole numbers below 2^bits that grow from one seed."""
    kind = np.uint32 if bits <= 32 else np.uint64
    raw = derived(seed.to_bytes(BYTES, "big"), "mask", count * np.dtype(kind).itemsize)
    return np.frombuffer(raw, kind).astype(np.uint64) & np.uint64(2**bits - 1)


def share_at(secret: int, seed: bytes, what: str, threshold: int, at: int) -> int:
    """Shamir's share: at ``at``, a polynomial of degree threshold − 1 that is ``secret`` at 0."""
    value = 0
    for power in range(threshold - 1, 0, -1):
        value = (value + number(seed, f"{what} {power}")) * at % PRIME
    return (value + secret) % PRIME


def weights_at_zero(places: Sequence[int]) -> list[int]:
    """By what shares at these places are multiplied, so that their sum is the secret (Lagrange)."""
    found = []
    for i in places:
        others = [j for j in places if j != i]
        above, below = math.prod(others), math.prod(j - i for j in others)
        found.append(above * pow(below % PRIME, -1, PRIME) % PRIME)
    return found


def secret_of(shares: Sequence[int], weights: Sequence[int]) -> int:
    """The secret behind these shares, by the weights of their places."""
    return sum(w * part for w, part in zip(weights, shares, strict=True)) % PRIME


@dataclass(frozen=True)
class Member:
    """One client's part. ``place``, from 1, is where its shares of others' polynomials lie."""

    place: int
    seed: bytes  # its own randomness; all else follows

    @property
    def key(self) -> int:
        return int.from_bytes(derived(self.seed, "key", 32), "big")

    @property
    def public(self) -> int:
        """g^key, which everybody may see."""
        return pow(BASE, self.key, PRIME)

    @property
    def own(self) -> int:
        """The seed of the mask that no other client knows."""
        return int.from_bytes(derived(self.seed, "own", 32), "big")

    def share(self, what: str, threshold: int, at: int) -> int:
        """The share of "key" or "own" that the client at this place holds."""
        return share_at(getattr(self, what), self.seed, what, threshold, at)


def pair_masks(
    place: int, key: int, publics: Mapping[int, int], count: int, bits: int
) -> np.ndarray:
    """Σ ± masks of all pairs with this client: plus where it stands first, minus where second."""
    total = np.zeros(count, np.uint64)
    for other, public in publics.items():
        if other != place:
            mask = stream(pow(public, key, PRIME), count, bits)
            total = total + mask if place < other else total - mask
    return total & np.uint64(2**bits - 1)


def masked(member: Member, values: np.ndarray, publics: Mapping[int, int], bits: int) -> np.ndarray:
    """What leaves: values + own mask + masks of pairs, modulo 2^bits. By itself it is uniform."""
    own = stream(member.own, len(values), bits)
    pairs = pair_masks(member.place, member.key, publics, len(values), bits)
    return (values + own + pairs) & np.uint64(2**bits - 1)


def unmasked(
    total: np.ndarray,
    members: Sequence[Member],
    arrived: Sequence[Member],
    threshold: int,
    bits: int,
) -> np.ndarray:
    """The sum of those who arrived, from the sum of what they sent and survivors' shares.

    ``members`` are all who agreed on masks. The server asks ``threshold`` survivors for their
    shares: of an own mask for each who arrived, of a key for each who did not.
    """
    helpers = [m.place for m in arrived[:threshold]]
    weights = weights_at_zero(helpers)

    def recover(member: Member, what: str) -> int:
        return secret_of([member.share(what, threshold, at) for at in helpers], weights)

    there = {m.place: m.public for m in arrived}
    for member in members:
        if member.place in there:
            total = total - stream(recover(member, "own"), len(total), bits)
        else:  # what it would have added cancels what the others still carry
            key = recover(member, "key")
            total = total + pair_masks(member.place, key, there, len(total), bits)
    return total & np.uint64(2**bits - 1)
