"""A fork: a new process that has the past of another one, up to a place, and goes on from there by itself.

It is one start: with a copy of the events, and of the messages that they have received. The original stays as it is.
The random numbers of the copied turns are those of the original, so that the code gets to the same place again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import to_builtins
from msgspec.structs import replace

from perdure.errors import DamagedRecord, IllegalMove
from perdure.kernel import undo
from perdure.kernel.checkpoint import is_checkpoint
from perdure.kernel.child import is_task
from perdure.kernel.commit import Start
from perdure.kernel.event import ANSWERS, RESULTS, Event, EventType
from perdure.kernel.kept import all_kept, kept_around, last_good
from perdure.kernel.message import Message, MessageType, call_text
from perdure.kernel.names import id_text
from perdure.kernel.notice import unaddressed
from perdure.kernel.process import Process, Status
from perdure.kernel.run import (
    Opening,
    answered,
    opening_of,
    refuse_what_was_undone,
    renumbered,
    slot_text,
)
from perdure.kernel.transition import Sender

_OF_OPEN_STEPS = frozenset(
    {
        EventType.ATTEMPT_FAILED, EventType.CHILD_STARTED, EventType.UNDO_OWED, EventType.ARGUMENTS_KEPT,
        EventType.ANSWER_IGNORED,
    }
)  # fmt: skip
_ANSWERED = RESULTS | {EventType.RESULT_KEPT}

Place = int | str | None
"""From where a fork goes on by itself: the number of an event, a step by its name, or None for as late as possible."""


def forked(
    process: Process,
    history: Sequence[Event],
    messages: Sequence[Message],
    at: Place,
    sender: Sender,
    *,
    id: bytes,
    key: str | None,
    code: str,
    now: int,
) -> Start:
    """The start of a process with that id that shares the history of this run before ``at``.

    A step that is named there runs again, and so does all that followed; results of steps beside it are kept, as by a
    restart from that step. Without a place everything is kept, of a failed process what was good. Steps without a
    result run under keys of the fork, children without an answer are started anew. Signals that were received later,
    or still wait, are given to the fork too; calls and requests to cancel are not. ``messages`` are all there are.
    """
    _refuse(process)
    before = opening_of(history)
    prefix, kept, done = _kept(process, history, at, before)
    _refuse_two_undos(process, kept)
    copies = _to_copy(process, kept, messages)
    heard = {message.number: number for number, message in enumerate(copies, 1)}
    numbers = {event.number: number for number, event in enumerate(kept, 2)}
    seeds = (*renumbered(before.seeds, numbers), (len(kept) + 1, before.seed_of(process.id).hex())) if kept else ()
    opening = Opening(
        process.run,
        len(prefix),
        sender=to_builtins(sender),
        done=done,
        input=before.input,
        letters=min(before.letters, len(prefix)),
        forked=id_text(process.id),
        seeds=seeds,
    )
    opened = Event(1, 0, EventType.RUN_OPENED, now, payload=opening.encode())
    row = Process(
        id,
        process.kind,
        key,
        process.input,
        seen=len({event.message for event in kept} - {None}),
        events=len(kept) + 1,
        priority=process.priority,
        attributes=unaddressed(process.attributes),
        code=code,
        opened_at=process.opened_at if kept else None,
    )
    events = (opened, *(_copied(event, numbers, heard) for event in kept))
    return Start(row, events, messages=tuple(_sent_to(id, message) for message in copies))


def _refuse(process: Process) -> None:
    """Raise IllegalMove for what cannot be forked."""
    if is_task(process.kind):
        raise IllegalMove("cannot fork a queued step; fork the process that has asked for it")
    if is_checkpoint(process.state):
        raise IllegalMove("cannot fork a machine: the fields that it had at an earlier place are not kept")


def _refuse_two_undos(process: Process, kept: Sequence[Event]) -> None:
    """Raise IllegalMove if the process may still undo what its fork would undo too."""
    owed = undo.owed(kept)
    if owed and not process.final:
        raise IllegalMove(
            f"cannot fork a process that goes on and owes an undo of {', '.join(undo.listed(owed))}: "
            "both would undo it. End it first, or fork it at an earlier place"
        )


def _to_copy(process: Process, kept: Sequence[Event], messages: Sequence[Message]) -> list[Message]:
    """The messages that the fork gets: first those that its events have received, then those that it is to hear."""
    received = {event.message for event in kept if event.message is not None}
    copies = [message for message in messages if message.number in received]
    if len(copies) < len(received):
        raise DamagedRecord(
            f"process {id_text(process.id)} is not whole: of {len(received)} messages that it has received "
            f"{len(copies)} are there. Restore what is missing from a backup"
        )
    return copies + [one for one in messages if one.number not in received and _is_offered(one, process)]


def _kept(
    process: Process, history: Sequence[Event], at: Place, before: Opening
) -> tuple[Sequence[Event], Sequence[Event], str]:
    """What the fork keeps: the events before its place, all with those beside it, and what is told of that."""
    if at is None:
        prefix = last_good(history) if process.status is Status.FAILED else all_kept(history)
        if process.status is Status.FAILED:
            refuse_what_was_undone(history, prefix)
        prefix = settled = _settled(prefix)
        return prefix, settled, "forked"
    if isinstance(at, str):
        chosen = answered(history, at)
    elif not 1 <= at <= len(history):
        raise IllegalMove(f"run {process.run} has no event {at}; `perdure history` lists those that it has")
    elif at <= before.letters + 1 and history[0].type is EventType.RUN_OPENED:
        # What opened the run, and what was heard with that, is no event of its own: the fork has it anyhow.
        prefix = _settled(history[1 : before.letters + 1])
        return prefix, prefix, f"forked at event {at}"
    else:
        chosen = history[at - 1]
    prefix, beside = kept_around(history, chosen)
    refuse_what_was_undone(history, prefix, chosen)
    settled = _settled([*prefix, *beside])
    numbers = {event.number for event in prefix}
    prefix = [event for event in settled if event.number in numbers]
    text = slot_text(chosen) if chosen.type in RESULTS else f"event {chosen.number}"
    return prefix, settled, f"forked at {text}"


def _settled(kept: Sequence[Event]) -> list[Event]:
    """Without what tells of steps that have no result: the fork runs them itself."""
    done = {slot_text(event) for event in kept if event.type in _ANSWERED}
    return [
        event
        for event in kept
        if event.type not in _OF_OPEN_STEPS or slot_text(event) in done or undo.undoes(event.place) in done
    ]


def _is_offered(message: Message, process: Process) -> bool:
    """Whether a message that the copied history has not received is given to the fork; not if a former run has it."""
    return message.type is MessageType.SIGNAL and message.consumed_run in (None, process.run)


def _copied(event: Event, numbers: Mapping[int, int], heard: Mapping[int, int]) -> Event:
    """The event under its new number, with the new numbers of the message or call that it tells of."""
    name = event.name
    if event.type in ANSWERS:
        call, _, number = name.rpartition(":")
        name = call_text(call, heard.get(int(number), int(number)))
    message = None if event.message is None else heard[event.message]
    return replace(event, number=numbers[event.number], name=name, message=message, token=0, version=0)


def _sent_to(id: bytes, message: Message) -> Message:
    return replace(message, process=id, number=0, at=0, consumed_run=None, consumed_by=None)
