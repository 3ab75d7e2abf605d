"""The drawing of the doors says of every defense what the package does."""

from __future__ import annotations

import pytest

from privfl_lite import defenses
from privfl_lite.defenses import DEFENSES, Defense
from privfl_lite.teach.drawings.doors import DOORS, WRITTEN, draw


@pytest.mark.parametrize("door", DOORS)
def test_who_stands_at_a_door_has_something_to_do_there(door):
    for name in DOORS[door][1]:
        stands = getattr(defenses, name)
        assert getattr(stands, door) is not getattr(Defense, door), name


def test_every_defense_of_the_package_stands_somewhere():
    drawn = {getattr(defenses, name) for _, names in DOORS.values() for name in names}
    at_the_wire = {defenses.SecureSum}  # no door of one client: it stands between all of them
    repairs = {defenses.AdaptiveCloak, defenses.Rounded}  # of the red team, later in the book
    assert drawn == set(DEFENSES.values()) - {Defense} - at_the_wire - repairs
    assert set(WRITTEN) <= {name for _, names in DOORS.values() for name in names}


def test_one_door_can_be_marked():
    def bold(marked: str) -> list[str]:
        words = [t for ax in draw(marked).axes for t in ax.texts if t.get_weight() == "bold"]
        return [t.get_text() for t in words]

    assert len(bold("data")) == len(bold("")) + 1
    assert any("LODA" in words for words in bold("data"))
