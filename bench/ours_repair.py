"""W22 of our own driver: a hundred thousand payments that a bank's outage has failed, found and mended together."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from bench.driver import Stopwatch, Task, ready, spread
from perdure import Engine, Permanent, ProcessFailed, step, workflow

FAILED = "kind = payment and status = failed"
WHERE = f"{FAILED} and error = Permanent"
BETWEEN_STARTS_SECONDS = 0.002
down = False


@step
async def reserve(order: str) -> str:
    """Do what succeeds."""
    return order


@step
async def charge(order: str) -> str:
    """Ask the bank, which may be down."""
    if down:
        raise Permanent(f"the bank has refused order '{order}'")
    return order


@workflow
async def payment(order: str) -> str:
    """Two steps, of which the second one fails."""
    return await charge(await reserve(order))


@workflow
async def intake(order: str) -> str:
    """Is started while an operation is under way; no worker hosts it."""
    return order


async def seed(task: Task) -> dict[str, Any]:
    """One payment that has failed, to be cloned."""
    global down
    down = True
    async with Engine(task.url, work=True, workflows=[payment], migrate=True) as door:
        handle = await door.start(payment, "A-17")
        try:
            await handle.result()
        except ProcessFailed:
            return {"failed": handle.id}
    raise AssertionError("the payment has not failed")


async def look(task: Task) -> dict[str, Any]:
    """Find them, count them by cause, and try the command."""
    async with Engine(task.url) as door:
        watch = Stopwatch()
        assert await door.count(where=WHERE) == {"payment": {"failed": task.n}}
        answer = {"found_per_s": watch.rate(task.n, "rows")["rows_per_s"]}
        watch = Stopwatch()
        [group] = await door.failures()
        assert group.count == task.n
        answer["grouped_per_s"] = watch.rate(task.n, "rows")["rows_per_s"]
        watch = Stopwatch()
        assert (await door.operations.preview("retry", WHERE)).would == task.n
        told = watch.rate(task.n, "rows")
        return answer | {"tried_per_s": told["rows_per_s"], "tried_cpu_ms": told["cpu_ms_each"]}


async def operate(task: Task) -> dict[str, Any]:
    """Command all of them, as the worker that carries the operation out; ``task.old`` is one that was left half done.

    ``task.variant`` is the command.
    """
    where = WHERE if task.variant == "retry" else "kind = payment"
    async with Engine(task.url, work=True, workflows=[]) as door:
        ready()
        watch = Stopwatch()
        if task.old:
            operation = door.operations.handle(task.old)
        else:
            operation = await door.operations.start(task.variant, where, watch=0, who="bench", why="the bank is back")
        outcome = await operation.result()
        answer = watch.rate(task.n, "commands")
        return answer | {"done": outcome.done, "left_out": sum(outcome.left_out.values())}


async def half(task: Task) -> dict[str, Any]:
    """Wait until the newest operation is half done; its id."""
    async with Engine(task.url) as door:
        while True:
            [(id, status), *_] = await door.operations.list(1) or [("", None)]
            if status is not None and status.phase == "running" and status.done >= task.n // 2:
                return {"id": id, "done": status.done}
            await asyncio.sleep(0.01)


async def starts(task: Task) -> dict[str, Any]:
    """Start processes one after another, as long as a file is there or for some seconds; how long each took."""
    file, took = Path(task.scratch) / "under way", list[float]()
    async with Engine(task.url) as door:
        await door.start(intake, "first")
        end = time.perf_counter() + task.lead
        while file.exists() if task.lead == 0 else time.perf_counter() < end:
            begun = time.perf_counter()
            await door.start(intake, "A-17")
            took.append(time.perf_counter() - begun)
            await asyncio.sleep(BETWEEN_STARTS_SECONDS)
    return spread(took)


async def verify(task: Task) -> dict[str, Any]:
    """Run them, and count those that have moved past the break in the one run that was opened for them."""
    async with Engine(task.url, work=True, workflows=[payment]) as host:
        watch = Stopwatch()
        while (await host.count(where="kind = payment and status = running")).get("payment"):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        answer = {"repaired_per_s": watch.rate(task.n, "rows")["rows_per_s"]}
        found = await host.count(where="kind = payment and status = completed and run = 2")
        return answer | {"verified": found["payment"]["completed"]}
