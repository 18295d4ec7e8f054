"""The driver of pgqueuer: bare jobs in PostgreSQL, without steps and without stored results."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.core.completion import CompletionWatcher
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench import payload
from bench.driver import Stopwatch, Task, lags, main, ready, spread

ENQUEUE_AT_ONCE = 500
BATCH = 100
PAYLOAD = json.dumps(payload.asked(1)).encode()
made = 0
wakes: list[float] = []


async def queries(task: Task) -> Queries:
    """The client, on a connection of its own; the durable schema is installed if it is not there."""
    one = Queries(AsyncpgDriver(await asyncpg.connect(task.url)))
    if not await one.schema_is_installed():
        await one.install()
    return one


async def start_worker(task: Task) -> asyncio.Task[None]:
    """A worker with batches of 100 jobs."""
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(task.url))

    @queue.entrypoint("order")
    async def order(job: Any) -> None:
        global made
        made += json.loads(job.payload)["steps"]

    @queue.entrypoint("sleeper")
    async def sleeper(_job: Any) -> None:
        global made
        wakes.append(time.time())
        made += 1

    return asyncio.create_task(queue.run(batch_size=BATCH))


async def last_logged(door: Queries) -> int:
    """The highest number in the log."""
    rows = await door.driver.fetch("SELECT coalesce(max(id), 0) AS n FROM pgqueuer_log")
    return int(rows[0]["n"])


async def until_finished(door: Queries, n: int, after: int = 0, local: bool = True) -> None:
    """Wait until so many jobs are logged as successful above a number of the log."""
    counted = "SELECT count(*) AS n FROM pgqueuer_log WHERE id > $1 AND status = 'successful'"
    while True:
        if made >= n or not local:
            rows = await door.driver.fetch(counted, after)
            if rows[0]["n"] >= n:
                return
        await asyncio.sleep(0.005 if local else 0.02)


async def enqueue(door: Queries, name: str, n: int) -> None:
    """Enqueue in arrays of 500."""
    for first in range(0, n, ENQUEUE_AT_ONCE):
        size = min(ENQUEUE_AT_ONCE, n - first)
        await door.enqueue([name] * size, [PAYLOAD] * size, [0] * size)


async def throughput(task: Task) -> dict[str, Any]:
    """W1: enqueue all while the worker runs; a job has no steps, so there is no W2."""
    global made
    door = await queries(task)
    await start_worker(task)
    await enqueue(door, "order", 1)
    await until_finished(door, 1, after=await last_logged(door) - 1)
    made, after = 0, await last_logged(door)
    watch = Stopwatch()
    await enqueue(door, "order", task.n)
    await until_finished(door, task.n, after)
    return watch.rate(task.n, "processes")


async def latency(task: Task, n: int) -> list[float]:
    """Enqueue to completion as its own watcher tells it, one after another."""
    door = await queries(task)
    driver = AsyncpgDriver(await asyncpg.connect(task.url))
    times: list[float] = []
    async with CompletionWatcher(driver, queries=Queries(driver), debounce=timedelta(milliseconds=1)) as watcher:
        for _ in range(n + 2):
            begun = time.perf_counter()
            (job,) = await door.enqueue("order", PAYLOAD)
            await watcher.wait_for(job)
            times.append(time.perf_counter() - begun)
    return times[2:]


async def result_latency(task: Task) -> dict[str, Any]:
    """W4: enqueue to completion, one after another on an idle system."""
    door = await queries(task)
    await start_worker(task)
    await enqueue(door, "order", 1)
    await until_finished(door, 1)
    return spread(await latency(task, min(task.n, 50)))


async def timers(task: Task) -> dict[str, Any]:
    """W5: many jobs to be executed after one instant."""
    door = await queries(task)
    await start_worker(task)
    begun = time.time()
    due = begun + task.lead
    for first in range(0, task.n, ENQUEUE_AT_ONCE):
        size = min(ENQUEUE_AT_ONCE, task.n - first)
        delay = timedelta(seconds=due - time.time())
        await door.enqueue(["sleeper"] * size, [b"1"] * size, [0] * size, [delay] * size)
    submitted = time.time() - begun
    await until_finished(door, task.n)
    return lags(due, wakes, submitted, time.time())


async def worker(task: Task) -> None:
    """A worker, until it is ended."""
    await queries(task)
    running = await start_worker(task)
    await asyncio.sleep(0.5)
    ready()
    await running


async def prepare(task: Task) -> None:
    """Create the schema."""
    await queries(task)


async def seed(task: Task) -> dict[str, Any]:
    """One waiting and one finished job, to be cloned for W6."""
    door = await queries(task)
    await start_worker(task)
    (done,) = await door.enqueue("order", PAYLOAD)
    await until_finished(door, 1)
    (waiting,) = await door.enqueue("order", PAYLOAD, execute_after=timedelta(days=365))
    return {"finished": str(done), "waiting": str(waiting)}


async def other_worker(task: Task) -> dict[str, Any]:
    """W10: enqueue by a client, run by another worker; rate, then latency on an idle system."""
    door = await queries(task)
    after = await last_logged(door)
    watch = Stopwatch()
    await enqueue(door, "order", task.n)
    await until_finished(door, task.n, after, local=False)
    return watch.rate(task.n, "processes") | spread(await latency(task, 30))


async def queued(task: Task) -> dict[str, Any]:
    """W11: the same as W10: a job is all there is to be queued, and its completion all that is answered."""
    answer = await other_worker(task)
    return answer | {"tasks_per_s": answer["processes_per_s"]}


if __name__ == "__main__":
    main(
        {
            "w1": throughput,
            "w4": result_latency,
            "w5": timers,
            "worker": worker,
            "prepare": prepare,
            "seed": seed,
            "w10": other_worker,
            "counter": worker,
            "w11": queued,
        }
    )
