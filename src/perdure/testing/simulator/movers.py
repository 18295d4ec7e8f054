"""The law that every unfinished process has a next mover, and that what is said of it is true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perdure.kernel.child import is_task
from perdure.kernel.diagnosis import Mover, NextMover, Workers, awaited_signals, next_mover
from perdure.kernel.hosting import hosting, lives
from perdure.kernel.process import Process, Status
from perdure.store.sqlite.upkeep import workers
from perdure.testing.simulator.violation import Violation

if TYPE_CHECKING:
    from perdure.testing.simulator.cluster import Cluster

LAW = "somebody_moves_it"
LOOK_SECONDS = 2.0


class Movers:
    """Asks now and then who moves each process next, and holds the answer against the rows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looked = 0.0

    def look(self, mark: int) -> None:
        """A transaction has been made: now and then, ask of every unfinished process; ``mark`` is the store's time."""
        time = self._cluster.loop.now
        if time - self._looked >= LOOK_SECONDS:
            self._looked = time
            self.ask(mark)

    def ask(self, mark: int) -> None:
        """Ask who moves each unfinished process next; raises Violation if nobody does, or if that is not true."""
        connection = self._cluster.server.connection
        if connection is None:
            return
        monitor = self._cluster.monitor
        known: Workers = {worker.id: worker for worker in workers(connection, ended=True)}
        rows = monitor.rows()
        parents = {row.parent for row in rows if not row.final}
        for row in rows:
            if row.final or row.id in monitor.strange or not isinstance(row.status, Status):
                continue
            mover = next_mover(row, mark, known)
            for text in untrue(row, mover, mark, known, has_child=row.id in parents or bool(monitor.lost)):
                violation: Violation = monitor.violation(LAW, row, f"{mover.who}: {mover.text}; but {text}")
                self._cluster.loop.fail(violation)


def untrue(row: Process, mover: Mover, now: int, workers: Workers, *, has_child: bool) -> Iterator[str]:
    """What is wrong with this answer of an unfinished process."""
    owner = workers.get(row.owner or b"")
    match mover.who:
        case NextMover.NOBODY:
            yield "it has not ended"
        case NextMover.PERSON if row.status is Status.RUNNING and not (row.reminder or is_task(row.kind)):
            yield "it runs, and no person is asked for anything"
        case NextMover.TIMER | NextMover.SCHEDULE if (
            mover.until != row.due_at or row.reminder or (mover.until or 0) <= now
        ):
            yield f"no time is due then: it is due at {row.due_at}, and it is {now}"
        case NextMover.MESSAGE if not awaited_signals(row) or row.inbox > row.seen or row.owner is not None:
            yield f"it awaits {row.awaiting}, and has heard {row.seen} of {row.inbox} messages"
        case NextMover.CHILD | NextMover.STEP if not has_child:
            yield "no child and no queued step of it is unfinished"
        case NextMover.PLACE if row.owner is not None or row.reminder or (row.due_at or 0) > now:
            yield "it is not due, or a worker holds it"
        case NextMover.WORKER if "holds it" in mover.text and owner is not None and not lives(owner, now):
            yield "that worker does not live"
        case NextMover.WORKER if (
            "no live worker" in mover.text and hosting(row.kind, row.code, workers.values(), now).alive
        ):
            yield "there is one"
        case NextMover.WORKER if row.owner is None and (row.reminder or (row.due_at or now) > now):
            yield "it is not due"
    if mover.since > max(now, row.changed_at, row.due_at or 0):
        yield "it waits since a time that has not come"
