"""Fail-over with loss: the server goes on as a standby that lacks the last commits; the stores find out.

The stores then run the engine's own code (``store/failover.py``), as on PostgreSQL: only its queries are answered here
in another way. A store also records what it was answered, so that a law can say which worker must have known what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.process import Process, Status
from perdure.store.failover import Lineage
from perdure.store.sqlite.clock import KnownLine
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.store import SimStore

if TYPE_CHECKING:
    from perdure.testing.simulator.server import Server

CLUSTER = 1
CLAIMING: ContextVar[bool] = ContextVar("claiming", default=False)
"""Whether the call of a store under way is a claim that has waited until all was settled."""
_QUERIES = {"lineage": "lineage", "line": "line", "place": "place", "marks": "marks"}
_SAME: dict[str, tuple[Any, ...]] = {"line": (1, None, 1 << 60), "place": ("here",)}


class Unfollowed(KnownLine):
    """Counts nothing: as on PostgreSQL, a new connection meets another line."""

    def check(self, name: str | None, ticks: int) -> None:
        """See KnownLine."""


class Session:
    """A store's connection: it ends with a fail-over, and its lineage looks at the next one before it is used."""

    def __init__(self, server: Server, store: LinealStore) -> None:
        self._server = server
        self._store = store
        self.first = self._line = 0
        self._meeting = asyncio.Lock()

    async def opened(self) -> None:
        """Connect to the server as it is now; raises StoreRegressed once after a fail-over."""
        while self._line != self._server.line:
            async with self._meeting:
                line = self._server.line
                if self._line != line:
                    await self._store.lineage.met(self)
                    self._line = line
                    self.first = self.first or line
        if CLAIMING.get():
            self._store.lineage.check()

    async def fetchrow(self, query: str) -> tuple[Any, ...]:
        """Which line of history the server is on; here nobody puts a backup back, so its name says nothing."""
        if query in _SAME:
            return _SAME[query]
        found: tuple[int, int, int] = await self._server.carry(self._store, self._identity)
        return found

    def _identity(self) -> tuple[int, int, int]:
        monitor = self._server.monitor
        return CLUSTER, self._server.line, 0 if monitor is None else monitor.transactions

    async def fetch(self, query: str, ids: Sequence[bytes]) -> list[tuple[bytes, int, int, bytes | None]]:
        """How far these processes are."""
        asked = ", ".join("?" * len(ids))

        def look() -> list[Any]:
            connection = self._server.connection
            assert connection is not None
            text = f"SELECT id, token, version, owner FROM process WHERE id IN ({asked})"  # noqa: S608
            return connection.raw.execute(text, ids).fetchall()

        found: list[tuple[bytes, int, int, bytes | None]] = await self._server.carry(self._store, look)
        return found


class TellingStore(SimStore):
    """A store that records what it was answered: ``told`` is how far each process was by these answers."""

    def __init__(self, server: Server, life: Life, machine: Any, *, faulty: bool, holds: bool) -> None:
        super().__init__(server, life, machine, faulty=faulty)
        self.holds = holds
        self.told: dict[bytes, tuple[int, int]] = {}

    async def start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        """See Store."""
        answers = await super().start(starts)
        self._note(one.process for one, a in zip(starts, answers, strict=True) if a.verdict is StartVerdict.CREATED)
        return answers

    async def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """See Store."""
        answers = await super().commit(commits)
        self._note(one.after for one, a in zip(commits, answers, strict=True) if a.verdict is Verdict.APPLIED)
        return answers

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """See Store."""
        wait, monitor = self.backend.lineage.settles_for, self._server.monitor
        if wait and monitor is not None and monitor.stillness is not None:
            monitor.stillness.waits(self.life, wait)
        answer = await super().claim(claim)
        self._note(one.process for one in answer.claimed)
        return answer

    def _note(self, processes: Any) -> None:
        self.told.update({process.id: (process.token, process.version) for process in processes})


class Opened:
    """How many backups had been put back when a store was opened; here a store keeps its connection."""

    def __init__(self, server: Server) -> None:
        self.first = server.restored

    async def opened(self) -> None:
        """Nothing: no connection is lost."""


class RestoredStore(TellingStore):
    """The store of one life on a database whose backup may be put back. It finds out by itself, as on a file."""

    def __init__(self, server: Server, life: Life, machine: Any, *, faulty: bool, holds: bool) -> None:
        super().__init__(server, life, machine, faulty=faulty, holds=holds)
        server.sessions[self] = Opened(server)


class LinealStore(TellingStore):
    """The store of one life on a server that may fail over: as on PostgreSQL, a new connection meets another line."""

    def __init__(self, server: Server, life: Life, machine: Any, *, faulty: bool, holds: bool) -> None:
        super().__init__(server, life, machine, faulty=faulty, holds=holds)
        self.lineage = self.backend.lineage = Lineage(machine, _QUERIES)
        self._writer.line = Unfollowed()
        server.sessions[self] = Session(server, self)

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """See Store: a worker waits until all that was set back is held."""
        CLAIMING.set(not claim.seize)
        try:
            return await super().claim(claim)
        finally:
            CLAIMING.set(False)


class Knower(Struct):
    """An engine that knows of a lost commit; if it ``holds`` such processes, it does so unless something strikes it."""

    life: Life
    blows: int
    holds: bool

    @property
    def stands(self) -> bool:
        """Whether nothing has struck it since."""
        return not self.life.dead and not self.life.paused and self.life.blows == self.blows


class Loss(Struct):
    """What a fail-over to this line, or the backup of this number, set back: the process as it was, and who knew."""

    line: int
    process: Process
    knowers: list[Knower]

    def silent(self, was: Process | None, process: Process, taker: Session | Opened | None) -> bool:
        """Whether a worker has taken it up although one that knew of the loss had no reason not to hold it.

        A taker that has seen no other line of this database does not know of the fail-over, and waits for nobody.
        """
        taken = process.owner is not None and (was is None or was.owner != process.owner)
        informed = taker is not None and taker.first < self.line
        return taken and informed and any(knower.stands and knower.holds for knower in self.knowers)

    def told(self, now: Process | None) -> str:
        """The loss in words, with what is there now."""
        there = "is gone" if now is None else f"is at version {now.version} again (token {now.token})"
        knowers = ", ".join(knower.life.name for knower in self.knowers) or "nobody"
        return f"{there}, was at {self.process.version} (token {self.process.token}); {knowers} knew"


def losses(
    line: int, known: Sequence[Process], there: dict[bytes, Process], stores: Sequence[SimStore]
) -> dict[bytes, Loss]:
    """The processes that are behind ``known`` in the database now, or gone, and which stores knew better."""
    found: dict[bytes, Loss] = {}
    for process in known:
        now = there.get(process.id)
        if now is not None and (now.token, now.version) == (process.token, process.version):
            continue
        at = (-1, -1) if now is None else (now.token, now.version)
        knowers = [
            Knower(store.life, store.life.blows, store.holds)
            for store in stores
            if isinstance(store, TellingStore) and not store.life.dead and not store.life.paused
            and any(told > is_now for told, is_now in zip(store.told.get(process.id, (-1, -1)), at, strict=True))
        ]  # fmt: skip
        found[process.id] = Loss(line, process, knowers)
    return found


def over(process: Process) -> bool:
    """Whether a process that was set back waits for a person, or has ended."""
    return process.status is not Status.RUNNING
