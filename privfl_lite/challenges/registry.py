"""The twelve, in order."""

from .algebra import COUNTS, DIVISION, LABELS, ZEROS
from .base import Challenge
from .searches import MATCHING, NAMED, PRUNED, TRAINED
from .servers import KEYED, MALICIOUS
from .unsolved import CONCEALED, WALL

ALL = (LABELS, DIVISION, COUNTS, ZEROS, MATCHING, PRUNED, NAMED, TRAINED, MALICIOUS, KEYED)
CHALLENGES: dict[str, Challenge] = {c.name: c for c in (*ALL, WALL, CONCEALED)}
