"""A judgement: what has become of a command of an operation to one process, or what would become of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from perdure.authoring.operation.plan import CHANGED
from perdure.client.decision import Decide, Decision
from perdure.errors import BadRecord, DamagedRecord, IllegalMove, NewerRecord, PerdureError, StoreError
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process

OF_RECORDS = (BadRecord, DamagedRecord, NewerRecord)
"""Errors of the store that are about the one process, and not about the store."""


class Judged(Struct, frozen=True):
    """``why`` a process is not commanded (empty if it is), and whether that is since the command ``failed``.

    ``children`` counts the messages that the command sends, ``repeated`` the done steps that run again.
    """

    why: str = ""
    failed: bool = False
    children: int = 0
    repeated: int = 0


class Changed(IllegalMove):
    """The process has changed since the operation began."""


def unless_changed(decision: Decision, until: int) -> Decision:
    """The same decision, but it raises Changed for a process that has changed after that time."""

    def guarded(decide: Decide) -> Decide:
        def decided(row: Process, history: Sequence[Event], now: int) -> Commit:
            if row.changed_at > until:
                raise Changed(CHANGED)
            return decide(row, history, now)

        return decided

    unrecorded = None if decision.unrecorded is None else guarded(decision.unrecorded)
    return replace(decision, decide=guarded(decision.decide), unrecorded=unrecorded)


def refused(why: PerdureError) -> Judged:
    """A process whose command raised this; raises it again if it is about the store, and not about the process."""
    if isinstance(why, StoreError) and not isinstance(why, OF_RECORDS):
        raise why
    return Judged(str(why), failed=not isinstance(why, IllegalMove))


def effects(row: Process, history: Sequence[Event], commit: Commit) -> Judged:
    """A process that would get this commit."""
    return Judged(children=len(commit.sends), repeated=_repeated(row, history, commit))


def _repeated(row: Process, history: Sequence[Event], commit: Commit) -> int:
    """How many steps that were done a command would have run again."""
    done = EventType.STEP_COMPLETED
    if commit.after.run == row.run:
        return 0
    kept = [event.type for event in commit.events if event.type in (done, EventType.RESULT_KEPT)]
    return max(0, [event.type for event in history].count(done) - len(kept))
