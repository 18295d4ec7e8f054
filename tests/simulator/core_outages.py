"""Holidays whose agency goes away and comes back: their kind, or its queue, is held, tried by canaries, and let go."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

from perdure import Retry, step, workflow
from perdure.client.handle import Handle
from perdure.errors import ProcessFailed
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.swarm import DOORS, SCALES, Swarm
from tests.simulator.misfortune import dismissed, result_of
from tests.simulator.outage_laws import OutageLaws

KINDS = ("holiday", "@agency")
"""What is held: a kind of process, or a queue."""
RULE = {"failures": 3, "within": 600, "open_for": 6.0, "longest": 24.0}
HELD_SECONDS = 60.0
"""In a calm history, and with the agency back for good, the kind is held for no longer than this."""
BACK_SECONDS = 600.0
"""So long after the storm, with the agency back, everything has ended."""


class AgencyClosed(Exception):
    """Nobody answers at the agency."""


class Agency:
    """What the world knows of the agency: whether it is away, since when it is so, and who has been there."""

    cluster: ClassVar[Cluster]
    away: ClassVar[bool] = False
    since: ClassVar[float] = 0.0
    refused: ClassVar[set[int]] = set()
    booked: ClassVar[Counter[int]] = Counter()

    @classmethod
    def opens(cls, cluster: Cluster) -> None:
        """A new history."""
        cls.cluster, cls.away, cls.since = cluster, False, 0.0
        cls.refused, cls.booked = set(), Counter()

    @classmethod
    def goes(cls, *, away: bool) -> None:
        """It goes away, or comes back."""
        cls.away, cls.since = away, cls.cluster.loop.now
        cls.cluster.note("the agency is away" if away else "the agency is back")

    @classmethod
    async def book(cls, number: int) -> int:
        """An attempt, which takes a moment."""
        await asyncio.sleep(0.1)
        if cls.away:
            cls.refused.add(number)
            raise AgencyClosed("nobody answers")
        cls.booked[number] += 1
        return number


@step(retry=Retry.NONE, timeout=20)
async def book(number: int) -> int:
    return await Agency.book(number)


@step(retry=Retry(attempts=3, first=4.0, cap=4.0), timeout=20)
async def book_patiently(number: int) -> int:
    return await Agency.book(number)


@step(retry=Retry.NONE, timeout=20, queue="agency")
async def book_at_desk(number: int) -> int:
    return await Agency.book(number)


@workflow
async def holiday(number: int, nights: int, pause: float, patient: bool) -> int:
    booked = 0
    for night in range(nights):
        if night:
            await asyncio.sleep(pause)
        booked += await (book_patiently if patient else book)(number)
    return booked


@workflow
async def trip(number: int, nights: int, pause: float, patient: bool) -> int:
    booked = 0
    for night in range(nights):
        if night:
            await asyncio.sleep(pause)
        booked += await book_at_desk(number)
    return booked


async def holidays(cluster: Cluster) -> None:
    """The agency is away for a while, once or twice, as holidays come; perhaps a person holds their kind meanwhile."""
    Agency.opens(cluster)
    kind = cluster.pick(KINDS)
    laws = OutageLaws(cluster, kind, lambda: Agency.since if Agency.away else None)
    nights = cluster.pick((1, 2, 3))
    given = nights, cluster.pick((1.0, 8.0)), bool(cluster.draw(2))
    count, pause = cluster.pick((16, 8, 32)), cluster.pick((0.5, 0.1, 2.0))
    coming = asyncio.create_task(_come(cluster, kind, count, pause, given))
    for _ in range(cluster.pick((1, 2))):
        await asyncio.sleep(cluster.pick((0.5, 3)))
        Agency.goes(away=True)
        await asyncio.sleep(cluster.pick((20, 5, 60)))
        Agency.goes(away=False)
        if cluster.chance(0.3):
            await cluster.client.outages.begin(kind, who="anna", why="the agency moves")
            await asyncio.sleep(cluster.pick((8, 20)))
            await cluster.client.outages.end(kind, who="anna")
            cluster.probe("a person has begun and ended an outage")
        await asyncio.sleep(cluster.pick((3, 20)))
    handles = await coming
    cluster.heal()
    held = asyncio.create_task(_held_no_longer(cluster, laws))
    try:
        async with asyncio.timeout(BACK_SECONDS):
            for number, handle in enumerate(handles):
                await _ends_well(cluster, number, handle, nights)
    except TimeoutError:
        left = ", ".join(f"{row.kind} {row.status}" for row in cluster.rows() if not row.final)
        cluster.require("everything_ends", False, f"the agency has been back for {BACK_SECONDS:g} s: {left}")
    finally:
        await dismissed(held)
    laws.told()


async def _come(
    cluster: Cluster, kind: str, count: int, pause: float, given: tuple[int, float, bool]
) -> list[Handle[int]]:
    """One after the other is started."""
    handles = []
    for number in range(count):
        booking = (holiday if kind == "holiday" else trip).options(key=f"{number}")
        handles.append(await cluster.client.start(booking, number, *given))
        await asyncio.sleep(pause)
    return handles


async def _ends_well(cluster: Cluster, number: int, handle: Handle[Any], nights: int) -> None:
    """Nothing is lost: each has all its nights, or has failed since the agency was away, and then a retry helps."""
    try:
        booked = await result_of(cluster, handle)
    except ProcessFailed as error:
        cluster.require("accepted_is_kept", number in Agency.refused, f"{number} has failed for no reason: {error}")
        await handle.retry(who="anna")
        booked = await result_of(cluster, handle)
    cluster.require("the_value_is_exact", booked == nights * number, f"{number} has booked {booked}")
    cluster.require("accepted_is_kept", Agency.booked[number] >= nights, f"{number}: {Agency.booked[number]} nights")


async def _held_no_longer(cluster: Cluster, laws: OutageLaws) -> None:
    """With the agency back for good an outage ends, if something waits that could try it."""
    waited = 0.0
    while True:
        await asyncio.sleep(1.0)
        waited = waited + 1.0 if laws.keeps_waiting() else 0.0
        if waited > HELD_SECONDS and cluster.wall.steady:
            laws.broken("outage_ends", f"{laws.kind} is held though what it needs has been back for {waited:g} s")


def weather(choices: Choices) -> Swarm:
    """Two histories of three are calm enough for all laws, with workers that are killed in every second of these.

    In every third history it is often the answer to what was written of an outage that is lost.
    """
    drawn = Swarm.drawn(choices)
    rule = {**RULE, "canaries": choices.pick((1, 2), "weather")}
    drawn = replace(drawn, options=replace(drawn.options, outages=dict.fromkeys(KINDS, rule)))
    calm = replace(
        drawn, latencies=SCALES[0], faults={}, blows={}, cut=0.0, door=DOORS[0], conflict=0.0, refusals=0.0, skew=0.0
    )
    chosen = choices.pick((calm, replace(calm, blows={"kill": 0.05}), drawn), "weather")
    return replace(chosen, door=choices.pick((chosen.door, chosen.door, ("records", "failed after", 0.3)), "door"))


holidays.weather = weather  # type: ignore[attr-defined]
