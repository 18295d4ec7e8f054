"""Detects that the database has lost commits: after a fail-over it may be behind what it has answered.

A standby that does not confirm every commit loses the last ones when it is promoted, and a restored backup loses more.
The remaining rows look sound: only a program that was answered a commit can know that it is missing. So a store object
keeps marks: how far each process was by the latest answers. When a new connection meets another server, another
timeline or a shorter log, the marks are compared with the stored rows, before anything is claimed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from perdure import limits
from perdure.clock import SECOND, Computer
from perdure.errors import StoreRegressed
from perdure.kernel.commit import APPLIED, CREATED, Commit, CommitAnswer, Removal, Start, StartAnswer
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.logs import logger

log = logger("store")

TOLD = 20
"""The most ids in one line of the log; the worker's sweep reports each one."""


class Identity(NamedTuple):
    """Which line of history a server is on: its cluster, its timeline, and how long its log is (bytes)."""

    cluster: int
    timeline: int
    written: int

    def follows(self, known: Identity) -> bool:
        """Whether this server surely has all that was written when ``known`` was seen."""
        return bool(self.cluster) and self[:2] == known[:2] and self.written >= known.written


DatabaseLine = tuple[int, bytes | None]
"""The database's number in the cluster, and the name of its line: a database that was set back gets a new name."""

UNKNOWN = Identity(0, 0, 0)
"""The server refuses to tell its identity: then the marks are compared at every new connection."""


class SetBehind(StoreRegressed):
    """The database has less than it has answered to this store, or another store has found it set back."""

    def __init__(self) -> None:
        super().__init__("the database was set back and has lost answered commits; Perdure tries again by itself")


class Marks(Protocol):
    """Where the lineage reads how far processes are: a connection, or a store."""

    async def fetch(self, query: str, ids: Sequence[bytes], /) -> Sequence[Any]:
        """Id, token, version and owner of each of these processes that is there."""


class Mark(NamedTuple):
    """How far a process was by the last answer about it; ``owner`` is the worker that held it then."""

    token: int
    version: int
    owner: bytes | None

    def ahead_of(self, stored: Mark) -> bool:
        """Whether the stored row lacks this commit, or another worker has claimed it with the same token."""
        if self.token > stored.token or self.version > stored.version:
            return True
        return self[:2] == stored[:2] and self.owner != stored.owner


class Regression(NamedTuple):
    """What became of a process that was set back, as people are told; and the token it had by the last answer."""

    text: str
    token: int


Noted = tuple[bytes, int, int, bytes | None]
"""A process's id and its mark in one tuple: a hundred thousand are made per second."""

_mark: Callable[[Process], Noted] = attrgetter("id", "token", "version", "owner")

GONE = Mark(-1, -1, None)
"""The mark of a process that was lost and reported: nothing of it is left to lose."""


class Lineage:
    """What one store object knows of its database; and the processes that were set back, each with the reason.

    ``place`` tells this database from every other one.

    ``limits`` says how many marks are kept, and for how long; up to twice of both are kept. They stand in the order in
    which they were made, since every answer adds to them and only a fail-over looks one up.
    """

    def __init__(self, machine: Computer, queries: Mapping[str, str]) -> None:
        self.set_back: dict[bytes, Regression] = {}
        self._found: Callable[[], object] = lambda: None
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

    def committed(self, commits: Sequence[Commit], answers: Sequence[CommitAnswer], *, removing: bool = False) -> None:
        """Take note of commits that were applied; ``removing`` says that some of them have removed their processes."""
        both = zip(commits, answers, strict=True)
        self._note([_mark(commit.after) for commit, answer in both if answer.verdict is APPLIED])
        if removing:  # no later look takes them for lost
            both = zip(commits, answers, strict=True)
            done = [commit for commit, answer in both if answer.verdict is APPLIED]
            self._note([(commit.after.id, *GONE) for commit in done if commit.removes is Removal.PROCESS])

    def claimed(self, processes: Iterable[Process]) -> None:
        """Take note of processes that were claimed."""
        self._note(map(_mark, processes))

    def _note(self, marks: Iterable[Noted]) -> None:
        """Add these marks, and drop the oldest."""
        self._marks += marks
        if len(self._marks) > limits.LINEAGE_RECORDS or self._machine.monotonic() > self._turn_at:
            self._older, self._marks = self._marks, []
            self._turn_at = self._machine.monotonic() + limits.LINEAGE_SECONDS

    # -- what is there -----------------------------------------------------------------------------------------------

    async def met(self, connection: Any) -> None:
        """Look at the server behind a new connection, before anything is written there; raises StoreRegressed.

        If we die here nobody compares what was answered to this store object alone.
        """
        known, known_line = self._known, self._line  # what was known before the server is asked
        found = await self._identity(connection)
        database, name, since = await connection.fetchrow(self._queries["line"])
        (self.place,) = await connection.fetchrow(self._queries["place"])
        line = (database, name)
        same_line = line in (known_line, self._line)
        if known is None:
            self.joined(since)
        elif not (found.follows(known) and same_line):
            if found.cluster == known.cluster and found.timeline < known.timeline:
                raise StoreRegressed(
                    f"this server is on timeline {found.timeline}, but timeline {known.timeline} of its database was "
                    "seen: it is an old primary. Stop that server, or start this program again if it is the right one."
                )
            if self._known is known:  # else another connection was met meanwhile, and has found it
                await self.set_behind(connection)
                self._known = found
                self.adopt(line)
            if found.cluster or not same_line or self.set_back:
                # A claim must wait first: so the request for which this connection was made fails, and is sent again.
                raise StoreRegressed("the database has failed over to another line; Perdure tries again by itself")
        latest = self._known
        if latest is None or (latest is known and self._line is known_line):
            self._known, self._line = found, line
        elif found[:2] != latest[:2] or line != self._line:
            raise StoreRegressed("another connection has met another line meanwhile; Perdure tries again by itself")

    @property
    def line(self) -> DatabaseLine | None:
        """The line that the database is on, as far as is known."""
        return self._line

    def beats(self, worker: bytes) -> int:
        """How many beats of this incarnation are surely stored; -1 if nothing is known of it."""
        return self._beats.get(worker, -1)

    def enlisted(self, worker: bytes, beats: int) -> None:
        """Take note that this incarnation is in the database, with so many beats."""
        self._beats = {worker: beats}

    def beaten(self, worker: bytes, beats: int | None, alive: bool, line: bytes | None) -> None:
        """Check the answer to a beat: the incarnation's number of beats, and the database's line; raises SetBehind.

        ``beats`` is None if the database does not know the incarnation: it was lost when the database was set back. An
        incarnation that has ended (not ``alive``) beats no more.
        """
        known = self._beats.get(worker)
        if known is not None and (beats is None or beats < known + alive):
            raise SetBehind
        if self._line is not None and line != self._line[1]:
            raise SetBehind
        if beats is not None:
            self._beats = {worker: beats}

    def adopt(self, line: DatabaseLine) -> None:
        """Go on with this line: what was set back is known."""
        self._line = line
        self._beats = {}

    async def set_behind(self, connection: Marks) -> None:
        """The database may have lost commits: find the processes that were set back; no claim until all are held."""
        self._calm.clear()
        self._calm_at = self._machine.monotonic() + limits.LINEAGE_GRACE_SECONDS
        await self._compare(connection)
        if not self.set_back:
            self._calm.set()
        else:
            self._found()

    def when_found(self, call: Callable[[], object]) -> None:
        """Call this whenever processes were found that were set back: they are to be held before their leases lapse."""
        self._found = call

    def joined(self, since: int) -> None:
        """At an opening, ``since`` microseconds after a store found the database set back: claims wait for the others.

        Without this, a worker that starts just then would claim a process that another worker is about to hold.
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
        """Find the processes whose rows are behind their marks, and keep them in ``set_back``."""
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
                text = "the database was set back and has lost it, although its start was answered; start it again"
                self.set_back[id] = Regression(text, mark.token)
            elif mark.ahead_of(stored[id]):
                text = (
                    f"it was set back, with the database, from version {mark.version} (token {mark.token}) to "
                    f"version {stored[id].version} (token {stored[id].token}); see what its steps have done since"
                )
                self.set_back[id] = Regression(text, mark.token)
        log.warning(
            "the database goes on from another state (a fail-over, or a restored backup): %d of the %d processes that "
            "this worker knows are behind or lost",
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

    def handled(self, process: bytes, regression: Regression, stored: Process | None) -> None:
        """A process that was set back is held now, or cannot go on by itself: ``stored`` is its row, None if gone.

        That row is its new mark: the next fail-over may lose the hold, too. One that was found set back once more,
        while it was being held, is not handled yet.
        """
        if self.set_back.get(process) is not regression:
            return
        del self.set_back[process]
        self._marks.append((process, *(GONE if stored is None else (stored.token, stored.version, stored.owner))))
        if not self.set_back:
            self._calm.set()

    @property
    def settles_for(self) -> float:
        """So many seconds claims still wait: a start that is sent again may yet bring back a lost process."""
        return max(self._calm_at - self._machine.monotonic(), 0.0)

    async def settled(self) -> None:
        """Before a claim: wait until all that was set back is held, and others have had the time to hold theirs."""
        while self._calm_at:
            await self._calm.wait()
            await asyncio.sleep(self._calm_at - self._machine.monotonic())
            if self._calm.is_set():
                self._calm_at = 0.0

    def check(self) -> None:
        """Raise StoreRegressed if another line was met after the claim had waited; called when the claim is sent.

        Another connection than the claim's may have met it.
        """
        if self._calm_at:
            raise StoreRegressed("the database has failed over; claims wait until what was set back is held")
