"""The commands of the command line, a file for each family.

A file holds what its commands do (each takes the parsed arguments, returns a result) and, in
``add``, their options. They reach the rooms as ``pf.data``, ``pf.attacks``, …, which are imported
when they are first used.
"""

from . import attack, challenge, compare, doctor, grade, plan, report, study, train

# in the order of the help
FAMILIES = (attack, report, compare, train, plan, study, challenge, grade, doctor)
