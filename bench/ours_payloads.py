"""W16 of our own driver: steps that return 1 kB, 100 kB and 1 MB of text that does not compress well."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench import payload
from bench.driver import Stopwatch, Task, gaps, spread
from perdure import Engine, step, workflow

SIZES = {"small": 1_000, "middle": 100_000, "large": 1_000_000}
MORE_STEPS = {"small": 50, "middle": 5, "large": 1}
IN_FLIGHT = 32
STEPS_EACH = 5
WARM_STEPS = 3
ALONE = 4  # a fourth as many steps are run one after another on an idle system
moments: list[float] = []


@step
async def document(i: int, size: int) -> dict[str, Any]:
    """Return a text of so many bytes, and note when it was asked for."""
    moments.append(time.perf_counter())
    return {"step": i, "text": payload.text(size)}


@workflow
async def reader(size: int, steps: int) -> dict[str, Any]:
    """Ask for the texts one after another."""
    for i in range(steps):
        await document(i, size)
    return payload.outcome(steps)


async def payloads(task: Task) -> dict[str, Any]:
    """W16: for each size the steps a second, 32 processes in flight, then the time from step to step when idle."""
    answer: dict[str, Any] = {}
    async with Engine(task.url, work=True, migrate=True) as door:
        for name, size in SIZES.items():
            await (await door.start(reader, size, WARM_STEPS)).result()
            processes = max(1, task.n * MORE_STEPS[name] // STEPS_EACH)
            watch = Stopwatch()
            await _flood(door, size, processes)
            answer[f"{name}_per_s"] = watch.rate(processes * STEPS_EACH, "steps")["steps_per_s"]
            moments.clear()
            await (await door.start(reader, size, max(2, task.n // ALONE))).result()
            answer[f"{name}_ms"] = spread(gaps(moments))["p50_ms"]
    return answer


async def _flood(door: Engine, size: int, processes: int) -> None:
    left = iter(range(processes))

    async def one() -> None:
        for _ in left:
            await (await door.start(reader, size, STEPS_EACH)).result()

    await asyncio.gather(*(one() for _ in range(min(IN_FLIGHT, processes))))
