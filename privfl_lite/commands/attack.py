"""``privfl attack``: one attack on the uploads of simulated clients, or on an upload in a file."""

from __future__ import annotations

import argparse
import time
from dataclasses import fields
from statistics import median
from typing import TYPE_CHECKING

import privfl_lite as pf

from .. import names
from ..errors import PrivflError, choose
from .options import (
    COMMON,
    DEFENSE,
    Commands,
    Option,
    listed,
    model,
    numbers,
    png,
    positive,
    settings,
    written,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ..attacks import Attack
    from ..data import Dataset
    from ..models import Net
    from ..wire import Upload

ATTACKS = ("informed", *names.ATTACKS)  # the first answers the defense, whichever it is
TARGET: list[Option] = [
    *COMMON,
    model("lenet"),
    ("--images", positive, 8, "how many images are attacked"),
    ("--batch", positive, 1, "images behind each upload"),
    (
        "--steps",
        positive,
        None,
        "evaluations of the gradient for each start; by default the attack's own",
    ),
    ("--restarts", positive, None, "starts for each upload; by default the attack's own"),
]


def add(commands: Commands) -> None:
    p = commands.add(attack, DEFENSE, *TARGET)
    text = f"name:key=value,…; a name is {listed(ATTACKS)}"
    p.add_argument("attack", type=written("attack", ATTACKS), metavar="ATTACK", help=text)
    text = f"facts granted to the attacker, of: {', '.join(names.FACTS)}"
    p.add_argument("--knows", nargs="*", default=[], help=text)
    p.add_argument("--png", metavar="FILE", help="draw truth, upload and reconstruction")
    text = "attack gradients from a .pt or .safetensors file: by name, or a list (truth unknown)"
    p.add_argument("--upload", metavar="FILE", help=text)
    text = "with --upload: the weights of --model at which they were taken, a state dict"
    p.add_argument("--model-file", metavar="FILE", help=text)
    p.add_argument("--shape", type=numbers, metavar="C,H,W", help="with --upload: of an image")
    p.add_argument("--labels", type=numbers, metavar="Y,…", help="with --upload: known labels")


def attack(args: argparse.Namespace) -> dict:
    """Attack the uploads of clients who hold --images images, and score what comes out."""
    if args.upload:
        return _attack_file(args)
    if args.model_file or args.shape or args.labels:
        raise PrivflError("--model-file, --shape and --labels belong to --upload FILE")
    if args.png:  # first, because it may be missing
        from ..teach.figures import leak_picture, style
    images = pf.data.load(args.dataset, args.size)
    tool = build_attack(args, args.attack, args.defense)
    result, picture = attack_once(args, tool, simulate(args, args.defense, images, tool))
    if args.png:
        style()
        psnr = [row["psnr"] for row in result["per_image"]]
        truth, upload, found = picture
        args.outputs["png"] = png(leak_picture(truth, upload, found, psnr))
    rows = result["per_image"]
    psnr = [row["psnr"] for row in rows]
    right = sum(row["label_true"] == row["label_found"] for row in rows)
    print(f"{args.attack} against {args.defense}: {args.model} on {args.dataset} ({images.source})")
    print(f"  threat  letter {result['letter']}, by {type(tool).__name__}")
    print(f"  PSNR    median {median(psnr):.1f} dB, from {min(psnr):.1f} to {max(psnr):.1f}")
    print(f"  SSIM    mean {result['mean']['ssim']:.3f}")
    print(f"  labels  {right} of {len(rows)} right")
    print(f"  time    {result['seconds']:.1f} s")
    return {**settings(args, images), **result}


def _attack_file(args: argparse.Namespace) -> dict:
    """Attack an upload out of a file. The truth is not here, so there is nothing to score."""
    if args.png:
        from ..teach.figures import show_images, style
    tool, upload = build_attack(args, args.attack, args.defense), _from_file(args)
    began = time.perf_counter()
    found = tool.run(upload, seed=args.seed)
    seconds = round(time.perf_counter() - began, 2)
    if args.png:
        style()
        titles = [f"label {y}" for y in found.labels.tolist()]
        figure = show_images({"what the\nattacker\nrebuilds": found.images}, titles)
        args.outputs["png"] = png(figure)
    labels, cost = found.labels.tolist(), found.cost.tolist()
    print(f"{args.attack} on {args.upload}: {upload}")
    print(f"  labels  {', '.join(map(str, labels))}")
    print(f"  cost    {', '.join(f'{c:.3g}' for c in cost)}: the attacker's own, 0 is best")
    print(f"  time    {seconds:.1f} s")
    print("  no scores: the true images are not known here")
    told = {"labels_found": labels, "cost": cost, "letter": tool.threat(upload)}
    spent = {"evaluations": found.evaluations, "failed_starts": found.failed, "seconds": seconds}
    return {**settings(args), **told, **spent}


def _from_file(args: argparse.Namespace) -> Upload:
    """The upload in --upload, for --model with the weights in --model-file."""
    from ..stored import read_tensors

    if args.knows:
        raise PrivflError("--knows is for clients that are simulated; with --upload give --labels")
    model = stored_model(args)
    return pf.Upload.from_gradients(model, read_tensors(args.upload), args.labels, args.batch)


def stored_model(args: argparse.Namespace) -> Net:
    """--model, one of the package's, with the weights in --model-file."""
    from ..stored import read_tensors
    from ..wire.naming import fill

    if not args.model_file or not args.shape:
        raise PrivflError("--upload needs --model-file FILE (its weights) and --shape C,H,W")
    state = read_tensors(args.model_file)
    last = state.get("head.weight") if isinstance(state, dict) else state[-1]
    if last is None or not last.dim():
        raise PrivflError(f"{args.model_file} has no 'head.weight', as --model {args.model} needs")
    model = pf.models.build(args.model, args.shape, len(last), seed=args.seed)
    fill(model, state)
    return model


def _first(defense: str) -> str:
    """The name of the first defense in ``name:key=value+name``."""
    return defense.split("+")[0].partition(":")[0].strip()


def build_attack(args: argparse.Namespace, name: str, defense: str, strict: bool = True) -> Attack:
    """The attack of this name; "informed" is the one that answers the defense."""
    from ..written import read

    first = _first(defense)
    answers = {"informed": pf.attacks.INFORMED[first]} if first in pf.attacks.INFORMED else {}
    if not answers and name.partition(":")[0] == "informed":
        raise PrivflError(f"no attack answers {first} yet; name one in attacks.INFORMED")
    table = {**answers, **pf.attacks.ATTACKS}
    takes = {field.name for field in fields(table[choose("attack", name.partition(":")[0], table)])}
    given = {k: v for k in ("steps", "restarts") if (v := getattr(args, k)) is not None}
    if strict and (wrong := [k for k in given if k not in takes]):
        raise PrivflError(f"{name} takes no --{wrong[0]}")
    given = {k: v for k, v in given.items() if k in takes}
    return read("attack", table, name, **given)


def simulate(args: argparse.Namespace, defense: str, images: Dataset, tool: Attack) -> tuple:
    """The private images and labels, and what their owners upload; the attack's needs granted."""
    model = pf.models.build(args.model, images, seed=args.seed)
    x, y = images.sample(args.images, seed=args.seed)
    kept, knows = pf.defenses.build(defense), dict.fromkeys([*args.knows, *tool.needs])
    return x, y, pf.share(model, x, y, kept, tuple(knows), each=args.batch, seed=args.seed)


def attack_once(
    args: argparse.Namespace, tool: Attack, sent: tuple, pool: Tensor | None = None
) -> tuple:
    """The scores of one attack, and what ``--png`` draws.

    With a ``pool`` also "named": the share of images that come first among 100 of it, by pixels.
    """
    from ..metrics import identify
    from ..metrics.judge import judge

    x, y, upload = sent
    began = time.perf_counter()
    found = tool.run(upload, seed=args.seed)
    seconds = round(time.perf_counter() - began, 2)
    if len(found.images) < len(x):
        raise PrivflError(f"of {len(x)} images {len(found.images)} are in what was sent: lost=0")
    batch = len(x) // len(upload)  # of all clients, under a secure sum
    shown, scores = judge(found, x, y, batch)
    spent = {"evaluations": found.evaluations, "failed_starts": found.failed, "seconds": seconds}
    about: dict = {"letter": tool.threat(upload)}
    if pool is not None:
        about["named"] = identify(found.images[: len(x)], x, pool, of=100, batch=batch).rate
    return {**scores, **spent, **about}, (x[::batch], upload, shown[::batch])
