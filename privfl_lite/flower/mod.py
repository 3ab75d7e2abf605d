"""A defense as a Flower Mod, for anybody's ``ClientApp``: it stands at the update door.

A Mod sees what came and what is about to leave, and nothing in between. So only a defense whose
work is done at the update door, and which needs no private data there, can be a Mod. It fails
closed: whatever goes wrong, the reply is an error with a constant text, and no array leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from flwr.app import Context as FlowerContext
from flwr.app import Message

from ..checking import checked
from ..defenses.base import Context, Defense
from ..gradients import Tensors
from ..models import Net
from ..runtime import PrivflError, device, generator
from ..training import SHUFFLE
from .records import from_record, only_record, or_refused, refused, to_record
from .state import remember, remembered

Next = Callable[[Message, FlowerContext], Message]
OTHER_DOORS = ("data", "model", "begin", "gradient", "average", "leaves")


@checked
def defense_mod(
    defense: Defense, seed: int | None = None, folder: str | None = None
) -> Callable[[Message, FlowerContext, Next], Message]:
    """``@app.train(mods=[defense_mod(ModelCloak(clip=2, sigma=5))])``.

    The update is what the reply's arrays differ from those that came, all of them: buffers such as
    batch norm's means are numbers about private data, too. Arrays of whole numbers (counters) go
    back as they came. Noise comes from the operating system, or follows ``seed``. ``folder``: as in
    ``client_app``.
    """
    _refuse_other_doors(defense)

    def guard(message: Message, context: FlowerContext, call_next: Next) -> Message:
        def answer() -> Message:
            out = call_next(message, context)
            if out.has_error():
                return refused(message)  # its text could say anything
            return _defended(defense, message, out, context, seed, folder)

        return or_refused(message, answer)

    return guard


def _refuse_other_doors(defense: Defense) -> None:
    """A Mod that silently left a door open would be worse than none."""
    for part in getattr(defense, "parts", (defense,)):
        name = type(part).__name__
        for door in OTHER_DOORS:
            if part.guards(door):
                raise PrivflError(
                    f"{name} guards the door {door!r}, which a Mod cannot reach; use client_app"
                )
        if not part.guards("update"):
            raise PrivflError(
                f"{name} does nothing at the update door, so as a Mod it protects nothing"
            )
        if part.looks("update") or part.crosses():
            raise PrivflError(
                f"{name} looks at private data at the update door, which a Mod does not have; "
                "use client_app"
            )


def _defended(
    defense: Defense,
    message: Message,
    out: Message,
    context: FlowerContext,
    seed: int | None,
    folder: str | None,
) -> Message:
    """The reply with θ + defense(Δ) in place of θ + Δ."""
    client = int(context.node_config["partition-id"])
    r = int(message.content["config"]["server-round"])
    (_, came), (key, leaving) = only_record(message), only_record(out)
    like = came.to_torch_state_dict()
    before, after = from_record(came, like), from_record(leaving, like)
    moving = [n for n, t in before.items() if t.is_floating_point()]
    delta = {n: (after[n] - before[n])[None] for n in moving}
    memory = remembered(context, client, seed is None, folder)
    rng = generator(seed or 0, SHUFFLE, r, client)
    theta = {n: before[n][None] for n in moving}
    nobody = cast(Net, _NoModel())
    ctx = Context(nobody, theta, [], [], [rng], r, [client], memory)
    sent: Tensors = defense.update(delta, ctx)
    if not all(t.isfinite().all() for t in sent.values()):
        raise PrivflError("the update holds NaN or infinite values")
    new = {n: before[n] + sent[n][0].to(device()) if n in sent else t for n, t in before.items()}
    out.content[key] = to_record(new)
    remember(memory, context, client, folder)
    return out


class _NoModel(torch.nn.Module):
    """What stands in a Mod's context where the model would be: it has none to ask."""

    def __getattr__(self, name: str) -> Any:
        raise PrivflError(f"a Mod has no model to ask for {name!r}; use client_app")
