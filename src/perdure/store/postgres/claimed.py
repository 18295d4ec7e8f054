"""What claimed rows hold: their histories and messages, read in portions, so that each statement is short.

A statement that takes long holds up all other writes, and its connection is given up as a silent one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple, TypeVar

from perdure import limits
from perdure.errors import DamagedRecord, StoreUnavailable
from perdure.kernel.claim import Claim, Claimed, lacks
from perdure.kernel.event import Event
from perdure.kernel.integrity import lacking
from perdure.kernel.message import Message
from perdure.kernel.process import Process
from perdure.store.postgres import records as row
from perdure.store.postgres.connection import PostgresConnection

PartT = TypeVar("PartT")

EVENTS_AT_ONCE = 10_000
"""Events that one statement reads at most, and events and unheard messages of the processes whose messages it reads."""


class _Held(NamedTuple):
    """What claimed rows hold, by the process; ``backlog`` are those whose letters wait, ``holes`` lack some of them.

    Of those that are ``cut`` not all unheard messages were read.
    """

    events: defaultdict[bytes, list[Event]]
    messages: defaultdict[bytes, list[Message]]
    backlog: set[bytes]
    holes: dict[bytes, DamagedRecord]
    cut: set[bytes]


class _Span(NamedTuple):
    """Events of one process, from the number ``first`` to ``last``."""

    process: Process
    first: int
    last: int


async def read(
    connection: PostgresConnection, claim: Claim, taken: Sequence[tuple[bytes | None, Process]]
) -> tuple[Claimed, ...]:
    """The taken rows, given with their former owners, and what they hold; in the order given."""
    processes = [process for _, process in taken]
    kept = frozenset(process.id for process in processes if claim.has(process))  # while we read, it may forget some
    found = await _held(connection, processes, kept)
    return tuple(
        Claimed(
            process,
            tuple(found.events[process.id]),
            tuple(found.messages[process.id]),
            before,
            found.holes.get(process.id),
            process.id in found.backlog,
            process.id in kept,
            process.id in found.cut,
        )
        for before, process in taken
    )


async def _held(connection: PostgresConnection, claimed: Sequence[Process], kept: Set[bytes]) -> _Held:
    """What the claimed rows hold; of those ``kept`` by the claimant, only the last event and unheard messages.

    Events written after the claim are fenced off; messages that came after it are read later. The error of a database
    that does not hand it over says that the claim was applied.
    """
    found = _Held(defaultdict(list), defaultdict(list), set(), {}, set())
    try:
        await _read_events(connection, claimed, kept, found)
        await _read_messages(connection, claimed, kept, found)
    except StoreUnavailable as error:
        error.unread = True
        raise
    return found


async def _read_events(
    connection: PostgresConnection, claimed: Sequence[Process], kept: Set[bytes], held: _Held
) -> None:
    spans = [_span(one, one.events if one.id in kept else 1) for one in claimed if one.events]
    while spans:
        for group in _grouped(spans, lambda span: span.last - span.first + 1):
            columns = zip(*((one.process.id, one.process.run, one.first, one.last) for one in group), strict=True)
            for found in await connection.rows("claimed_events", *map(list, columns)):
                held.events[found[0]].append(row.event_of(found))
        # Where the last event of a span is not there, none is behind it: a damaged row may count two thousand million.
        whole = [one for one in spans if (read := held.events[one.process.id]) and read[-1].number == one.last]
        spans = [_span(one.process, one.last + 1) for one in whole if one.last < one.process.events]


async def _read_messages(
    connection: PostgresConnection, claimed: Sequence[Process], kept: Set[bytes], held: _Held
) -> None:
    asked = [process for process in claimed if process.inbox]
    left = limits.HEARD_BYTES
    for group in _grouped(asked, lambda one: len(held.events[one.id]) + one.inbox - one.seen):
        inboxes = {process.id: process for process in group}
        runs = [0 if one.id in kept else one.run for one in group]  # in run 0 no event refers to a message
        wants = [one.id for one in group], runs, [one.seen for one in group]
        for found in await connection.rows("claimed_messages", *wants, left):
            if found[0] is not None:
                message, process = row.message_of(found), inboxes[found[1]]
                if message.number > process.seen:
                    left = max(0, left - len(message.payload or b""))
                if message.number <= process.inbox:
                    held.messages[process.id].append(message)
            elif found[9] is None:
                held.backlog.add(found[1])
            else:
                held.holes[found[1]] = lacking(found[1], found[9], found[10])
    if not left:  # what came after the claim has taken its part of the answer too
        held.cut.update(one.id for one in asked if lacks(one, held.messages[one.id]))


def _span(process: Process, first: int) -> _Span:
    """The events of a process from ``first`` on, as many as one statement may read."""
    return _Span(process, first, min(first + EVENTS_AT_ONCE - 1, process.events))


def _grouped(parts: Sequence[PartT], size: Callable[[PartT], int]) -> Iterator[list[PartT]]:
    """The parts in groups for one statement each; a part that is larger by itself is a group of its own."""
    group: list[PartT] = []
    count = 0
    for part in parts:
        count += size(part)
        if group and count > EVENTS_AT_ONCE:
            yield group
            group, count = [], size(part)
        group.append(part)
    if group:
        yield group
