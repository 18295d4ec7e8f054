"""An adjustment: a person gives a process another version of its code, another priority, or another deadline.

What it has recorded stays, and so does its status. A process that a worker holds is taken from it (rule 22): steps in
flight are fenced off and begin again, under their keys.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel.child import is_task
from perdure.kernel.command import Verb, allow
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.hosting import start_command, wanted
from perdure.kernel.names import LIBRARY, near
from perdure.kernel.notice import notices
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender, forced
from perdure.kernel.worker import Pair


class Adjusted(Struct, frozen=True):
    """What an adjustment has recorded beside its sender: what the process has since, and what it had before."""

    to: str | int | None = None
    was: str | int | None = None


def moved(
    process: Process, version: str, sender: Sender, *, now: int, hosted: Collection[Pair] | None = None
) -> Commit:
    """Move a process to another version of its code; ``hosted`` is what live workers host, None if it counts not.

    One that runs is due at once, since only the replay of its history shows whether the other code fits: if not, it
    becomes broken, as any process whose code has changed so. One that has not begun waits on for its time; a held,
    broken or failed one stays so, and goes on with the other code once a person lets it.
    """
    allow(process, Verb.MOVE)
    if is_task(process.kind) or process.kind.startswith(LIBRARY):
        raise IllegalMove("cannot move a queued step, or a process of the library's own: they have no versions")
    if version == process.code:
        raise IllegalMove(f"it has the version {version!r} already: there is nothing to do")
    if hosted is not None and (process.kind, version) not in hosted:
        raise IllegalMove(_unhosted(process.kind, version, hosted))
    event = _event(process, EventType.VERSION_MOVED, sender, now, version, process.code)
    after = replace(process, code=version)
    if process.status is Status.RUNNING and (process.opened_at is not None or process.owner is not None):
        return forced(after, Status.RUNNING, (event,), now, error=process.error, due_at=now)
    return _as_it_is(process, replace(after, token=process.token + 1), event)


def with_priority(process: Process, priority: int, sender: Sender, *, now: int) -> Commit:
    """Give a process another priority: workers claim those with a lower number first."""
    allow(process, Verb.SET_PRIORITY)
    if priority == process.priority:
        raise IllegalMove(f"it has the priority {priority} already: there is nothing to do")
    event = _event(process, EventType.PRIORITY_SET, sender, now, priority, process.priority)
    return _taken(process, replace(process, priority=priority), event, now)


def with_deadline(process: Process, deadline: int | None, sender: Sender, *, now: int) -> Commit:
    """Give a process another deadline, in microseconds by the store's clock; None takes it away."""
    allow(process, Verb.SET_DEADLINE)
    if deadline is not None and deadline <= now:
        raise IllegalMove("the deadline has passed already; to end the process now use `perdure fail` or `terminate`")
    if deadline == process.deadline:
        kept = "no deadline" if deadline is None else "this deadline"
        raise IllegalMove(f"it has {kept} already: there is nothing to do")
    event = _event(process, EventType.DEADLINE_SET, sender, now, deadline, process.deadline)
    return _taken(process, replace(process, deadline=deadline), event, now)


def _unhosted(kind: str, version: str, hosted: Collection[Pair]) -> str:
    others = sorted(code for own, code in hosted if own == kind)
    told = f" Live workers host of it {', '.join(map(repr, others))}.{near(version, others)}" if others else ""
    return (
        f"no live worker {wanted(kind, version) if version else f'hosts workflow {kind!r} without a version'}.{told} "
        f"Start one first (`{start_command(kind)}`), or force the move (`perdure move --force`)"
    )


def _event(
    process: Process, type: EventType, sender: Sender, now: int, to: str | int | None, was: str | int | None
) -> Event:
    told: dict[str, Any] = to_builtins(sender) | {"to": to, "was": was}
    return Event(process.events + 1, 0, type, now, payload=json.encode(told))


def _taken(process: Process, after: Process, event: Event, now: int) -> Commit:
    """The commit that takes a process from its owner; of one without an owner nothing else changes."""
    if process.owner is not None:
        return forced(after, Status.RUNNING, (event,), now, error=process.error, due_at=now)
    return _as_it_is(process, after, event)


def _as_it_is(process: Process, after: Process, event: Event) -> Commit:
    after = replace(after, version=process.version + 1, events=event.number)
    return Commit(process.token, process.version, after, (event,), sends=notices(process, after))
