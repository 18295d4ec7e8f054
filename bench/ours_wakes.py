"""W15 and W19 of our own driver: how long a process with a history takes to wake, and what that costs its worker.

Each process runs real steps, then waits for a signal. In W15 a signal is sent only to a process that its worker has let
go, so it is claimed each time; the processes are woken one at a time. In W19 very many are woken, none of which is in
memory.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench import payload
from bench.driver import Stopwatch, Task, note_effect
from perdure import Engine, Handle, Search, receive, step, workflow

ROUNDS = 2
LANES = 500  # signals of W19 under way at a time
PAGE = 1_000
BESIDE = 20  # steps of the history that run side by side, so that it is made in seconds
QUIET_SECONDS = 1.5
LET_GO_SECONDS = 60.0
AWAKE_SECONDS = 30.0
SETTLE_SECONDS = 0.02
SIZES = ("short", "middle", "long")


@step
async def past_effect(work: dict[str, Any]) -> dict[str, Any]:
    """Do nothing, and become history."""
    return payload.made(work["step"])


@step
async def wake_effect(path: str, process: int, wake: int) -> dict[str, Any]:
    """Note when the process was awake."""
    note_effect(path, process, wake)
    return payload.made(wake)


async def make_history(events: int) -> None:
    """So many steps, some of them side by side."""
    for first in range(0, events, BESIDE):
        await asyncio.gather(*(past_effect(payload.work(i)) for i in range(first, min(first + BESIDE, events))))


@workflow
async def patient(path: str, process: int, events: int) -> None:
    """Make a history of so many steps, then wait for signals; each is followed by one step."""
    await make_history(events)
    while True:
        wake = await receive("wake", dict[str, Any])
        await wake_effect(path, process, wake["wake"])


counted: list[int] = []  # the wakes of this OS process


@step
async def counted_effect(wake: int) -> dict[str, Any]:
    """Count the wake in this OS process."""
    counted.append(wake)
    return payload.made(wake)


@workflow
async def one_of_many(events: int) -> None:
    """Make a history of so many steps, then wait for signals; each is followed by one step."""
    await make_history(events)
    while True:
        await counted_effect((await receive("wake", dict[str, Any]))["wake"])


@dataclass
class Patients:
    """Processes with histories of one length, and what their wakes took: seconds, and the worker's CPU seconds."""

    events: int
    handles: dict[int, Handle[None]]
    latencies: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def wakes(task: Task) -> dict[str, Any]:
    """W15: a group of processes for each length of history, and one more to warm up, which does not count."""
    async with Engine(task.url, migrate=True) as door:
        lengths = [task.histories[0], *task.histories]
        groups = [await _start(door, task, group, events) for group, events in enumerate(lengths)]
        for group in groups:
            await _until_let_go(door, group, group.events)
        idle = await _idle_share(task)
        for group in groups:
            for number in range(ROUNDS):
                await _wake_all(door, task, group, number, idle)
        return answer(groups[1:])


async def _start(door: Engine, task: Task, group: int, events: int) -> Patients:
    numbers = range(group * task.n, (group + 1) * task.n)
    handles = await door.start_many(patient, [(task.effects, number, events) for number in numbers])
    return Patients(events, dict(zip(numbers, handles, strict=True)))


async def _until_let_go(door: Engine, group: Patients, events: int) -> list[int]:
    """Wait until no worker owns any of the rows, and each has so many events; answers how often each was claimed."""
    end = time.monotonic() + LET_GO_SECONDS
    tokens: list[int] = []
    for handle in group.handles.values():
        while True:
            row = await door.row(handle.id)
            if row.owner is None and row.events >= events and row.inbox == row.seen:
                tokens.append(row.token)
                break
            if time.monotonic() > end:
                raise TimeoutError(f"process {handle.id} has {row.events} events and was not let go")
            await asyncio.sleep(0.05)
    return tokens


async def _idle_share(task: Task) -> float:
    """The CPU seconds that the worker uses in a second in which nothing happens."""
    begun, cpu = time.monotonic(), _cpu(task.worker)
    await asyncio.sleep(QUIET_SECONDS)
    return (_cpu(task.worker) - cpu) / (time.monotonic() - begun)


async def _wake_all(door: Engine, task: Task, group: Patients, wake: int, idle: float) -> None:
    """Wake the processes one after another, then wait until all were let go, which counts as the worker's CPU too."""
    before = await _until_let_go(door, group, group.events + 2 * wake)
    begun, cpu = time.monotonic(), _cpu(task.worker)
    latencies = [await _wake(task, number, handle, wake) for number, handle in group.handles.items()]
    after = await _until_let_go(door, group, group.events + 2 * (wake + 1))
    spent = _cpu(task.worker) - cpu - idle * (time.monotonic() - begun)
    if any(late == early for early, late in zip(before, after, strict=True)):
        raise RuntimeError(f"a process with {group.events} events went on without being claimed: that is no wake")
    group.latencies += latencies
    group.cpu.append(spent / len(latencies))


async def _wake(task: Task, process: int, handle: Handle[None], wake: int) -> float:
    """Seconds from sending the signal to the first effect after it."""
    begun = time.monotonic()
    await handle.signal("wake", {"wake": wake})
    while (awake := noted(task.effects, process, wake)) is None:
        if time.monotonic() > begun + AWAKE_SECONDS:
            raise TimeoutError(f"process {handle.id} did not wake")
        await asyncio.sleep(0.002)
    await asyncio.sleep(SETTLE_SECONDS)
    return awake - begun


def noted(path: str, process: int, wake: int) -> float | None:
    """When the process noted this wake; None if it has not yet."""
    try:
        with open(path) as file:
            parts = [line.split() for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return None
    return next((float(part[3]) for part in parts if part[1:3] == [str(process), str(wake)]), None)


def _cpu(pid: int) -> float:
    """CPU seconds of another OS process, to the microsecond (Linux: the clock that clock_getcpuclockid names)."""
    return time.clock_gettime(~pid << 3 | 2)


def answer(groups: list[Patients]) -> dict[str, Any]:
    """The medians of each length, and the longest as a multiple of the shortest."""
    measured: dict[str, Any] = {"wakes": sum(len(group.latencies) for group in groups)}
    for name, group in zip(SIZES, groups, strict=True):
        measured |= {f"{name}_ms": median(group.latencies) * 1000, f"{name}_cpu_ms": median(group.cpu) * 1000}
    ratios = {f"ratio{what}": measured[f"long{what}_ms"] / measured[f"short{what}_ms"] for what in ("", "_cpu")}
    return measured | ratios


async def seed_wakes(task: Task) -> dict[str, Any]:
    """One process that waits after its history, to be cloned for W19."""
    async with Engine(task.url, work=True, migrate=True) as door:
        handle = await door.start(one_of_many, task.histories[0])
        await _until_let_go(door, Patients(task.histories[0], {0: handle}), task.histories[0])
    return {"waiting": handle.id}


async def wakes_in_turn(task: Task) -> dict[str, Any]:
    """W19: a signal for each of very many processes; the engine is client and worker in one."""
    async with Engine(task.url, work=True) as door:
        ids = await _all_ids(door)
        watch = Stopwatch()
        left = iter(ids)

        async def one() -> None:
            for id in left:
                await door.process(id).signal("wake", {"wake": 0})

        await asyncio.gather(*(one() for _ in range(LANES)))
        while len(counted) < len(ids):  # noqa: ASYNC110 - a list tells nobody
            await asyncio.sleep(0.005)
        return watch.rate(len(ids), "wakes")


async def _all_ids(door: Engine) -> list[str]:
    ids: list[str] = []
    page = Search(kind=one_of_many.name, limit=PAGE)
    while rows := await door.list(page):
        ids += [row.id for row in rows]
        page = Search(kind=one_of_many.name, limit=PAGE, before_id=bytes.fromhex(rows[-1].id.replace("-", "")))
    return ids
