"""Leading: what ``async with engine.leader(name)`` does, from asking for the lease to giving it back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from perdure import limits
from perdure.client import validation
from perdure.clock import SECOND
from perdure.errors import LeadershipLost, PerdureError, StoreUnavailable
from perdure.kernel import leader as rules
from perdure.kernel.leader import Leader
from perdure.logs import logger

if TYPE_CHECKING:
    from perdure.client.leaders import Leaders

log = logger("leader")

MARGIN = 0.2
"""Which part of a lease is left when work is cancelled that could not renew it: time for its clean-up."""
AGAIN = 0.05
"""After which part of a lease a store that did not answer is asked again."""


class Leadership:
    """What ``engine.leader(name)`` gives: an async context manager, whose block runs while this program leads.

    ``term`` is the number of this leadership: every later leader has a higher one. The lease is renewed by the event
    loop that runs the block. When it cannot be, the block is cancelled while a fifth of the lease is left, and leaving
    it raises :class:`~perdure.errors.LeadershipLost`.
    """

    def __init__(
        self, leaders: Leaders, name: str, *, lease: int, timeout: float | None, heartbeat: float | None
    ) -> None:
        self.name = name
        self.term = 0
        self._leaders = leaders
        self._machine = leaders.machine
        self._lease = lease
        self._seconds = lease / SECOND
        self._timeout = timeout
        self._heartbeat = heartbeat
        self._id = ""
        self._row = Leader(name)
        self._lost: str | None = None
        self._left = False
        self._trouble = ""
        self._until = self._alive_at = 0.0  # by the machine's monotonic clock
        self._cancels = 0
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Leadership {self.name} term {self.term}>"

    # -- the block ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Wait until this program leads; raises TimeoutError after ``timeout``, WorkflowMisuse, StoreError.

        LeadershipLost is raised here if the lease was won and lost again before the block began.
        """
        validation.outside_a_turn()
        work = asyncio.current_task()
        if self._id or work is None:
            raise PerdureError("a leadership is entered once, by a task: ask for another one with engine.leader(...)")
        self._id = self._machine.new_id().hex()
        self._work, self._cancels = work, work.cancelling()
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._elected: asyncio.Future[None] = self._loop.create_future()
        self._task = self._leaders.begin(self, self._run())
        try:
            async with asyncio.timeout(self._timeout):
                await self._elected
        except BaseException as error:
            # If we die here a lease may be written that nobody renews: it lapses.
            self._leave()
            ours = self._lost is not None and self.term > 0 and isinstance(error, asyncio.CancelledError)
            if ours and work.uncancel() <= self._cancels:  # won, and lost before the block began
                raise self._error() from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease back; raises LeadershipLost if the block was cancelled because the lease was lost."""
        self._leave()
        if self._lost is not None:
            await self._take_back_the_cancel(kind)
        if self._holds():
            await asyncio.wait([self._task], timeout=self._until - self._machine.monotonic())
        if self._lost is not None and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise self._error() from None

    def check(self) -> None:
        """Raise LeadershipLost if the lease is lost or about to end: for code that has not awaited for a while."""
        if self._lost is not None or self._machine.monotonic() >= self._until - self._seconds * MARGIN:
            raise self._error()

    def heartbeat(self) -> None:
        """Say that the work gets on: without this for ``heartbeat_timeout`` the lease is not renewed any more."""
        self._alive_at = self._machine.monotonic()

    async def _take_back_the_cancel(self, kind: type[BaseException] | None) -> None:
        """Undo our cancel, so that it meets nothing behind the block; raises CancelledError if others cancel too."""
        delivered = kind is not None and issubclass(kind, asyncio.CancelledError)
        if not delivered:
            try:
                await asyncio.sleep(0)  # the block ended before it met our cancel, which meets this instead
            except asyncio.CancelledError:
                delivered = True
        if self._work.uncancel() > self._cancels and delivered:
            raise asyncio.CancelledError

    def _leave(self) -> None:
        self._left = True
        if self._timer is not None:
            self._timer.cancel()
        self._woken.set()

    def _holds(self) -> bool:
        return self.term > 0 and self._machine.monotonic() < self._until

    def _error(self) -> LeadershipLost:
        reason = self._lost or "its lease is about to end"
        return LeadershipLost(
            f"this program does not lead in {self.name!r} any more: {reason}. Stop the work, and ask again with "
            f"engine.leader({self.name!r})."
        )

    # -- the lease ---------------------------------------------------------------------------------------------------

    def lose(self, reason: str, error: PerdureError | None = None) -> None:
        """Lead no more: cancel the block, or end the wait for it with an error."""
        if self._left or self._lost is not None:
            return
        self._lost = reason
        self._woken.set()
        if not self._elected.done():
            self._elected.set_exception(error or self._error())
            return
        self._leaders.counters["leaderships_lost"] += 1
        log.warning("leader %s, term %s, stops: %s", self.name, self.term, reason, extra=self._fields())
        self._work.cancel()

    async def _run(self) -> None:
        """Ask until we lead, renew until the block has ended or the lease is lost, then give it back."""
        while not (self._left or self._lost or self.term):
            await self._pause(await self._asked(self._ask))
        if self.term and not self._elected.done():
            self._leaders.counters["leaderships"] += 1
            log.info("leader %s, term %s, begins", self.name, self.term, extra=self._fields())
            self.heartbeat()
            self._elected.set_result(None)
        wait = self._seconds / 3
        while not (self._left or self._lost):
            await self._pause(wait)
            wait = await self._asked(self._renew)
        while self._holds() and not self._left:
            self._woken.clear()
            await self._pause(self._until - self._machine.monotonic())
        if self._holds():
            await self._vacate()

    async def _asked(self, ask: Callable[[], Awaitable[float]]) -> float:
        """Ask the store something; the answer is for how many seconds to wait, also after an error."""
        if self._left or self._lost:
            return 0.0
        try:
            wait = await ask()
        except StoreUnavailable as error:
            self._trouble = str(error)
            self._leaders.outage.began(error)
            return self._seconds * AGAIN
        except PerdureError as error:
            self.lose(str(error), error)
            return 0.0
        self._leaders.outage.ended()
        return wait

    async def _pause(self, seconds: float) -> None:
        """Wait for so long, or until the block has ended or the lease is lost."""
        if seconds <= 0 or self._woken.is_set():
            return
        timer = self._loop.call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
        if not (self._left or self._lost):
            self._woken.clear()

    async def _ask(self) -> float:
        """Take the lease if nobody holds it; the answer is when to ask again."""
        store = self._leaders.store
        sent = self._machine.monotonic()
        now, row = await store.now(), await self._leaders.row(self.name)
        if row.candidate == self._id:  # it was written, and the answer was lost
            if row.released:
                self._took(row, sent, now)
                self._stop_as_asked()
                return 0.0
            taken: Leader | None = rules.renewed(row, now, self._lease)
        elif (wait := self._leaders.stands_back(row, now, self._lease)) > 0:
            return wait
        else:
            taken = rules.won(row, self._id, self._machine.name(), now, self._lease)
        if taken is None:
            # Half of the wait is drawn: candidates do not come all at once when a leader has died.
            return min((row.until - now) / SECOND, self._seconds / 3 * (1 + self._machine.random()) / 2)
        if await self._leaders.written(taken) != taken:
            return self._seconds * AGAIN * self._machine.random()
        self._took(taken, sent, now)
        return 0.0

    async def _renew(self) -> float:
        """Prolong the lease, unless another one has it, a person has released it, or the work does not get on."""
        sent = self._machine.monotonic()
        if self._heartbeat is not None and sent - self._alive_at > self._heartbeat:
            self.lose(f"its work has not reported for {sent - self._alive_at:.1f} s")
            return 0.0
        now = await self._leaders.store.now()
        for _ in range(limits.COMMAND_TRIES):
            if self._row.released:
                self._stop_as_asked()
                return 0.0
            longer = rules.renewed(self._row, now, self._lease)
            row = await self._leaders.written(longer)
            if row == longer:
                self._took(longer, sent, now)
                return self._seconds / 3
            if row.candidate != self._id:
                self._until = 0.0
                self.lose(f"{row.program or 'another program'} leads in term {row.term}")
                return 0.0
            self._row = row
        return 0.0

    def _stop_as_asked(self) -> None:
        """A person has released our lease: lead no more, and let other programs go first."""
        self._leaders.called_off[self.name] = self._row.term
        self.lose(f"{self._row.who or 'a person'} has released it" + (f": {self._row.why}" if self._row.why else ""))

    def _took(self, row: Leader, sent: float, now: int) -> None:
        """The lease is ours, reckoned from before the request was sent."""
        self._row, self.term, self._trouble = row, row.term, ""
        self._until = sent + (row.until - now) / SECOND
        self._watch()

    def _watch(self) -> None:
        """Stop the work in time if nothing renews the lease: others may lead when it is over."""
        if self._timer is not None:
            self._timer.cancel()
        if self._left or self._lost:
            return
        left = self._until - self._seconds * MARGIN - self._machine.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self.lose("its lease could not be renewed in time" + (f": {self._trouble}" if self._trouble else ""))

    async def _vacate(self) -> None:
        """Let another one lead at once; if that fails the lease lapses."""
        try:
            now = await self._leaders.store.now()
            for _ in range(limits.COMMAND_TRIES):
                free = rules.vacated(self._row, now)
                row = await self._leaders.written(free)
                if row == free or row.candidate != self._id:
                    return
                self._row = row
        except PerdureError as error:
            log.info("leader %s could not give its lease back, which lapses: %s", self.name, error)

    def _fields(self) -> dict[str, str | int]:
        return {"leader": self.name, "term": self.term}
