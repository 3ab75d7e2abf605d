"""``report``: one upload, looked at as the server would."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

from torch import Tensor, nn

from .. import defenses
from ..arrays import IMAGES, MODEL
from ..attacks import build
from ..batches import IMAGES_GIVEN, LABELS_GIVEN, as_batch
from ..checking import checked
from ..defenses import Defense
from ..runtime import PrivflError
from ..values import Count, Either, Holds, Kind, Mode, Number, Row, Seed, Text
from ..wire import Plan, Upload
from ..wire.upload import GRANTED
from .attackers import Budget, Trials, chosen, left_out
from .changes import changes
from .given import SENT, As, as_upload
from .labels import labels as read_labels
from .loudest import loudest
from .record import Attempt, LeakReport
from .recursion import recursion
from .scores import blind
from .spent import privacy
from .structure import structure
from .verdict import verdict

TRUTH = Either((Row((IMAGES_GIVEN, LABELS_GIVEN), fixed=True), Kind(type(None))))
GALLERY = Either((IMAGES, Kind(type(None))))
NAMED = Either((Kind(Defense), Holds("a text", lambda v: isinstance(v, str) and bool(v)),
                Kind(type(None))))  # fmt: skip
TRIED = Either((Row((Holds("a text", lambda v: isinstance(v, str) and bool(v)),), least=1),
                Kind(type(None))))  # fmt: skip
Seconds = Annotated[float, Number(0, 1e6, open="low")]


@checked
def report(
    model: Annotated[nn.Module, MODEL],
    sent: Annotated[Any, SENT],
    plan: Plan | None = None,
    batch: Count | None = None,
    kind: As = "auto",
    mode: Mode = "eval",
    labels: Annotated[Any, GRANTED] = None,
    data: Annotated[Any, TRUTH] = None,
    gallery: Annotated[Tensor | None, GALLERY] = None,
    defense: Annotated[Defense | str | None, NAMED] = None,
    attacks: Annotated[Sequence[Text] | None, TRIED] = None,
    seconds: Seconds = 60.0,
    evaluations: Count | None = None,
    seed: Seed = 0,
    show: bool = True,
) -> LeakReport:
    """Can this upload leak, how much, and under which letter?

    ``model`` has the weights that the server sent; ``sent`` is an ``Upload``, gradients, or with a
    ``plan`` the weights after training or their change (``kind`` says which, where that is not
    plain). ``batch`` examples stand behind it. ``labels`` are granted to the attacker. ``data``,
    images and labels, is the truth, for scores alone, and ``gallery`` others like them, for
    identification. ``defense`` names what made the upload, for ε and the attacker who knows it.

    ``attacks`` names who tries (``"gs:tv=0.01"``); by default algebra, what unmixes a batch, and
    searches. They have ``seconds`` together, or ``evaluations`` for each search, with which the
    same seed gives the same report. Ctrl-C ends it with what was found so far.
    """
    named = defenses.build(defense) if isinstance(defense, str) else defense
    for name in attacks or ():
        build(name)  # a typo is told now
    x = data[0] if data is not None else None
    upload, taken = as_upload(model, sent, kind, plan, batch, labels, mode, x)
    data = None if data is None else as_batch(upload.model, data[0], data[1], "data=")
    _check_truth(upload, data, gallery)
    known = _name(defense)
    names = chosen(upload, known, attacks)
    guess = blind(upload, seed)
    trials = Trials(upload, Budget(seconds, evaluations), seed, data, gallery, show, guess)
    began = time.perf_counter()
    counted = structure(upload, recursion(upload, seed))
    counted["labels"] = read_labels(upload, None if data is None else data[1], seed)
    counted["loudest"] = loudest(upload, data)
    counted["blind_misfit"] = guess
    attempts, interrupted = _tried(trials, names)
    told, stopped = ([], False) if interrupted else _changes(upload, attempts, seed)
    return LeakReport(
        verdict=verdict(attempts, guess, time.perf_counter() - began, interrupted),
        sent=_sent(upload, taken),
        structure=counted,
        attempts=tuple(attempts),
        privacy=privacy(upload, named),
        changes=tuple(told),
        settings=_settings(upload, names, seconds, evaluations, seed, defense),
        interrupted=interrupted or stopped,
        truth=None if data is None else data[0].detach().cpu(),
    )


def _tried(trials: Trials, names: list[str]) -> tuple[list[Attempt], bool]:
    """What was done, and whether Ctrl-C ended it."""
    done: list[Attempt] = []
    try:
        for attempt in trials.run(names):
            done.append(attempt)
    except KeyboardInterrupt:
        left = names[len(done) :]
        print(f"stopped at {left[0]}; what was found so far is kept", file=sys.stderr)
        said = "not tried: the report was stopped before it ended"
        done += [Attempt(n.partition(":")[0], "not tried", said) for n in left]
        return done, True
    return done, False


def _changes(upload: Upload, attempts: list[Attempt], seed: int) -> tuple[list[str], bool]:
    told: list[str] = []
    try:
        for said in changes(upload, attempts, seed):
            told.append(said)
    except KeyboardInterrupt:
        print("stopped; the attackers' results are kept", file=sys.stderr)
        return told, True
    return told, False


def _check_truth(upload: Upload, data: tuple[Tensor, Tensor] | None, gallery: Any) -> None:
    count = len(upload) * upload.batch
    if data is not None and len(data[0]) != count:
        raise PrivflError(
            f"data= holds {len(data[0])} images, but {count} stand behind what was sent "
            f"({len(upload)} uploads of {upload.batch}); say batch= if that is wrong"
        )
    if gallery is not None and data is None:
        raise PrivflError("gallery= is for identification, which needs the truth: data=(x, y)")


def _name(defense: Defense | str | None) -> str | None:
    """The name in the registry of the (first) defense."""
    if isinstance(defense, str):
        return defense.split("+")[0].partition(":")[0].strip()
    first = getattr(defense, "parts", (defense,))[0]
    return next((n for n, k in defenses.DEFENSES.items() if type(first) is k), None)


def _sent(upload: Upload, taken: str) -> dict[str, Any]:
    """What was sent, as the server sees it."""
    return {
        "summary": repr(upload),
        "taken_for": taken,
        "model": upload.model.name,
        "image": list(upload.model.shape),
        "classes": upload.model.num_classes,
        "uploads": len(upload),
        "tensors": len(upload.tensors),
        "numbers": upload.nbytes // 4,
        "bytes": upload.nbytes,
        "missing": [n for n, _ in upload.model.named_parameters() if n not in upload.tensors],
        "kind": upload.kind,
        "batch": upload.batch,
        "steps": upload.local_steps,
        "plan": None if upload.plan is None else repr(upload.plan),
        "mode": upload.mode,
        "granted": list(upload.knows.names),
        "letter": upload.letter,
    }


def _settings(
    upload: Upload, names: list[str], seconds: float, evaluations: int | None, seed: int,
    defense: Any,
) -> dict[str, Any]:  # fmt: skip
    from .. import __version__

    plan = "" if upload.plan is None else f", plan={upload.plan!r}"
    own = "" if defense is None else f", defense={defense!r}"
    limit = f"seconds={seconds:g}" if evaluations is None else f"evaluations={evaluations}"
    command = (
        f"pf.report(model, sent{plan}, batch={upload.batch}, mode={upload.mode!r}{own}, "
        f"attacks={names!r}, {limit}, seed={seed})"
    )
    return {
        "seed": seed,
        "seconds": seconds if evaluations is None else None,
        "evaluations": evaluations,
        "attacks": names,
        "not_asked": left_out(names),
        "command": command,
        "versions": {"privfl_lite": __version__, "torch": version("torch")},
    }
