"""The form of the simulator's tests: some histories of each scenario in ``make test``, all of them in ``make sim``."""

from __future__ import annotations

import os

WHOLE = os.environ.get("PERDURE_HISTORIES") == "all"
"""Whether these are the long forms."""


def seeds(some: int, whole: int) -> range:
    """The seeds of a test: so many in its short form, so many in the long one."""
    return range(whole if WHOLE else some)


def enough(seed: int, some: int) -> bool:
    """Whether a short form has played so many, and may end when it has met what it must; a long one plays all."""
    return not WHOLE and seed + 1 >= some
