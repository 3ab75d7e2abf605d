"""How commands are declared: types of their options, options that several have, examples."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

import privfl_lite as pf

from .. import names
from ..errors import PrivflError, choose
from ..values import most_processes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..data import Dataset

EXAMPLES = {  # one for each command, below its help
    "attack": "informed --defense prune:rate=0.9 --images 8 --png leak.png",
    "report": "--model lenet --model-file weights.pt --upload gradients.pt --html leak.html",
    "compare": "--defenses prune,soteria,dcs2 --attacks gs,informed --csv matrix.csv",
    "train": "--defense modelcloak:clip=1,sigma=0.1 --clients 10 --rounds 20",
    "epsilon": "--sigma 5 --rate 0.1 --rounds 100 --delta 1e-5",
    "plan": "--cohort 1000 --defense modelcloak:clip=1,sigma=1 --summing pairs",
    "study": "show modelcloak-fixed/epsilon",
    "challenge": "get first-word",
    "fetch": "cifar10",
    "grade": "handed-in --lab read-off --csv grades.csv",
    "doctor": "",
}


class Parser(argparse.ArgumentParser):
    """One sentence instead of the usage block."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


Option = tuple[str, Callable[[str], Any], Any, str]  # name, type, default, help


class Commands:
    """The commands of ``privfl``."""

    def __init__(self, top: argparse.ArgumentParser):
        self.places = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def add(self, run: Callable, *options: Option) -> argparse.ArgumentParser:
        """One more: its name and help are those of the function that it runs."""
        name, about = run.__name__, (run.__doc__ or "").split("\n")[0]
        example = f"example: privfl {name} {EXAMPLES[name]}"
        p = self.places.add_parser(name, help=about, description=about, epilog=example)
        p.set_defaults(run=run)
        for option, kind, default, text in options:
            text += "" if default is None else f" (default: {default})"
            p.add_argument(option, type=kind, default=default, help=text)
        p.add_argument("--json", metavar="FILE", help="write settings and results to this file")
        p.add_argument("--quiet", action="store_true", help="no progress bar")
        return p


def positive(text: str) -> int:
    """The type of a whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def some(text: str) -> int:
    """The type of a number of threads or processes."""
    most = most_processes()
    if not text.isdigit() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return int(text)


def numbers(text: str) -> list[int]:
    """The type of ``3,32,32``."""
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not whole numbers joined by commas")
    return [int(part) for part in parts]


def _dataset(text: str) -> str:
    return text if text.startswith("folder:") else one_of("data set", names.DATASETS)(text)


def one_of(kind: str, options: Iterable[str]) -> Callable[[str], str]:
    """The type of an argument that is one of these names."""

    def check(text: str) -> str:
        try:
            return choose(kind, text, options)
        except PrivflError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return check


def written(kind: str, options: Iterable[str]) -> Callable[[str], str]:
    """The type of an argument ``name:key=value+name``: checks the names, leaves the settings."""

    def check(text: str) -> str:
        for part in text.split("+"):
            one_of(kind, options)(part.partition(":")[0].strip())
        return text

    return check


def listed(options: Iterable[str]) -> str:
    """The help of an option that is one of these names."""
    return f"one of: {', '.join(options)}"


THREADS: Option = ("--threads", some, 1, "of PyTorch")
COMMON: list[Option] = [
    ("--dataset", _dataset, "mnist", f"{listed(names.DATASETS)}; or folder:PATH, your own"),
    ("--size", positive, None, "side to which images are resized"),
    ("--seed", int, 0, "of everything that is random"),
    THREADS,
]
DEFENSE: Option = (
    "--defense",
    written("defense", names.DEFENSES),
    "none",
    f"name:key=value,… joined with +; a name is {listed(names.DEFENSES)}",
)


def model(default: str) -> Option:
    """``--model``, with this default."""
    return ("--model", one_of("model", names.MODELS), default, listed(names.MODELS))


def png(figure: Figure) -> bytes:
    """The file of a figure."""
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


def plain(args: argparse.Namespace) -> dict:
    """The options of a command that have to do with its result."""
    hidden = ("run", "json", "png", "html", "quiet", "threads", "outputs", "words")
    return {k: v for k, v in vars(args).items() if k not in hidden}


def settings(args: argparse.Namespace, images: Dataset | None = None) -> dict:
    """What stands in a result beside its numbers: options, source of the data, versions."""
    versions = {"privfl_lite": pf.__version__, "torch": version("torch")}
    source = images.source if images else "files of the user's"
    return {"settings": {**plain(args), "source": source, "versions": versions}}
