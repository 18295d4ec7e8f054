"""The simulated database server: one real SQLite database, which every life reaches through drawn delays and faults.

A call takes its time to arrive, is carried out in one piece, and its answer takes its time to come back. A life that
is killed in between leaves a transaction that was applied or not, and nobody knows which.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from perdure.errors import StoreFull, StoreUnavailable
from perdure.limits import SQLITE_BUSY_SECONDS
from perdure.store.sqlite.connection import Connection
from perdure.testing.simulator import database
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.standby import Standby
from perdure.testing.simulator.swarm import FAULTS, SCALES, Swarm

if TYPE_CHECKING:
    from perdure.testing.simulator.failover import Opened, Session
    from perdure.testing.simulator.log import Log
    from perdure.testing.simulator.loop import SimLoop
    from perdure.testing.simulator.monitor import Monitor
    from perdure.testing.simulator.store import SimStore

DOOR: ContextVar[str] = ContextVar("perdure simulated door", default="read")
"""The method of the store that is being called."""
WRITES = frozenset(
    {"start", "send", "claim", "commit", "enlist", "beat", "report", "retire", "prune", "records", "keep"}
)
SLOW_SECONDS = (1.0, 4.0, 12.0)
_KINDS = tuple(FAULTS)


class Server:
    """Carries out calls. ``on`` says whether there are faults, ``kill`` ends a life; ``faults`` counts what happened.

    ``fate`` says which fault a call of a store through a door meets: put another function there to choose it yourself.
    ``told`` is called with every answer that a life gets through a door, and with what it had asked.
    ``locks`` are the incarnations that hold a lock, with their lives: a dead life's lock is free, and that of one
    whose session was ``lost`` until its next call, as on a server that ties locks to sessions.
    """

    def __init__(self, loop: SimLoop, swarm: Swarm, log: Log) -> None:
        self.loop = loop
        self.choices = loop.choices
        self.swarm = swarm
        self.log = log
        self.on = True
        self.kill: Callable[[Life], None] = loop.kill
        self.unseat: Callable[[Life], None] = lambda life: None
        self.fate: Callable[[SimStore, str], str] = self._drawn
        self.told: Callable[[Life, str, tuple[Any, ...], Any], None] = lambda life, door, asked, answer: None
        self.monitor: Monitor | None = None
        self.faults: Counter[str] = Counter()
        self.locks: dict[bytes, Life] = {}
        self.lost: set[int] = set()
        self.stores: list[SimStore] = []
        self.sessions: dict[SimStore, Session | Opened] = {}
        self._cuts: dict[int, tuple[float, bool]] = {}
        self.line = 1
        self.restored = 0
        self.standby = Standby(swarm.lag) if swarm.lag else None
        self.connection: Connection | None = None
        self._rates = [swarm.faults.get(fault, 0.0) for fault in FAULTS]
        self._changes = 0
        self._hints: tuple[int, ...] = ()

    def calm(self) -> None:
        """From now on calls are quick and meet no faults."""
        self.on = False

    def connect(self, make: Callable[[], Connection]) -> Connection:
        """The one connection of this history; the first call makes it."""
        if self.connection is None:
            self.connection = database.lent(make)
            self._changes = self.connection.raw.total_changes
            if self.standby is not None:
                self.standby.keep(self.connection)
        return self.connection

    def latency(self) -> float:
        """How long one way takes, in seconds."""
        return self.choices.pick(self.swarm.latencies, "latency") if self.on else SCALES[0][0]

    def cut(self, life: Life, seconds: float, *, hangs: bool) -> None:
        """Cut a life off for so long: its calls wait until that is over (``hangs``), or fail at once."""
        self._cuts[life.number] = (self.loop.now + seconds, hangs)
        life.struck(self.loop.now + seconds)
        self.log.note(life.name, f"is cut off from the store for {seconds:g} s: calls {'hang' if hangs else 'fail'}")

    def fail_over(self, lost: int) -> int:
        """Go on as a standby that lacks so many commits; every connection is lost. The answer is how many it lacked."""
        if self.standby is None or self.connection is None:
            raise ValueError("this server has no standby; let the swarm say how far it may lag: Swarm(lag=3)")
        lost = self.standby.promote(self.connection, lost)
        self.line += 1
        self.lost.update(life.number for life in self.locks.values())
        self.faults["fail-over"] += 1
        self.log.note("world", f"the server fails over, and the last {lost} commits are gone")
        return lost

    def back_up(self) -> sqlite3.Connection:
        """A copy of the database as it is now."""
        assert self.connection is not None
        copy = sqlite3.connect(":memory:")
        self.connection.raw.backup(copy)
        return copy

    def restore(self, copy: sqlite3.Connection) -> None:
        """Put a copy back under all stores: no connection is lost, and calls under way arrive at the old database."""
        assert self.connection is not None
        copy.backup(self.connection.raw)
        self.restored += 1
        self.faults["backup put back"] += 1
        self.log.note("world", "a backup is put back")

    def edit(self, statement: str, given: Mapping[str, object] | None = None) -> tuple[int, ...]:
        """Run a statement by hand, past every law of the schema; the answer is its first row."""
        assert self.connection is not None
        raw = self.connection.raw
        raw.execute("PRAGMA ignore_check_constraints = ON")
        found: tuple[int, ...] | None = raw.execute(statement, given or {}).fetchone()
        raw.execute("PRAGMA ignore_check_constraints = OFF")
        raw.execute("DELETE FROM touched")
        raw.commit()
        self._changes = raw.total_changes
        return found or ()

    def session_of(self, life: Life) -> Session | Opened | None:
        """The connection of a life's last store (it may have opened several), on a server that may fail over."""
        return next((session for store, session in reversed(self.sessions.items()) if store.life is life), None)

    async def ask(self, store: SimStore, work: Callable[[], Any]) -> Any:
        """Carry out a piece of work for a store's life, over a connection of its own."""
        session = self.sessions.get(store)
        if session is not None:
            await session.opened()
        return await self.carry(store, work)

    async def carry(self, store: SimStore, work: Callable[[], Any]) -> Any:
        """Carry out a piece of work; it fails if the server fails over meanwhile."""
        door = DOOR.get()
        fault = self.fate(store, door)
        wait = self.latency()
        if fault:
            self.faults[fault] += 1
            self.log.fault(store.life, door, fault)
            if fault == "slow":
                wait += self.choices.pick(SLOW_SECONDS, "fault")
            elif fault == "busy":
                wait += SQLITE_BUSY_SECONDS
        if self._cuts and self.on:
            until, hangs = self._cuts.get(store.life.number, (0.0, True))
            if hangs:
                wait += max(until - self.loop.now, 0.0)
            elif until > self.loop.now:
                fault = "failed before"
        if fault:
            store.life.struck(self.loop.now + wait + max(self.swarm.latencies))
        answer: asyncio.Future[Any] = self.loop.create_future()
        self.loop.call_in(self.loop.world, wait, self._arrived, store, door, fault, work, answer, self.line)
        return await answer

    def _drawn(self, store: SimStore, door: str) -> str:
        """Draw which of the faults a call meets; an empty text stands for none."""
        if not (self.on and store.faulty):
            return ""
        kind = self.choices.weigh(self._rates, "fault")
        fault = _KINDS[kind - 1] if kind else ""
        weak, weakness, rate = self.swarm.door
        if not kind and door == weak and self.choices.chance(rate, "door"):
            fault = weakness
        return "failed before" if fault == "full" and door not in WRITES else fault

    def _arrived(
        self, store: SimStore, door: str, fault: str, work: Callable[[], Any], answer: asyncio.Future[Any], line: int
    ) -> None:
        life = store.life
        if life.dead and not self.choices.chance(self.swarm.late, "fault"):
            return
        if line != self.line:
            self._answer(answer, None, StoreUnavailable(f"{door}: the server failed over; nothing was done"))
            return
        if fault == "session lost":  # and with it the lock of its incarnation, until it comes back
            self.lost.add(life.number)
            self.unseat(life)
        else:
            self.lost.discard(life.number)
        if fault in ("failed before", "busy", "full", "session lost"):
            kind = StoreFull if fault == "full" else StoreUnavailable
            self._answer(answer, None, kind(f"{door}: {fault}, as the simulator drew; nothing was done"))
            return
        if fault == "died before":
            self.kill(life)
            return
        result: Any = None
        error: Exception | None = None
        try:
            result = work()
        except Exception as raised:
            error = raised
        self._look(store, door)
        if fault == "died after":
            self.kill(life)
            return
        if fault == "failed after":
            result, error = None, StoreUnavailable(f"{door}: the answer was lost, as the simulator drew")
        self._answer(answer, result, error)

    def _answer(self, answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        way = self.latency()
        if way > self.swarm.latencies[0]:
            self.loop.call_in(self.loop.world, way, self._settle, answer, result, error, self.line)
        else:
            self._settle(answer, result, error, self.line)

    def _settle(self, answer: asyncio.Future[Any], result: Any, error: Exception | None, line: int) -> None:
        if answer.done():
            return
        if line != self.line:
            error = StoreUnavailable("the answer was lost: the server failed over")
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _look(self, store: SimStore, door: str) -> None:
        """After each piece of work: if it has written, check the laws and send hints to the other stores."""
        connection = self.connection
        if connection is None or connection.raw.total_changes == self._changes:
            return
        if self.monitor is not None:
            self.monitor.written(store.life, door)
        if self.standby is not None:
            self.standby.keep(connection)
        hints = connection.one("clock_hints")
        self._changes = connection.raw.total_changes
        before, self._hints = self._hints, hints
        if not before or hints == before:
            return
        due, done = hints[0] != before[0], hints[1] != before[1]
        for other in self.stores:
            if other is store or other.life.dead:
                continue
            if self.on and self.choices.chance(self.swarm.deaf, "hint"):
                continue
            self.loop.call_in(other.life, self.latency(), other.tell, due, done)
