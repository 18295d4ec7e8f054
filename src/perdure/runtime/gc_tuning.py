"""The collector: Python's garbage collector, kept from walking over every process in memory again and again.

A worker holds thousands of processes, each of some dozens of objects that end without help. With its default of
700 objects the collector looks at them so often that it takes a third of a busy worker's time. While a worker runs,
the first threshold is raised, and what exists at its start is left out of every round.
"""

from __future__ import annotations

import gc

from perdure import limits

_calm = 0
_before = (0, 0, 0)


def calm() -> None:
    """Raise the threshold for as long as a worker runs; several workers of one program share it."""
    global _calm, _before
    _calm += 1
    if _calm == 1:
        _before = gc.get_threshold()
        if 0 < _before[0] < limits.COLLECTOR_OBJECTS:
            gc.collect()
            gc.freeze()
            gc.set_threshold(limits.COLLECTOR_OBJECTS, *_before[1:])


def restore() -> None:
    """Give the program's own setting back, when its last worker has stopped."""
    global _calm
    _calm -= 1
    if _calm == 0:
        gc.unfreeze()
        gc.set_threshold(*_before)
