"""The page that comes with a challenge, and the table of all, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from .base import Challenge

HOME = "https://github.com/privfl-lite/privfl_lite/blob/main/book"
ASKED = {
    "labels": "the labels, upload by upload in the order of the file (within one upload any order)",
    "images": "the images, upload by upload in the order of the file (within one upload any order)",
    "places": "for each upload, in the order of the file, the number of the candidate behind it, "
    "from 0",
}


def page(challenge: Challenge, folder: str) -> str:
    """README.md of a challenge's folder."""
    c = challenge
    hints = ", ".join(str(hint.cost) for hint in c.hints)
    marked = "**Open problem of the book.** " if c.open else ""
    return f"""# {c.title}

{marked}{c.story}

* **Granted:** {c.granted} Threat model: letter {c.letter}.
* **Wanted:** {ASKED[c.answer]}.
* **Points:** {c.points}. Three hints cost {hints} points: `privfl challenge hint {c.name}`.
* **Chapter:** [{c.chapter}]({HOME}/{c.chapter}.ipynb)

```python
import privfl_lite as pf

given = pf.challenges.load("{folder}")
print(given.upload)  # what the server sees; given.upload.model is the network
{_end(c)}
```

`upload.safetensors` holds the tensors by name, with an axis of {c.uploads} uploads in front;
`weights.safetensors` the network's, which is `{c.network_text}`.

```bash
{_submit(c)}
```
"""


def table(challenges: Iterable[Challenge]) -> str:
    """The table on the book's page."""
    rows = ["| | challenge | wanted | letter | points | chapter |", "|---|---|---|---|---|---|"]
    for number, c in enumerate(challenges, 1):
        many = f"{c.uploads} uploads of {c.batch}" if c.uploads > 1 else f"1 upload of {c.batch}"
        marked = ", **open problem**" if c.open else ""
        rows.append(
            f"| {number} | **{c.title}**, `{c.name}`{marked} | {c.answer}, {many} | {c.letter} "
            f"| {c.points:,} | {{doc}}`{c.chapter}` |"
        )
    return "\n".join(rows)


def _end(c: Challenge) -> str:
    if c.answer == "places":
        return "print(given.pool.shape, given.pool_labels.shape)  # the candidates"
    if c.answer == "labels":
        return "# your attack here"
    return f"""# your attack here; then, with found of shape ({c.count}, 1, 28, 28),
# import torch
# torch.save(found, "found.pt")"""


def _submit(c: Challenge) -> str:
    option = {
        "labels": "--labels " + ",".join("?" * c.count),
        "images": "--images found.pt",
        "places": "--places " + ",".join("?" * c.count),
    }
    return f"privfl challenge submit {c.name} --player YOU {option[c.answer]}"
