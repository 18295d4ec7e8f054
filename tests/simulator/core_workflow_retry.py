"""Workflows that are tried again, in every weather: as many runs as the policy says, at their times, and one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure import Retry, attempt, receive, step, workflow
from perdure.client.handle import Handle
from perdure.errors import ProcessBroken, ProcessFailed
from perdure.kernel.child import begun
from perdure.kernel.event import DELIVERED, Event, EventType
from perdure.kernel.retry import decode_attempt
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone

ATTEMPTS = 3
PATIENT = Retry(attempts=40, first=0.2, cap=1.0)
TRIES: dict[int, list[str]] = {}
"""The keys under which each errand has reported an attempt, in their order."""
HELD: dict[int, set[str]] = {}
"""What each errand holds: the runs whose undo has not run."""


@step(retry=PATIENT, timeout=20)
async def let_go(number: int, result: str | None) -> None:
    HELD[number].clear()


@step(retry=PATIENT, timeout=20, undo=let_go)
async def hold(number: int) -> str:
    HELD[number].add(attempt().idempotency_key.split("/")[1])
    await asyncio.sleep(0.1)
    return "held"


@step(retry=PATIENT, timeout=20)
async def report(number: int) -> tuple[int, int]:
    """Which attempt this is, and how many runs hold something now."""
    key = attempt().idempotency_key
    if key not in TRIES[number]:
        TRIES[number].append(key)
    await asyncio.sleep(0.1)
    return TRIES[number].index(key) + 1, len(HELD[number])


@workflow(retry=Retry(attempts=ATTEMPTS, first=2.0, factor=2.0))
async def errand(number: int, failures: int) -> str:
    await hold(number)
    tries, held = await report(number)
    if held > 1:
        return "an attempt has begun before the one before it was undone"
    word = await receive("word", str)
    if tries <= failures:
        raise ConnectionError(f"attempt {tries}")
    return f"{word} at {tries}"


@workflow
async def asking(number: int, failures: int) -> str:
    try:
        return await errand.child(number, failures)
    except ProcessFailed as error:
        return error.detail


async def _answer(cluster: Cluster, handle: Handle[str]) -> str:
    """The one answer of a process; what the weather alone has parked is let go on."""
    while True:
        try:
            return await handle.result()
        except ProcessFailed as error:
            return error.detail
        except ProcessBroken as error:
            row = await cluster.client.row(handle.id)
            cluster.require("everything_ends", by_the_weather_alone(cluster, row), f"it is broken by {error}")
            await handle.retry(who="anna")


async def _errand(cluster: Cluster, handle: Handle[str]) -> Handle[str]:
    """The errand: this process, or the child that it has started."""
    while (await cluster.client.row(handle.id)).kind == asking.name:
        for event in await handle.history():
            if event.type is EventType.CHILD_STARTED:
                return cluster.client.process(begun(event).id)
        await asyncio.sleep(0.2)
    return handle


def _waited(events: Sequence[Event]) -> bool:
    """Whether nothing of an attempt has happened before its time."""
    at = decode_attempt(events[1].payload or b"").retry_at
    return all(event.at >= at for event in events if event.type in DELIVERED)


async def errands(cluster: Cluster) -> None:
    """Some errands that fail so often, with a parent or without: each answers once, after as many runs as it may."""
    TRIES.clear()
    HELD.clear()
    for number in range(cluster.pick((2, 1, 4))):
        TRIES[number], HELD[number] = [], set()
    await asyncio.gather(*(_run(cluster, number) for number in TRIES))


async def _run(cluster: Cluster, number: int) -> None:
    failures = cluster.pick((1, 0, 2, ATTEMPTS))
    handle: Handle[str] = await cluster.client.start(cluster.pick((errand, asking)), number, failures)
    mine = await _errand(cluster, handle)
    await asyncio.sleep(cluster.pick((0.0, 1.0, 4.0)))
    await mine.signal("word", "go", key="word")
    for _ in range(cluster.pick((0, 3))):  # letters that come in the wait do not hasten the next attempt
        await asyncio.sleep(1.5)
        await mine.signal("beside")
    await _answer(cluster, mine)
    answer = await _answer(cluster, handle)
    runs = min(failures + 1, ATTEMPTS)
    expected = f"go at {runs}" if failures < ATTEMPTS else f"attempt {ATTEMPTS}"
    cluster.require("the_value_is_exact", answer == expected, f"{number} came to {answer!r}, not to {expected!r}")
    cluster.require("retries_are_bounded", len(TRIES[number]) == runs, f"{number} was tried as {TRIES[number]}")
    row = await cluster.client.row(mine.id)
    cluster.require("retries_are_bounded", row.run == runs, f"{number} has ended in run {row.run}, not {runs}")
    for run in range(2, row.run + 1):
        events = await cluster.client.store.history(row.id, run)
        cluster.require("no_early_timer", _waited(events), f"run {run} of {number} has begun before its time")
    cluster.require("effect_once", len(HELD[number]) == (failures < ATTEMPTS), f"{number} holds {HELD[number]}")
