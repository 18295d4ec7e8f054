"""Steps with a chain of thresholds, in every weather: as many attempts as it says, in its order, and then a person."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from perdure import Retry, attempt, step, workflow
from perdure.client.handle import Handle
from perdure.errors import ProcessBroken
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.retry import decode_attempt
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone

CHAIN = Retry(attempts=2, first=0.2, then=["alert", Retry(attempts=3, first=0.5, cap=1.0), "break"])
EXPECTED = [(1, 0, False), (2, 2, False), (3, 2, False), (4, 2, False), (5, 3, True)]
"""Number, stage and end of each attempt until the chain is at its end."""


class Line:
    """What is wrong with the line, until a person has mended it; ``most`` is the highest number of an attempt."""

    mended: ClassVar[set[int]] = set()
    most: ClassVar[int] = 0


@step(retry=CHAIN, timeout=20)
async def dial(number: int) -> int:
    Line.most = max(Line.most, attempt().number)
    await asyncio.sleep(0.1)
    if number not in Line.mended:
        raise ConnectionError("the line is dead")
    return number


@step(retry=Retry(attempts=40, first=0.2, cap=1.0), timeout=20)
async def wait(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@workflow
async def calling(number: int, beside: float) -> int:
    answers = await asyncio.gather(dial(number), wait(beside))
    return int(answers[0])


async def _broken(cluster: Cluster, handle: Handle[int]) -> None:
    """Wait until its chain has broken it; what the weather alone has parked is let go on."""
    while True:
        try:
            await handle.result()
        except ProcessBroken as error:
            row = await cluster.client.row(handle.id)
            if Failure.shown(row.error or b"").type == "RetriesSpent":
                return
            cluster.require("everything_ends", by_the_weather_alone(cluster, row), f"it is broken by {error}")
            await handle.retry(who="anna")


async def calls(cluster: Cluster) -> None:
    """Some processes whose lines are dead: each breaks at the end of its chain, and goes on once a line is mended."""
    Line.mended.clear()
    Line.most = 0
    numbers = range(cluster.pick((2, 1, 4)))
    handles = [await cluster.client.start(calling, number, cluster.pick((0.1, 3.0, 8.0))) for number in numbers]
    for number, handle in zip(numbers, handles, strict=True):
        await _broken(cluster, handle)
        row = await cluster.client.row(handle.id)
        events = await cluster.client.store.history(row.id, row.run)
        failed = [event for event in events if event.type is EventType.ATTEMPT_FAILED and event.name == dial.name]
        tried = [decode_attempt(event.payload or b"") for event in failed]
        resumed = any(event.type is EventType.RESUMED for event in events)  # then its last chain may have begun anew
        told = [(one.attempt, one.stage, one.breaks) for one in tried][-len(EXPECTED) :]
        cluster.require("retries_are_bounded", told == EXPECTED or resumed, f"{number} was tried as {told}")
        cluster.require("retries_are_bounded", len(tried) == len(EXPECTED) or resumed, f"{number}: {len(tried)} times")
        Line.mended.add(number)
        await handle.retry(who="anna")
    for number, handle in zip(numbers, handles, strict=True):
        while True:
            try:
                cluster.require("the_value_is_exact", await handle.result() == number, f"{number} got another answer")
                break
            except ProcessBroken as error:
                row = await cluster.client.row(handle.id)
                cluster.require("everything_ends", by_the_weather_alone(cluster, row), f"it is broken by {error}")
                await handle.retry(who="anna")
    cluster.require("retries_are_bounded", Line.most <= len(EXPECTED), f"an attempt has the number {Line.most}")
