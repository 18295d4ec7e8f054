"""A snapshot: a process with its history and its inbox, all as they were at one commit, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from perdure import limits
from perdure.errors import StoreUnavailable
from perdure.kernel.event import Event
from perdure.kernel.integrity import needed
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.stored import first_trouble
from perdure.store.base import Search, Store

READ_AT_ONCE, EVENTS_READ = 50, 20_000
"""How many processes are read side by side, and how many events these have together, unless it is one process."""


class Snapshot(Struct, frozen=True):
    """A process as it was: its row, the events of its run, and the messages that this run needs."""

    process: Process
    events: Sequence[Event]
    messages: Sequence[Message]

    @property
    def payloads(self) -> Iterator[bytes | None]:
        """All that is stored in it as a payload; None stands for none."""
        row = self.process
        yield from (row.input, row.attributes, row.state, row.progress, row.result, row.error)
        yield from (event.payload for event in self.events)
        yield from (message.payload for message in self.messages)


def portions(rows: Sequence[Process], most: int, events: int) -> Iterator[list[Process]]:
    """The rows, so many at a time, with no more events together unless it is one process."""
    portion: list[Process] = []
    counted = 0
    for row in rows:
        if portion and (len(portion) == most or counted + row.events > events):
            yield portion
            portion, counted = [], 0
        portion.append(row)
        counted += row.events
    if portion:
        yield portion


async def fetched(store: Store, row: Process) -> Process | None:
    """The row as it is now if a list has left a payload of it outside the database, else the same row.

    None if the process was removed meanwhile. Raises StoreUnavailable.
    """
    if first_trouble((row.input, row.state, row.result, row.error)) is None:
        return row
    found = await store.search(Search(ids=(row.id,)))
    return found[0] if found else None


async def snapshot(store: Store, row: Process) -> Snapshot | None:
    """The process whose row was just read; None if it was removed meanwhile. Raises StoreUnavailable."""
    whole = await fetched(store, row)
    if whole is None:
        return None
    row = whole
    for _ in range(limits.COMMAND_TRIES):
        events = await store.history(row.id, row.run, limit=row.events) if row.events else []
        messages = await store.messages([(row.id, 0)]) if row.inbox else []
        found = await store.search(Search(ids=(row.id,))) if len(events) < row.events else [row]
        if not found:
            return None
        if found[0].run == row.run:
            return Snapshot(row, events, needed(row, events, messages))
        row = found[0]  # it is in another run now, and the events of that one were removed
    raise StoreUnavailable(f"process {id_text(row.id)} kept changing while it was read; try again")


async def whole_run(store: Store, process: bytes, run: int) -> list[Event]:
    """All events of a run, however many the row of the process counts."""
    events: list[Event] = []
    while page := await store.history(process, run, after=events[-1].number if events else 0, limit=limits.LIST_ROWS):
        events += page
    return events


async def former_runs(store: Store, row: Process) -> dict[str, list[Event]]:
    """The events of the former runs that are kept, by the number of the run."""
    runs: dict[str, list[Event]] = {}
    for run in range(row.run - 1, 0, -1):
        events = await whole_run(store, row.id, run)
        if not events:
            break  # retention removes the oldest runs first
        runs[str(run)] = events
    return runs
