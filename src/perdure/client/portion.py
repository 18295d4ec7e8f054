"""A portion of an operation: many processes are read, judged and written together, each one fenced by itself.

The decision is that of a single command. A process whose commit is refused, since it has changed meanwhile, is judged
again alone, as a command to it would be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from perdure.client.decision import Decide, Decision
from perdure.client.finding.finder import ahead
from perdure.client.orders import Orders, applied
from perdure.client.parts import ClientParts
from perdure.errors import BadRecord, IllegalMove, PerdureError, ProcessNotFound, StoreUnavailable
from perdure.futures import asked
from perdure.kernel.child import beforehand
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, HistoryWanted
from perdure.kernel.manual_result import NothingOpen
from perdure.kernel.process import Process
from perdure.limits import BATCH_BYTES, LIST_ROWS
from perdure.store.base import Search, Store

T = TypeVar("T")

AT_ONCE = 200
"""How many commits are handed over together: a start waits behind no more of them."""
EVENTS = 100
"""How many of a process's last events are looked at for a command of the operation."""
CHANGED = "it has changed since the operation began"
REMOVED = "it was removed"

_Pair = tuple[Process, Sequence[Event]]


class _Handed(NamedTuple):
    """A commit that was handed over at the monotonic time ``sent``."""

    commit: Commit
    answer: asyncio.Future[Any]
    sent: float


class _Changed(IllegalMove):
    """The process has changed since the operation began."""


class _Alone(Orders):
    """One process that is judged alone."""

    __slots__ = ()

    async def carry_out(self, decision: Decision) -> None:
        """Carry out the command; raises what a single command raises."""
        await self._order(decision)


class OperationPortion:
    """Gives one command to many processes, or tries it. A process that has changed since ``frozen`` is left alone.

    ``origin`` is what each command says about where it comes from.
    """

    def __init__(self, parts: ClientParts, decision: Decision, frozen: int, origin: str) -> None:
        self.parts = parts
        self.decision = replace(decision, decide=self._unless_changed(decision.decide))
        if decision.unrecorded is not None:
            self.decision = replace(self.decision, unrecorded=self._unless_changed(decision.unrecorded))
        self.frozen = frozen
        self.origin = origin
        self.told: dict[bytes, str] = {}
        """For each process that was judged an empty text if it was commanded, or why not."""
        self._alone: list[bytes] = []
        self._outrun: list[bytes] = []
        self._changed: list[Process] = []

    def _unless_changed(self, decide: Decide) -> Decide:
        def judged(row: Process, history: Sequence[Event], now: int) -> Commit:
            if row.changed_at > self.frozen:
                raise _Changed(CHANGED)
            return decide(row, history, now)

        return judged

    async def preview(self, rows: Sequence[Process]) -> dict[bytes, str]:
        """Judge each as the command itself would; nothing is written."""
        async for some in ahead(self._read(rows)):
            now = await self.parts.store.now()
            for row, history in some:
                self._judge(row, history, now)
        return self.told | {row.id: CHANGED for row in self._changed}

    async def carry_out(self, rows: Sequence[Process]) -> dict[bytes, str]:
        """Command each, once: a process that has this operation's command already counts as commanded."""
        await self._write([row for row in rows if row.changed_at <= self.frozen])
        self._changed += [row for row in rows if row.changed_at > self.frozen]
        for ids in cut(self._alone, AT_ONCE):
            await asyncio.gather(*map(self._judge_alone, ids))
        self._changed += await rows_of(self.parts.store, self._outrun)
        done = await commanded(self.parts.store, self._changed, self.origin)
        return self.told | {row.id: "" if row.id in done else CHANGED for row in self._changed}

    async def _read(self, rows: Sequence[Process]) -> AsyncIterator[Sequence[_Pair]]:
        """The rows, not many at once, each with the history of its run if the decision reads it."""
        for some in cut(rows, AT_ONCE):
            wanted = {
                row.id: HistoryWanted(row.id, row.run, row.events)
                for row in some
                if row.events and self.decision.reads(row)
            }
            bare = [(row, ()) for row in some if row.id not in wanted]
            if bare:
                yield bare
            by_id = {row.id: row for row in some}
            async for histories in every_history(self.parts.store, list(wanted.values())):
                yield [(by_id[id], history) for id, history in histories.items()]

    def _judge(self, row: Process, history: Sequence[Event], now: int) -> Commit | None:
        try:
            commit = self.decision.decide(row, history, now)
        except NothingOpen as why:
            if self.decision.patient and row.owner is not None:
                self._alone.append(row.id)
            self.told[row.id] = str(why)
        except _Changed:
            self._changed.append(row)
        except PerdureError as why:
            self.told[row.id] = str(why)
        else:
            self.told[row.id] = ""
            return commit
        return None

    async def _write(self, rows: Sequence[Process]) -> None:
        """Have the commits written, while the next ones are read and decided."""
        under_way: list[_Handed] = []
        try:
            async for some in ahead(self._read(rows)):
                now = await self.parts.store.now()
                commits = [commit for row, history in some if (commit := self._judge(row, history, now))]
                sent = self.parts.machine.monotonic()
                # If we die here some of these commits are written: the portion is done again, and finds them.
                before, under_way = (
                    under_way,
                    [
                        _Handed(commit, asked(self.parts.doors.commit, commit), sent)
                        for commit in commits
                        if self._fits(commit)
                    ],
                )
                await self._settle(before)
            await self._settle(under_way)
        finally:
            for one in under_way:
                one.answer.cancel()

    def _fits(self, commit: Commit) -> bool:
        """Whether one transaction is enough; else the process is commanded alone."""
        if beforehand(commit.sends):
            self._alone.append(commit.after.id)
            return False
        return True

    async def _settle(self, handed: Sequence[_Handed]) -> None:
        for one in handed:
            try:
                written = applied(self.parts, one.commit, await one.answer, one.sent)
            except BadRecord:
                written = False
            if not written:
                self._alone.append(one.commit.after.id)

    async def _judge_alone(self, id: bytes) -> None:
        try:
            await _Alone(self.parts, id).carry_out(self.decision)
            self.told[id] = ""
        except _Changed:
            self._outrun.append(id)
            self.told[id] = REMOVED  # unless it is found again
        except ProcessNotFound:
            self.told[id] = REMOVED
        except StoreUnavailable:
            raise
        except PerdureError as why:
            self.told[id] = str(why)


async def every_history(store: Store, wants: Sequence[HistoryWanted]) -> AsyncIterator[dict[bytes, list[Event]]]:
    """The histories that are wanted, a bounded number of bytes at a time."""
    while wants:
        found = await store.histories(wants, most=BATCH_BYTES)
        yield found
        wants = [want for want in wants if want.process not in found]


async def commanded(store: Store, rows: Sequence[Process], origin: str) -> set[bytes]:
    """Which of these processes have a command of that origin in their last run."""
    mark = origin.encode()
    found: set[bytes] = set()
    for some in cut([row for row in rows if row.events], LIST_ROWS):
        first = [HistoryWanted(row.id, row.run, 1) for row in some]
        last = [HistoryWanted(row.id, row.run, row.events, max(2, row.events - EVENTS + 1)) for row in some]
        for wants in (first, last):
            async for histories in every_history(store, wants):
                found |= {id for id, events in histories.items() if any(mark in (one.payload or b"") for one in events)}
    return found


async def rows_of(store: Store, ids: Sequence[bytes]) -> list[Process]:
    """The rows of these processes, as far as they exist."""
    return [row for some in cut(ids, LIST_ROWS) for row in await store.search(Search(ids=some, limit=len(some)))]


def cut(every: Sequence[T], size: int) -> Sequence[tuple[T, ...]]:
    """A sequence in parts of at most that size."""
    rest = iter(every)
    return list(iter(lambda: tuple(islice(rest, size)), ()))
