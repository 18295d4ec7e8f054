"""An admission: an archived process becomes the start of that same process in another database.

Its messages get new numbers there if some of the old ones are gone, or were heard and not received: such a letter
counts as unheard there, since nothing but its number above the last one heard says that it still waits. Everything
that names a message follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perdure.errors import IllegalMove, PayloadError
from perdure.kernel.archive import Archived
from perdure.kernel.checkpoint import is_checkpoint, parted, written
from perdure.kernel.child import begun
from perdure.kernel.commit import Start
from perdure.kernel.event import ANSWERS, Event, EventType
from perdure.kernel.integrity import flaw
from perdure.kernel.message import Message, call_text
from perdure.kernel.process import Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.stored import why_undecodable


def start_of(archived: Archived, *, now: int, idle_at: int) -> Start:
    """The start that stores the process as it was, under its own id; unfinished, it is due now, or at its first time.

    ``idle_at`` is when a person is reminded of one that is held or broken. Raises IllegalMove for a process that
    cannot go on with what the line has, DamagedRecord for a history that is not whole.
    """
    process = archived.process
    if archived.redacted and not process.final:
        raise IllegalMove(
            f"it has not ended, and would go on with redacted values ({', '.join(archived.redacted)}); "
            "export it without --redact, or import ended processes alone"
        )
    trouble = flaw(process, archived.events, archived.messages)
    if trouble is not None:
        raise trouble
    events = archived.events
    received = {event.message for event in events if event.message is not None}
    # Those that were received come first, as in a fork: behind the last of them begins what is to be heard.
    messages = sorted(archived.messages, key=lambda one: (one.number not in received, one.number))
    numbers = {one.number: number for number, one in enumerate(messages, 1)}
    row = replace(
        process,
        inbox=0,
        seen=len(received),
        due_at=_due_at(process, now, idle_at),
        reminder=process.status in (Status.HELD, Status.BROKEN),
        awaiting=None if process.final else process.awaiting,
    )
    if any(old != new for old, new in numbers.items()) or len(numbers) < process.inbox or row.seen < process.seen:
        left = {one.number for one in messages if one.number <= process.seen} - received
        orders = {old: new for old, new in numbers.items() if old not in left}
        row = replace(row, state=_state(row, numbers))
        events = tuple(_event(event, numbers, orders) for event in events)
    return Start(row, events, messages=tuple(_sent(one) for one in messages))


def _due_at(process: Process, now: int, idle_at: int) -> int | None:
    if process.final:
        return None
    if process.status is not Status.RUNNING:
        return idle_at
    # One that has not begun keeps its delay. All others are looked at once: their timers stand in their histories.
    return max(now, process.due_at or now) if process.opened_at is None else now


def open_children(events: Sequence[Event]) -> tuple[list[bytes], bool]:
    """The ids of the children that have not answered: without them the process would wait for ever; and whether all.

    Those whose records cannot be read, as they are damaged or sealed, are not among them.
    """
    answered = {(event.name, event.place) for event in events if event.message is not None}
    known: list[bytes] = []
    every = True
    for event in events:
        if event.type is EventType.CHILD_STARTED and (event.name, event.place) not in answered:
            try:
                known.append(begun(event).id_bytes)
            except PayloadError:
                every = False
    return known, every


def _after(number: int, numbers: Mapping[int, int]) -> int:
    """The new number of the last of these messages, up to an old number."""
    return max((new for old, new in numbers.items() if old <= number), default=0)


def _state(process: Process, numbers: Mapping[int, int]) -> bytes | None:
    if process.final and why_undecodable(process.state) is not None:
        return process.state  # it goes on no more: the number of the last letter that is named in it does not count
    if process.state is None or not is_checkpoint(process.state):
        return process.state
    checkpoint, fields = parted(process.state)
    return written(replace(checkpoint, letter=numbers.get(checkpoint.letter, 0)), fields)


def _event(event: Event, numbers: Mapping[int, int], orders: Mapping[int, int]) -> Event:
    """An event with the new numbers; ``orders`` are those without the letters that were heard and not received."""
    if event.message is not None:
        event = replace(event, message=numbers[event.message])
    if event.type in ANSWERS:
        call, _, number = event.name.rpartition(":")
        return replace(event, name=call_text(call, numbers.get(int(number), int(number))))
    if event.type is EventType.RUN_OPENED:
        opening = opening_of((event,))
        there = replace(opening, void=_after(opening.void, orders), seen=_after(opening.seen, orders))
        return replace(event, payload=there.encode())
    return event


def _sent(message: Message) -> Message:
    return replace(message, number=0, at=0, consumed_run=None, consumed_by=None)
