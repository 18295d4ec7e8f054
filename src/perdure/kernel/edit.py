"""An edit: a person gives a process another input, with which it begins, or begins again in a new run.

The input of its start stays in the row, since a repeat of that start must be known again. The new one stands in what
opens the new run, as the input of a run that continues as new does.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel.child import is_task
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.notice import notices
from perdure.kernel.process import Process, Status
from perdure.kernel.run import opening_of, restarted
from perdure.kernel.transition import Sender


def with_input(
    process: Process, history: Sequence[Event], input: bytes, sender: Sender, *, now: int, restart: bool
) -> Commit:
    """Give a process another input, as the payload of a start.

    One that has not begun waits on as before, for its time or for a person. One that has begun has done things with
    the input that it had: only with ``restart`` it begins again, as by a restart.
    """
    if is_task(process.kind):
        raise IllegalMove("cannot edit the input of a queued step: its process compares it with what it has asked for")
    if process.opened_at is None and not process.final:
        return replaced(process, history, input, sender, now)
    if not restart:
        raise IllegalMove(
            "cannot edit the input of a process that has begun: what it has recorded would not fit. Edit it together "
            "with a restart (restart=True, `perdure edit --restart`)"
        )
    return restarted(process, history, sender, now=now, input=input)


def replaced(process: Process, history: Sequence[Event], input: bytes, sender: Sender, now: int) -> Commit:
    """Give a process that has not begun another input: it stays delayed or held."""
    return _waiting_on(restarted(process, history, sender, now=now, input=input), process, history, sender, now)


def _waiting_on(commit: Commit, process: Process, history: Sequence[Event], sender: Sender, now: int) -> Commit:
    """The process stays held or delayed, and hears a request to cancel that waits; a broken one goes on.

    Its reply address is told of the row that is written, and not of the one that a restart would have written.
    """
    opening = replace(opening_of(commit.events), void=opening_of(history).void)
    opened = replace(commit.events[0], payload=opening.encode())
    after = replace(commit.after, deadline=process.deadline)
    if process.status is Status.RUNNING:
        return replace(commit, events=(opened,), after=replace(after, due_at=process.due_at))
    if process.status is not Status.HELD:
        return replace(commit, events=(opened,), after=after)
    held = Event(2, 0, EventType.HELD, now, payload=sender.encode())
    after = replace(
        after, status=Status.HELD, reminder=True, due_at=process.due_at, error=process.error, events=held.number
    )
    return replace(commit, events=(opened, held), after=after, sends=notices(process, after))
