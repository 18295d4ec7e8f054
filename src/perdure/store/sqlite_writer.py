"""The writer: one lane that writes, each piece of work in one short transaction under the database's write lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure import limits
from perdure.clock import Machine
from perdure.store.sqlite_clock import SqliteClock
from perdure.store.sqlite_connection import Connection
from perdure.store.sqlite_error import busy
from perdure.store.sqlite_lane import Lane

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.0005
LONGEST_WAIT_SECONDS = 0.01


class Hints:
    """How often this store object itself has left a hint in the database, so that a watch can tell others' hints."""

    def __init__(self) -> None:
        self.due = 0
        self.done = 0
        self.doubtful = False


class Transaction:
    """What a piece of work sees inside its transaction: the connection, the store's now, and who is alive."""

    def __init__(self, connection: Connection, now: int, alive: str) -> None:
        self.connection = connection
        self.now = now
        self._alive = alive
        self.left_due = False

    def alive(self, worker: bytes) -> bool:
        """Whether this incarnation is enlisted and has not ended (rule 11)."""
        return worker.hex().upper() in self._alive


class Writer:
    """Runs transactions. Beats and renewals go first in its queue (rule 25)."""

    def __init__(self, machine: Machine, clock: SqliteClock, lane: Lane) -> None:
        self.lane = lane
        self.clock = clock
        self.hints = Hints()
        self.pace = Pace()
        self._machine = machine
        self._closing = threading.Event()
        self._left_due = False

    async def write(
        self, body: Callable[[Transaction], T], *, urgent: bool = False, due: bool = False, done: bool = False
    ) -> T:
        """Run ``body`` in one transaction; ``due`` and ``done`` leave hints for the watches of other workers."""
        return await self.lane.run(lambda connection: self._transact(connection, body, due, done), urgent=urgent)

    async def write_all(
        self,
        records: Sequence[Any],
        body: Callable[[Transaction, Sequence[Any]], list[T]],
        *,
        due: bool = False,
        done: bool = False,
    ) -> list[T]:
        """Write a batch, in several transactions if it would hold the lock for too long."""
        if len(records) <= self.pace.records:
            return await self.write(lambda transaction: body(transaction, records), due=due, done=done)
        answers: list[T] = []
        while len(answers) < len(records):
            part = records[len(answers) : len(answers) + self.pace.records]
            answers += await self.write(lambda transaction, part=part: body(transaction, part), due=due, done=done)  # type: ignore[misc]
        return answers

    def take_left(self) -> bool:
        """Whether a transaction made something due that could not be known before it; asking takes the answer away."""
        left, self._left_due = self._left_due, False
        return left

    def locked(self, connection: Connection, body: Callable[[], T]) -> T:
        """Run ``body`` under the write lock, in one transaction that is committed, or rolled back if it raises."""
        self.begin(connection)
        try:
            answer = body()
            # If we die before or in this COMMIT, nothing or all of it is there; the caller learns it by asking again.
            connection.raw.execute("COMMIT")
        except BaseException:
            undo(connection)
            raise
        return answer

    def begin(self, connection: Connection) -> None:
        """Take the write lock."""
        self.patiently(lambda: connection.raw.execute("BEGIN IMMEDIATE"))

    def patiently(self, call: Callable[[], T]) -> T:
        """Make a call, again and again with jitter as long as the database is busy, for at most the busy time."""
        wait = FIRST_WAIT_SECONDS
        until = self._machine.monotonic() + limits.SQLITE_BUSY_SECONDS
        while True:
            try:
                return call()
            except Exception as error:
                if not busy(error) or self._machine.monotonic() >= until or self._closing.is_set():
                    raise
            self._closing.wait(wait * (0.5 + self._machine.random()))
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    def _transact(self, connection: Connection, body: Callable[[Transaction], T], due: bool, done: bool) -> T:
        self.begin(connection)
        begun = self._machine.monotonic()
        self.hints.due += due
        self.hints.done += done
        try:
            stored, alive = connection.one("tick", now=self.clock.now(), due=int(due), done=int(done))
            transaction = Transaction(connection, self.clock.saw(stored), alive)
            answer = body(transaction)
            if transaction.left_due and not due:
                self.hints.due += 1
                connection.run("leave_due_hint")
                self._left_due = True
            # If we die before or in this COMMIT, nothing or all of it is there; the caller learns it by asking again.
            connection.raw.execute("COMMIT")
        except BaseException:
            self.hints.doubtful = True
            undo(connection)
            raise
        self.pace.took(self._machine.monotonic() - begun, len(answer) if isinstance(answer, list) else 1)
        return answer

    def open(self) -> None:
        """Begin to take work."""
        self._closing.clear()
        self.lane.open()

    async def close(self) -> None:
        """Finish what is queued; a wait for the lock is cut short."""
        self._closing.set()
        await self.lane.close()


def undo(connection: Connection) -> None:
    """Roll back whatever is open; where that fails the open transaction tells the lane to drop the connection."""
    if connection.in_transaction:
        try:
            connection.raw.execute("ROLLBACK")
        except Exception:
            return


class Pace:
    """How many records fit into one transaction of at most 50 ms on this machine, learned from what they took."""

    LONG_SECONDS = 0.05
    SHORT_SECONDS = 0.02
    FEWEST = 64

    def __init__(self) -> None:
        self.records = limits.BATCH_RECORDS

    def took(self, seconds: float, records: int) -> None:
        """Take note of one transaction."""
        if records * 2 < self.records:
            return
        if seconds > self.LONG_SECONDS:
            self.records = max(self.records // 2, self.FEWEST)
        elif seconds < self.SHORT_SECONDS:
            self.records = min(self.records * 2, limits.BATCH_RECORDS)
