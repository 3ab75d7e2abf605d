"""Handing out a challenge: files that the command line and ``load`` read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save as to_bytes
from torch import Tensor

from .. import disk
from ..checking import Checked, checked
from ..errors import PrivflError, choose
from ..stored import read_tensors
from ..values import Text
from ..wire import Upload
from ..wire.naming import fill, named
from .base import Challenge, Private
from .registry import CHALLENGES
from .text import page

UPLOAD, WEIGHTS, POOL = "upload.safetensors", "weights.safetensors", "candidates.safetensors"
CARD, PAGE = "challenge.json", "README.md"


@dataclass(frozen=True)
class Handed(Checked):
    """A challenge as its attacker has it: ``upload``, and candidates with their labels if any."""

    challenge: Challenge
    upload: Upload
    pool: Tensor | None = None
    pool_labels: Tensor | None = None


def hand_out(challenge: Challenge, upload: Upload, private: Private, name: str, out: Path) -> None:
    """Write what the attacker gets into a folder; of ``private`` the candidates alone."""
    disk.check_writable(out / PAGE, make_folder=True)
    disk.write(out / UPLOAD, _bytes(upload.tensors))
    disk.write(out / WEIGHTS, _bytes(upload.model.state_dict()))
    if private.pool is not None and private.pool_labels is not None:
        disk.write(out / POOL, _bytes({"images": private.pool, "labels": private.pool_labels}))
    card = {"challenge": challenge.name, "set": name}
    disk.write(out / CARD, (json.dumps(card) + "\n").encode())
    disk.write(out / PAGE, page(challenge, out.name).encode())


@checked
def load(folder: Text) -> Handed:
    """The challenge in a folder that ``privfl challenge get`` wrote, ready to be attacked.

    ``pf.challenges.load("first-word").upload`` is an ``Upload`` like any other.
    """
    home = Path(folder)
    try:
        card = json.loads((home / CARD).read_text(encoding="utf-8"))
        name = card["challenge"]
    except (OSError, ValueError, KeyError, TypeError):
        raise PrivflError(
            f"{folder} holds no challenge; get one with: privfl challenge get NAME"
        ) from None
    challenge = CHALLENGES[choose("challenge", str(name), CHALLENGES)]
    net = challenge.network()
    fill(net, _named(home / WEIGHTS))
    kind = "gradient" if challenge.plan is None else "update"
    sent = named(net, _named(home / UPLOAD))
    upload = Upload(sent, kind, net, challenge.batch, "eval", challenge.plan)
    if challenge.answer != "places":
        return Handed(challenge, upload)
    return Handed(challenge, upload, *candidates(home))


def candidates(home: Path) -> tuple[Tensor, Tensor]:
    """The candidates (M, 1, 28, 28) in a challenge's folder, and their labels (M,)."""
    held = _named(home / POOL)
    if not {"images", "labels"} <= held.keys():
        raise PrivflError(f"{home / POOL} must hold the tensors images and labels")
    return held["images"], held["labels"]


def copied(challenge: Challenge, made: Path, out: Path) -> None:
    """Copy a challenge out of a class's set."""
    names = [UPLOAD, WEIGHTS, CARD, PAGE, *([POOL] if challenge.answer == "places" else [])]
    missing = [name for name in names if not (made / name).is_file()]
    if missing:
        raise PrivflError(f"{made} lacks {missing[0]}; ask your instructor for the set again")
    disk.check_writable(out / PAGE, make_folder=True)
    for name in names:
        disk.write(out / name, (made / name).read_bytes())


def _bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return to_bytes({n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()})


def _named(path: Path) -> dict[str, Any]:
    held = read_tensors(path)
    if not isinstance(held, dict):
        raise PrivflError(f"{path} must hold tensors by name")
    return held
