"""The driver of DBOS: workflows in process (sync or async functions) or through its queue."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from dbos import DBOS, DBOSClient

from bench import payload
from bench.driver import Stopwatch, Task, gaps, lags, main, note_effect, ready, spread

QUEUE = "bench"
moments: list[float] = []


@DBOS.step()
def effect(work: dict[str, Any]) -> dict[str, Any]:
    """Do nothing, and say when."""
    moments.append(time.perf_counter())
    return payload.made(work["step"])


@DBOS.workflow()
def order(asked: dict[str, Any]) -> dict[str, Any]:
    """Run the steps one after another."""
    for i in range(asked["steps"]):
        effect(payload.work(i))
    return payload.outcome(asked["steps"])


@DBOS.step()
async def effect_async(work: dict[str, Any]) -> dict[str, Any]:
    """Do nothing, as an async function."""
    moments.append(time.perf_counter())
    return payload.made(work["step"])


@DBOS.workflow()
async def order_async(asked: dict[str, Any]) -> dict[str, Any]:
    """Run the steps one after another, as an async function."""
    for i in range(asked["steps"]):
        await effect_async(payload.work(i))
    return payload.outcome(asked["steps"])


@DBOS.step()
async def wake_time() -> float:
    """Say when the sleeper was awake."""
    return time.time()


@DBOS.workflow()
async def sleeper(due: float) -> float:
    """Sleep until the due time, then run one step."""
    await DBOS.sleep_async(due - time.time())
    return await wake_time()


@DBOS.step()
async def slow_effect(path: str, process: int, step: int, pause: float) -> int:
    """Make and note the effect, then take a while."""
    note_effect(path, process, step)
    await asyncio.sleep(pause)
    return step


@DBOS.workflow()
async def slow_order(path: str, process: int, steps: int, pause: float) -> int:
    """Run the slow steps one after another."""
    for i in range(steps):
        await slow_effect(path, process, i, pause)
    return steps


@DBOS.workflow()
def queued_effect(work: dict[str, Any]) -> dict[str, Any]:
    """Do nothing, in the queue."""
    return payload.made(work["step"])


@DBOS.workflow()
def queued_order(asked: dict[str, Any]) -> dict[str, Any]:
    """Have queued work done elsewhere, one piece after another."""
    for i in range(asked["steps"]):
        DBOS.enqueue_workflow(QUEUE, queued_effect, payload.work(i)).get_result()
    return payload.outcome(asked["steps"])


def launch(task: Task, queue: bool = False, executor: str = "local") -> None:
    """Start the engine with default settings, and its queue where the role needs it."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": task.url,
            "log_level": "ERROR",
            "application_version": "bench",
            "executor_id": executor,
        }
    )
    if not queue:
        DBOS.listen_queues([])
    DBOS.launch()
    if queue:
        DBOS.register_queue(QUEUE)


def client(task: Task) -> DBOSClient:
    """A client that runs no workflow itself."""
    return DBOSClient(system_database_url=task.url, application_name="bench")


def throughput(task: Task) -> dict[str, Any]:
    """W1 and W2: start all, then wait for all."""
    if task.variant == "queue":
        return through_queue(task)
    launch(task)
    DBOS.start_workflow(order, payload.asked(1)).get_result()
    if task.variant == "async":
        return asyncio.run(throughput_async(task))
    watch = Stopwatch()
    handles = [DBOS.start_workflow(order, payload.asked(task.steps)) for _ in range(task.n)]
    for handle in handles:
        handle.get_result()
    return watch.rate(task.n * (task.steps if task.steps > 1 else 1), "steps" if task.steps > 1 else "processes")


async def throughput_async(task: Task) -> dict[str, Any]:
    """W1 and W2 with async functions."""
    watch = Stopwatch()
    handles = [await DBOS.start_workflow_async(order_async, payload.asked(task.steps)) for _ in range(task.n)]
    await asyncio.gather(*(handle.get_result() for handle in handles))
    return watch.rate(task.n * (task.steps if task.steps > 1 else 1), "steps" if task.steps > 1 else "processes")


def through_queue(task: Task) -> dict[str, Any]:
    """W1 and W2 through the queue, in one OS process."""
    launch(task, queue=True)
    DBOS.enqueue_workflow(QUEUE, order, payload.asked(1)).get_result()
    watch = Stopwatch()
    handles = [DBOS.enqueue_workflow(QUEUE, order, payload.asked(task.steps)) for _ in range(task.n)]
    for handle in handles:
        handle.get_result()
    return watch.rate(task.n * (task.steps if task.steps > 1 else 1), "steps" if task.steps > 1 else "processes")


def step_latency(task: Task) -> dict[str, Any]:
    """W3: one workflow of many steps on an idle system."""
    launch(task)
    DBOS.start_workflow(order, payload.asked(20)).get_result()
    moments.clear()
    DBOS.start_workflow(order, payload.asked(task.n)).get_result()
    return spread(gaps(moments))


def result_latency(task: Task) -> dict[str, Any]:
    """W4: start to result, one after another on an idle system."""
    launch(task)
    times: list[float] = []
    for _ in range(task.n + 10):
        begun = time.perf_counter()
        DBOS.start_workflow(order, payload.asked(1)).get_result()
        times.append(time.perf_counter() - begun)
    return spread(times[10:])


async def timers(task: Task) -> dict[str, Any]:
    """W5: many sleepers due at one instant (asyncio sleeps in the process)."""
    launch(task)
    begun = time.time()
    due = begun + task.lead
    handles = [await DBOS.start_workflow_async(sleeper, due) for _ in range(task.n)]
    submitted = time.time() - begun
    wakes = await asyncio.gather(*(handle.get_result() for handle in handles))
    return lags(due, wakes, submitted, time.time())


def worker(task: Task) -> None:
    """A worker of the queue, until it is ended."""
    launch(task, queue=True, executor=f"worker-{os.getpid()}")
    ready()
    while True:
        time.sleep(3600)


def prepare(task: Task) -> None:
    """Create the schema and the queue."""
    launch(task, queue=True)


def seed(task: Task) -> dict[str, Any]:
    """One waiting and one finished workflow, to be cloned for W6."""
    launch(task, queue=True)
    finished = DBOS.start_workflow(order, payload.asked(1))
    finished.get_result()
    waiting = client(task).enqueue(
        {"queue_name": QUEUE, "workflow_name": "order", "delay_seconds": 365 * 86400.0, "app_version": "bench"},
        payload.asked(1),
    )
    time.sleep(1.5)
    return {"finished": finished.get_workflow_id(), "waiting": waiting.get_workflow_id()}


def submit(task: Task) -> dict[str, Any]:
    """W7: hand in the slow orders and leave."""
    door = client(task)
    begun = time.monotonic()
    for process in range(task.n):
        door.enqueue(
            {"queue_name": QUEUE, "workflow_name": "slow_order", "app_version": "bench"},
            task.effects,
            process,
            task.steps,
            task.pause,
        )
    return {"submit_s": time.monotonic() - begun}


def queued(task: Task) -> dict[str, Any]:
    """W11: work asked for by a workflow here and run by another worker through the queue; rate, then latency."""
    launch(task)
    DBOS.start_workflow(queued_order, payload.asked(1)).get_result()
    watch = Stopwatch()
    handles = [DBOS.start_workflow(queued_order, payload.asked(1)) for _ in range(task.n)]
    for handle in handles:
        handle.get_result()
    answer = watch.rate(task.n, "tasks")
    begun = time.perf_counter()
    DBOS.start_workflow(queued_order, payload.asked(10)).get_result()
    return answer | spread([(time.perf_counter() - begun) / 10])


def outcome(task: Task) -> dict[str, Any]:
    """How many workflows have a recorded result."""
    done = client(task).list_workflows(status="SUCCESS", load_input=False, load_output=False)
    return {"finished": len(done)}


def other_worker(task: Task) -> dict[str, Any]:
    """W10: start by a client, run by another worker; rate, then latency on an idle system."""
    door = client(task)
    options = {"queue_name": QUEUE, "workflow_name": "order", "app_version": "bench"}
    door.enqueue(options, payload.asked(1)).get_result(polling_interval_sec=0.02)
    watch = Stopwatch()
    handles = [door.enqueue(options, payload.asked(1)) for _ in range(task.n)]
    for handle in handles:
        handle.get_result(polling_interval_sec=0.02)
    answer = watch.rate(task.n, "processes")
    times: list[float] = []
    for _ in range(10):
        begun = time.perf_counter()
        door.enqueue(options, payload.asked(1)).get_result(polling_interval_sec=0.002)
        times.append(time.perf_counter() - begun)
    return answer | spread(times)


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
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
