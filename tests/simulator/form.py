"""The form of the simulator's tests: some histories of each scenario in ``make test``, all of them in ``make sim``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from perdure.testing.simulator import simulate
from perdure.testing.simulator.cluster import Hosted
from perdure.testing.simulator.history import Scenario

WHOLE = os.environ.get("PERDURE_HISTORIES") == "all"
"""Whether these are the long forms."""


def seeds(some: int, whole: int, first: int = 0) -> range:
    """The seeds of a test: so many in its short form, from one on that soon meets what it must; all in the long one."""
    return range(whole) if WHOLE else range(first, first + some)


def enough(before: int, some: int) -> bool:
    """Whether a short form has played ``some``, with so many ``before`` this one, and may end when it has met all.

    A long form plays all of them.
    """
    return not WHOLE and before + 1 >= some


def play_until(
    probe: str, times: int, scenario: Scenario, workflows: Sequence[Hosted], among: Iterable[int], some: int
) -> None:
    """Play histories of these seeds, at least ``some``, until the probe was reached more than so many ``times``."""
    reached = 0
    for played, seed in enumerate(among):
        reached += simulate(scenario, seed, workflows=workflows).check().probes[probe]
        if enough(played, some) and reached > times:
            break
    assert reached > times
