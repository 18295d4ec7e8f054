"""Whether the database that answers is still the one that was written to: after a fail-over it may stand behind.

A standby that does not confirm every commit loses the last ones when it is promoted, and a backup loses more. The rows
look sound; only those who were told that something was written know better. So a store object keeps, of the processes
that it was last told of, how far they were. Whenever a connection is made anew and the server is another one, or on
another timeline, or its log is shorter, what it knows is compared with what is there, before anything is claimed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from perdure import limits
from perdure.clock import SECOND, Machine
from perdure.errors import StoreRegressed
from perdure.kernel.commit import APPLIED, CREATED, Commit, CommitAnswer, Start, StartAnswer
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.logs import logger

log = logger("store")

TOLD = 20
"""So many ids stand in the log; the sweep of a worker tells of each."""


class Identity(NamedTuple):
    """Which line of history a server is on: its cluster, its timeline, and how long its log is (bytes)."""

    cluster: int
    timeline: int
    written: int

    def follows(self, known: Identity) -> bool:
        """Whether all that was written when ``known`` was seen is surely here."""
        return bool(self.cluster) and self[:2] == known[:2] and self.written >= known.written


DatabaseLine = tuple[int, bytes | None]
"""Which database of the cluster it is, and the name of its line, which is drawn anew when it is found set back."""

UNKNOWN = Identity(0, 0, 0)
"""The server does not let us ask; then every connection is looked at."""


class SetBehind(StoreRegressed):
    """The database knows less than was answered here, or another one has found that so."""

    def __init__(self) -> None:
        super().__init__("the database was set back behind what was answered here; it is tried again by itself")


class Marks(Protocol):
    """Whom the lineage asks how far processes are: a connection, or a store."""

    async def fetch(self, query: str, ids: Sequence[bytes], /) -> Sequence[Any]:
        """Of each of these that is there: id, token, version and owner."""


class Mark(NamedTuple):
    """How far a process was when it was last told of; ``owner`` had it in hand then."""

    token: int
    version: int
    owner: bytes | None

    def ahead_of(self, stored: Mark) -> bool:
        """Whether the stored row has not seen this, or somebody else has taken it with the same token."""
        if self.token > stored.token or self.version > stored.version:
            return True
        return self[:2] == stored[:2] and self.owner != stored.owner


Noted = tuple[bytes, int, int, bytes | None]
"""A process's id and its mark, in one: a hundred thousand are made in a second."""

_mark: Callable[[Process], Noted] = attrgetter("id", "token", "version", "owner")

GONE = Mark(-1, -1, None)
"""It was lost and told of: there is nothing more of it to lose."""


class Lineage:
    """What one store object knows of its database, and what it found to be set back, with the reason.

    ``place`` tells this database from every other one.

    So many marks are kept and for so long as ``limits`` says, up to twice of both. They stand in the order in which
    they were made, since every answer adds to them and only a fail-over looks one up.
    """

    def __init__(self, machine: Machine, queries: Mapping[str, str]) -> None:
        self.set_back: dict[bytes, str] = {}
        self._machine = machine
        self._queries = queries
        self._marks: list[Noted] = []
        self._older: list[Noted] = []
        self._turn_at = 0.0
        self._known: Identity | None = None
        self._line: DatabaseLine | None = None
        self.place: str | None = None
        self._beats: dict[bytes, int] = {}
        self._calm_at = 0.0
        self._calm = asyncio.Event()

    # -- what was answered -------------------------------------------------------------------------------------------

    def started(self, starts: Sequence[Start], answers: Sequence[StartAnswer]) -> None:
        """Take note of new processes that were accepted."""
        both = zip(starts, answers, strict=True)
        self._note([_mark(start.process) for start, answer in both if answer.verdict is CREATED])

    def committed(self, commits: Sequence[Commit], answers: Sequence[CommitAnswer]) -> None:
        """Take note of commits that were applied."""
        both = zip(commits, answers, strict=True)
        self._note([_mark(commit.after) for commit, answer in both if answer.verdict is APPLIED])

    def claimed(self, processes: Iterable[Process]) -> None:
        """Take note of processes that were taken in hand."""
        self._note(map(_mark, processes))

    def _note(self, marks: Iterable[Noted]) -> None:
        """Keep how far these are, and let go of the oldest marks."""
        self._marks += marks
        if len(self._marks) > limits.LINEAGE_RECORDS or self._machine.monotonic() > self._turn_at:
            self._older, self._marks = self._marks, []
            self._turn_at = self._machine.monotonic() + limits.LINEAGE_SECONDS

    # -- what is there -----------------------------------------------------------------------------------------------

    async def met(self, connection: Any) -> None:
        """Look at the server behind a new connection, before anything is written there; raises StoreRegressed.

        If we die here nobody compares what only this store object was told.
        """
        found = await self._identity(connection)
        database, name, since = await connection.fetchrow(self._queries["line"])
        (self.place,) = await connection.fetchrow(self._queries["place"])
        line, known = (database, name), self._known
        if known is None:
            self.joined(since)
        elif not found.follows(known) or line != self._line:
            if found.cluster == known.cluster and found.timeline < known.timeline:
                raise StoreRegressed(
                    f"this server is on timeline {found.timeline}, but timeline {known.timeline} of its database was "
                    "seen: it is an old primary. Stop it; if it is meant, start this program again."
                )
            await self.set_behind(connection)
            self._known = found
            self.adopt(line)
            # Whoever was about to claim must wait first, so what was about to be asked here is asked again.
            raise StoreRegressed("the database goes on on another line after a fail-over; it is tried again by itself")
        self._known, self._line = found, line

    @property
    def line(self) -> DatabaseLine | None:
        """The line that the database is on, as far as is known."""
        return self._line

    def beats(self, worker: bytes) -> int:
        """How often this incarnation has beaten for sure; -1 if nothing is known of it."""
        return self._beats.get(worker, -1)

    def enlisted(self, worker: bytes, beats: int) -> None:
        """This incarnation is in the database, and has beaten so often."""
        self._beats = {worker: beats}

    def beaten(self, worker: bytes, beats: int | None, alive: bool, line: bytes | None) -> None:
        """A beat was answered, the so many-th of this incarnation, on this line; raises SetBehind.

        None means that the database does not know the incarnation: it was lost with all that was set back. One that has
        ended beats no more.
        """
        known = self._beats.get(worker)
        if known is not None and (beats is None or beats < known + alive):
            raise SetBehind
        if self._line is not None and line != self._line[1]:
            raise SetBehind
        if beats is not None:
            self._beats = {worker: beats}

    def adopt(self, line: DatabaseLine) -> None:
        """Go on from here: what was set back is known."""
        self._line = line
        self._beats = {}

    async def set_behind(self, connection: Marks) -> None:
        """The database is perhaps behind what was answered: find out of what; no claim until all of it is held."""
        self._calm.clear()
        self._calm_at = self._machine.monotonic() + limits.LINEAGE_GRACE_SECONDS
        await self._compare(connection)
        if not self.set_back:
            self._calm.set()

    def joined(self, since: int) -> None:
        """At an opening, so many microseconds after somebody found the database set back: others hold what they know.

        Without this, one who comes just then would take up what another one is about to hold.
        """
        left = limits.LINEAGE_GRACE_SECONDS - since / SECOND
        if 0 < left <= limits.LINEAGE_GRACE_SECONDS:
            self._calm_at = self._machine.monotonic() + left
            self._calm.set()

    async def _identity(self, connection: Any) -> Identity:
        try:
            return Identity(*await connection.fetchrow(self._queries["lineage"]))
        except Exception as error:
            if getattr(error, "sqlstate", "") != "42501":
                raise
            return UNKNOWN

    async def _compare(self, connection: Marks) -> None:
        """Find what stands behind what was answered; that it is so is known from here on, whatever becomes of us."""
        marks = {one[0]: Mark(*one[1:]) for one in chain(self._older, self._marks)}
        stored: dict[bytes, Mark] = {}
        wanted = list(marks)
        for place in range(0, len(wanted), limits.LIST_ROWS):
            part = wanted[place : place + limits.LIST_ROWS]
            stored.update((one[0], Mark(*one[1:])) for one in await connection.fetch(self._queries["marks"], part))
        for id, mark in marks.items():
            if mark == GONE:
                continue
            if id not in stored:
                self.set_back[id] = (
                    "the database was set back and has lost it, although it was accepted; start it again if it must be"
                )
            elif mark.ahead_of(stored[id]):
                self.set_back[id] = (
                    f"it was set back, with the database, from version {mark.version} (token {mark.token}) to "
                    f"version {stored[id].version} (token {stored[id].token}); see what its steps have done since"
                )
        log.warning(
            "the database goes on on another line (a fail-over, or a backup was put back); behind or lost: %d of %d "
            "processes known here",
            len(self.set_back),
            len(marks),
        )
        if self.set_back:
            log.error(
                "set back by a fail-over or a restored backup, with loss of what was accepted: %s",
                ", ".join(self._told()),
            )

    def _told(self) -> list[str]:
        told = [id_text(id) for id in list(self.set_back)[:TOLD]]
        return [*told, "…"] if len(self.set_back) > TOLD else told

    def handled(self, process: bytes, stored: Process | None) -> None:
        """A process that was set back is held, or cannot go on by itself: ``stored`` is how it is now, None if gone.

        That much is known of it from here on: the next fail-over may lose the very hold.
        """
        self.set_back.pop(process, None)
        self._marks.append((process, *(GONE if stored is None else (stored.token, stored.version, stored.owner))))
        if not self.set_back:
            self._calm.set()

    @property
    def settling(self) -> bool:
        """Whether claims still wait: what was lost may come back yet, by a start that is sent again."""
        return self._machine.monotonic() < self._calm_at

    async def settled(self) -> None:
        """Before a claim: wait until all that was set back is held, and others have had the time to hold theirs."""
        while self._calm_at:
            await self._calm.wait()
            await asyncio.sleep(self._calm_at - self._machine.monotonic())
            if self._calm.is_set():
                self._calm_at = 0.0

    def check(self) -> None:
        """At the moment at which a claim is sent: raises StoreRegressed if another line was met since it had waited.

        It may have been met by another connection than the one by which the claim goes.
        """
        if self._calm_at:
            raise StoreRegressed("the database has failed over; claims wait until what was set back is held")
