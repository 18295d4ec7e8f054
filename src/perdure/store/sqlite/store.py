"""The SQLite store: one file (or memory), one writer thread per store object, several workers on one file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from msgspec import json
from msgspec.structs import replace

from perdure.clock import SECOND, Computer
from perdure.errors import StoreError
from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, removes
from perdure.kernel.event import Event, EventType, HistoryWanted
from perdure.kernel.message import LettersWanted, Message, SendAnswer
from perdure.kernel.process import Status
from perdure.kernel.worker import Beat, BeatAnswer, WorkerRow
from perdure.store.base import FoundRows, Pruned, RowT, Search
from perdure.store.failover import Lineage
from perdure.store.migrate import ahead
from perdure.store.notifications import Listener, StopListening
from perdure.store.sqlite import claim as sqlite_claim
from perdure.store.sqlite import commit as sqlite_commit
from perdure.store.sqlite import due_work, kind, queue, row, schema, send, upkeep
from perdure.store.sqlite import inbox as sqlite_inbox
from perdure.store.sqlite import search as sqlite_search
from perdure.store.sqlite import start as sqlite_start
from perdure.store.sqlite.backend import SqliteBackend
from perdure.store.sqlite.clock import SetBack, SqliteClock
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.event_log import SqliteEventLog
from perdure.store.sqlite.file import SameFile, read_url
from perdure.store.sqlite.incarnation_lock import IncarnationLocks
from perdure.store.sqlite.notifications import of_commits, of_sends, of_starts
from perdure.store.sqlite.notify import Notifier
from perdure.store.sqlite.thread import DatabaseThread
from perdure.store.sqlite.watch import Watch
from perdure.store.sqlite.writer import CROWDED_CLAIM_ROWS, SMALL_RECORDS, Transaction, Writer

T = TypeVar("T")

_OLDEST = (3, 38, 0)
_LAST = (1 << 63) - 1


class SqliteStore:
    """Keeps the rows in a SQLite database. See :class:`perdure.store.base.Store` for what the methods promise.

    ``thread`` and ``locks`` are for a simulator, which has no threads and no dying OS processes.
    """

    def __init__(
        self,
        url: str,
        *,
        machine: Computer | None = None,
        thread: Callable[..., DatabaseThread] = DatabaseThread,
        locks: IncarnationLocks | None = None,
    ) -> None:
        self.url = url
        self._file = read_url(url)
        self._standing = SameFile(self._file.path)
        self._machine = machine or Computer()
        self._clock = SqliteClock(self._machine)
        self._locks = locks or IncarnationLocks(self._file.locks)
        writing = thread("perdure sqlite writer", self._connect, self._standing.check)
        # A database in memory has one connection only: reads wait there behind writes. In a file the engine reads on
        # one connection and people on another, so that a person's long search delays no supervisor.
        memory = self._file.path is None
        self._reader = writing if memory else thread("perdure sqlite reader", self._connect, self._standing.check)
        self._people = writing if memory else thread("perdure sqlite search", self._connect, self._standing.check)
        self._notifier = Notifier(self._file.locks, self._machine)
        self._writer = Writer(self._machine, self._clock, writing, self._notifier, self._look_back, self._file.locks)
        self.lineage = lineage = Lineage(self._machine, {"marks": "marks"})
        self.backend = SqliteBackend(url, self._machine, lineage, SqliteEventLog(self._read, self._writer.write))
        self._remembers = not memory or self._machine.simulated
        self._looking_back = asyncio.Lock()
        self._watch = Watch(self._writer.hints, self._notifier, self._connect_watch)
        self._ahead = 0

    # -- opening and closing -----------------------------------------------------------------------------------

    async def open(self, *, migrate: bool = True) -> None:
        """Connect; create or migrate the schema under the write lock, or raise StoreTooOld if ``migrate`` is false."""
        if sqlite3.sqlite_version_info < _OLDEST:
            raise StoreError(f"this Python has SQLite {sqlite3.sqlite_version}; use one with SQLite 3.38 or newer")
        migrate = migrate or self._file.path is None  # a database in memory ends with this object
        self._file.prepare(create=migrate)
        self._standing.begin()
        self._writer.open()
        self._reader.open()
        self._people.open()
        try:
            await self._writer.thread.run(lambda connection: self._prepare(connection, migrate))
            living = await self._writer.thread.run(lambda connection: upkeep.workers(connection, False))
            self._locks.sweep({worker.id for worker in living})
        except BaseException:
            await self.close()
            raise

    def _prepare(self, connection: Connection, migrate: bool) -> None:
        """Bring the schema up to date, and find out now rather than later whether the file can be written."""
        self._writer.patiently(lambda: schema.prepare(connection, self._writer, migrate=migrate))
        stored, lead = self._writer.locked(connection, lambda: connection.one("clock_mark"))
        now = self._clock.saw(stored, lead)
        line, line_at, ticks = connection.one("clock_line")
        self._writer.line.adopt(line, ticks)
        self.lineage.joined(now - line_at)
        self._ahead = ahead("sqlite", connection.one("read_schema")[0])

    def _connect(self) -> Connection:
        connection = self._writer.patiently(lambda: Connection(self._file))
        connection.raw.create_function("same_json", 2, sqlite_search.same_json, deterministic=True)
        return connection

    def _connect_watch(self) -> sqlite3.Connection | None:
        path = self._file.path
        return None if path is None else sqlite3.connect(path, timeout=0, isolation_level=None)

    async def _read(self, work: Callable[[Connection], T], thread: DatabaseThread | None = None) -> T:
        """Read without the write lock; even that may find the file busy, while it is recovered after a death."""
        return await (thread or self._reader).run(
            lambda connection: self._writer.patiently(lambda: work(connection)), write=False
        )

    async def close(self) -> None:
        """Let go of every connection, thread and lock. Safe to call twice."""
        self._watch.close()
        if self._writer.thread.is_open and self._clock.mark > self._clock.stored:
            with contextlib.suppress(StoreError):
                await self._writer.write(lambda transaction: None)
        await self._people.close()
        await self._reader.close()
        await self._writer.close()
        self._notifier.close()
        self._locks.close()

    async def now(self) -> int:
        """The store's time, which never runs backward, not even when the store is opened again."""
        stored, lead = await self._read(lambda connection: connection.one("clock_mark"))
        now = self._clock.saw(stored, lead)
        if now - stored > SECOND:
            return await self._writer.write(lambda transaction: transaction.now)
        return now

    async def fetch(self, name: str, ids: Sequence[bytes]) -> list[tuple[bytes, int, int, bytes | None]]:
        """How far these processes are: what the lineage asks of a database that was set back."""
        cells = [bytearray(id) for id in ids]
        packed = await self._reader.run(lambda connection: connection.ask(name, 1, cells))
        return [
            (bytes.fromhex(id), token, version, bytes.fromhex(owner) if owner else None)
            for (part,) in packed
            for id, token, version, owner in json.decode(part)
        ]

    async def _look_back(self, found: SetBack) -> None:
        """The database was set back: find what is lost, let claims wait, then draw a new line for all to see."""
        async with self._looking_back:
            line = self._writer.line
            if line.name != found.known:
                return  # another piece of work has found it first
            await self.lineage.set_behind(self)
            drawn = self._machine.new_id().hex()

            def draw(connection: Connection) -> tuple[str | None, int, int]:
                (name, *_) = connection.one("clock_line")
                if name == line.name:
                    connection.run("draw_line", line=drawn, known=name)
                return connection.one("clock_line")

            # If we die here, another store that was answered lost commits finds them missing by itself.
            name, _, ticks = await self._writer.thread.run(
                lambda connection: self._writer.locked(connection, lambda: draw(connection)), urgent=True
            )
            line.adopt(name, ticks)
            self._clock.stored = 0

    # -- the three doors ---------------------------------------------------------------------------------------

    async def start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        """Store new processes. A second start with the same (kind, key) changes nothing (rule 24)."""
        if not starts:
            return []
        for start in starts:
            if start.process.attributes is not None:
                row.check_attributes(start.process.attributes)
        owners = {start.process.owner for start in starts}
        due = None in owners
        named = owners - {None}
        answers = await self._writer.write_all(
            starts,
            sqlite_start.start,
            at_once=sqlite_start.start_at_once if len(named) < 2 else None,
            owner=next(iter(named), None),
            due=due,
            notification=of_starts,
        )
        if self._remembers:
            self.lineage.started(starts, answers)
        self._tell()
        return answers

    async def send(self, messages: Sequence[Message]) -> list[SendAnswer]:
        """Put messages into inboxes, giving each its number; unowned running targets become due now."""
        if not messages:
            return []
        answers = await self._writer.write_all(messages, send.admit, due=True, notification=of_sends)
        self._tell()
        return answers

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """Take due processes: new token, owner, lease; then, in later statements, read what they hold."""
        if not claim.seize:  # a command does not wait: the client that gives it may run no sweeps
            await self.lineage.settled()
        if self._writer.turnstile.crowded and claim.limit > CROWDED_CLAIM_ROWS:
            claim = replace(claim, limit=CROWDED_CLAIM_ROWS)  # the answer tells that more is due: it is claimed next
        if claim.only is None and not claim.among:
            work = await self._read(lambda connection: due_work.look(connection, self._clock, claim))
            if work.none():
                return work.answer(())
        [taken] = await self._writer.write_all(
            [claim],
            lambda transaction, claims: [self._take(transaction, one) for one in claims],
            due=claim.seize,  # the worker that held it is notified that it has lost it
            large=claim.limit > SMALL_RECORDS,
            synced=claim.seize,  # a power cut that takes a claim back ends all workers of the file with it
        )
        # If we die here the rows are ours and no worker runs them: their leases lapse, and another worker claims them.
        if self._remembers:
            self.lineage.claimed(taken.rows)
        answer = taken.left.answer(sqlite_claim.bare(taken))
        if any(row.events or row.inbox for row in taken.rows):
            answer = await self._read(lambda connection: sqlite_claim.read(connection, taken))
        return replace(answer, schema_ahead=self._ahead) if self._ahead else answer

    def _take(self, transaction: Transaction, claim: Claim) -> sqlite_claim.TakenRows:
        if not claim.seize:
            self.lineage.check()
        return sqlite_claim.take(transaction, self._clock, claim)

    async def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """Write commits, at most one per process, each accepted or refused by itself."""
        if not commits:
            return []
        soon = self._clock.now() + SECOND
        due, done, removing = False, False, any(map(removes, commits))
        for commit in commits:
            after = commit.after
            if commit.attributes_set and after.attributes is not None:
                row.check_attributes(after.attributes)
            if commit.lease:
                continue
            if after.due_at is None:
                done = done or after.opened_at != after.created_at
            elif after.due_at <= soon and not after.reminder:
                due = True
            due = due or after.token != commit.token  # the worker that held it is notified that it has lost it
        answers = await self._writer.write_all(
            commits,
            sqlite_commit.commit_and_remove if removing else sqlite_commit.commit,
            at_once=None if removing else sqlite_commit.commit_at_once,
            due=due,
            done=done,
            notification=of_commits,
        )
        if self._remembers:
            self.lineage.committed(commits, answers, removing=removing)
        self._tell()
        return answers

    # -- workers -----------------------------------------------------------------------------------------------

    async def enlist(self, worker: WorkerRow, silence: int) -> WorkerRow:
        """Register a new incarnation and take its lock; the answer says whether the lock counts."""
        locked = await self._reader.run(lambda connection: self._locks.take(worker.id))
        # If we die here the lock file is free and belongs to nobody: the next opening removes it.
        kept = await self._writer.write(lambda transaction: upkeep.enlist(transaction, worker, silence, locked))
        if kept.ended_at is not None:
            self._locks.remove(worker.id)
        return kept

    async def beat(self, beat: Beat) -> BeatAnswer:
        """Record a sign of life and prolong leases; goes first in the writer's queue (rule 25)."""
        answer = await self._writer.write(lambda t: upkeep.beat(t, beat, self._clock), urgent=True, synced=False)
        self._ahead = max(self._ahead, answer.schema_ahead)
        return answer

    async def retire(self, worker: bytes, beats: int | None, died: bool) -> bool:
        """End an incarnation once, if it has beaten no more than ``beats`` times. False: it lives, or had ended."""
        ended = await self._writer.write(
            lambda transaction: upkeep.retire(transaction, worker, beats, died), urgent=True
        )
        if ended:
            self._locks.remove(worker)
        return ended

    async def workers(self, *, ended: bool = False, ids: Collection[bytes] | None = None) -> list[WorkerRow]:
        """See Store."""
        return await self._read(lambda connection: upkeep.looked_at(connection, self._locks, ended, ids))

    # -- sweeps and queries ------------------------------------------------------------------------------------

    async def search(self, search: Search) -> FoundRows:
        """Processes, newest first; or rows that a sweep must look at, the longest overdue first."""
        if search.overdue is not None or search.ended_to is not None:
            return await self._read(self._overdue(search))
        return FoundRows(await self._read(lambda connection: sqlite_search.search(connection, search), self._people))

    def _overdue(self, search: Search) -> Callable[[Connection], FoundRows]:
        """A look at the store's time; no caller is given this time, so it needs no mark in the database."""

        def look(connection: Connection) -> FoundRows:
            return upkeep.overdue(connection, search, self._clock.saw(*connection.one("clock_mark")))

        return look

    async def count(self, search: Search) -> list[tuple[str, Status, int]]:
        """How many processes there are by kind and status; ``before_id`` and ``limit`` are ignored: no pages."""
        return await self._read(lambda connection: sqlite_search.count(connection, search), self._people)

    async def history(
        self,
        process: bytes,
        run: int,
        *,
        after: int = 0,
        limit: int = 1000,
        backward: bool = False,
        types: Sequence[EventType] = (),
        names: Sequence[str] = (),
    ) -> list[Event]:
        """Events of one run with numbers above ``after`` (below it, newest first, if ``backward`` and not 0)."""
        start = (after or _LAST) if backward else after
        query, narrow = sqlite_search.history_query(backward, types, names)
        packed = await self._read(
            lambda connection: connection.one(query, process=process, run=run, start=start, most=limit, **narrow)
        )
        return [event for _, event in row.events(packed)]

    async def histories(self, wants: Sequence[HistoryWanted], *, most: int) -> dict[bytes, list[Event]]:
        """For each process the events that are wanted, up to ``most`` bytes."""
        return await self._read(lambda connection: sqlite_search.histories(connection, wants, most), self._people)

    async def messages(
        self, wants: Sequence[tuple[bytes, int]] = (), *, most: int = 0, waiting: Sequence[LettersWanted] = ()
    ) -> list[Message]:
        """For each (process, number): its messages with higher numbers, by process and number; or letters that wait."""
        if waiting:
            return await self._read(lambda connection: sqlite_inbox.waiting(connection, waiting))
        cells = [cell for want in sorted(wants) for cell in want]
        if not cells:
            return []
        query, common = ("read_unheard", (most,)) if most else ("read_messages_above", ())
        packed = await self._read(lambda connection: connection.ask(query, 2, cells, *common))
        return [message for part in packed for message in row.messages(part)]

    async def records(self, table: type[RowT], changes: Sequence[RowT] = ()) -> list[RowT]:
        """Write rows of a small table, each only if its ``version`` is the next one; all its rows as they are then."""
        if not changes:
            return await self._read(lambda connection: queue.read(connection, table, self._clock))
        rows = await self._writer.write(lambda transaction: kind.write(transaction, table, changes, self._clock))
        self._tell()
        return rows

    async def prune(
        self, finished: int, keys: int, limit: int, behind: bytes | None = None,
        *, of: tuple[bytes, int] | None = None, only: Sequence[tuple[bytes, int]] = (),
    ) -> Pruned:  # fmt: skip
        """Remove what ended longer than ``finished`` microseconds ago; or former runs ``of`` one; or ``only`` these."""
        if of is not None:
            return Pruned(0, 0, await self._writer.write(partial(upkeep.remove_runs, process=of[0], version=of[1])))
        if only:
            return Pruned(await self._writer.write(partial(upkeep.prune_only, only=only, keys=keys)), 0)
        before = (now := await self.now()) - finished
        removed = 0
        for group in await self._read(lambda connection: upkeep.finished(connection, before, limit, now)):
            while group.former is not None and (await self.prune(0, 0, 0, of=group.former)).runs:
                pass  # if we die here it has fewer former runs, and the next pruning goes on
            removed += await self._writer.write(partial(upkeep.prune, ids=group.ids, before=before, keys=keys))
        rest = await self._writer.write(lambda transaction: upkeep.prune_rest(transaction, limit))
        reopened, behind = await self._read(lambda connection: upkeep.reopened(connection, before, limit, behind))
        known, runs = min(before, before + finished - keys), 0
        for id in reopened:
            runs += await self._writer.write(partial(upkeep.prune_runs, process=id, before=before, known=known))
        return Pruned(removed, rest.keys, runs, behind)

    def watch(self, listener: Listener) -> StopListening:
        """Call ``listener`` with the notifications of this store and of others; the answer stops the watch."""
        return self._watch.add(listener)

    def _tell(self) -> None:
        """Pass the notifications of our own transactions to our own listeners."""
        for notification in self._writer.take_notifications():
            self._watch.notify(notification)
