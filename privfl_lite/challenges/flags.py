"""From what was recovered to a flag: one text, and its salted, slow digest.

Order within an upload means nothing, so what was found behind it is sorted; the order of uploads
counts. The digest is the SHA-256 of a key, and the key comes from the text by scrypt: a guess costs
16 MB and some hundredths of a second. The key itself is not published. Whoever has the right text
has it, and signs a name with it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import torch
from torch import Tensor

from .base import Challenge
from .sketch import sketches

COST, BLOCK = 2**14, 8  # of scrypt: 16 MB


def _text(challenge: Challenge, parts: Sequence[str]) -> str:
    each = challenge.batch
    uploads = [sorted(parts[i : i + each]) for i in range(0, len(parts), each)]
    return f"{challenge.name}: " + " | ".join(" ".join(found) for found in uploads)


def of_numbers(challenge: Challenge, numbers: Sequence[int]) -> str:
    """The text of labels, or of places in the pool, upload by upload."""
    return _text(challenge, [f"{n:04d}" for n in numbers])


def of_images(challenge: Challenge, images: Tensor, salt: str, questions: list[int]) -> str:
    """The text of images (N, 1, 28, 28), upload by upload."""
    return _text(challenge, sketches(images, salt, questions))


def nearest(images: Tensor, pool: Tensor) -> list[int]:
    """The nearest candidate to each image, by pixels."""
    return torch.cdist(images.double().flatten(1), pool.double().flatten(1)).argmin(1).tolist()


def key(text: str, salt: str) -> bytes:
    """32 bytes that only the right text gives."""
    return hashlib.scrypt(
        text.encode(), salt=bytes.fromhex(salt), n=COST, r=BLOCK, p=1, maxmem=2**26, dklen=32
    )


def digest(key: bytes) -> str:
    """What is published of a key."""
    return hashlib.sha256(key).hexdigest()


def signed(key: bytes, player: str) -> str:
    """A proof that this player had the key: it cannot be passed on to somebody of another name."""
    return hmac.new(key, player.encode(), hashlib.sha256).hexdigest()
