"""Crowds behind which something is stuck, and pages of a few rows, in every weather: sweeps must come past them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from perdure import limits, step, workflow
from perdure.clock import SECOND
from perdure.kernel.commit import Start
from perdure.kernel.process import Process, Status
from perdure.store.base import Search
from perdure.testing.simulator import Cluster

LINGERS_SECONDS = 110.0
"""Longer than anything here waits for it, and shorter than the two minutes in which something must move."""
DEADLINE_SECONDS = 3.0
SOON_SECONDS = 60.0
TOLD_SECONDS = 180.0
OVERDUE = "due for over a minute"
"""What sweeps say. When a worker begins it tells of all that nobody hosts, however many there are."""


@step(queue="bank", timeout=2 * LINGERS_SECONDS)
async def linger() -> None:
    """Be at work for long after one's time is over, which this step may."""
    await asyncio.sleep(LINGERS_SECONDS)


@workflow
async def lingering() -> None:
    await linger.options(total=1.0, total_force=False)()


class Heard(logging.Handler):
    """What supervisors have reported."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


@contextmanager
def small_pages(rows: int) -> Iterator[Heard]:
    """Have sweeps read so few rows at once; the answer hears what they report."""
    heard, log, before = Heard(), logging.getLogger("perdure"), limits.SWEEP_ROWS
    log.addHandler(heard)
    limits.SWEEP_ROWS = rows
    try:
        yield heard
    finally:
        limits.SWEEP_ROWS = before
        log.removeHandler(heard)


async def crowds(cluster: Cluster) -> None:
    """Tasks that may end late before a process over its deadline, and many that nobody hosts before a single one."""
    with small_pages(cluster.pick((2, 1, 3))) as heard:
        for _ in range(cluster.pick((6, 4, 9))):
            await cluster.client.start(lingering)
        await asyncio.sleep(2 * DEADLINE_SECONDS)
        overdue = await strangers(cluster, "overdue", 1, DEADLINE_SECONDS)
        left = await strangers(cluster, "loud", cluster.pick((5, 8)))
        await asyncio.sleep(1)
        left += await strangers(cluster, "small", 1)
        await asyncio.sleep(cluster.pick((0.0, 20.0)))
        cluster.heal()
        await passed(cluster, SOON_SECONDS)
        [row] = await cluster.client.store.search(Search(ids=tuple(overdue)))
        cluster.require("deadlines_are_kept", row.status is Status.FAILED, "a crowd hides who is over its deadline")
        await passed(cluster, TOLD_SECONDS - SOON_SECONDS)
        told = [text for text in heard.told if "'small'" in text and OVERDUE in text]
        cluster.require("what_nobody_hosts_is_told", told, "a crowd of one kind hides another kind")
        for id in left:
            await cluster.client.process(id).terminate(who="Ann", why="nobody will ever host it")


async def passed(cluster: Cluster, seconds: float) -> None:
    """Wait for so long, by the store's clock, which may stand still after it was set back."""
    end = await cluster.client.store.now() + round(seconds * SECOND)
    while await cluster.client.store.now() < end:
        await asyncio.sleep(1)


async def strangers(cluster: Cluster, kind: str, number: int, seconds: float | None = None) -> list[bytes]:
    """Start processes of a kind that no worker hosts, perhaps with a deadline so many seconds ahead."""
    engine = cluster.client
    deadline = None if seconds is None else await engine.store.now() + round(seconds * SECOND)
    rows = [Process(engine.machine.new_id(), kind, None, b"[]", deadline=deadline) for _ in range(number)]
    await engine.store.start([Start(row) for row in rows])
    return [row.id for row in rows]
