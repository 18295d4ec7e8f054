"""A debounced start: while its process has not begun, a later start with the key replaces the input and puts it off.

The process has its key only until it begins: the commit with which a worker gives the key back is the beginning, and
no code of it runs before. So a start either meets a process that still has the key, and replaces what that begins
with, or it begins the next one. Its stored key is marked, and stands apart from the keys of other starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import json
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel.commit import Commit, Removal
from perdure.kernel.edit import replaced
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import DEBOUNCED, is_debounced
from perdure.kernel.notice import notices
from perdure.kernel.process import Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.transition import AUTOMATIC, Sender

PUT_OFF = "put off by another start"
"""What is ``done`` in a run for which a debounced start has replaced the input."""


def has_begun(process: Process) -> bool:
    """Whether a process that was started by a debounced start has begun, or has ended without."""
    return process.final or not is_debounced(process.key)


def due(process: Process, wait: int, longest: int | None, now: int) -> int:
    """When the process begins after a start at ``now``: so long after that, at most so long after the first one."""
    at = now + wait
    return at if longest is None else min(at, max(process.created_at + longest, now))


def put_off(
    process: Process, history: Sequence[Event], start: Process, sender: Sender, *, due_at: int, now: int
) -> Commit:
    """Have a process that has not begun begin with the input and the options of another ``start``, at ``due_at``.

    It gets the version for which that start was meant; a start by name, of code that nobody is known to host, has none,
    and leaves it the version that it has. One that is held stays so. Raises IllegalMove if it has begun.
    """
    if has_begun(process):
        raise IllegalMove("cannot put off a process that has begun; start the next one")
    commit = replaced(process, history, start.input, sender, now)
    opened = replace(opening_of(commit.events), done=PUT_OFF).encode()
    after = replace(
        commit.after,
        deadline=start.deadline,
        attributes=start.attributes,
        priority=start.priority,
        code=start.code or process.code,
    )
    if after.status is Status.RUNNING:
        after = replace(after, due_at=due_at)
    events = (replace(commit.events[0], payload=opened), *commit.events[1:])
    return replace(commit, after=after, events=events, attributes_set=True)


def begun(process: Process, *, now: int) -> Commit:
    """Begin a process that a worker has claimed: it gives its key back, and is due now."""
    key = (process.key or "").removeprefix(DEBOUNCED)
    told = json.encode({"key": key, "why": "it begins", "origin": AUTOMATIC})
    event = Event(process.events + 1, 0, EventType.KEY_RELEASED, now, payload=told)
    after = replace(process, key=None, version=process.version + 1, owner=None, due_at=now, events=process.events + 1)
    sends = notices(process, after)
    return Commit(process.token, process.version, after, (event,), sends=sends, removes=Removal.KEY)
