"""``privfl plan``: what a federation will cost, before it runs."""

from __future__ import annotations

import argparse

import privfl_lite as pf

from ..values import most_processes  # noqa: F401
from .options import DEFENSE, Commands, one_of, plain, positive

