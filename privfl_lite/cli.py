"""The command line: ``privfl attack | report | train | epsilon | plan | study | compare | …``.

Results go to standard output as text, and to files with ``--json``, ``--png`` and ``--html``;
progress goes to standard error. Bad input: one sentence and exit code 2. Ctrl-C: what is done by
then is written.
Files are tried before the work; if a disk fills up meanwhile, what they would hold is printed.
Nothing slow is imported before a command runs: help and the answer to a typo come at once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import __version__, disk
from .commands import FAMILIES
from .commands.options import Commands, Parser
from .errors import PrivflError


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
    for option in ("json", "png", "csv", "html", "checkpoint"):
        path = getattr(args, option, None)
        if path == "":
            raise PrivflError(f"--{option} needs the name of a file")
        if option in ("png", "html") and path and not path.endswith(f".{option}"):
            raise PrivflError(f"--{option} {path}: the name must end in .{option}")
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


@contextmanager
def _quiet(asked: bool) -> Iterator[None]:
    """Inside, there is no progress bar if that was asked for, of defenses neither."""
    before = os.environ.get("PRIVFL_PROGRESS")
    if asked:
        os.environ["PRIVFL_PROGRESS"] = "0"
    try:
        yield
    finally:
        os.environ.pop("PRIVFL_PROGRESS", None)
        if before is not None:
            os.environ["PRIVFL_PROGRESS"] = before


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser(prog="privfl", description="Gradient leakage in federated learning, hands on.")
    top.add_argument("--version", action="version", version=__version__)
    commands = Commands(top)
    for family in FAMILIES:
        family.add(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 on success, 2 on bad input, 130 when interrupted, 141 when not read."""
    args = parser().parse_args(argv)
    try:
        _check_outputs(args)
        if "threads" in args:
            import torch  # slow

            torch.set_num_threads(args.threads)
        args.words = sys.argv[1:] if argv is None else argv
        args.outputs = {}  # option -> what goes into its file; a command adds its own
        with _quiet(args.quiet):
            result = args.run(args)
        if args.json:
            args.outputs["json"] = _json_text(result)
        _write_outputs(args)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is flushed at the end
        return 141
    except PrivflError as error:
        print(f"privfl: {error}", file=sys.stderr)
        return 2
    except MemoryError:
        print("privfl: memory ran out; take fewer images, clients or rounds", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("privfl: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
