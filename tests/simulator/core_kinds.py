"""Parcels of a kind with limits: who is admitted and who waits, while people change the limits, in every weather."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from perdure import Limits, continue_as_new, limits, receive, step, workflow
from perdure.client.kinds import DECLARED
from perdure.kernel.kind import KIND_MARK
from perdure.kernel.process import FINAL, Process
from perdure.kernel.queue import Queue
from perdure.store.sqlite.queue import read
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.violation import Violation
from tests.simulator.misfortune import result_of

KIND = "parcel"
BACK_SECONDS = 400.0
"""So long after the storm every parcel is out: the slowest limits let one begin in five seconds."""
LOWER = (
    Limits(running=1),
    Limits(running=2, starts=2, per=10),
    Limits(starts=1, per=5),
    Limits(running=1, starts=4, per=10),
)
"""What a person may set while parcels are under way, each lower than what is declared."""


@step(timeout=20)
async def pack(number: int) -> int:
    await asyncio.sleep(0.3)
    return number


@workflow(name=KIND, limits=Limits(running=3, starts=4, per=6))
async def parcel(number: int, rounds: int, signed: bool) -> int:
    """It has its place while a step runs, it sleeps, it waits for a signature, and when it goes on as new."""
    packed = await pack(number)
    await asyncio.sleep(1)
    if signed:
        packed = await receive("signature", int)
    if rounds:
        continue_as_new(number, rounds - 1, False)
    return packed


class Hall:
    """What the world knows of the kind: which parcels a worker has taken, and when each was taken first."""

    cluster: ClassVar[Cluster]
    begun: ClassVar[dict[bytes, int]] = {}
    since: ClassVar[int] = 0
    """From then on, by the store's clock, starts are counted: what began under another rate does not count for sure."""
    seen: ClassVar[Queue] = Queue(KIND_MARK + KIND)
    """The limits when a parcel was taken last."""
    changed_by_a_person: ClassVar[bool] = False

    @classmethod
    def opens(cls, cluster: Cluster) -> None:
        """A new history: whatever a worker takes is looked at from now on."""
        cls.cluster, cls.begun, cls.since, cls.changed_by_a_person = cluster, {}, 0, False
        cls.seen = Queue(KIND_MARK + KIND)
        cluster.monitor.took = cls.took

    @classmethod
    def took(cls, _life: Life, process: Process) -> None:
        """A worker has taken a parcel: if for the first time, there was room for it, and its turn had come."""
        if process.kind != KIND or process.id in cls.begun:
            return
        now = cls._now()
        cls.begun[process.id] = now
        before, row = cls.seen, cls.row()
        cls.seen = row
        if before.rate is None or before.per != row.per:
            cls.since = now
        stands = row.origin != DECLARED or not cls.changed_by_a_person
        cls._require("what_people_set_stands", stands, "its workflow has set others")
        if row.concurrency is not None:
            running = sum(cls._runs(id) for id in cls.begun)
            fits = running <= row.concurrency
            cls._require("limits_are_kept", fits, f"{running} run, of {row.concurrency} that may")
        if row.rate is not None:
            started = sum(at > max(now - row.per, cls.since - 1) for at in cls.begun.values())
            fits = started <= row.rate
            cls._require("limits_are_kept", fits, f"{started} began within {row.per} microseconds, of {row.rate}")
        if row.concurrency is not None or row.rate is not None:
            cls._in_turn(process, now)

    @classmethod
    def row(cls) -> Queue:
        """The limits of the kind as they stand in the store."""
        connection = cls.cluster.server.connection
        assert connection is not None
        return next((row for row in read(connection, Queue) if row.name == KIND_MARK + KIND), Queue(KIND_MARK + KIND))

    @classmethod
    def _in_turn(cls, process: Process, now: int) -> None:
        """Nobody has waited who was more urgent, or as urgent and started earlier."""
        connection = cls.cluster.server.connection
        assert connection is not None
        (passed,) = connection.raw.execute(
            "SELECT count(*) FROM process WHERE kind = ? AND opened_at IS NULL AND status = 1 AND owner IS NULL"
            " AND reminder = 0 AND deaths < ? AND due_at <= ? AND (priority, created_at) < (?, ?)",
            (KIND, limits.SUSPECT_DEATHS, now, process.priority, process.created_at),
        ).fetchone()
        cls._require("kinds_keep_their_order", not passed, f"{passed} more urgent ones wait behind it")

    @classmethod
    def _now(cls) -> int:
        connection = cls.cluster.server.connection
        assert connection is not None
        now: int = connection.one("clock_mark")[0]
        return now

    @classmethod
    def _runs(cls, id: bytes) -> bool:
        known = cls.cluster.monitor.known.get(id)
        return known is not None and known.process.status not in FINAL

    @classmethod
    def _require(cls, law: str, holds: object, text: str) -> None:
        if not holds:
            raise Violation(law, f"kind {KIND}: {text}")


async def parcels(cluster: Cluster) -> None:
    """Parcels come at once and later, some of them urgent; a person lowers the limits, lifts them, sets them again."""
    Hall.opens(cluster)
    count, handles = cluster.pick((8, 5, 14)), []
    for number in range(count):
        signed, rounds = cluster.chance(0.4), cluster.pick((0, 0, 1, 2))
        given = parcel.options(priority=cluster.pick((5, 5, 2, 8)))
        handles.append(await cluster.client.start(given, number, rounds, signed))
        if signed:
            await handles[-1].signal("signature", number)  # this wakes it, and gives it no place
        await asyncio.sleep(cluster.pick((0.0, 0.0, 0.5)))
    for _ in range(cluster.pick((1, 0, 2))):
        await asyncio.sleep(cluster.pick((2, 0.5, 5)))
        if cluster.chance(0.25):
            await cluster.client.kinds.unlimit(KIND, who="anna", why="the hall is large")
        else:
            await cluster.client.kinds.limit(KIND, cluster.pick(LOWER), who="anna", why="the hall is small")
        Hall.changed_by_a_person = True
    cluster.heal()
    try:
        async with asyncio.timeout(BACK_SECONDS):
            for number, handle in enumerate(handles):
                packed = await result_of(cluster, handle)
                cluster.require("the_value_is_exact", packed == number, f"parcel {number} is {packed}")
    except TimeoutError:
        left = [row.awaiting for row in cluster.rows() if row.status not in FINAL]
        cluster.require("everything_ends", False, f"{len(left)} parcels are not out after {BACK_SECONDS:g} s: {left}")
    [view] = await cluster.client.kinds.list()
    cluster.require("limits_are_kept", not (view.admitted or view.waiting), f"all have ended, and people see {view}")
