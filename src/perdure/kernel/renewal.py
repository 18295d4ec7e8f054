"""A renewal: the commit with which a process opens its next run by itself, with new arguments and an empty history."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw
from msgspec.structs import replace

from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import id_text
from perdure.kernel.opening import CONTINUED, Opening
from perdure.kernel.process import Process


def renewed(process: Process, input: bytes, late: Sequence[int], letters: Sequence[int], *, now: int) -> Commit:
    """End the run of a process in hand and open the next one; it is due now, for whoever claims it.

    ``late`` are the numbers of the wishes to cancel that came too late: the new run hears them first. ``letters``,
    which were received and not answered, are put back into the inbox, where those stay that were not received.
    The key, the deadline, the priority, the attributes and the version stay; state and progress begin anew.
    """
    opening = Opening(
        process.run,
        0,
        done=CONTINUED,
        sender={"who": f"process {id_text(process.id)}", "origin": "workflow"},
        seed=process.run + 1,
        input=Raw(input),
        letters=len(late),
        seen=process.seen,
    )
    # The wishes stay consumed by the run that heard them, so nobody can lose them: the new run only refers to them.
    events = (
        Event(1, 0, EventType.RUN_OPENED, now, payload=opening.encode()),
        *(Event(number, 1, EventType.MESSAGE_RECEIVED, now, message=wish) for number, wish in enumerate(late, 2)),
    )
    after = replace(
        process,
        run=process.run + 1,
        version=process.version + 1,
        owner=None,
        due_at=now,
        reminder=False,
        events=len(events),
        awaiting=None,
        deaths=0,
        alone_deaths=0,
        state=None,
        progress=None,
        opened_at=now,
    )
    return Commit(process.token, process.version, after, events, tuple((number, 0) for number in letters))
