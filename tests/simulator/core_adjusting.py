"""People give processes other versions of their code, other priorities and other deadlines, in every weather."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct, json

from perdure import Handle, step, workflow
from perdure.clock import SECOND
from perdure.errors import IllegalMove, StoreUnavailable
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.process import FINAL, Process, Status
from perdure.testing.simulator import Cluster
from tests.simulator.ending import LOOKS
from tests.simulator.misfortune import by_the_weather_alone

UNKNOWN = "3"
"""A version of the code that nobody hosts."""


@step(timeout=30)
async def carried(number: int, part: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return number + part


async def _freight(number: int, parts: int, seconds: float) -> int:
    total = 0
    for part in range(parts):
        total += await carried(number, part, seconds)
        await asyncio.sleep(seconds)
    return total


@workflow(name="freight", version="1")
async def freight(number: int, parts: int, seconds: float) -> list[str | int]:
    """Some parts, carried one after the other; the result says by which code."""
    return ["1", await _freight(number, parts, seconds)]


@workflow(name="freight", version="2")
async def freight_by_rail(number: int, parts: int, seconds: float) -> list[str | int]:
    """The same by newer code, which a history of the older one fits."""
    return ["2", await _freight(number, parts, seconds)]


class Load(Struct):
    """What the scenario knows of a freight: what people have asked for, and whether that is all known for sure."""

    number: int
    parts: int
    handle: Handle[list[str | int]]
    begins: int
    code: str = "1"
    priority: int = 4
    limited: bool = False
    sure: bool = True


async def adjustments(cluster: Cluster) -> None:
    """Some freights, of which a few begin later, and for each a person with wishes."""
    loads: list[Load] = []
    for number in range(cluster.pick((3, 1, 6))):
        parts, seconds, delay = cluster.pick((3, 1, 6)), cluster.pick((0.5, 0.1, 3.0)), cluster.pick((None, None, 6.0))
        begins = await cluster.client.store.now() + round((delay or 0.0) * SECOND)
        handle = await cluster.client.start(freight.options(delay=delay), number, parts, seconds)
        loads.append(Load(number, parts, handle, begins))
    await asyncio.gather(*(_adjusted(cluster, one) for one in loads))
    for one in loads:
        await _ended(cluster, one)


async def _adjusted(cluster: Cluster, one: Load) -> None:
    for _ in range(cluster.pick((2, 1, 4))):
        await asyncio.sleep(cluster.pick((0.0, 0.4, 1.5, 4.0)))
        wish = cluster.pick((_moved, _put_first, _bounded, _sent_nowhere))
        try:
            await wish(cluster, one)
        except StoreUnavailable:
            one.sure = False  # it may have been carried out
        except IllegalMove:
            cluster.probe("an adjustment was refused")
        else:
            cluster.probe("an adjustment was made")


async def _moved(cluster: Cluster, one: Load) -> None:
    code = "2" if one.code == "1" else "1"
    # Where no worker lives just now, nobody hosts it: whoever insists moves it all the same.
    await one.handle.move(code, force=bool(cluster.draw(2)), who="anna")
    one.code = code


async def _put_first(cluster: Cluster, one: Load) -> None:
    priority = cluster.pick(tuple(other for other in (0, 4, 9) if other != one.priority))
    await one.handle.set_priority(priority, who="anna")
    one.priority = priority


async def _bounded(cluster: Cluster, one: Load) -> None:
    seconds = cluster.pick((None, 2.0, 8.0, 500.0))
    one.limited |= seconds is not None and seconds < 500
    await one.handle.set_deadline(seconds, who="anna")


async def _sent_nowhere(cluster: Cluster, one: Load) -> None:
    await one.handle.move(UNKNOWN, who="anna")
    cluster.require("people_are_told_the_truth", False, f"{one.number} was moved to code that nobody hosts")


async def _ended(cluster: Cluster, one: Load) -> None:
    row = await _end(cluster, one)
    events = await one.handle.history()
    told = f"freight {one.number}"
    deadline = _deadline(events)
    if row.status is Status.FAILED:
        failure = Failure.shown(row.error or b"").type
        cluster.require("everything_ends", failure == "DeadlineExceeded" and one.limited, f"{told} failed: {failure}")
        late = next(event.at for event in events if event.type is EventType.EXPIRED)
        early = deadline is None or late < deadline
        cluster.require("deadlines_are_kept", not early, f"{told} failed at {late}, with the deadline {deadline}")
        cluster.probe("a process ran over the deadline that a person had set")
        return
    came = json.decode(row.result or b"null")
    exact = sum(one.number + part for part in range(one.parts))
    cluster.require("the_value_is_exact", came == [row.code, exact], f"{told} came as {came}, of the code {row.code}")
    first = next(event.at for event in events if event.type is EventType.STEP_COMPLETED)
    cluster.require("operators_use_the_front_door", first >= one.begins, f"{told} began before its time")
    if one.sure:
        stands = row.code, row.priority
        cluster.require("accepted_is_kept", stands == (one.code, one.priority), f"{told} has {stands}")


async def _end(cluster: Cluster, one: Load) -> Process:
    for _ in range(LOOKS):
        row = await cluster.client.row(one.handle.id_bytes)
        if row.status in FINAL:
            return row
        if row.status is Status.BROKEN:
            cluster.require("everything_ends", by_the_weather_alone(cluster, row), f"{one.number}: {row.error!r}")
            await one.handle.retry(who="anna")
        await asyncio.sleep(0.5)
    cluster.require("liveness", False, f"freight {one.number} does not end: it waits for {row.awaiting}")
    raise AssertionError


def _deadline(events: Sequence[Event]) -> int | None:
    """The deadline that was set last, by its event."""
    found: int | None = None
    for event in events:
        if event.type is EventType.DEADLINE_SET:
            found = json.decode(event.payload or b"{}")["to"]
    return found
