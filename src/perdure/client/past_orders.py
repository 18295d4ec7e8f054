"""Past orders: which processes an operation has commanded before, as their histories tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from perdure.client.whole_rows import cut
from perdure.kernel.event import Event, HistoryWanted
from perdure.kernel.inverse import ordered_by, sent_by
from perdure.kernel.message import MessageType
from perdure.kernel.process import Process
from perdure.limits import BATCH_BYTES, LIST_ROWS
from perdure.store.base import Store

EVENTS = 100
"""How many events at either end of a run are looked at for a command of the operation."""
RUNS = 20
"""In how many of a process's last runs a command of the operation is looked for."""


async def commanded(store: Store, rows: Iterable[Process], origin: str) -> dict[bytes, int]:
    """Which of these processes have a command of that origin in their last runs, and when the store wrote it."""
    found: dict[bytes, int] = {}
    for some in cut(rows, LIST_ROWS):
        for ago in range(RUNS):
            left = [row for row in some if row.id not in found and row.run > ago]
            if not left:
                break
            await (_look_at_former(store, left, ago, origin, found) if ago else _look(store, left, origin, found))
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
        wants = [(row.id, 0) for row in some]
        while messages := await store.messages(wants, most=BATCH_BYTES):
            for one in messages:
                if one.type is MessageType.CANCEL and mark in (one.sender or b"") and sent_by(one.sender, origin):
                    found[one.process] = one.at
            last = messages[-1]
            wants = [(last.process, last.number), *((id, 0) for id, _ in sorted(wants) if id > last.process)]
    return found


async def _look(store: Store, rows: Sequence[Process], origin: str, found: dict[bytes, int]) -> None:
    """Look at the present runs: most commands open one."""
    first = [HistoryWanted(row.id, row.run, 1) for row in rows if row.events]
    async for histories in every_history(store, first):
        _note(histories, origin, found)
    last = [
        HistoryWanted(row.id, row.run, row.events, max(2, row.events - EVENTS + 1))
        for row in rows
        if row.events > 1 and row.id not in found
    ]
    async for histories in every_history(store, last):
        _note(histories, origin, found)


async def _look_at_former(
    store: Store, rows: Sequence[Process], ago: int, origin: str, found: dict[bytes, int]
) -> None:
    """Look at runs before the present one; how long they are is not known."""
    runs = {row.id: row.run - ago for row in rows}
    async for histories in every_history(store, [HistoryWanted(id, run, EVENTS) for id, run in runs.items()]):
        _note(histories, origin, found)
        long = [id for id, events in histories.items() if id not in found and len(events) == EVENTS]
        ends = await asyncio.gather(*(store.history(id, runs[id], limit=EVENTS, backward=True) for id in long))
        _note(dict(zip(long, ends, strict=True)), origin, found)


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
