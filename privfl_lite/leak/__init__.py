"""Your own run: can this upload leak, how much, and under which letter?

``report`` looks at one upload as the server would: what its layers give away by counting, what the
registry's attackers bring back within a budget, which ε holds if a defense is named, and what would
change the answer. A search that finds nothing proves nothing, and the report says so. Chapter: your
own run.
"""

from .making import report
from .record import Attempt, LeakReport

__all__ = ["Attempt", "LeakReport", "report"]
