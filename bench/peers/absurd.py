"""The driver of Absurd: tasks in PostgreSQL, run by polling workers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd

from bench import payload
from bench.driver import Stopwatch, Task, gaps, lags, main, note_effect, ready, spread

QUEUE = "bench"
ASKING = "asking"
LOOPS = 2
CONCURRENCY = 64
NOTHING = "00000000-0000-0000-0000-000000000000"
moments: list[float] = []
wakes: list[float] = []
made = 0


async def order(params: Any, ctx: Any) -> dict[str, Any]:
    """Run the steps one after another."""
    global made

    async def effect() -> dict[str, Any]:
        moments.append(time.perf_counter())
        return payload.made(i)

    for i in range(params["steps"]):
        await ctx.step(f"effect-{i}", effect)
    made += 1
    return payload.outcome(params["steps"])


async def sleeper(params: Any, ctx: Any) -> int:
    """Sleep until the due time, then run one step."""
    global made
    await ctx.sleep_until("due", params["due"])

    async def wake_time() -> float:
        wakes.append(time.time())
        return wakes[-1]

    await ctx.step("wake", wake_time)
    made += 1
    return 1


async def slow_order(params: Any, ctx: Any) -> int:
    """Run the slow steps one after another."""
    for i in range(params["steps"]):

        async def effect(i: int = i) -> int:
            note_effect(params["path"], params["process"], i)
            await asyncio.sleep(params["pause"])
            return i

        await ctx.step(f"effect-{i}", effect)
    return int(params["steps"])


async def queued_order(params: Any, ctx: Any) -> dict[str, Any]:
    """Have queued work done elsewhere, one piece after another."""
    for i in range(params["steps"]):

        async def ask() -> str:
            assert asker is not None
            spawned = await asker.spawn("order", payload.asked(1), queue=QUEUE)
            return str(spawned["task_id"])

        task_id = await ctx.step(f"ask-{i}", ask)
        await ctx.await_task_result(task_id, queue_name=QUEUE, step_name=f"answer-{i}")
    return payload.outcome(params["steps"])


asker: AsyncAbsurd | None = None


def install(task: Task) -> None:
    """Apply the schema that ships with absurdctl and make the queue, if they are not there."""
    with psycopg.connect(task.url, autocommit=True) as connection:
        there = connection.execute("SELECT to_regnamespace('absurd') IS NOT NULL").fetchone()
        if there and there[0]:
            return
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        for queue in (QUEUE, ASKING):
            connection.execute("SELECT absurd.create_queue(%s)", (queue,))


def app(task: Task, queue: str = QUEUE) -> AsyncAbsurd:
    """A client with the tasks registered, on a connection of its own."""
    one = AsyncAbsurd(task.url, queue_name=queue)
    for handler in (order, sleeper, slow_order, queued_order):
        one.register_task(name=handler.__name__)(handler)
    return one


def start_workers(task: Task, loops: int = LOOPS) -> list[asyncio.Task[None]]:
    """Worker loops with default polling and claim timeout."""
    return [asyncio.create_task(app(task).start_worker(concurrency=CONCURRENCY)) for _ in range(loops)]


async def until_completed(task: Task, n: int, after: str = NOTHING, local: bool = True, queue: str = QUEUE) -> None:
    """Wait until so many tasks above an id are recorded as completed (ids are in the order of time)."""
    counted = f"SELECT count(*) FROM absurd.t_{queue} WHERE task_id > %s::uuid AND state = 'completed'"
    connection = await psycopg.AsyncConnection.connect(task.url, autocommit=True)
    while True:
        if made >= n or not local:
            rows = await connection.execute(counted, (after,))
            row = await rows.fetchone()
            if row and row[0] >= n:
                await connection.close()
                return
        await asyncio.sleep(0.005 if local else 0.02)


async def spawn_now(door: AsyncAbsurd) -> str:
    """Run one order and give its id, above which the ids of all later tasks are."""
    spawned = await door.spawn("order", payload.asked(1))
    await door.await_task_result(spawned["task_id"])
    await asyncio.sleep(0.01)
    return str(spawned["task_id"])


async def throughput(task: Task) -> dict[str, Any]:
    """W1 and W2: spawn all while the workers run."""
    global made
    install(task)
    start_workers(task)
    door = app(task)
    after = await spawn_now(door)
    made = 0
    watch = Stopwatch()
    for _ in range(task.n):
        await door.spawn("order", payload.asked(task.steps))
    await until_completed(task, task.n, after)
    return watch.rate(task.n * (task.steps if task.steps > 1 else 1), "steps" if task.steps > 1 else "processes")


async def step_latency(task: Task) -> dict[str, Any]:
    """W3: one task of many steps on an idle system."""
    install(task)
    start_workers(task, 1)
    await app(task).spawn("order", payload.asked(task.n))
    await until_completed(task, 1)
    return spread(gaps(moments))


async def result_latency(task: Task) -> dict[str, Any]:
    """W4: start to result, one after another on an idle system, with default polling."""
    install(task)
    start_workers(task, 1)
    door = app(task)
    times: list[float] = []
    for _ in range(min(task.n, 30) + 2):
        begun = time.perf_counter()
        spawned = await door.spawn("order", payload.asked(1))
        await door.await_task_result(spawned["task_id"])
        times.append(time.perf_counter() - begun)
    return spread(times[2:])


async def timers(task: Task) -> dict[str, Any]:
    """W5: many sleepers due at one instant."""
    install(task)
    start_workers(task)
    door = app(task)
    begun = time.time()
    due = begun + task.lead
    for _ in range(task.n):
        await door.spawn("sleeper", {"due": due})
    submitted = time.time() - begun
    await until_completed(task, task.n)
    return lags(due, wakes, submitted, time.time())


async def worker(task: Task) -> None:
    """A worker, until it is ended."""
    install(task)
    running = start_workers(task)
    await asyncio.sleep(0.5)
    ready()
    await asyncio.gather(*running)


def prepare(task: Task) -> None:
    """Create the schema and the queue."""
    install(task)


async def seed(task: Task) -> dict[str, Any]:
    """One waiting and one finished task, to be cloned for W6."""
    install(task)
    start_workers(task, 1)
    door = app(task)
    finished = await door.spawn("order", payload.asked(1))
    waiting = await door.spawn("sleeper", {"due": time.time() + 365 * 86400.0})
    await until_completed(task, 1)
    await asyncio.sleep(1.0)
    return {"finished": str(finished["task_id"]), "waiting": str(waiting["task_id"])}


async def submit(task: Task) -> dict[str, Any]:
    """W7: hand in the slow orders and leave."""
    door = app(task)
    begun = time.monotonic()
    for process in range(task.n):
        await door.spawn(
            "slow_order", {"path": task.effects, "process": process, "steps": task.steps, "pause": task.pause}
        )
    return {"submit_s": time.monotonic() - begun}


def outcome(task: Task) -> dict[str, Any]:
    """How many tasks have a recorded result."""
    with psycopg.connect(task.url) as connection:
        row = connection.execute(f"SELECT count(*) FROM absurd.t_{QUEUE} WHERE state = 'completed'").fetchone()
    return {"finished": row[0] if row else 0}


async def other_worker(task: Task) -> dict[str, Any]:
    """W10: start by a client, run by another worker; rate, then latency on an idle system."""
    door = app(task)
    after = await spawn_now(door)
    watch = Stopwatch()
    for _ in range(task.n):
        await door.spawn("order", payload.asked(1))
    await until_completed(task, task.n, after, local=False)
    answer = watch.rate(task.n, "processes")
    times: list[float] = []
    for _ in range(20):
        begun = time.perf_counter()
        spawned = await door.spawn("order", payload.asked(1))
        await door.await_task_result(spawned["task_id"])
        times.append(time.perf_counter() - begun)
    return answer | spread(times)


async def queued(task: Task) -> dict[str, Any]:
    """W11: work asked for by a task here and run by another worker through its queue; rate, then latency."""
    global asker
    asker, door = app(task), app(task, ASKING)
    for _ in range(LOOPS):
        running.add(asyncio.create_task(app(task, ASKING).start_worker(concurrency=CONCURRENCY)))

    async def one(steps: int) -> None:
        spawned = await door.spawn("queued_order", payload.asked(steps))
        await door.await_task_result(spawned["task_id"])

    await one(1)
    watch = Stopwatch()
    for _ in range(task.n):
        await door.spawn("queued_order", payload.asked(1))
    await until_completed(task, task.n + 1, local=False, queue=ASKING)
    answer = watch.rate(task.n, "tasks")
    begun = time.perf_counter()
    await one(5)
    return answer | spread([(time.perf_counter() - begun) / 5])


running: set[asyncio.Task[None]] = set()

if __name__ == "__main__":
    main(
        {
            "w1": throughput,
            "w2": throughput,
            "w3": step_latency,
            "w4": result_latency,
            "w5": timers,
            "worker": worker,
            "prepare": prepare,
            "seed": seed,
            "submit": submit,
            "outcome": outcome,
            "w10": other_worker,
            "counter": worker,
            "w11": queued,
        }
    )
