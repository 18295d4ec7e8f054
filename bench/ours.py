"""Our own driver: the same workloads on Perdure, over PostgreSQL or SQLite."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import Any

from msgspec import Raw, json

from bench import ours_payloads, ours_wakes, payload
from bench.driver import Role, Stopwatch, Task, gaps, lags, main, note_effect, ready, spread
from perdure import Engine, Handle, Search, now, step, workflow
from perdure.authoring.queue import Task as WaitingTask
from perdure.kernel.child import queue_kind
from perdure.kernel.commit import Start
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status

AT_ONCE = 1_000
YEAR_SECONDS = 365 * 86400.0
moments: list[float] = []


@step
async def effect(work: dict[str, Any]) -> dict[str, Any]:
    """Do nothing, and say when."""
    moments.append(time.perf_counter())
    return payload.made(work["step"])


@workflow
async def order(asked: dict[str, Any]) -> dict[str, Any]:
    """Run the steps one after another."""
    for i in range(asked["steps"]):
        await effect(payload.work(i))
    return payload.outcome(asked["steps"])


@step
async def wake_time() -> float:
    """Say when the sleeper was awake."""
    return time.time()


@workflow
async def sleeper(due: float) -> float:
    """Sleep until the due time, then run one step."""
    await asyncio.sleep(due - now().timestamp())
    return await wake_time()


@step
async def slow_effect(path: str, process: int, i: int, pause: float) -> int:
    """Make and note the effect, then take a while."""
    note_effect(path, process, i)
    await asyncio.sleep(pause)
    return i


@step(queue="bench")
async def queued_effect(work: dict[str, Any]) -> dict[str, Any]:
    """Do nothing, in a queue."""
    return payload.made(work["step"])


@workflow
async def queued_order(asked: dict[str, Any]) -> dict[str, Any]:
    """Have queued steps run elsewhere, one after another."""
    for i in range(asked["steps"]):
        await queued_effect(payload.work(i))
    return payload.outcome(asked["steps"])


@workflow
async def leaf(i: int) -> int:
    """Be a child, and nothing else."""
    return i


@workflow
async def family(size: int) -> int:
    """Ask for so many children at once."""
    return sum(await asyncio.gather(*(leaf.child(i) for i in range(size))))


@workflow
async def slow_order(path: str, process: int, steps: int, pause: float) -> int:
    """Run the slow steps one after another."""
    for i in range(steps):
        await slow_effect(path, process, i, pause)
    return steps


def engine(task: Task, work: bool = True) -> Engine:
    """The engine with default settings."""
    return Engine(task.url, work=work, migrate=True)


async def flood(door: Engine, task: Task, n: int, steps: int) -> None:
    """Start and await n processes, so many in flight at a time."""
    left = iter(range(n))

    async def one() -> None:
        for _ in left:
            await (await door.start(order, payload.asked(steps))).result()

    await asyncio.gather(*(one() for _ in range(min(task.in_flight, n))))


async def throughput(task: Task) -> dict[str, Any]:
    """W1 and W2: start to durable result, 2,000 in flight."""
    async with engine(task) as door:
        await flood(door, task, 100, 1)
        moments.clear()
        watch = Stopwatch()
        await flood(door, task, task.n, task.steps)
        return watch.rate(task.n * task.steps, "steps" if task.steps > 1 else "processes")


async def together(task: Task) -> dict[str, Any]:
    """W17: one of the engines that begin at one instant."""
    async with engine(task) as door:
        await flood(door, task, 100, 1)
        await asyncio.sleep(max(0.0, task.begin - time.time()))
        before = time.process_time()
        await flood(door, task, task.n, task.steps)
        return {"cpu_s": time.process_time() - before, "ended": time.time()}


async def at_once(task: Task) -> dict[str, Any]:
    """W18: the same one-step processes in a closed loop and by one call of start_many, each twice."""
    async with engine(task) as door:
        await flood(door, task, 100, 1)
        seconds = {"loop": 0.0, "many": 0.0}
        whole = Stopwatch()
        for way in ("loop", "many", "many", "loop"):
            begun = time.perf_counter()
            if way == "many":
                handles = await door.start_many(order, [(payload.asked(1),)] * task.n)
                await door.results(handles)
            else:
                await flood(door, task, task.n, 1)
            seconds[way] += time.perf_counter() - begun
        answer = whole.rate(4 * task.n, "all")
        loop, many = (2 * task.n / seconds[way] for way in ("loop", "many"))
        return answer | {"loop_per_s": loop, "processes_per_s": many, "ratio": many / loop}


async def step_latency(task: Task) -> dict[str, Any]:
    """W3: one process of many steps on an idle system."""
    async with engine(task) as door:
        await (await door.start(order, payload.asked(20))).result()
        moments.clear()
        await (await door.start(order, payload.asked(task.n))).result()
        return spread(gaps(moments))


async def measure_latency(door: Engine, n: int) -> list[float]:
    """Start to result, one after another."""
    times: list[float] = []
    for _ in range(n + 10):
        begun = time.perf_counter()
        await (await door.start(order, payload.asked(1))).result()
        times.append(time.perf_counter() - begun)
    return times[10:]


async def result_latency(task: Task) -> dict[str, Any]:
    """W4: start to result in one OS process, one after another on an idle system."""
    async with engine(task) as door:
        return spread(await measure_latency(door, task.n))


async def start_all(door: Engine, task: Task, calls: list[tuple[Any, ...]], kind: Any) -> list[Handle[Any]]:
    """Start many, a thousand at a time."""
    handles: list[Handle[Any]] = []
    for first in range(0, len(calls), AT_ONCE):
        handles += await door.start_many(kind, calls[first : first + AT_ONCE])
    return handles


async def timers(task: Task) -> dict[str, Any]:
    """W5: many sleepers due at one instant."""
    async with engine(task) as door:
        begun = time.time()
        due = begun + task.lead
        handles = await start_all(door, task, [(due,)] * task.n, sleeper)
        submitted = time.time() - begun
        wakes = await asyncio.gather(*(handle.result() for handle in handles))
        return lags(due, wakes, submitted, time.time())


async def counter(task: Task) -> None:
    """A worker that does nothing but serve the queue, until it is ended."""
    async with Engine(task.url, work=True, workflows=[], queues=["bench"]) as host:
        ready()
        await host.run()


async def queued(task: Task) -> dict[str, Any]:
    """W11: steps asked for here and run by another worker through a queue; rate, then latency on an idle system."""
    async with Engine(task.url, work=True, queues=[]) as door:
        left = iter(range(task.n))

        async def one() -> None:
            for _ in left:
                await (await door.start(queued_order, payload.asked(1))).result()

        await (await door.start(queued_order, payload.asked(20))).result()
        watch = Stopwatch()
        await asyncio.gather(*(one() for _ in range(min(task.in_flight, task.n))))
        answer = watch.rate(task.n, "tasks")
        await asyncio.sleep(3.0)
        return answer | spread([await _each(door, 10) for _ in range(30)])


async def _each(door: Engine, steps: int) -> float:
    """Seconds from asking for a queued step to its result, in a process of several."""
    begun = time.perf_counter()
    await (await door.start(queued_order, payload.asked(steps))).result()
    return (time.perf_counter() - begun) / steps


async def seed_task(task: Task) -> dict[str, Any]:
    """One task that waits in the queue for nobody in particular, to be cloned for W13."""
    async with engine(task, work=False) as door:
        waiting = WaitingTask("queued_effect", "bench/1", Raw(json.encode([payload.work(0)])))
        row = Process(door.machine.new_id(), queue_kind("bench"), None, json.encode(waiting))
        await door.store.start([Start(row)])
    return {"waiting": id_text(row.id)}


async def drain(task: Task) -> dict[str, Any]:
    """W13: claim and run n tasks of those that wait in the queue."""
    async with Engine(task.url, work=True, workflows=[], queues=["bench"]) as host:
        ended = host.telemetry.counters
        while not ended["completed"]:  # noqa: ASYNC110 - a counter tells nobody
            await asyncio.sleep(0.001)
        before, watch = ended["completed"], Stopwatch()
        while ended["completed"] - before < task.n:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return watch.rate(ended["completed"] - before, "tasks")


async def worker(task: Task) -> None:
    """A worker, until it is ended."""
    async with engine(task) as host:
        ready()
        await host.run()


async def prepare(task: Task) -> None:
    """Create the schema."""
    async with engine(task, work=False):
        pass


async def seed(task: Task) -> dict[str, Any]:
    """One waiting and one finished process, to be cloned for W6."""
    async with engine(task) as door:
        finished = await door.start(order, payload.asked(1))
        await finished.result()
        waiting = await door.start(sleeper, time.time() + YEAR_SECONDS)
        while (await door.row(waiting.id)).owner is not None:  # noqa: ASYNC110 - nobody tells of a release
            await asyncio.sleep(0.1)
    return {"finished": finished.id, "waiting": waiting.id}


async def submit(task: Task) -> dict[str, Any]:
    """W7: hand in the slow orders and leave."""
    async with engine(task, work=False) as door:
        begun = time.monotonic()
        calls = [(task.effects, process, task.steps, task.pause) for process in range(task.n)]
        await start_all(door, task, calls, slow_order)
        return {"submit_s": time.monotonic() - begun}


async def outcome(task: Task) -> dict[str, Any]:
    """How many processes have a recorded result."""
    async with engine(task, work=False) as door:
        counts = await door.count(Search(kind=slow_order.name, statuses=(Status.COMPLETED,)))
        return {"finished": sum(sum(by_status.values()) for by_status in counts.values())}


async def other_worker(task: Task) -> dict[str, Any]:
    """W10: start by a client, run by another worker; rate, then latency on an idle system."""
    async with engine(task, work=False) as door:
        await (await door.start(order, payload.asked(1))).result()
        watch = Stopwatch()
        handles = await start_all(door, task, [(payload.asked(1),)] * task.n, order)
        await asyncio.gather(*(handle.result() for handle in handles))
        answer = watch.rate(task.n, "processes")
        await asyncio.sleep(1.0)
        return answer | spread(await measure_latency(door, 100))


async def families(task: Task) -> dict[str, Any]:
    """W12: a parent with a tenth of the children, then one with all of them."""
    async with engine(task) as door:
        await (await door.start(family, 100)).result()
        rates: list[float] = []
        for size in (task.n // 10, task.n):
            watch = Stopwatch()
            assert await (await door.start(family, size)).result() == size * (size - 1) // 2
            answer = watch.rate(size, "children")
            rates.append(answer["children_per_s"])
        return answer | {"few_per_s": rates[0], "ratio": rates[1] / rates[0]}


def later(module: str, role: str) -> Role:
    """A role of another module, imported when it is run: other roles are run with older engines, which have less."""

    async def work(task: Task) -> dict[str, Any]:
        answer: dict[str, Any] = await getattr(import_module(f"bench.{module}"), role)(task)
        return answer

    return work


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
            "counter": counter,
            "w11": queued,
            "seed_task": seed_task,
            "w13": drain,
            "w12": families,
            "w15": ours_wakes.wakes,
            "w16": ours_payloads.payloads,
            "w17": together,
            "w17_calls": later("ours_machines", "calls_together"),
            "w18": at_once,
            "seed_wakes": ours_wakes.seed_wakes,
            "w19": ours_wakes.wakes_in_turn,
            "w20": later("ours_machines", "calls"),
            "seed_machine": later("ours_machines", "seed"),
            "w21": later("ours_machines", "schedules"),
            "seed_failed": later("ours_repair", "seed"),
            "w22_look": later("ours_repair", "look"),
            "w22_starts": later("ours_repair", "starts"),
            "w22": later("ours_repair", "operate"),
            "w22_half": later("ours_repair", "half"),
            "w22_verify": later("ours_repair", "verify"),
            "w23": later("ours_machines", "one_call"),
        }
    )
