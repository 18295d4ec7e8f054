"""The monitor: after every transaction it reads what was touched and holds it against the laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from perdure.kernel.check import CHECKS, Record, detected, is_foreign
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.event import ANSWERS, Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import DELIVERED, Message, SendAnswer
from perdure.kernel.move import over_limit, unsound_move
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.queue import Queue
from perdure.kernel.soundness import unsound
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.queue import read
from perdure.store.sqlite.row import events, messages, processes
from perdure.testing.simulator.charge import Charges
from perdure.testing.simulator.failover import Loss, losses, over
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.log import Log
from perdure.testing.simulator.loop import SimLoop
from perdure.testing.simulator.machine import WallClock
from perdure.testing.simulator.server import Server
from perdure.testing.simulator.timekeeper import Timekeeper
from perdure.testing.simulator.violation import Violation

_LAST = (1 << 63) - 1


class Known(Struct):
    """What the last transaction left of one process: the row and the events of its run."""

    process: Process
    events: list[Event]


class LookingLaw(Protocol):
    """A law that looks at all rows now and then."""

    def look(self, mark: int) -> None:
        """A transaction has been made; ``mark`` is the store's time."""


class StandingLaw(Protocol):
    """A law with a memory of its own, told of each transaction."""

    def touched(self, life: Life, was: Process | None, now: Process, mark: int, *, worker: bool) -> None:
        """A transaction of a life has changed a row; ``mark`` is the store's time."""

    def look(self, mark: int) -> None:
        """A transaction has been made."""

    def waits(self, life: Life, seconds: float) -> None:
        """A life is about to claim, but not before so many seconds have gone by."""


class Monitor:
    """Holds every process as the last transaction left it. A broken law ends the history at that transaction.

    ``leases`` says until when each owner that a process ever had was given it, by the store's clock. ``noted`` is
    called with every event as it is appended, ``wrote`` with the door of every transaction, ``took`` with the life and
    the row of every process that a worker has taken.
    """

    def __init__(self, loop: SimLoop, server: Server, wall: WallClock, log: Log) -> None:
        self.loop = loop
        self.wall = wall
        self.server = server
        self.log = log
        self.known: dict[bytes, Known] = {}
        self.transactions = 0
        self.moves = 0
        self.moved_at = 0.0
        self.events: Counter[str] = Counter()
        self.lost: dict[bytes, Loss] = {}
        self.stillness: StandingLaw | None = None
        self.movers: LookingLaw | None = None
        self.leases: dict[bytes, dict[bytes, int]] = {}
        self.strange: set[bytes] = set()
        self._taken_over: dict[bytes, tuple[int, int]] = {}
        """By process: its token and version when a worker last took it over, perhaps the one that had it."""
        self._removed: set[bytes] = set()
        self._set_back = False
        self.noted: Callable[[Process, Event], None] = lambda process, event: None
        self.wrote: Callable[[str], None] = lambda door: None
        self.took: Callable[[Life, Process], None] = lambda life, process: None
        self._charges = Charges()
        self._timekeeper = Timekeeper(wall)

    def written(self, life: Life, door: str) -> None:
        """A piece of work has written something."""
        connection = self.server.connection
        assert connection is not None
        self.transactions += 1
        self.wrote(door)
        if door == "beat":
            try:
                self._timekeeper.beaten(self.loop.now, *connection.one("clock_mark"))
            except Violation as violation:
                self.loop.fail(violation)
        touched = connection.raw.execute("SELECT process, max(altered) FROM touched GROUP BY process").fetchall()
        if not touched:
            return
        connection.raw.execute("DELETE FROM touched")
        connection.raw.commit()
        mark: int = connection.one("clock_mark")[0]
        try:
            taken = [self._touched(connection, life, door, process, altered, mark) for process, altered in touched]
            self._taken(connection, [one for one in taken if one is not None], mark)
            if self.stillness is not None:
                self.stillness.look(mark)
            if self.movers is not None:
                self.movers.look(mark)
        except Violation as violation:
            self.loop.fail(violation)

    def _touched(
        self, connection: Connection, life: Life, door: str, id: bytes, altered: int, mark: int
    ) -> tuple[Process, bool] | None:
        """Check one process; if a worker has taken it the answer is the row, and whether it was taken over."""
        before = self.known.get(id)
        process = _row(connection, id)
        if process is None:
            self.known.pop(id, None)
            self._removed.add(id)
            self.log.change(life, door, None if before is None else before.process, None, ())
            return None
        if altered:
            raise self.violation("history_is_gapless", process, "an event that stood in its history was altered")
        same = before is not None and before.process.run == process.run and id not in self.strange
        kept = before.events if before is not None and same else []
        read = _events(connection, process, len(kept))
        events, fresh = (kept + read if read else kept), ([] if id in self.strange else read)
        was = None if before is None else before.process
        self.known[id] = Known(process, events)
        self.log.change(life, door, was, process, fresh)
        for event in fresh:
            self.events[event.type.name.lower()] += 1
            self.noted(process, event)
        if fresh or was is None or was.inbox < process.inbox:
            self.loop.gone_on()
        if was is None or was.version != process.version or fresh:
            self.moves, self.moved_at = self.moves + 1, self.loop.now
        self._timekeeper.written(process, mark)
        taken = process.owner is not None and (was is None or was.owner != process.owner)
        worker = _worker(connection, process.owner) if taken else None
        if self.stillness is not None:
            self.stillness.touched(life, was, process, mark, worker=worker is not None)
        now = self._timekeeper.latest(self.loop.now, mark)  # a turn carries its time over a jump back
        if id not in self.strange:
            self._check(was, self.known[id], fresh, now)
            self._tells_all(was, process, kept[-1:], fresh)
        if id in self.lost:
            if door == "claim" and self.lost[id].silent(was, process, self.server.session_of(life)):
                raise self.violation("set_back_is_held", process, "a fail-over set it back, and it was simply taken up")
            if over(process):
                del self.lost[id]
        if process.owner is None:
            return None
        self._owned(was, process, process.owner, worker=worker is not None)
        if worker is None:
            return None  # a command that takes a row for a moment is no worker
        if worker[0] is not None:
            raise self.violation("one_owner", process, "it was taken by an incarnation that has ended")
        self.took(life, process)
        return process, was is not None and was.owner is not None

    def _owned(self, was: Process | None, process: Process, owner: bytes, *, worker: bool) -> None:
        """Note until when an owner has the process, and whether a worker has taken it over."""
        if was is not None and was.owner is not None and was.token != process.token and (worker or was.owner == owner):
            self._taken_over[process.id] = process.token, process.version
        if process.due_at is not None:
            self.leases.setdefault(process.id, {})[owner] = process.due_at

    def _tells_all(self, was: Process | None, process: Process, last: Sequence[Event], fresh: Sequence[Event]) -> None:
        """What was parked when it had been taken over says so; and the times of a history do not run back.

        A sweep, and a command to a process that nobody has, do not read the history: they may not have heard yet of a
        jump of the clock of which the worker before them had.
        """
        types = {event.type for event in fresh}
        if was is not None and process.status is Status.BROKEN and was.status is not Status.BROKEN:
            over_taken = self._taken_over.get(process.id) == (was.token, was.version)
            if over_taken and EventType.REVIVED not in types:
                raise self.violation("a_takeover_is_told", process, "it was taken over and parked, and has no revival")
        if EventType.RUN_OPENED in types:
            return  # what the run before it has left keeps its time
        for sooner, later in pairwise((*last, *fresh)):
            by_owner = was is not None and was.owner is not None and later.token == sooner.token
            has_read_it = by_owner or process.owner is not None
            if has_read_it and later.at < sooner.at:
                text = f"event {later.number} ({later.type.name.lower()}) is {sooner.at - later.at} us before the last"
                raise self.violation("history_runs_forward", process, text)

    def _check(self, was: Process | None, known: Known, fresh: Sequence[Event], now: int) -> None:
        """Hold one process, with its ``fresh`` events, against the laws of a row and its history."""
        process = known.process
        if process.status is Status.BROKEN and Failure.shown(process.error or b"{}").type == "DamagedRecord":
            raise self.violation("what_is_whole_goes_on", process, f"nobody has damaged it: {process.error!r:.500}")
        connection = self.server.connection
        assert connection is not None
        inbox = _messages(connection, process.id) if process.inbox else ()
        for finding in unsound(process, known.events, inbox, now) + unsound_move(was, process, fresh, now):
            raise self.violation(finding.law, process, finding.text)

    def _taken(self, connection: Connection, taken: Sequence[tuple[Process, bool]], now: int) -> None:
        """These were taken, or taken over: if they are tasks, their queues keep their limits."""
        fresh: dict[str, list[Process]] = {}
        for process, over_taken in taken:
            if process.kind.startswith(QUEUE_MARK):
                fresh.setdefault(process.kind, []).extend(() if over_taken else (process,))
        if not fresh:
            return
        for queue in read(connection, Queue):
            kind = QUEUE_MARK + queue.name
            if kind in fresh:
                owned = (known.process for known in self.known.values())
                running = [process for process in owned if process.kind == kind and process.owner is not None]
                for text in over_limit(queue, running, now, lapsed=not fresh[kind]):
                    raise Violation("limits_are_kept", f"queue {queue.name}: {text}")
                for text in self._charges.taken(queue, fresh[kind], now):
                    raise Violation("limits_are_kept", f"queue {queue.name}: {text}")

    def answered_starts(self, starts: Sequence[Start], answers: Sequence[StartAnswer]) -> None:
        """A store was answered: what was created is there, and no start that has the key itself is told of another."""
        for start, answer in zip(starts, answers, strict=True):
            if answer.verdict is StartVerdict.CREATED:
                self._there(
                    start.process, start.process.id in self.known, "it was answered as created, and is not there"
                )
            elif answer.id == start.process.id and answer.verdict in (StartVerdict.EXISTS, StartVerdict.CONFLICT):
                text = f"its own start was answered {answer.verdict}, as if it were another one"
                self.loop.fail(self.violation("answers_are_true", start.process, text))

    def answered_commits(self, commits: Sequence[Commit], answers: Sequence[CommitAnswer]) -> None:
        """A store was answered: a commit is written down if it was applied, and not if it was refused (rule 5)."""
        for commit, answer in zip(commits, answers, strict=True):
            after, known = commit.after, self.known.get(commit.after.id)
            if known is None or known.process.run != after.run or not commit.events:
                continue
            first = replace(commit.events[0], token=after.token, version=after.version)
            text = f"the commit with its event {first.number} was answered: {answer.verdict}"
            if answer.verdict is Verdict.APPLIED:
                self._there(known.process, first in known.events, f"{text}, and is not there")
            elif answer.verdict is Verdict.REFUSED and first in known.events:
                self.loop.fail(self.violation("answers_are_true", known.process, f"{text}, and is there"))

    def answered_sends(self, sent: Sequence[Message], answers: Sequence[SendAnswer]) -> None:
        """A store was answered: what was delivered lies in the inbox, or was heard, and may have been pruned."""
        connection = self.server.connection
        for message, answer in zip(sent, answers, strict=True):
            known = self.known.get(answer.process)
            if answer.verdict is not DELIVERED or known is None or connection is None:
                continue
            query = "SELECT 1 FROM message WHERE process = ? AND id = ?"
            found = connection.raw.execute(query, (answer.process, message.id)).fetchone()
            found = found or known.process.seen >= answer.number
            self._there(known.process, found, f"message {answer.number} was answered as delivered, and is not there")

    def _there(self, process: Process, holds: object, text: str) -> None:
        """What was answered to be written is there, unless it was removed, altered or set back since."""
        if not holds and not self._set_back and process.id not in self._removed | self.strange:
            self.loop.fail(self.violation("answers_are_true", process, text))

    def violation(self, law: str, process: Process, text: str) -> Violation:
        """A broken law, with the name that the process has in this history."""
        return Violation(law, f"{self.log.called(process)} ({id_text(process.id)}): {text}")

    def damaged(self, id: bytes) -> None:
        """This process was altered by hand: the laws look no more at its history, but still at whether it moves."""
        connection = self.server.connection
        process = None if connection is None else _row(connection, id)
        if connection is not None and process is not None:
            self.strange.add(id)
            self.known[id] = Known(process, _events(connection, process, 0))

    def fell_back(self, line: int) -> list[Loss]:
        """The server goes on without its last commits: read all rows again; what was set back, and who knew."""
        connection = self.server.connection
        assert connection is not None
        before = {id: known.process for id, known in self.known.items()}
        self._timekeeper.anew()
        self._set_back = True
        self.known = {}
        for (id,) in connection.raw.execute("SELECT id FROM process ORDER BY id").fetchall():
            process = _row(connection, id)
            assert process is not None
            self.known[id] = Known(process, _events(connection, process, 0))
        there = {id: known.process for id, known in self.known.items()}
        found = losses(line, list(before.values()), there, self.server.stores)
        self.lost |= found
        self.moved_at = self.loop.now
        for loss in found.values():
            told = loss.told(there.get(loss.process.id))
            self.log.note("world", f"{self.log.called(loss.process)} {told}")
        return list(found.values())

    # -- the end -----------------------------------------------------------------------------------------------------

    def rows(self) -> list[Process]:
        """Every process as it is now, in the order of their ids."""
        return [self.known[id].process for id in sorted(self.known)]

    def end(self) -> None:
        """When all rests: everything is read once more, the database checks itself, and the checks find nothing."""
        connection = self.server.connection
        if connection is None:
            return
        (said,) = connection.raw.execute("PRAGMA integrity_check").fetchone()
        if said != "ok":
            raise Violation("database_is_whole", said)
        (stored,) = connection.raw.execute("SELECT count(*) FROM process").fetchone()
        if stored != len(self.known):
            raise Violation("accepted_is_kept", f"{len(self.known)} processes were stored, {stored} are there")
        now = self._timekeeper.latest(self.loop.now, connection.one("clock_mark")[0])
        kin = {id: known.process for id, known in self.known.items()}
        workers = frozenset(id for (id,) in connection.raw.execute("SELECT id FROM worker").fetchall())
        for id in sorted(self.known):
            process = _row(connection, id)
            if process != self.known[id].process:
                raise self.violation("one_transaction", self.known[id].process, "its row differs from what was read")
            assert process is not None
            if id in self.strange:
                continue
            for run in range(1, process.run + 1):
                events = _events(connection, process, 0, run)
                pruned = run < process.run - 1 and all(event.type in ANSWERS for event in events)
                if not pruned and [event.number for event in events] != list(range(1, len(events) + 1)):
                    raise self.violation("history_is_gapless", process, f"run {run} has gaps")
            run_of_now, inbox = _events(connection, process, 0), _messages(connection, id)
            for finding in unsound(process, run_of_now, inbox, now):
                raise self.violation(finding.law, process, finding.text)
            if not is_foreign(process, run_of_now, inbox):
                record = Record(process, tuple(run_of_now), tuple(inbox), now, kin, workers)
                for finding in detected(CHECKS, record):
                    raise self.violation(finding.law, process, finding.text)


def _row(connection: Connection, id: bytes) -> Process | None:
    cells: list[Any] = [0, id]
    rows = [row for packed in connection.ask("read_processes", 2, cells) for row in processes(packed)]
    return rows[0] if rows else None


def _worker(connection: Connection, id: bytes | None) -> tuple[int | None] | None:
    """When this incarnation has ended; None if it is no worker."""
    found: tuple[int | None] | None = connection.raw.execute(
        "SELECT ended_at FROM worker WHERE id = ?", (id,)
    ).fetchone()
    return found


def _events(connection: Connection, process: Process, after: int, run: int | None = None) -> list[Event]:
    packed = connection.one("read_history", process=process.id, run=run or process.run, start=after, most=_LAST)
    return [event for _, event in events(packed)]


def _messages(connection: Connection, id: bytes) -> Sequence[Message]:
    cells: list[Any] = [id, 0]
    packed = connection.ask("read_messages_above", 2, cells)
    return [message for part in packed for message in messages(part)]
