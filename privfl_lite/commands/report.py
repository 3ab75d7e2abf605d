"""``privfl report``: can an upload out of your own run leak, how much, under which letter?"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import privfl_lite as pf

from .. import names
from ..errors import PrivflError, choose
from .attack import stored_model
from .options import DEFENSE, THREADS, Commands, Option, numbers, positive, written

if TYPE_CHECKING:
    from torch import nn

    from ..leak import LeakReport
    from ..wire import Plan

OPTIONS: list[Option] = [
    ("--seconds", float, 60.0, "for all attackers together"),
    ("--evaluations", positive, None, "for each search, in place of seconds: the same anywhere"),
    ("--batch", positive, None, "images behind the upload; as many as --labels or --truth, or 1"),
    ("--mode", str, "eval", "of batch norm in the client: eval or train"),
    ("--seed", int, 0, "of everything that is random"),
    THREADS,
]
TRAINING: list[Option] = [
    ("--eta", float, None, "of an update: the learning rate"),
    ("--steps", positive, None, "of an update: local steps"),
    ("--epochs", positive, None, "of an update: local passes over the data, in place of steps"),
    ("--batch-size", positive, None, "of an update: images in a step; by default all"),
    ("--momentum", float, 0.0, "of an update"),
]


def add(commands: Commands) -> None:
    p = commands.add(report, *OPTIONS, *TRAINING, DEFENSE)
    text = "a name of this package's, or package.module:function that makes your own module"
    p.add_argument("--model", default="lenet", metavar="MODEL", type=_model_name, help=text)
    text = "the weights that the server sent, a state dict in a .pt or .safetensors file"
    p.add_argument("--model-file", metavar="FILE", required=True, help=text)
    text = "what was sent: gradients, or with --eta weights after training or their change"
    p.add_argument("--upload", metavar="FILE", required=True, help=text)
    p.add_argument("--shape", type=numbers, metavar="C,H,W", help="of an image")
    p.add_argument("--labels", type=numbers, metavar="Y,…", help="granted to the attacker")
    text = "the true images and labels, for scores: a file with a dict of tensors x and y"
    p.add_argument("--truth", metavar="FILE", help=text)
    text = f"who tries, name:key=value; a name is one of: {', '.join(names.ATTACKS)}"
    kind = written("attack", names.ATTACKS)
    p.add_argument("--attacks", nargs="+", type=kind, metavar="ATTACK", help=text)
    p.add_argument("--html", metavar="FILE", help="write the report as one page")


def report(args: argparse.Namespace) -> dict:
    """Can an upload of your own run leak, how much, and under which letter? A page that says it."""
    from ..stored import read_tensors

    model = _model(args)
    sent = read_tensors(args.upload)
    made = pf.report(
        model,
        sent,
        plan=_plan(args),
        batch=args.batch,
        mode=args.mode,
        labels=args.labels,
        data=_truth(args.truth),
        defense=None if args.defense == "none" else args.defense,
        attacks=args.attacks,
        seconds=args.seconds,
        evaluations=args.evaluations,
        seed=args.seed,
        show=not args.quiet,
    )
    made = replace(made, settings={**made.settings, "command": _command(args)})
    return written_out(args, made)


def written_out(args: argparse.Namespace, made: LeakReport) -> dict:
    """What stands on the screen, in --html and in --json."""
    print(made)
    for said in made.changes:
        print(f"  {said}")
    if args.html:
        args.outputs["html"] = made.to_html()
    return json.loads(made.to_json())


def _model_name(text: str) -> str:
    return text if ":" in text else choose_model(text)


def choose_model(text: str) -> str:
    try:
        return choose("model", text, (*names.MODELS, "package.module:function"))
    except PrivflError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _model(args: argparse.Namespace) -> nn.Module:
    """The network with the server's weights: one of ours, or of the user's own function."""
    if ":" not in args.model:
        return stored_model(args)
    from ..stored import read_tensors
    from ..wire.naming import fill

    net = pf.models.wrap(_made(args.model), tuple(args.shape) if args.shape else None)
    fill(net, read_tensors(args.model_file))
    return net


def _made(text: str) -> nn.Module:
    """What the user's own function returns; modules are looked for where the user is, too."""
    from torch import nn

    from ..runtime import torchvision

    module, _, name = text.partition(":")
    if module.partition(".")[0] == "torchvision":
        torchvision()
    sys.path.insert(0, "")
    try:
        made = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise PrivflError(f"--model {text}: no network could be made with it ({why})") from None
    finally:
        sys.path.remove("")
    if not isinstance(made, nn.Module):
        raise PrivflError(f"--model {text} makes a {type(made).__name__}, not an nn.Module")
    return made


def _plan(args: argparse.Namespace) -> Plan | None:
    """The rules of training, where --eta says that there were some."""
    given = {k: getattr(args, k) for k in ("steps", "epochs", "batch_size")}
    given = {k: v for k, v in given.items() if v is not None}
    if args.eta is None:
        if given or args.momentum:
            raise PrivflError("--steps, --epochs, --batch-size and --momentum go with --eta")
        return None
    given.setdefault("batch_size", args.batch or len(args.labels or [1]))
    return pf.Plan(eta=args.eta, momentum=args.momentum, mode=args.mode, **given)


def _truth(path: str | None) -> tuple[Any, Any] | None:
    from ..stored import read_tensors

    if path is None:
        return None
    held = read_tensors(path)
    if not isinstance(held, Mapping) or not {"x", "y"} <= held.keys():
        raise PrivflError(f"--truth {path} must hold a dict with the tensors x and y")
    return held["x"], held["y"]


def _command(args: argparse.Namespace) -> str:
    return shlex.join(["privfl", *args.words]) if getattr(args, "words", None) else "privfl report"
