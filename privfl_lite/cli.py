"""The command line: ``privfl attack | train | epsilon | study | compare | fetch | doctor``.

Results go to standard output as text, and to files with ``--json`` and ``--png``; progress goes to
standard error. Bad input: one sentence and exit code 2. Ctrl-C: what is done by then is written.
Files are tried before the work; if a disk fills up meanwhile, what they would hold is printed.
Nothing slow is imported before a command runs: help and the answer to a typo come at once.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from . import __version__, commands, disk, names
from .errors import PrivflError, choose
from .studies import STUDIES


def _json_text(result: dict) -> str:
    """Standard JSON: an infinite PSNR becomes null."""

    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [clean(v) for v in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(clean(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse a file that cannot be written before the work, not after it."""
    for option in ("json", "png", "csv", "checkpoint"):
        path = getattr(args, option, None)
        if path == "":
            raise PrivflError(f"--{option} needs the name of a file")
        if option == "png" and path and not path.endswith(".png"):
            raise PrivflError(f"--png {path}: the name must end in .png")
        if path:
            try:
                disk.check_writable(Path(path))
            except PrivflError as error:
                raise PrivflError(f"--{option} {error}") from None


def _write_outputs(args: argparse.Namespace) -> None:
    """Write what the command made; a text that cannot be written is printed, and nothing is lost.

    A file that fails does not keep the others from being written.
    """
    failed = []
    for option, made in args.outputs.items():
        text, data = (made, made.encode()) if isinstance(made, str) else ("", made)
        try:
            disk.write(Path(getattr(args, option)), data, lost=text)
        except PrivflError as error:
            failed.append(f"--{option} {error}")
    if failed:
        raise PrivflError("; ".join(failed))


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _numbers(text: str) -> list[int]:
    """The type of ``3,32,32``."""
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not whole numbers joined by commas")
    return [int(part) for part in parts]


def _dataset(text: str) -> str:
    return text if text.startswith("folder:") else _one_of("data set", names.DATASETS)(text)


def _one_of(kind: str, options: Iterable[str]) -> Callable[[str], str]:
    """The type of an argument that is one of these names."""

    def check(text: str) -> str:
        try:
            return choose(kind, text, options)
        except PrivflError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return check


def _written(kind: str, options: Iterable[str]) -> Callable[[str], str]:
    """The type of an argument ``name:key=value+name``: checks the names, leaves the settings."""

    def check(text: str) -> str:
        for part in text.split("+"):
            _one_of(kind, options)(part.partition(":")[0].strip())
        return text

    return check


EXAMPLES = {  # one for each command, below its help
    "attack": "informed --defense prune:rate=0.9 --images 8 --png leak.png",
    "compare": "--defenses prune,soteria,dcs2 --attacks gs,informed --csv matrix.csv",
    "train": "--defense modelcloak:clip=1,sigma=0.1 --clients 10 --rounds 20",
    "epsilon": "--sigma 5 --rate 0.1 --rounds 100 --delta 1e-5",
    "study": "show modelcloak-fixed/epsilon",
    "fetch": "cifar10",
    "doctor": "",
}


class _Parser(argparse.ArgumentParser):
    """One sentence instead of the usage block."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = _Parser(prog="privfl", description="Gradient leakage in federated learning, hands on.")
    top.add_argument("--version", action="version", version=__version__)
    places = top.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    def command(function, *options) -> argparse.ArgumentParser:
        about = function.__doc__.split("\n")[0]
        example = f"example: privfl {function.__name__} {EXAMPLES[function.__name__]}"
        p = places.add_parser(function.__name__, help=about, description=about, epilog=example)
        p.set_defaults(run=function)
        for name, kind, default, text in options:
            text += "" if default is None else f" (default: {default})"
            p.add_argument(name, type=kind, default=default, help=text)
        p.add_argument("--json", metavar="FILE", help="write settings and results to this file")
        p.add_argument("--quiet", action="store_true", help="no progress bar")
        return p

    def listed(options: Iterable[str]) -> str:
        return f"one of: {', '.join(options)}"

    threads = ("--threads", _positive, 1, "of PyTorch")
    common = [
        ("--dataset", _dataset, "mnist", f"{listed(names.DATASETS)}; or folder:PATH, your own"),
        ("--size", _positive, None, "side to which images are resized"),
        ("--seed", int, 0, "of everything that is random"),
        threads,
    ]
    text = f"name:key=value,… joined with +; a name is {listed(names.DEFENSES)}"
    defense = ("--defense", _written("defense", names.DEFENSES), "none", text)
    model = _one_of("model", names.MODELS)
    target = [
        *common,
        ("--model", model, "lenet", listed(names.MODELS)),
        ("--images", _positive, 8, "how many images are attacked"),
        ("--batch", _positive, 1, "images behind each upload"),
        (
            "--steps",
            _positive,
            None,
            "evaluations of the gradient for each start; by default the attack's own",
        ),
        ("--restarts", _positive, None, "starts for each upload; by default the attack's own"),
    ]
    p = command(commands.attack, defense, *target)
    every = ("informed", *names.ATTACKS)  # the first answers the defense, whichever it is
    text = f"name:key=value,…; a name is {listed(every)}"
    kind = _written("attack", every)
    p.add_argument("attack", type=kind, metavar="ATTACK", help=text)
    p.add_argument(
        "--knows",
        nargs="*",
        default=[],
        help=f"facts granted to the attacker, of: {', '.join(names.FACTS)}",
    )
    p.add_argument("--png", metavar="FILE", help="draw truth, upload and reconstruction")
    text = "attack gradients from a .pt or .safetensors file: by name, or a list (truth unknown)"
    p.add_argument("--upload", metavar="FILE", help=text)
    text = "with --upload: the weights of --model at which they were taken, a state dict"
    p.add_argument("--model-file", metavar="FILE", help=text)
    p.add_argument("--shape", type=_numbers, metavar="C,H,W", help="with --upload: of an image")
    p.add_argument("--labels", type=_numbers, metavar="Y,…", help="with --upload: known labels")
    p = command(
        commands.compare,
        *target,
        ("--defenses", str, ",".join(names.DEFENSES), "names joined by commas"),
        ("--attacks", str, "recursive,idlg,gs,informed", f"of {', '.join(every)}"),
    )
    p.add_argument("--csv", metavar="FILE", help="write the matrix as a table")
    p.add_argument("--png", metavar="FILE", help="draw the matrix")
    p.set_defaults(knows=["labels"], images=4, steps=300)  # minutes, not hours
    p = command(
        commands.train,
        *common,
        defense,
        ("--model", model, "lenet5", listed(names.MODELS)),
        ("--clients", _positive, 10, "how many"),
        ("--per-round", _positive, None, "clients in a round; all by default"),
        ("--rounds", _positive, 20, "how many"),
        ("--split", str, "iid", "iid, shards or dirichlet"),
        ("--alpha", float, 0.5, "of the Dirichlet split"),
        ("--epochs", _positive, 1, "local passes over the data"),
        ("--steps", _positive, None, "local steps, instead of epochs"),
        ("--batch-size", _positive, 10, "local"),
        ("--eta", float, 0.05, "learning rate"),
        ("--momentum", float, 0.0, "of local SGD"),
        ("--share", str, "update", "update or gradient"),
        ("--sampling", str, "fixed", "fixed or poisson"),
    )
    p.add_argument("--checkpoint", metavar="FILE", help="go on from here after an interruption")
    command(
        commands.epsilon,
        ("--sigma", float, 5.0, "noise multiplier"),
        ("--rate", float, 0.1, "share of clients in a round"),
        ("--rounds", _positive, 100, "how many"),
        ("--delta", float, 1e-5, "δ of (ε, δ)-DP"),
        ("--accountant", str, "rdp", "rdp or prv"),
        ("--sampling", str, "poisson", "poisson or fixed"),
    )
    profile = _one_of("profile", names.PROFILES)
    p = command(commands.study, ("--profile", profile, "cpu", listed(names.PROFILES)), threads)
    p.add_argument("action", choices=("list", "run", "show"))
    p.add_argument("--out", metavar="DIR", help="where results are kept (default: results)")
    kind = _one_of("study", STUDIES)
    p.add_argument("name", type=kind, nargs="?", metavar="NAME", help=listed(STUDIES))
    kind = _one_of("asset", names.ASSETS)
    p = command(commands.fetch)
    p.add_argument("asset", type=kind, metavar="ASSET", help=listed(names.ASSETS))
    command(commands.doctor)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 on success, 2 on bad input, 130 when interrupted."""
    args = parser().parse_args(argv)
    try:
        _check_outputs(args)
        if "threads" in args:
            import torch  # slow

            torch.set_num_threads(args.threads)
        args.outputs = {}  # option -> what goes into its file; a command adds its own
        result = args.run(args)
        if args.json:
            args.outputs["json"] = _json_text(result)
        _write_outputs(args)
    except PrivflError as error:
        print(f"privfl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("privfl: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
