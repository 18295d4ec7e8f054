"""Results: the callers in this OS process that wait for a durable process to end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, KeysView, Sequence
from itertools import islice
from typing import Any

from perdure import limits
from perdure.client.answers import Answers
from perdure.client.unserved import Unserved
from perdure.clock import Computer
from perdure.errors import PerdureError, ProcessBroken, ProcessCancelled, ProcessFailed, ProcessNotFound
from perdure.kernel.advice import advice
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text
from perdure.kernel.payload import decode
from perdure.kernel.process import COMPLETED, Process, Status
from perdure.loop import Loop, Outage
from perdure.store.base import Search, Store
from perdure.store.notifications import TAIL


class Results:
    """Waiters by process id. An end that is committed here wakes them at once; others are looked up, many in one query.

    Each waiter has the time at which it began to wait. A query that was sent before that does not answer it: the
    process may have been retried meanwhile, and the caller waits for the end of the new run. A query that was sent at
    the same time does, for a test's clock stands still.
    """

    def __init__(self, store: Store, machine: Computer, outage: Outage, answers: Answers) -> None:
        self.answered = answers.told
        self._answers = answers
        self.store = store
        self.machine = machine
        self.outage = outage
        self.loop = Loop("results", self._tick, outage)
        self._waiters: dict[bytes, dict[asyncio.Future[Process], float]] = {}
        self.outer: asyncio.AbstractEventLoop | None = None
        self._away: dict[bytes, None] = {}
        self._tails: dict[bytes, bytes] = {}
        self._named: dict[bytes, None] = {}
        self._there: set[bytes] = set()
        self._there_until = 0.0
        self._unserved = Unserved(store)
        self._hinted = False
        self._wait = limits.POLL_SECONDS
        self._look_at = 0.0

    async def wait(self, id: bytes, *, here: bool) -> Process:
        """Wait until a process has ended or is broken, and return its row; raises ProcessNotFound if it was removed.

        ``here`` says that the local worker holds the process, and reports its end without a query.
        """
        future = self.expect(id, here=here)
        try:
            return await future
        finally:
            if id in self._waiters:
                self.expect_no_more(id, future)

    def expect(self, id: bytes, *, here: bool) -> asyncio.Future[Process]:
        """The row of a process once it has ended or is broken: see :meth:`wait`, and then :meth:`expect_no_more`."""
        if self.outer is None:
            raise PerdureError("the engine is not open: use `async with Engine(...) as engine`")
        future: asyncio.Future[Process] = self.outer.create_future()
        self._waiters.setdefault(id, {})[future] = self.machine.monotonic()
        if not here:
            self._miss_from_here(id)
            self.hint()
        return future

    def expect_no_more(self, id: bytes, future: asyncio.Future[Process]) -> None:
        """Nobody waits for this end any longer."""
        future.cancel()
        waiters = self._waiters.get(id, {})
        if waiters.pop(future, None) is not None and not waiters:
            del self._waiters[id]
            self._leave(id)

    @property
    def awaited(self) -> KeysView[bytes]:
        """A live view of the ids of the processes that are waited for."""
        return self._waiters.keys()

    def open(self) -> None:
        """Begin to look, on the running event loop."""
        self.outer = asyncio.get_running_loop()
        self.loop.start()

    def ended(self, process: Process, asked: float) -> None:
        """A process has ended or is broken: answer the callers that waited when the store was ``asked`` (monotonic)."""
        if self._away:
            self._leave(process.id)
        waiters = self._waiters.pop(process.id, None)
        if waiters is None:
            return
        later = False
        for future, since in waiters.items():
            if since > asked:
                later = True
            elif not future.done():
                future.set_result(process)
        if later:
            self._waiters[process.id] = {future: since for future, since in waiters.items() if since > asked}
            self._miss_from_here(process.id)
            self.hint()

    def parted(self, id: bytes) -> None:
        """The local worker has released a process: look in the store for its end, and for answers, from now on."""
        if id in self._waiters:  # who waits for an answer waits for the end, too
            self._answers.wake(id)
            self._miss_from_here(id)
            self.loop.wake()

    async def close(self) -> None:
        """Stop looking; each remaining waiter gets PerdureError, though its process goes on, elsewhere or later."""
        self.outer = None
        await self.loop.stop()
        for futures in self._waiters.values():
            for future in futures:
                if not future.done():
                    future.set_exception(PerdureError("the engine was closed; ask another engine for the result"))

    def hint(self) -> None:
        """Something may have ended elsewhere: look now."""
        if not self._away:
            return
        self._hinted = True
        self._wait = limits.RESULT_FIRST_SECONDS
        self.loop.wake()

    def named(self, tails: Sequence[bytes]) -> None:
        """Processes whose ids have these tails have ended elsewhere: look for those that are waited for."""
        for tail in tails:
            if (id := self._tails.get(tail)) is not None:
                self._named[id] = None
        if self._named:
            self.loop.wake()

    def _miss_from_here(self, id: bytes) -> None:
        """From now on look in the store for the end of this process, which the local worker does not hold."""
        self._away[id] = None
        self._tails[id[-TAIL:]] = id

    def _leave(self, id: bytes) -> None:
        """Look for this process no more: it has ended, or no caller waits for it."""
        if id in self._away:
            del self._away[id]
            self._tails.pop(id[-TAIL:], None)
            self._there.discard(id)

    async def _tick(self) -> float:
        if self._named and not self._hinted and self.machine.monotonic() < self._look_at:
            return await self._look_for_named()
        wait = await self._look()
        self._look_at = self.machine.monotonic() + wait
        return wait

    async def _look_for_named(self) -> float:
        """Look for the processes that were named; the time of the next look at all of them stays."""
        ids = tuple(islice(self._named, limits.LIST_ROWS))
        for id in ids:
            del self._named[id]
        asked = self.machine.monotonic()
        for process in await self.store.search(Search(ids=ids, statuses=SETTLED, limit=len(ids))):
            self.ended(process, asked)
        self._there.difference_update(ids)  # those that are awaited still may have been removed: the next look tells
        return 0.0 if self._named else max(0.0, self._look_at - self.machine.monotonic())

    async def _look(self) -> float:
        hinted, self._hinted = self._hinted, False
        self._named.clear()
        started = self.machine.monotonic()
        looked = 0
        while looked < len(self._away):
            ids = tuple(islice(self._away, limits.LIST_ROWS))
            asked = self.machine.monotonic()
            found = await self.store.search(Search(ids=ids, statuses=SETTLED, limit=len(ids)))
            self.outage.ended()
            for process in found:
                self.ended(process, asked)
            looked += sum(id in self._away for id in ids)
            self._to_the_end(ids)
            if hinted and len(found) < len(ids) / 2:
                break  # the processes awaited longest end first; a later hint, or the poll, looks at the others
        took = self.machine.monotonic() - started
        if self._hinted:
            await asyncio.sleep(max(RESULT_GAP_SECONDS, took))
            return 0.0
        if not self._away:
            return limits.IDLE_WAIT_SECONDS
        if self._wait >= limits.POLL_SECONDS:
            await self._miss()
        self._wait = min(self._wait * 2, limits.POLL_SECONDS)
        return self._wait

    async def _miss(self) -> None:
        """Check now and then that the awaited processes still exist, and that some worker hosts their code.

        Retention removes a finished process after a while.
        """
        if self.machine.monotonic() >= self._there_until:
            self._there.clear()
            self._there_until = self.machine.monotonic() + MISS_SECONDS
        ids = tuple(islice((id for id in self._away if id not in self._there), MISSED_ROWS))
        if not ids:
            return
        rows = await self.store.search(Search(ids=ids, limit=len(ids)))
        found = {process.id for process in rows}
        self._there |= found
        for id in (id for id in ids if id not in found):
            self._leave(id)
            gone = ProcessNotFound(f"no process has the id {id_text(id)} any more: it was removed")
            for future in self._waiters.pop(id, ()):
                if not future.done():
                    future.set_exception(gone)
        await self._unserved.look(rows)

    def _to_the_end(self, ids: Iterable[bytes]) -> None:
        """Move the processes that have not ended behind those that were not looked at yet."""
        for id in ids:
            if id in self._away:
                del self._away[id]
                self._away[id] = None


def outcome(ended: Process, type: Any) -> Any:
    """The result of a process that has ended, decoded to ``type``.

    Raises ProcessFailed, ProcessCancelled or ProcessBroken if it has not completed.
    """
    if ended.status is COMPLETED:
        return decode(ended.result or b"null", type)
    failure = Failure(type="Unknown", message="") if ended.error is None else Failure.shown(ended.error)
    error = {Status.FAILED: ProcessFailed, Status.CANCELLED: ProcessCancelled}.get(ended.status, ProcessBroken)
    text = f"{ended.kind} {ended.key or id_text(ended.id)} {ended.status}: {failure.type}: {failure.message}"
    if failure.undone and not failure.owed:
        text = f"{text.rstrip('.')}; compensated: {', '.join(failure.undone)}"
    text = text.rstrip(": ")
    if error is ProcessBroken:
        text = f"{text.rstrip('.')}; {advice(ended.status, failure.type, id_text(ended.id))}"
    raise error(text, type=failure.type, detail=failure.message, undone=failure.undone, owed=failure.owed)


def too_late(id: str, limit: float) -> TimeoutError:
    """The error of a caller who would not wait longer than ``limit`` seconds."""
    return TimeoutError(f"process {id} has not ended within {limit:g} s, and goes on; see `perdure explain {id}`")


MISSED_ROWS = 100
"""The most processes that one check for existence reads, since it reads whole rows."""

MISS_SECONDS = 30.0
"""A process that was found to exist is checked again after this time."""

RESULT_GAP_SECONDS = 0.002
"""Looks follow each other no faster than this, nor faster than they take, however many hints come."""

SETTLED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.BROKEN)
"""The statuses that answer a wait for the result."""
