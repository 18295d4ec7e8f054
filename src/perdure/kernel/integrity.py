"""Integrity: whether the records of a process are complete and understood, before any of its code runs again.

A history with a gap is not replayed: the steps recorded in the gap would run a second time. Nor is a history with a
record that this Perdure does not know: without it, the code could take another way than the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from msgspec.structs import replace

from perdure.errors import DamagedRecord, NewerRecord, StoreError
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.stored import Garbled

_type_of = attrgetter("type")
_message_of = attrgetter("message")
_EVENTS = {EventType}
_MESSAGES = {MessageType}
_NOT_RECEIVED = {None}

EARLIEST, LATEST = 0, 253_370_764_800_000_000
"""From 1970 to the year 9999: in a turn at another time, code could not compute the date."""

ADVICE = "Nothing of it was done again. Restore what is missing from a backup"


def flaw(
    process: Process, events: Sequence[Event], messages: Sequence[Message], *, cut: bool = False
) -> StoreError | None:
    """Why a claimed process must not be replayed; None if there is no reason.

    ``events`` are those of its run, by number, ``messages`` those that were not consumed or that the events refer to.
    If the claim was ``cut``, the last of the unheard ones, perhaps all, were left out. A write since the claim cannot
    cause a false alarm: the row is that of the claim, and later records were left out.
    """
    count = process.events
    if len(events) != count or (count and (events[-1].number != count or events[0].number != 1)):
        return _damaged(process, f"its row counts {count} events in run {process.run}, and {_numbers(events)}")
    if not set(map(type, map(_type_of, events))) <= _EVENTS:
        return _unknown(process, "event", events)
    opened = process.opened_at
    if opened is not None and not EARLIEST <= opened <= LATEST:
        return _damaged(process, f"its column opened_at has the time {opened}, at which no turn can be")
    if messages and (trouble := strange(process, messages)):
        return trouble
    if process.inbox != process.seen or messages:
        return _without(process, events, messages, cut)
    referred = set(map(_message_of, events))
    return None if referred <= _NOT_RECEIVED else _without(process, events, messages)


def flaw_of_news(process: Process, messages: Sequence[Message], *, cut: bool = False) -> StoreError | None:
    """The same for a process whose history is in memory: only the messages that it has not heard were read."""
    return strange(process, messages) or _without(process, (), messages, cut)


def strange(process: Process, messages: Sequence[Message]) -> StoreError | None:
    """Why these messages cannot be delivered; None if they can."""
    if set(map(type, map(_type_of, messages))) <= _MESSAGES:
        return next(
            (_garbled(process, f"message {one.number}", text) for one in messages for text in _texts(one)), None
        )
    return _unknown(process, "message", messages)


def gap(process: Process, heard: int, message: Message) -> StoreError:
    """The error for a message that arrives although one before it is missing."""
    return _damaged(
        process, f"message {message.number} follows message {heard}: what was sent between them is not there"
    )


def lost(process: Process, heard: int, inbox: int) -> StoreError:
    """The error for messages that the row counts, and that a later reading did not find."""
    return _damaged(process, f"{inbox} messages were sent to it, and those after number {heard} are not there")


def lacking(process: bytes, counted: int, there: int) -> DamagedRecord:
    """The error for an inbox in which fewer letters wait than its row counts.

    The code would receive one that came later in the place of the one that is missing.
    """
    return DamagedRecord(
        f"process {id_text(process)} is not whole: {counted} signals and calls wait in its inbox, as its row counts, "
        f"and {there} of them are there. {ADVICE}"
    )


def unreadable(process: Process, record: str, texts: Sequence[object]) -> StoreError | None:
    """Why a record with these texts cannot be read; None if it can. ``record`` names it: ``event 7``."""
    return next((_garbled(process, record, text) for text in texts if isinstance(text, Garbled)), None)


def unreadable_claim(process: Process, events: Sequence[Event], messages: Sequence[Message]) -> StoreError | None:
    """The same for everything that a claim has read."""
    row = ("key", "awaiting", "share")
    for column in row:
        if found := unreadable(process, f"its column {column}", (getattr(process, column),)):
            return found
    for event in events:
        if found := unreadable(process, f"event {event.number}", (event.place, event.name)):
            return found
    for message in messages:
        if found := unreadable(process, f"message {message.number}", (message.name, message.key)):
            return found
    return None


def _texts(message: Message) -> Iterator[Garbled]:
    return (text for text in (message.name, message.key) if isinstance(text, Garbled))


def _without(
    process: Process, events: Sequence[Event], messages: Sequence[Message], cut: bool = False
) -> StoreError | None:
    """Whether a message is missing: one that an event has received, or one that is still to be heard."""
    there = {message.number for message in messages}
    for event in events:
        if event.message is not None and event.message not in there:
            return _damaged(process, f"event {event.number} has received message {event.message}, which is not there")
    if not 0 <= process.seen <= process.inbox:
        return _damaged(process, f"its row has heard message {process.seen} of {process.inbox}")
    # A claim that was cut has read the first ones; it reads an order to end ahead of messages before it.
    new = [one.number for one in messages if one.number > process.seen and one.type is not MessageType.TERMINATE]
    ended = {one.number for one in messages if one.type is MessageType.TERMINATE}
    expected = process.seen + 1
    for number in new:
        while expected in ended:
            expected += 1
        if number != expected:
            return _unheard(process, new)
        expected += 1
    if not (new or ended or cut) and process.inbox > process.seen:
        return _unheard(process, new)
    return None


def _unheard(process: Process, new: Sequence[int]) -> DamagedRecord:
    told = f"{len(new)} of them are there: {_listed(new)}" if new else "none of them is there"
    return _damaged(process, f"messages {process.seen + 1} to {process.inbox} were not heard yet, and {told}")


def _numbers(events: Sequence[Event]) -> str:
    if not events:
        return "its history has none of them"
    return f"its history has {len(events)} of them: {_listed([event.number for event in events])}"


def _listed(numbers: Sequence[int]) -> str:
    """Numbers as ranges: ``1 to 4, 6``; the first few of them."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    told = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:10]]
    return ", ".join(told) + (" …" if len(ranges) > 10 else "")


def _damaged(process: Process, text: str) -> DamagedRecord:
    return DamagedRecord(f"process {id_text(process.id)} is not whole: {text}. {ADVICE}")


def _garbled(process: Process, record: str, text: str) -> DamagedRecord:
    return DamagedRecord(
        f"process {id_text(process.id)} cannot be read: {record} holds a text that is not UTF-8: {str(text)[:200]!r}. "
        "Correct the text in the database"
    )


def _unknown(process: Process, noun: str, records: Sequence[Event] | Sequence[Message]) -> NewerRecord:
    known = EventType if noun == "event" else MessageType
    odd = next(one for one in records if type(one.type) is not known)
    return NewerRecord(
        f"process {id_text(process.id)} holds what this Perdure does not know: {noun} {odd.number} has the type "
        f"{int(odd.type)}. A worker with the newer Perdure that wrote it can go on with it; if none has, restore the "
        "row from a backup, or end the process with `perdure terminate`."
    )


def refuse_newer(process: Process, events: Sequence[Event]) -> None:
    """Raise NewerRecord if a new run would be made of a history that is not understood."""
    if not set(map(type, map(_type_of, events))) <= _EVENTS:
        raise _unknown(process, "event", events)


def needed(process: Process, events: Sequence[Event], messages: Sequence[Message]) -> list[Message]:
    """The messages that the run needs: those that its events have received, and those that no run has received.

    They are as they were when the row was read, whatever came or was received since.
    """
    by = {event.message: event.number for event in events if event.message is not None}
    return [
        replace(one, consumed_run=process.run if one.number in by else None, consumed_by=by.get(one.number))
        for one in messages
        if one.number <= process.inbox and (one.number in by or _waited(process, one))
    ]


def _waited(process: Process, message: Message) -> bool:
    """Whether no event had received the message when the row was read."""
    if message.consumed_by is None or message.consumed_run is None:
        return True
    return (message.consumed_run, message.consumed_by) > (process.run, process.events)
