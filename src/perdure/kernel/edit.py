"""An edit: a person gives a process another input or other attributes, or the fields of a machine other values.

With another input a process begins, or begins again in a new run. The input of its start stays in the row, since a
repeat of that start must be known again. The new one stands in what opens the new run, as the input of a run that
continues as new does.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, json, to_builtins
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel.checkpoint import has_begun, parted, written
from perdure.kernel.child import is_task
from perdure.kernel.commit import Commit
from perdure.kernel.event import RESULTS, Event, EventType
from perdure.kernel.notice import notices
from perdure.kernel.process import Changes, Process, Status, merged
from perdure.kernel.run import opening_of, restarted
from perdure.kernel.transition import Sender, forced


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


def fields_of(process: Process) -> bytes:
    """The fields of a machine that may be edited, as a JSON object; raises IllegalMove, UnreadablePayload."""
    if process.state is None or not has_begun(process.state):
        raise IllegalMove("only a machine has fields, once it has begun; `perdure show` says what a process is")
    if process.status not in (Status.HELD, Status.BROKEN):
        raise IllegalMove(
            f"cannot edit the fields of a machine that is {process.status}: a method of it could overwrite them. Hold "
            "it first (`perdure hold`), and resume it afterwards"
        )
    return parted(process.state)[1]


def with_fields(process: Process, changes: dict[str, Raw], sender: Sender, *, now: int) -> Commit:
    """Give fields of a held or broken machine other values; it stays as it is, until a person lets it go on."""
    fields = json.decode(fields_of(process), type=dict[str, Raw])
    was = {name: fields[name] for name in changes if name in fields}
    told = to_builtins(sender) | {"fields": changes, "was": was}
    event = Event(process.events + 1, 0, EventType.FIELDS_EDITED, now, payload=json.encode(told))
    checkpoint, _ = parted(process.state or b"")
    after = replace(
        process,
        version=process.version + 1,
        token=process.token + 1,
        events=event.number,
        state=written(checkpoint, json.encode(fields | changes)),
    )
    return Commit(process.token, process.version, after, (event,))


def with_attributes(
    process: Process, history: Sequence[Event], changes: Changes, sender: Sender, *, now: int
) -> Commit:
    """Give attributes other values, None for none; the process stays as it is, and goes on where it was.

    One that a worker has in hand is taken from it, or the worker would write the old ones: steps in flight begin again,
    under their keys. Only if such a step runs at most once, and has begun, the edit is refused.
    """
    if process.final:
        raise IllegalMove(
            f"cannot edit the attributes of a process that is {process.status}: they stay as it left them"
        )
    if process.owner is not None and (step := _cannot_be_repeated(history)):
        raise IllegalMove(
            f"cannot edit the attributes while step {step} runs, which runs at most once; wait for its end"
        )
    stored = {} if process.attributes is None else json.decode(process.attributes, type=dict[str, Raw])
    was = {name: stored.get(name) for name in changes}
    told = to_builtins(sender) | {"attributes": changes, "was": was}
    event = Event(process.events + 1, 0, EventType.ATTRIBUTES_EDITED, now, payload=json.encode(told))
    after = replace(process, attributes=merged(process.attributes, changes))
    if process.owner is not None:
        return replace(forced(after, Status.RUNNING, (event,), now, due_at=now), attributes_set=True)
    after = replace(after, version=process.version + 1, events=event.number)
    sends = notices(process, after)
    return Commit(process.token, process.version, after, (event,), sends=sends, attributes_set=True)


def _cannot_be_repeated(history: Sequence[Event]) -> str:
    """The name of a step that runs at most once, has begun and has no result; empty if there is none."""
    open = {event.place: event.name for event in history if event.type is EventType.ATTEMPT_BEGUN}
    for event in history:
        if event.type in RESULTS:
            open.pop(event.place, None)
    return next(iter(open.values()), "")


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
