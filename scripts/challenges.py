"""Write the digests of the public set of challenges.

    python scripts/challenges.py

writes privfl_lite/challenges/public.json, which ``privfl challenge submit`` checks answers by. Only
digests, salts and questions: the truth follows from the public secret in teach/classroom.py.
"""

from __future__ import annotations

from pathlib import Path

import privfl_lite
from privfl_lite import disk
from privfl_lite.challenges import sets
from privfl_lite.teach import classroom

if __name__ == "__main__":
    out = Path(privfl_lite.__file__).parent / "challenges" / sets.SHIPPED
    disk.write_record(out, sets.manifest(classroom.PUBLIC))
    print(f"wrote {sets.SHIPPED}")
