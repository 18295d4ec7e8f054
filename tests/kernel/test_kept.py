"""What a new run keeps of the history before it, and what it leaves behind: of every type of event it is decided."""

from __future__ import annotations

from perdure.kernel.event import Event, EventType
from perdure.kernel.kept import all_kept

IN_THE_ROW = "what it changed stands in the process's own row"
OF_ITS_RUN = "it tells how a run began, rested or ended, and a new run does that in its own way"
FOR_PEOPLE = "it is read by people alone, who find it in the run before"

LEFT_BEHIND = {
    EventType.RUN_OPENED: OF_ITS_RUN,
    EventType.HELD: OF_ITS_RUN,
    EventType.RESUMED: OF_ITS_RUN,
    EventType.GIVEN_UP: OF_ITS_RUN,
    EventType.REPAIRED: OF_ITS_RUN,
    EventType.COMPLETED: OF_ITS_RUN,
    EventType.FAILED: OF_ITS_RUN,
    EventType.CANCELLED: OF_ITS_RUN,
    EventType.BROKEN: OF_ITS_RUN,
    EventType.TERMINATED: OF_ITS_RUN,
    EventType.EXPIRED: OF_ITS_RUN,
    EventType.KEY_RELEASED: IN_THE_ROW,
    EventType.DEADLINE_SET: IN_THE_ROW,
    EventType.FIELDS_EDITED: IN_THE_ROW,
    EventType.VERSION_MOVED: IN_THE_ROW,
    EventType.PRIORITY_SET: IN_THE_ROW,
    EventType.REVIVED: FOR_PEOPLE,
    EventType.TIMER_CHANGED: FOR_PEOPLE,
}
"""The types that no new run takes over, each with its reason: a type in neither list would be lost unnoticed."""


def test_each_type_of_event_goes_into_a_new_run_or_is_left_behind_for_a_reason() -> None:
    kept = {one.type for one in all_kept([Event(number, 0, type, at=0) for number, type in enumerate(EventType, 1)])}
    assert kept == set(EventType) - LEFT_BEHIND.keys()
