"""MyST Markdown as a list of blocks: text, literal code, and directives, which hold blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

FENCE = re.compile(
    r"^(?P<indent>\s*)(?P<marks>`{3,}|~{3,}|:{3,})(?:\{(?P<name>[\w:-]+)\})?\s*(?P<info>[^`]*?)\s*$"
)
OPTION = re.compile(r"^\s*:(?P<key>[\w-]+):\s*(?P<value>.*?)\s*$")


class EditionError(Exception):
    """A source that no edition can be made from; one sentence says where and why."""


@dataclass(frozen=True)
class Block:
    """``kind`` is "text", "code" (a literal fence) or "directive"; ``raw`` is all of its lines."""

    kind: str
    raw: str
    name: str = ""
    title: str = ""
    options: dict[str, str] = field(default_factory=dict)
    body: tuple[Block, ...] = ()

    @property
    def label(self) -> str:
        return self.options.get("label", "")


def parse(text: str) -> list[Block]:
    """The blocks of a Markdown text, in order."""
    blocks, plain, lines = [], [], text.split("\n")
    while lines:
        fence = FENCE.match(lines[0])
        if not fence or (fence["marks"][0] == ":" and not fence["name"]):
            plain.append(lines.pop(0))
            continue
        if any(line.strip() for line in plain):
            blocks.append(Block("text", "\n".join(plain)))
        plain = []
        end = _end(lines, fence["marks"])
        blocks.append(_fenced(fence, lines[: end + 1]))
        lines = lines[end + 1 :]
    if any(line.strip() for line in plain):
        blocks.append(Block("text", "\n".join(plain)))
    return blocks


def _end(lines: list[str], marks: str) -> int:
    """The line that closes the fence of line 0: as many marks or more, and nothing else."""
    for number, line in enumerate(lines[1:], start=1):
        text = line.strip()
        if len(text) >= len(marks) and not text.strip(marks[0]):
            return number
    raise EditionError(f"the block that begins with {lines[0].strip()!r} does not end")


def _fenced(fence: re.Match, lines: list[str]) -> Block:
    raw = "\n".join(lines)
    if not fence["name"]:
        return Block("code", raw)
    inside, options = lines[1:-1], {}
    while inside and (option := OPTION.match(inside[0])):
        options[option["key"]] = option["value"]
        inside = inside[1:]
    if inside and inside[0].strip() == "---":
        raise EditionError(f"write the options of {lines[0].strip()!r} as lines `:key: value`")
    body = tuple(parse("\n".join(inside)))
    return Block("directive", raw, fence["name"], fence["info"], options, body)


def walk(blocks: list[Block] | tuple[Block, ...]) -> Iterator[Block]:
    """All blocks, outer before inner, in the order of the text."""
    for block in blocks:
        yield block
        yield from walk(block.body)
