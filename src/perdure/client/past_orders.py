"""Past orders: which processes an operation has commanded before, as their histories tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from perdure.client.whole_rows import cut
from perdure.clock import microseconds
from perdure.kernel.event import Event, HistoryWanted
from perdure.kernel.inverse import ordered_by, sent_by
from perdure.kernel.message import MessageType
from perdure.kernel.process import Process
from perdure.limits import BATCH_BYTES, LIST_ROWS
from perdure.store.base import Store, every_message

EVENTS = 100
"""How many events are looked at together, at first; commands are near the ends of most runs."""
MORE_EVENTS = 1_000
"""How many are looked at together farther back."""
LAG_SECONDS = 60.0
"""The times of turns are those of workers, and may be behind the store's, by which a command is timed: by less."""


async def commanded(store: Store, rows: Iterable[Process], origin: str, since: int) -> dict[bytes, int]:
    """Which of these processes have a command of that origin, given at ``since`` or later, and when it was given.

    Times are those of the store, in microseconds. A process is read backward until its events are older than that: of
    most that is the first event of the run and the last page of it.
    """
    found: dict[bytes, int] = {}
    since -= microseconds(LAG_SECONDS)
    for some in cut(rows, LIST_ROWS):
        left = await _look(store, some, origin, since, found)
        ago = 1
        while left:
            left = await _look_at_former(store, left, ago, origin, since, found)
            ago += 1
    return found


async def at_rest(store: Store, rows: Sequence[Process], origin: str) -> int:
    """To how many of these processes nothing has happened since a command of that origin."""
    number = 0
    async for histories in every_history(
        store, [HistoryWanted(row.id, row.run, row.events, row.events) for row in rows]
    ):
        number += sum(ordered_by(event, origin) for events in histories.values() for event in events)
    return number


async def cancelled(store: Store, rows: Iterable[Process], origin: str) -> dict[bytes, int]:
    """Which of these processes were sent a request to cancel by a command of that origin, and when."""
    found: dict[bytes, int] = {}
    mark = origin.encode()
    for some in cut((row for row in rows if row.inbox), LIST_ROWS):
        async for messages in every_message(store, [(row.id, 0) for row in some], most=BATCH_BYTES):
            for one in messages:
                if one.type is MessageType.CANCEL and mark in (one.sender or b"") and sent_by(one.sender, origin):
                    found[one.process] = one.at
    return found


async def _look(
    store: Store, rows: Sequence[Process], origin: str, since: int, found: dict[bytes, int]
) -> list[Process]:
    """Look at the present runs: most commands open one. Of which processes the former runs are to be looked at too."""
    runs = {row.id: row.run for row in rows}
    young: set[bytes] = set()
    async for histories in every_history(store, [HistoryWanted(row.id, row.run, 1) for row in rows if row.events]):
        _note(histories, origin, found)
        young |= {id for id, events in histories.items() if events and events[0].at >= since}
    ends, page = {row.id: row.events for row in rows if row.events > 1 and row.id not in found}, EVENTS
    while ends:
        wants = [HistoryWanted(id, runs[id], end, max(2, end - page + 1)) for id, end in ends.items()]
        ends, page = {}, MORE_EVENTS
        async for histories in every_history(store, wants):
            _note(histories, origin, found)
            fresh = {id: events[0] for id, events in histories.items() if events and id not in found}
            ends |= {id: event.number - 1 for id, event in fresh.items() if event.number > 2 and event.at >= since}
    return [row for row in rows if row.run > 1 and row.id in young and row.id not in found]


async def _look_at_former(
    store: Store, rows: Sequence[Process], ago: int, origin: str, since: int, found: dict[bytes, int]
) -> list[Process]:
    """Look at runs before the present one, of which it is not known how long they are; and which go before them."""
    runs = {row.id: row.run - ago for row in rows}
    young: set[bytes] = set()
    async for histories in every_history(store, [HistoryWanted(id, run, EVENTS) for id, run in runs.items()]):
        _note(histories, origin, found)
        long = [id for id, events in histories.items() if id not in found and len(events) == EVENTS]
        await asyncio.gather(*(_look_from_end(store, id, runs[id], origin, since, found) for id in long))
        young |= {id for id, events in histories.items() if events and events[0].at >= since}
    return [row for row in rows if runs[row.id] > 1 and row.id in young and row.id not in found]


async def _look_from_end(
    store: Store, process: bytes, run: int, origin: str, since: int, found: dict[bytes, int]
) -> None:
    """Look at a run of more than one page from its end, until the first page or older events come."""
    before = 0
    while events := await store.history(process, run, after=before, limit=MORE_EVENTS, backward=True):
        _note({process: events}, origin, found)
        before = events[-1].number
        if process in found or before <= EVENTS or events[-1].at < since:
            return


def _note(histories: dict[bytes, list[Event]], origin: str, found: dict[bytes, int]) -> None:
    mark = origin.encode()
    for id, events in histories.items():
        for event in events:
            if mark in (event.payload or b"") and ordered_by(event, origin):
                found[id] = event.at


async def every_history(store: Store, wants: Sequence[HistoryWanted]) -> AsyncIterator[dict[bytes, list[Event]]]:
    """The histories that are wanted, a bounded number of bytes at a time."""
    while wants:
        found = await store.histories(wants, most=BATCH_BYTES)
        yield found
        wants = [want for want in wants if want.process not in found]
