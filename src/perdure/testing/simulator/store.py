"""The simulated store: the real SQLite store of one life, without its threads, on the server that all lives share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.errors import StoreError
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.message import Message, SendAnswer, SendVerdict
from perdure.kernel.worker import Beat, BeatAnswer
from perdure.store.notifications import Notification
from perdure.store.sqlite.backend import SqliteBackend
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.incarnation_lock import IncarnationLocks
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.thread import DatabaseThread
from perdure.store.sqlite.writer import Transaction
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.machine import SimMachine
from perdure.testing.simulator.server import DOOR, Server
from perdure.testing.simulator.step_transaction import SimStepTransactions

T = TypeVar("T")
Record = TypeVar("Record", Start, Commit, Message)

LOCK_SECONDS = (0.0, 1.0, 10.0)
"""For how long another session locks a row that a beat was to renew; the first is the boring one."""


class SimDatabaseThread(DatabaseThread):
    """A database thread without a thread: work is carried out by the server, when it arrives there."""

    def __init__(
        self, owner: SimStore, server: Server, name: str, connect: Callable[[], Connection], check: Callable[[], None]
    ) -> None:
        super().__init__(name, partial(server.connect, connect), check)
        self._owner = owner
        self._server = server

    async def run(self, work: Callable[[Connection], T], *, urgent: bool = False, write: bool = True) -> T:
        """Do work at the server; SQLite's errors become the store's."""
        if not self.is_open:
            raise StoreError("the store is closed; open it first")
        result: T = await self._server.ask(self._owner, partial(self._do, work))
        return result

    async def close(self) -> None:
        """Take no more work."""
        self.is_open = False

    def _discard(self) -> None:
        """Roll back what was left open: the connection itself is shared by all."""
        if self._connection is not None and self._connection.in_transaction:
            self._connection.raw.rollback()


class SimLocks(IncarnationLocks):
    """The locks of incarnations as the simulated system keeps them: a dead life holds none."""

    def __init__(self, server: Server, life: Life) -> None:
        super().__init__(None)
        self._server = server
        self._life = life

    def take(self, worker: bytes) -> bool:
        """Hold the lock from now on."""
        self._server.locks[worker] = self._life
        return True

    def free(self, worker: bytes) -> bool:
        """Whether its life has ended; a lock that nobody ever took is no evidence."""
        life = self._server.locks.get(worker)
        return life is not None and life is not self._life and (life.dead or life.number in self._server.lost)

    def remove(self, worker: bytes) -> None:
        """The incarnation has ended."""
        self._server.locks.pop(worker, None)

    def sweep(self, living: set[bytes]) -> None:
        """Remove locks that belong to nobody living and that nobody holds."""
        for worker in [worker for worker, life in self._server.locks.items() if life.dead and worker not in living]:
            del self._server.locks[worker]

    def close(self) -> None:
        """Nothing: the locks are free when the life has ended."""


class SimBackend(SqliteBackend):
    """What the simulated server offers besides its rows: step transactions, although it is no file."""

    def __init__(self, store: SimStore, machine: SimMachine) -> None:
        super().__init__(store.url, machine, store.lineage, store.backend.event_log)
        self._store = store

    def step_transactions(self) -> SimStepTransactions:
        """See Backend."""
        return SimStepTransactions(self._store)


class SimStore(SqliteStore):
    """The store of one life. ``faulty`` says whether its calls may meet faults.

    ``newer`` says whether it reads what the next release writes.
    """

    newer = False

    def __init__(self, server: Server, life: Life, machine: SimMachine, *, faulty: bool = True) -> None:
        self.life = life
        self.faulty = faulty
        self._server = server
        self._locked: dict[bytes, float] = {}
        super().__init__(
            "sqlite://:memory:",
            machine=machine,
            thread=partial(SimDatabaseThread, self, server),
            locks=SimLocks(server, life),
        )
        self.backend = SimBackend(self, machine)
        server.stores.append(self)

    async def close(self) -> None:
        """See Store."""
        DOOR.set("read")  # whoever closes it may have come from another door, whose laws do not concern this
        await super().close()
        if self in self._server.stores:
            self._server.stores.remove(self)

    def tell(self, some_due: bool, some_done: bool) -> None:
        """Another store has left a hint, which the simulator delivers now."""
        self._watch.notify(Notification(some_due=some_due, some_done=some_done))

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Read something, with the delays and faults of every call."""
        return await self._read(work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Write something, in one transaction."""
        return await self._writer.write(work)

    async def start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        """See Store."""
        DOOR.set("start")
        here, locked = self._unlocked(starts)
        answered = await super().start(here)
        if self._server.monitor is not None:
            self._server.monitor.answered_starts(here, answered)
        answers = iter(answered)
        told = [
            StartAnswer(StartVerdict.BUSY, one.process.id) if number in locked else next(answers)
            for number, one in enumerate(starts)
        ]
        self._server.told(self.life, "start", (starts,), told)
        return told

    async def send(self, messages: Sequence[Message]) -> list[SendAnswer]:
        """See Store."""
        DOOR.set("send")
        here, locked = self._unlocked(messages)
        answered = await super().send(here)
        if self._server.monitor is not None:
            self._server.monitor.answered_sends(here, answered)
        answers = iter(answered)
        told = [
            SendAnswer(SendVerdict.BUSY, one.process) if number in locked else next(answers)
            for number, one in enumerate(messages)
        ]
        self._server.told(self.life, "send", (messages,), told)
        return told

    async def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """See Store."""
        DOOR.set("commit")
        here, locked = self._unlocked(commits)
        answered = await super().commit(here)
        if self._server.monitor is not None:
            self._server.monitor.answered_commits(here, answered)
        answers = iter(answered)
        told = [CommitAnswer(Verdict.BUSY) if number in locked else next(answers) for number in range(len(commits))]
        self._server.told(self.life, "commit", (commits,), told)
        return told

    async def beat(self, beat: Beat) -> BeatAnswer:
        """See Store."""
        DOOR.set("beat" if beat.hang is None else "report")
        skipped = self._skipped(beat)
        here = tuple(one for one in beat.renewals if one.process not in skipped)
        answer = await super().beat(replace(beat, renewals=here))
        told = replace(answer, skipped=skipped) if answer.alive else answer
        self._server.told(self.life, "beat", (beat,), told)
        return told

    def _skipped(self, beat: Beat) -> tuple[bytes, ...]:
        """The rows that a beat passes by, since another session locks them: perhaps one more from now on."""
        server = self._server
        if not (server.on and self.faulty and beat.renewals):
            return ()
        now, choices = server.loop.now, server.choices
        if choices.chance(server.swarm.conflict, "lock"):
            row = beat.renewals[choices.draw(len(beat.renewals), "lock")].process
            self._locked[row] = until = now + choices.pick(LOCK_SECONDS, "lock")
            server.faults["locked row"] += 1
            self.life.struck(until)
        return tuple(one.process for one in beat.renewals if self._locked.get(one.process, -1.0) >= now)

    def _unlocked(self, records: Sequence[Record]) -> tuple[Sequence[Record], set[int]]:
        """The records whose rows no other session has locked, and the places of the others."""
        server = self._server
        rate = server.swarm.conflict if server.on and self.faulty else 0.0
        if not records or not server.choices.chance(rate, "fault"):
            return records, set()
        row = _row(records[server.choices.draw(len(records), "fault")])
        locked = {number for number, one in enumerate(records) if _row(one) == row}
        server.faults["locked row"] += 1
        self.life.struck(server.loop.now)
        return [one for number, one in enumerate(records) if number not in locked], locked


def _row(record: Record) -> bytes:
    """The id of the process whose row a record writes."""
    if isinstance(record, Message):
        return record.process
    return record.after.id if isinstance(record, Commit) else record.process.id


def _named(name: str) -> Any:
    """A door that says which one it is, then does what the real store does."""
    real = getattr(SqliteStore, name)

    async def door(self: SimStore, *args: Any, **kwargs: Any) -> Any:
        DOOR.set(name)
        answer = await real(self, *args, **kwargs)
        self._server.told(self.life, name, args, answer)
        return answer

    door.__name__ = name
    door.__doc__ = "See Store."
    return door


for _name, _member in vars(SqliteStore).items():
    if iscoroutinefunction(_member) and not _name.startswith("_") and _name not in vars(SimStore) and _name != "open":
        setattr(SimStore, _name, _named(_name))
