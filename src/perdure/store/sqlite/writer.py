"""The writer: one thread that writes, each piece of work in one short transaction under the database's write lock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from perdure import limits
from perdure.clock import Computer
from perdure.kernel.message import SendAnswer
from perdure.logs import logger
from perdure.store.notifications import Notification
from perdure.store.sqlite.clock import KnownLine, SetBack, SqliteClock
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.error import busy
from perdure.store.sqlite.notify import Hint, Notifier
from perdure.store.sqlite.thread import DatabaseThread, DatabaseWork
from perdure.store.sqlite.write_lock import Turnstile

T = TypeVar("T")

log = logger("store")

FIRST_WAIT_SECONDS = 0.0005
LONGEST_WAIT_SECONDS = 0.01
SMALL_WAIT_SECONDS = 0.0002
SMALL_RECORDS = 16
CROWDED_CLAIM_ROWS = 100
WARY_BATCHES = 8


class Hints:
    """How many hints this store object itself has left in the database, so that a watch can tell the others' hints."""

    def __init__(self) -> None:
        self.due = 0
        self.done = 0
        self.doubtful = False


class Collision(Exception):
    """A row was not in the usual state that writing at once assumes: roll back, and look at the rows first."""


class Transaction:
    """What a piece of work sees inside its transaction: the connection, the store's now, and which workers are alive.

    The work notes here what other workers should look at. ``left_due``: something became due. ``unheard``: among that
    is a row that was released with an unheard message. ``letters``: the answers to messages sent with commits.
    ``freed``: kinds of ended tasks whose queues may have been full. ``void`` says that there was nothing to write.
    """

    def __init__(self, connection: Connection, now: int, alive: str, ticks: int = 0) -> None:
        self.connection = connection
        self.now = now
        self.ticks = ticks
        self._alive = alive
        self.left_due = False
        self.published = False
        self.unheard = False
        self.freed: tuple[str, ...] = ()
        self.void = False
        self.letters: list[SendAnswer] = []

    def alive(self, worker: bytes) -> bool:
        """Whether this incarnation is enlisted and has not ended (rule 11)."""
        return worker.hex().upper() in self._alive


Batch: TypeAlias = Callable[[Transaction, Sequence[Any]], list[T]]
NotificationOf: TypeAlias = Callable[[Sequence[Any], Sequence[Any], Transaction], Notification]
"""The notification of a batch that was committed: of its records, with their answers."""


class _Piece(Struct, frozen=True, gc=False):
    """What one transaction writes: ``at_once`` first if it is given, ``body`` otherwise or after a Collision.

    If it is not ``synced``, a power cut may undo it. It is ``small`` if it is known to be written quickly: how much a
    sweep writes is not known in advance.
    """

    body: Callable[[Transaction], Any]
    at_once: Callable[[Transaction], Any] | None = None
    owner: bytes | None = None
    due: bool = False
    done: bool = False
    records: int = 0
    synced: bool = True
    notification: Callable[[Sequence[Any], Transaction], Notification] | None = None
    small: bool = False


class Writer:
    """Runs transactions. Beats and renewals go first in its queue (rule 25).

    ``set_back`` is called when a transaction finds that the database was set back; it looks at what is lost.
    """

    def __init__(
        self,
        machine: Computer,
        clock: SqliteClock,
        thread: DatabaseThread,
        notifier: Notifier,
        set_back: Callable[[SetBack], Awaitable[None]],
        locks: Path | None = None,
    ) -> None:
        self.thread = thread
        self.notifier = notifier
        self.clock = clock
        self.line = KnownLine()
        self._set_back = set_back
        self.hints = Hints()
        self.pace = BatchPace()
        self._machine = machine
        self._closing = threading.Event()
        self.turnstile = Turnstile(locks, machine, self._closing.wait)
        self._notifications: deque[Notification] = deque()
        self._wary = 0

    async def write(self, body: Callable[[Transaction], T], *, urgent: bool = False, synced: bool = True) -> T:
        """Run ``body`` in one transaction."""
        piece = _Piece(body, synced=synced, small=urgent)
        answer: T = await self._done(partial(self._write, piece), urgent=urgent)
        return answer

    async def write_all(
        self,
        records: Sequence[Any],
        body: Batch[T],
        *,
        at_once: Batch[T] | None = None,
        owner: bytes | None = None,
        due: bool = False,
        done: bool = False,
        synced: bool = True,
        notification: NotificationOf | None = None,
        large: bool = False,
    ) -> list[T]:
        """Write a batch, in several transactions if it would hold the lock for too long.

        ``at_once`` does the same as ``body`` in fewer statements if everything is as usual and ``owner`` is alive;
        otherwise it raises Collision, and is then skipped for a while. ``due`` and ``done`` leave hints for the
        watches of other workers, ``notification`` says more. A single record may be ``large``, as a claim is. A power
        cut may undo a batch that is not ``synced``.
        """
        answers: list[T] = []
        small = len(records) <= SMALL_RECORDS and not large  # no portion of more is: a small writer goes before each

        def portion(begin: int) -> _Piece:
            part = records[begin : begin + self.pace.records]
            hope = None if at_once is None else partial(_onto, at_once, part)
            said = None if notification is None else partial(notification, part)
            return _Piece(partial(_onto, body, part), hope, owner, due, done, len(part), synced, said, small)

        while len(answers) < len(records):
            answers += await self._done(partial(self._portions, portion, len(answers), len(records)))
        return answers

    def _portions(self, portion: Callable[[int], _Piece], begin: int, end: int, connection: Connection) -> list[Any]:
        """Write the portions of a batch, one transaction each, until other work waits for the thread.

        So most of them save the way to the event loop and back, for which the loop may have to be waited for.
        """
        answers = list(self._write(portion(begin), connection))
        while begin + len(answers) < end and not self.thread.has_more:
            connection.stand()
            answers += self._write(portion(begin + len(answers)), connection)
        return answers

    async def _done(self, work: DatabaseWork[T], *, urgent: bool = False) -> T:
        try:
            return await self.thread.run(work, urgent=urgent)
        except SetBack as found:
            await self._set_back(found)
            raise

    def _write(self, piece: _Piece, connection: Connection) -> Any:
        if piece.at_once is not None:
            if self._wary:
                self._wary -= 1
            else:
                try:
                    return self._transact(piece, connection, piece.at_once, self._opened_at_once)
                except Collision:
                    self._wary = WARY_BATCHES
        return self._transact(piece, connection, piece.body, self._opened)

    def take_notifications(self) -> Iterator[Notification]:
        """The notifications of the transactions since the last call."""
        while self._notifications:
            yield self._notifications.popleft()

    def locked(self, connection: Connection, body: Callable[[], T]) -> T:
        """Run ``body`` under the write lock, in one transaction that is committed, or rolled back if it raises."""
        self.patiently(lambda: connection.raw.execute("BEGIN IMMEDIATE"))
        try:
            answer = body()
            # If we die before or in this COMMIT, nothing or all of it is there; the caller learns it by asking again.
            connection.raw.commit()
        except BaseException:
            undo(connection)
            raise
        return answer

    def patiently(self, call: Callable[[], T], *, longest: float = LONGEST_WAIT_SECONDS) -> T:
        """Make a call; repeat it, with jitter, while the database is busy, for at most SQLITE_BUSY_SECONDS."""
        wait = min(FIRST_WAIT_SECONDS, longest)
        until = self._machine.monotonic() + limits.SQLITE_BUSY_SECONDS
        while True:
            try:
                return call()
            except Exception as error:
                if not busy(error) or self._machine.monotonic() >= until or self._closing.is_set():
                    raise
            self._closing.wait(wait * (0.5 + self._machine.random()))
            wait = min(wait * 2, longest)

    def _admitted(self, piece: _Piece, call: Callable[[], T]) -> T:
        """Take the write lock. Large work lets waiting small work go first; small work that must wait says so."""
        if not piece.small:
            self.turnstile.let_by()
            return self.patiently(call)
        try:
            return call()
        except Exception as error:
            if not busy(error):
                raise
        said = False

        def again() -> T:
            nonlocal said
            said = said or self.turnstile.enter()
            return call()

        try:
            return self.patiently(again, longest=SMALL_WAIT_SECONDS)
        finally:
            self.turnstile.leave()

    def _transact(
        self,
        piece: _Piece,
        connection: Connection,
        body: Callable[[Transaction], Any],
        opened: Callable[[_Piece, Connection], Transaction],
    ) -> Any:
        self.hints.due += piece.due
        self.hints.done += piece.done
        connection.sync(piece.synced)
        connection.small(piece.small)
        try:
            # The clock's row is written first, and with that the write lock is taken.
            transaction = self._admitted(piece, lambda: opened(piece, connection))
            begun = self._machine.monotonic()
            answer = body(transaction)
            if transaction.void:
                connection.raw.rollback()
                return answer
            if transaction.left_due and not piece.due:
                connection.run("leave_due_hint")
            if not piece.small:
                self.turnstile.look()
            written = self._machine.monotonic()
            # If we die before or in this COMMIT, nothing or all of it is there; the caller learns it by asking again.
            connection.raw.commit()
        except BaseException:
            self.hints.due -= piece.due
            self.hints.done -= piece.done
            self.hints.doubtful = True
            undo(connection)
            raise
        self.line.ticks = transaction.ticks
        if piece.due or piece.done or transaction.left_due or transaction.published:
            self._announce(piece, transaction, answer)
        over = self._machine.monotonic()
        self.pace.took(over - begun, piece.records, commit=over - written, crowded=self.turnstile.crowded)
        return answer

    def _announce(self, piece: _Piece, transaction: Transaction, answer: Any) -> None:
        """Notify the other stores, and our listeners later; if we die here, all find the change by polling.

        It raises nothing: what is committed is answered as written.
        """
        due = piece.due or transaction.left_due
        self.hints.due += due - piece.due
        notification = None
        try:
            notification = (
                Notification(some_due=due, some_done=piece.done)
                if piece.notification is None
                else piece.notification(answer, transaction)
            )
            self.notifier.notify(Hint(notification, int(due), int(piece.done)))
        except Exception:
            log.exception("other programs were not told of a commit, and find it by looking; please report it")
        self._notifications.append(notification or Notification(some_due=True, some_done=True, some_published=True))

    def _opened(self, piece: _Piece, connection: Connection) -> Transaction:
        """The transaction, with the clock raised and the living workers known."""
        now, alive, line, ticks = self.clock.opened(connection, due=piece.due, done=piece.done)
        self.line.check(line, ticks)
        return Transaction(connection, now, alive, ticks)

    def _opened_at_once(self, piece: _Piece, connection: Connection) -> Transaction:
        """The transaction with the clock raised; raises Collision if the stored mark is ahead of our clock.

        So it does if the named worker is not alive, if the lead is not the one known here, or if the database was set
        back.
        """
        now = self.clock.now()
        found = connection.one(
            "tick_at_once", now=now, due=int(piece.due), done=int(piece.done), owner=piece.owner,
            lead=self.clock.lead, line=self.line.name, ticks=self.line.ticks,
        )  # fmt: skip
        if not found:
            raise Collision
        self.clock.stored = now
        return Transaction(connection, now, "", found[0])

    def open(self) -> None:
        """Begin to take work."""
        self._closing.clear()
        self.thread.open()

    async def close(self) -> None:
        """Finish what is queued; a wait for the lock is cut short."""
        self._closing.set()
        await self.thread.close()
        self.turnstile.close()


def _onto(body: Batch[T], records: Sequence[Any], transaction: Transaction) -> list[T]:
    return body(transaction, records)


def undo(connection: Connection) -> None:
    """Roll back what is open; if that fails, the thread sees the open transaction and drops the connection."""
    if connection.in_transaction:
        try:
            connection.raw.rollback()
        except Exception:
            return


class BatchPace:
    """How many records fit into one transaction of at most 50 ms on this machine, learned from what they took.

    While small writers of other OS processes wait it is 3 ms without the commit: each of them waits for one such
    transaction. Part of the time does not depend on the number of records: so batches never become very small.
    """

    LONG_SECONDS = 0.05
    SHORT_SECONDS = 0.035
    FEWEST = 250
    CROWDED_SECONDS = 0.003
    CROWDED_FEWEST = 30

    def __init__(self) -> None:
        self.records = limits.BATCH_RECORDS

    def took(self, seconds: float, records: int, *, commit: float = 0.0, crowded: bool = False) -> None:
        """Take note of one transaction; ``commit`` seconds of its time were those of the disk, however few it wrote."""
        if crowded and seconds - commit > self.CROWDED_SECONDS and records > self.CROWDED_FEWEST:
            self.records = max(min(records, self.records) // 2, self.CROWDED_FEWEST)
        elif crowded or records * 2 < self.records:
            return
        elif seconds > self.LONG_SECONDS:
            self.records = max(self.records * 3 // 4, self.FEWEST)
        elif seconds < self.SHORT_SECONDS:
            self.records = min(self.records * 3 // 2, limits.BATCH_RECORDS)
