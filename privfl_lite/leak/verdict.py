"""The verdict in one sentence. It says "not found", and nothing better than that."""

from __future__ import annotations

from collections.abc import Sequence

from .attackers import taken
from .record import Attempt
from .scores import SHARP, close, percent

DOUBT = "this is no proof of safety"


def verdict(attempts: Sequence[Attempt], guess: float, seconds: float, interrupted: bool) -> str:
    """What the best attacker found, or who did not find anything within how long."""
    hits = [a for a in attempts if a.outcome == "found"]
    cut = ", stopped early" if interrupted else ""
    if hits:
        best = max(hits, key=lambda a: (_mean(a.psnr), -_mean(a.misfit)))
        by = f"by {best.attack} in {taken(best.seconds)}, under letter {best.letter}"
        return f"Found: {_what(best, guess)}, {by}{cut}."
    ran = [a.attack for a in attempts if a.ran]
    if not ran:
        return f"Not found: none of {len(attempts)} attackers applies or had time{cut} ({DOUBT})."
    return f"Not found by {', '.join(ran)} within {seconds:.0f} s{cut} ({DOUBT})."


def _what(best: Attempt, guess: float) -> str:
    count = len(best.labels)
    images = "image" if count == 1 else "images"
    if best.psnr:
        sharp = sum(p >= SHARP for p in best.psnr)
        return f"{sharp} of {count} {images} at {SHARP:g} dB or more (best {max(best.psnr):.1f} dB)"
    off = percent(min(best.misfit))
    whose = "an image that reproduces" if count == 1 else f"{count} images that reproduce"
    many = len(best.misfit)
    sent = "the upload" if many == 1 else f"{close(best.misfit, guess)} of {many} uploads"
    return f"{whose} {sent} to {off} of the length (a blind guess: {percent(guess)})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
