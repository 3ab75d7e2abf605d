"""What a client remembers between rounds: in Flower's state, and in a file of its own.

Flower keeps ``context.state`` from round to round, but loses it when a SuperNode starts anew. What
must survive that, as a residual or a key, is kept in ``folder`` as well: one file for each run and
client, readable by its owner only, written before the reply leaves.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context

from .. import disk
from ..defenses.base import Memory
from ..runtime import PrivflError, device

KEY = "privfl_lite"


def remembered(context: Context, client: int, secure: bool, folder: str | Path | None) -> Memory:
    """The memory of this client in this run; new in its first round."""
    memory, data = Memory(secure), b""
    if KEY in context.state:
        data = bytes(context.state[KEY]["memory"])
    elif folder is not None and _file(context, client, folder).exists():
        data = _read(_file(context, client, folder))
    if data:
        saved = torch.load(io.BytesIO(data), map_location=device(), weights_only=True)
        memory.load_state_dict(saved)
    return memory


def remember(memory: Memory, context: Context, client: int, folder: str | Path | None) -> None:
    """Keep it for the next round; the file first, because Flower's state may be lost."""
    file = io.BytesIO()
    torch.save(memory.only([client]).state_dict(), file)
    data = file.getvalue()
    if folder is not None:
        path = _file(context, client, folder)
        disk.check_writable(path, make_folder=True)
        disk.write(path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data, private=True)
    context.state[KEY] = ConfigRecord({"memory": data})


def _file(context: Context, client: int, folder: str | Path) -> Path:
    return Path(folder) / f"run-{context.run_id}-client-{client}.memory"


def _read(path: Path) -> bytes:
    digest, _, data = path.read_bytes().partition(b"\n")
    if digest != hashlib.sha256(data).hexdigest().encode():
        raise PrivflError(f"{path.name} is damaged; delete it to start this client anew")
    return data
