"""The command line: ``privfl attack | train | epsilon | study | compare | fetch | doctor``.

Results go to standard output as text, and to files with ``--json`` and ``--png``; progress goes to
standard error. Bad input: one sentence and exit code 2. Ctrl-C: what is done by then is written.
Nothing slow is imported before a command runs: help and the answer to a typo come at once.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from . import __version__
from .commands import FAMILIES
from .commands.options import Commands, Parser
from .errors import PrivflError


def _write_json(path: str, result: dict) -> None:
    """Standard JSON: an infinite PSNR becomes null."""

    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [clean(v) for v in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    text = json.dumps(clean(result), indent=1, ensure_ascii=False, allow_nan=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse an unwritable place before the work, not after it."""
    for option in ("json", "png", "csv", "checkpoint"):
        path = getattr(args, option, None)
        if path and not Path(path).absolute().parent.is_dir():
            raise PrivflError(f"--{option} {path}: the folder {Path(path).parent} does not exist")


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser(prog="privfl", description="Gradient leakage in federated learning, hands on.")
    top.add_argument("--version", action="version", version=__version__)
    commands = Commands(top)
    for family in FAMILIES:
        family.add(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 on success, 2 on bad input, 130 when interrupted."""
    args = parser().parse_args(argv)
    try:
        _check_outputs(args)
        if "threads" in args:
            import torch  # slow

            torch.set_num_threads(args.threads)
        result = args.run(args)
        if args.json:
            _write_json(args.json, result)
    except PrivflError as error:
        print(f"privfl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("privfl: stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
