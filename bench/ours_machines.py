"""W20 and W21 of our own driver: calls to machines, and schedules that are all due at one instant."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from bench.driver import Stopwatch, Task, spread
from perdure import Engine, Handle, Schedule, machine, workflow
from perdure.authoring.schedule import definition

MACHINES = 1_000
BEHIND = 10  # so many calls has the young one behind it
PROBES = 200
TOGETHER = 200  # schedules that are put at a time
LEAD_SECONDS = 2.0
PUT_PER_SECOND = 400  # so slow a machine still puts them all before they are due


class Meter(machine.Machine):
    """It counts."""

    count: int = 0

    @machine.init
    def made(self) -> None:
        """Begin with nothing."""

    @machine.call
    def add(self, amount: int) -> int:
        """Count, and tell the sum."""
        self.count += amount
        return self.count


async def seed(task: Task) -> dict[str, Any]:
    """One machine with so many real calls behind it, to be made an old one of for W20."""
    async with Engine(task.url, work=True, migrate=True) as door:
        one = await door.start(Meter.made)
        await _flood([one] * MACHINES, task.n)
    async with Engine(task.url) as door:  # the row as it is when the worker has let go of it
        row = await door.row(one.id)
        return {"id": one.id, "runs": row.run, "calls": row.inbox}


async def calls(task: Task) -> dict[str, Any]:
    """W20: calls to one machine, to 1,000, and one at a time to a young and to an old one."""
    async with Engine(task.url, work=True, migrate=True) as door:
        machines = min(MACHINES, task.n)
        meters = list(await asyncio.gather(*(door.start(Meter.made) for _ in range(machines))))
        await _flood(meters, machines)
        watch = Stopwatch()
        await _flood(meters, task.n)
        answer = watch.rate(task.n, "calls")
        one = await door.start(Meter.made)
        watch = Stopwatch()
        await _flood([one] * machines, task.n // 4)
        answer["one_per_s"] = watch.rate(task.n // 4, "calls")["calls_per_s"]
        old, young = door.process(task.old), await door.start(Meter.made)
        answer["behind"] = (await door.row(task.old)).inbox
        begun = time.perf_counter()
        await old.call(Meter.add, 1)
        answer["first_ms"] = (time.perf_counter() - begun) * 1000
        await _flood([young, old], 2 * BEHIND)
        await asyncio.sleep(1.0)
        probes = min(PROBES, task.n)
        answer |= spread(await _probe(young, probes))
        answer["ratio"] = median(await _probe(old, probes)) / median(await _probe(young, probes))
        return answer


async def calls_together(task: Task) -> dict[str, Any]:
    """W17: one of the engines that begin at one instant, with machines of its own, each called by one caller."""
    async with Engine(task.url, work=True) as door:
        machines = list(await asyncio.gather(*(door.start(Meter.made) for _ in range(task.in_flight))))
        await _flood(machines, task.in_flight)
        await asyncio.sleep(max(0.0, task.begin - time.time()))
        before = time.process_time()
        await _flood(machines, task.n)
        return {"cpu_s": time.process_time() - before, "ended": time.time()}


async def one_call(task: Task) -> dict[str, Any]:
    """W23: calls to one machine in memory, one after the other."""
    async with Engine(task.url, work=True, migrate=True) as door:
        meter = await door.start(Meter.made)
        await _flood([meter], BEHIND)
        return spread(await _probe(meter, task.n))


async def _flood(meters: list[Handle[Any]], n: int) -> None:
    """Call so often, each machine one call at a time."""
    left = iter(range(n))

    async def one(meter: Handle[Any]) -> None:
        for _ in left:
            await meter.call(Meter.add, 1)

    await asyncio.gather(*map(one, meters))


async def _probe(meter: Handle[Any], times: int) -> list[float]:
    took: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        await meter.call(Meter.add, 1)
        took.append(time.perf_counter() - begun)
        await asyncio.sleep(0.002)
    return took


began: list[float] = []  # when the processes of W21 began


@workflow
async def chimes(scheduled_at: datetime | None = None) -> None:
    """Say when."""
    began.append(time.time())


async def schedules(task: Task) -> dict[str, Any]:
    """W21: so many schedules are due at one instant; how fast their processes are started and have ended."""
    async with Engine(task.url, work=True, migrate=True) as door:
        watch = Stopwatch()
        lead = LEAD_SECONDS + task.n / PUT_PER_SECOND
        at = datetime.now(UTC) + timedelta(seconds=lead)
        for first in range(0, task.n, TOGETHER):
            names = range(first, min(first + TOGETHER, task.n))
            await asyncio.gather(*(door.schedules.put(f"chime {n}", Schedule(at=at), chimes) for n in names))
        answer = {"put_per_s": watch.rate(task.n, "schedules")["schedules_per_s"]}
        due = definition.instant_of(at, "at") / 1e6
        answer["early"] = float(time.time() > due)  # the machine was too slow to put them all before
        await asyncio.sleep(max(0.0, due - time.time()))
        watch = Stopwatch()
        while len(began) < task.n:  # noqa: ASYNC110 - nobody tells how many there are
            await asyncio.sleep(0.05)
        return answer | watch.rate(task.n, "occurrences") | {"last_s": max(began) - due}
