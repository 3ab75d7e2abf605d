"""``privfl challenge``: capture the flag on twelve uploads, alone or as a class."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import privfl_lite as pf

from .. import disk
from ..errors import PrivflError, choose
from .options import Commands, numbers

if TYPE_CHECKING:
    from torch import Tensor

    from ..challenges import Board, Challenge, Set

ACTIONS = ("list", "get", "hint", "submit", "merge", "make")
BOARD = "privfl-board.json"
USES = {  # option -> the actions that take it
    "labels": ("submit",),
    "places": ("submit",),
    "images": ("submit",),
    "out": ("get", "make"),
    "csv": ("merge",),
    "secret_file": ("merge", "make"),
    "player": ("hint", "submit"),
}


def add(commands: Commands) -> None:
    p = commands.add(challenge)
    p.add_argument("action", choices=ACTIONS, help="list, get, hint and submit; merge and make")
    text = "of the challenge; with merge the files of all players"
    p.add_argument("names", nargs="*", metavar="NAME", help=text)
    p.add_argument("--labels", type=numbers, metavar="Y,…", help="submit labels")
    p.add_argument("--places", type=numbers, metavar="N,…", help="submit candidates' numbers")
    text = "submit images: a tensor in .pt, .safetensors or .npy, or a .png grid without gaps"
    p.add_argument("--images", metavar="FILE", help=text)
    p.add_argument("--player", metavar="NAME", help="who you are; the board remembers")
    p.add_argument("--board", metavar="FILE", default=BOARD, help=f"of yours (default: {BOARD})")
    text = "a class's set, as its instructor handed it out (default: the public set)"
    p.add_argument("--set", metavar="DIR", help=text)
    p.add_argument("--out", metavar="DIR", help="where get and make write (get: default NAME)")
    p.add_argument("--csv", metavar="FILE", help="with merge: write the table")
    text = "for instructors: the class's secret (default: PRIVFL_CLASS_SECRET)"
    p.add_argument("--secret-file", metavar="FILE", help=text)


def challenge(args: argparse.Namespace) -> dict:
    """Capture the flag: list, get, submit twelve uploads; make a set for a class, merge boards."""
    for option, actions in USES.items():
        if getattr(args, option) is not None and args.action not in actions:
            named = option.replace("_", "-")
            raise PrivflError(f"--{named} goes with: privfl challenge {' or '.join(actions)}")
    run: Callable[[argparse.Namespace], dict] = {
        "list": _list, "get": _get, "hint": _hint, "submit": _submit, "merge": _merge,
        "make": _make,
    }[args.action]  # fmt: skip
    return run(args)


def _chosen(args: argparse.Namespace) -> Challenge:
    if len(args.names) != 1:
        raise PrivflError(f"name one challenge: privfl challenge {args.action} NAME")
    table = pf.challenges.CHALLENGES
    return table[choose("challenge", args.names[0], table)]


def _set(args: argparse.Namespace) -> Set:
    return pf.challenges.open_set(args.set)


def _list(args: argparse.Namespace) -> dict:
    """All challenges, and what of them is solved on the player's board."""
    if args.names:
        raise PrivflError("privfl challenge list takes no names")
    path = Path(args.board)
    board = pf.challenges.Board.read(path) if path.is_file() else None
    rows = []
    for number, c in enumerate(pf.challenges.CHALLENGES.values(), 1):
        row = {k: getattr(c, k) for k in ("name", "title", "points", "letter", "chapter", "open")}
        solved = board is not None and c.name in board.proofs
        got = board.points(c.name) if board else 0
        rows.append({"number": number, **row, "solved": solved, "got": got})
        state = f"{got} points" if solved else "open problem" * c.open
        print(f"{number:2}  {c.name:17} {c.title:24} {c.points:5}  {c.chapter:19} {state}".rstrip())
    if board:
        print(f"{board.player}: {board.score} points in the set {board.set}")
    return {"challenges": rows}


def _get(args: argparse.Namespace) -> dict:
    """Write a challenge of the public set, or copy it out of a class's."""
    from ..challenges import handing, sets
    from ..teach import classroom

    c, held = _chosen(args), _set(args)
    out = Path(args.out or c.name)
    if held.folder is None:
        sets.write(c, classroom.PUBLIC, held.name, out)
    else:
        handing.copied(c, held.folder / c.name, out)
    print(f"{c.title}: {c.points} points; read {out / handing.PAGE}")
    return {"challenge": c.name, "set": held.name, "folder": str(out)}


def _hint(args: argparse.Namespace) -> dict:
    """Show the next hint and write down that it was read."""
    c, held = _chosen(args), _set(args)
    with _board(args, held) as (board, path):
        hint = board.hint(c)
        board.write(path)
        number = board.hints[c.name]
    solved = c.name in board.proofs
    print(f"hint {number} of {len(c.hints)}: {hint.text}")
    print(
        "it costs nothing: you have solved this one" if solved else f"it costs {hint.cost} points"
    )
    return {"challenge": c.name, "hint": number, "text": hint.text, "cost": hint.cost}


def _submit(args: argparse.Namespace) -> dict:
    """Check an answer, and write its points to the board if it is the flag."""
    from ..challenges import flags

    c, held = _chosen(args), _set(args)
    answer = _answer(args, c, held)
    with _board(args, held) as (board, path):
        key = held.key(c, answer)
        board.tries[c.name] = board.tries.get(c.name, 0) + 1
        if key is not None:
            board.solve(c, flags.signed(key, board.player))
        board.write(path)
    points = board.points(c.name)
    if key is None:
        print(f"not the flag of {c.name}; try {board.tries[c.name]} is written down, and is free")
    else:
        print(f"the flag of {c.name}: {points} points; {board.player} has {board.score}")
    told = {"challenge": c.name, "set": held.name, "right": key is not None, "points": points}
    return {**told, "tries": board.tries[c.name], "score": board.score}


def _answer(args: argparse.Namespace, c: Challenge, held: Set) -> Tensor:
    """Labels, places or images, whichever was given."""
    from ..challenges import answers

    given = [k for k in ("labels", "places", "images") if getattr(args, k) is not None]
    if len(given) != 1:
        raise PrivflError("give one answer: --labels Y,…, --places N,… or --images FILE")
    if given[0] == "images":
        return answers.images(c, args.images, held.pool(c))
    if given[0] != c.answer:
        raise PrivflError(f"{c.name} asks for {c.answer}: --{c.answer} …")
    return answers.numbers(c, getattr(args, given[0]))


def _merge(args: argparse.Namespace) -> dict:
    """The table of a class; with the secret, only what is proved counts."""
    if not args.names:
        raise PrivflError("name the players' files: privfl challenge merge a.json b.json")
    boards = [pf.challenges.Board.read(Path(name)) for name in args.names]
    held = _set(args)
    if boards[0].set != held.name:
        raise PrivflError(f"these boards are of the set {boards[0].set!r}; give its folder: --set")
    secret = _secret(args, held)
    check = None if secret is None else held.checker(secret)
    rows = pf.challenges.merged(boards, check)
    for row in rows:
        doubt = f"  refused: {row['refused']}" if row["refused"] else ""
        print(f"{row['player']:20} {row['points']:6} points, {row['solved']:2} solved, "
              f"{row['hints']:2} hints{doubt}")  # fmt: skip
    print("proofs checked" if check else "proofs not checked: that needs --secret-file")
    if args.csv:
        from ..challenges.board import table

        args.outputs["csv"] = table(rows)
    return {"set": held.name, "checked": check is not None, "players": rows}


def _secret(args: argparse.Namespace, held: Set | None) -> str | None:
    """The secret of a set, if it was given; of the public one everybody knows it."""
    from ..teach import classroom

    if held is not None and held.folder is None:
        return classroom.PUBLIC
    if args.secret_file is not None:
        try:
            return Path(args.secret_file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            raise PrivflError(f"--secret-file {args.secret_file} cannot be read") from None
    own = classroom.secret()
    return None if own == classroom.PUBLIC else own


def _make(args: argparse.Namespace) -> dict:
    """Make a set for a class."""
    if args.names or not args.out:
        raise PrivflError("write: privfl challenge make --secret-file FILE --out DIR")
    secret = _secret(args, None)
    if secret is None:
        raise PrivflError("a class needs a secret: --secret-file FILE, or PRIVFL_CLASS_SECRET")
    held = pf.challenges.make(secret, args.out, show=not args.quiet)
    print(f"set {held.name} in {args.out}: hand out the folder and keep the secret")
    return {"set": held.name, "folder": args.out, "challenges": list(held.entries)}


@contextmanager
def _board(args: argparse.Namespace, held: Set) -> Iterator[tuple[Board, Path]]:
    """The player's board and its path, with no other process at it meanwhile."""
    path = Path(args.board)
    disk.check_writable(path)
    with disk.alone(path, f"the board {path}"):
        yield pf.challenges.Board.at(path, args.player, held.name), path
