"""Sets of all twelve: the public one, and those that a class makes with a secret of its own.

All that is random follows from the secret. The public set's secret stands in the source, so its
truth can be derived by whoever reads that: it is for self-study. A class's set is made by its
instructor, who hands out the folder and keeps the secret; there is no truth in the folder, only
salted digests.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from .. import disk
from ..checking import Checked, checked
from ..errors import PrivflError
from ..runtime import progress
from ..teach import classroom
from ..values import Kind, Text
from . import flags, sketch
from .base import Challenge, Private, Seeds
from .handing import candidates, hand_out
from .registry import CHALLENGES

MANIFEST, SHIPPED = "manifest.json", "public.json"
LEAST = 16  # letters of a class's secret: a short one could be guessed from the salts
ROOM = "challenges"


def seeds(secret: str, challenge: Challenge) -> Seeds:
    """Seeds of one challenge by their purpose."""
    return partial(classroom.seed, secret, ROOM, challenge.name)


def salt_of(secret: str, challenge: Challenge) -> str:
    return classroom.digest(secret, ROOM, challenge.name, "salt").hex()[:32]


@dataclass(frozen=True)
class Set(Checked):
    """One set: what is published of its flags; ``folder`` holds the uploads, of a class's set."""

    name: Text
    entries: Annotated[
        dict[str, Any], Kind(dict)
    ]  # challenge -> salt, digest and, for images, the questions
    folder: Path | None = None

    def text(self, challenge: Challenge, answer: Tensor) -> str:
        """The text of an answer: labels or places (N,), or images (N, 1, 28, 28)."""
        entry = self.entries[challenge.name]
        if challenge.answer == "images":
            return flags.of_images(challenge, answer, entry["salt"], entry["questions"])
        return flags.of_numbers(challenge, answer.tolist())

    def key(self, challenge: Challenge, answer: Tensor) -> bytes | None:
        """The key of a right answer; None for a wrong one."""
        entry = self.entries[challenge.name]
        key = flags.key(self.text(challenge, answer), entry["salt"])
        return key if flags.digest(key) == entry["digest"] else None

    def true_key(self, challenge: Challenge, secret: str) -> bytes:
        """The key, by whoever has the secret."""
        entry = self.entries[challenge.name]
        private = challenge.private(seeds(secret, challenge))
        key = flags.key(self.text(challenge, truth(challenge, private)), entry["salt"])
        if flags.digest(key) != entry["digest"]:
            raise PrivflError(f"this is not the secret with which the set {self.name} was made")
        return key

    def checker(self, secret: str) -> Callable[[str, str, str], bool]:
        """check(challenge, player, proof): whether the player had the key of this challenge."""
        keys: dict[str, bytes] = {}

        def check(name: str, player: str, proof: str) -> bool:
            if name not in keys:
                keys[name] = self.true_key(CHALLENGES[name], secret)
            return hmac.compare_digest(flags.signed(keys[name], player), proof)

        return check

    def pool(self, challenge: Challenge) -> Tensor | None:
        """The candidates that everybody has, where there are any."""
        if challenge.answer != "places":
            return None
        if self.folder is not None:
            return candidates(self.folder / challenge.name)[0]
        return challenge.private(seeds(classroom.PUBLIC, challenge)).pool


def truth(challenge: Challenge, private: Private) -> Tensor:
    """What is asked for."""
    if challenge.answer == "images":
        return private.images
    if challenge.answer == "labels":
        return private.labels
    assert private.places is not None
    return private.places


def entry(challenge: Challenge, secret: str) -> dict[str, Any]:
    """What is published of one flag."""
    private, salt = challenge.private(seeds(secret, challenge)), salt_of(secret, challenge)
    answer = truth(challenge, private)
    if challenge.answer != "images":
        text = flags.of_numbers(challenge, answer.tolist())
        return {"salt": salt, "digest": flags.digest(flags.key(text, salt))}
    questions = sketch.chosen(answer, salt)
    text = flags.of_images(challenge, answer, salt, questions)
    digest = flags.digest(flags.key(text, salt))
    return {"salt": salt, "digest": digest, "questions": questions}


def manifest(secret: str) -> dict[str, Any]:
    """A set's name and what is published of its flags."""
    name = "public" if secret == classroom.PUBLIC else classroom.digest(secret, ROOM).hex()[:8]
    return {"set": name, "challenges": {n: entry(c, secret) for n, c in CHALLENGES.items()}}


@checked
def open_set(folder: Text | None = None) -> Set:
    """The public set, or a class's out of its folder."""
    if folder is None:
        path = Path(str(files(__package__) / SHIPPED))
    else:
        path = Path(folder) / MANIFEST
        if not path.is_file():
            raise PrivflError(f"{folder} holds no set of challenges: there is no {MANIFEST} in it")
    held = disk.read_record(path, "ask your instructor for the set again")
    missing = CHALLENGES.keys() - held.get("challenges", {}).keys()
    if missing:
        raise PrivflError(f"{path} lacks the challenge {min(missing)!r}; it is of another version")
    return Set(held["set"], held["challenges"], None if folder is None else Path(folder))


def write(challenge: Challenge, secret: str, name: str, out: Path) -> None:
    """Make one challenge and write what its attacker gets."""
    own = seeds(secret, challenge)
    private = challenge.private(own)
    hand_out(challenge, challenge.send(own, private), private, name, out)


@checked
def make(secret: Text, out: Text, show: bool = True) -> Set:
    """A class's set in the folder ``out``: uploads and digests, and no truth.

    Whoever has the secret can make it again, bit for bit on the same machine.
    """
    check_secret(secret)
    home, made = Path(out), manifest(secret)
    disk.check_writable(home / MANIFEST, make_folder=True)
    for challenge in progress(CHALLENGES.values(), "making challenges", show=show):
        write(challenge, secret, made["set"], home / challenge.name)
    disk.write_record(home / MANIFEST, made)
    return Set(made["set"], made["challenges"], home)


def check_secret(secret: str) -> None:
    """One sentence if a secret is none."""
    if secret == classroom.PUBLIC:
        raise PrivflError("this secret is the public set's; a class needs one of its own")
    if len(secret) < LEAST:
        raise PrivflError(
            f"a class's secret needs {LEAST} letters or more, because a short one can be guessed "
            'from what is published; make one with: python -c "import secrets; '
            'print(secrets.token_hex(16))"'
        )
