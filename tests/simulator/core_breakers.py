"""A bank that goes away and comes back, behind a circuit breaker that all workers share, in every weather."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import ClassVar

from perdure import Breaker, Retry, limits, step, workflow
from perdure.errors import Unavailable
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.swarm import DOORS, SCALES, Swarm
from perdure.testing.simulator.violation import Violation
from tests.simulator.misfortune import result_of

OPEN_SECONDS = 6.0
LOOKED_SECONDS = 3.5
"""A worker that nothing has struck may make attempts for so long after another one has opened the breaker, and until
it has asked the store and was answered.
"""
CLOSED_ATTEMPTS = 25
"""At most so many attempts find the bank away and the breaker closed; without a breaker there are hundreds."""
BACK_SECONDS = 400.0
"""So long after the storm, with the bank back, everything has ended."""

bank = Breaker("bank", failures=3, within=60, open_for=OPEN_SECONDS, factor=2, longest=24)


class Bank:
    """What the world knows of the bank, and of every attempt that has reached it."""

    cluster: ClassVar[Cluster]
    away: ClassVar[bool] = False
    closed: ClassVar[int] = 0
    probes: ClassVar[Counter[tuple[int, int]]] = Counter()

    @classmethod
    def opens(cls, cluster: Cluster) -> None:
        """A new history."""
        cls.cluster, cls.away, cls.closed = cluster, False, 0
        cls.probes.clear()

    @classmethod
    def reached(cls) -> None:
        """An attempt begins: what the store says of the breaker at this moment allows it."""
        cluster = cls.cluster
        connection = cluster.server.connection
        assert connection is not None
        now: int = connection.one("clock_mark")[0]
        row = connection.raw.execute(
            "SELECT state, since, until, opened, forced FROM circuit WHERE name = 'bank'"
        ).fetchone()
        state, since, until, opened, forced = row or ("closed", 0, None, 0, 0)
        cluster.probe(f"attempt while {state}")
        if not cls._calm():
            return
        ago = (now - since) / 1_000_000
        may = state != "open" and not (state == "half-open" and forced)
        barred = not may and (forced or (until or 0) > now) and ago > cls._looked()
        cls._require("breaker_bars", not barred, f"an attempt was made {ago:.1f} s after the breaker had opened")
        if state == "half-open":
            cls.probes[opened, until or 0] += 1
            number = cls.probes[opened, until or 0]
            cls._require("breaker_bars", number <= bank.probes, f"{number} probes were made at once")
        if cls.away and state == "closed" and not forced:
            cls.closed += 1
            cls._require("breaker_opens", cls.closed <= CLOSED_ATTEMPTS, "the bank is away, and it does not open")

    @classmethod
    def _require(cls, law: str, holds: object, text: str) -> None:
        """End the history unless it holds: raised by a step, a violation would be one more failed attempt."""
        if not holds:
            cls.cluster.loop.fail(Violation(law, text))

    @classmethod
    def _calm(cls) -> bool:
        """Whether nothing has struck the worker of this attempt, nor the clock, for a while: it knows what is so."""
        life = cls.cluster.loop.current()
        return cls.cluster.wall.steady and life.struck_at < cls.cluster.loop.now - cls._looked()

    @classmethod
    def _looked(cls) -> float:
        return LOOKED_SECONDS + 2 * max(cls.cluster.swarm.latencies)


@step(retry=Retry(attempts=500, first=0.2, cap=2.0), timeout=20, breaker=bank)
async def pay(number: int, telling: bool) -> int:
    Bank.reached()
    await asyncio.sleep(0.1)
    if Bank.away:
        raise Unavailable(retry_after=9) if telling else ConnectionError("nobody answers")
    return number


@step(retry=Retry(attempts=500, first=0.2, cap=2.0), timeout=20, breaker=bank, queue="tills")
async def pay_at_till(number: int, telling: bool) -> int:
    return await pay.function(number, telling)  # type: ignore[no-any-return]


@workflow
async def paying(number: int, times: int, telling: bool) -> int:
    paid = 0
    for _ in range(times):
        paid += await pay(number, telling)
        paid += await pay_at_till(number, telling)
        await asyncio.sleep(1)
    return paid


async def outages(cluster: Cluster) -> None:
    """The bank is away for a while, once or twice; perhaps a person opens the breaker meanwhile."""
    Bank.opens(cluster)
    before = limits.BREAKER_WAIT_SECONDS
    limits.BREAKER_WAIT_SECONDS = cluster.pick((60.0, 10.0))
    try:
        telling, times = cluster.pick((False, True)), cluster.pick((4, 2, 8))
        count = cluster.pick((4, 8, 12))
        handles = [await cluster.client.start(paying, number, times, telling) for number in range(count)]
        for _ in range(cluster.pick((1, 2))):
            await asyncio.sleep(cluster.pick((1, 3)))
            Bank.away, Bank.closed = True, 0
            await asyncio.sleep(cluster.pick((20, 5, 60)))
            Bank.away = False
            if cluster.chance(0.5):
                await cluster.client.breakers.open("bank", who="anna", why="the bank is moving")
                await asyncio.sleep(cluster.pick((8, 20)))
                await cluster.client.breakers.reset("bank", who="anna")
        cluster.heal()
        async with asyncio.timeout(BACK_SECONDS):
            for number, handle in enumerate(handles):
                paid = await result_of(cluster, handle)
                cluster.require("the_value_is_exact", paid == 2 * times * number, f"{number} has paid {paid}")
    except TimeoutError:
        cluster.require("everything_ends", False, f"the bank has been back for {BACK_SECONDS:g} s: {_left(cluster)}")
    finally:
        limits.BREAKER_WAIT_SECONDS = before


def _left(cluster: Cluster) -> str:
    return ", ".join(f"{row.status} ({row.awaiting})" for row in cluster.rows() if row.due_at is not None)


def weather(choices: Choices) -> Swarm:
    """Two histories of three are calm enough for the law, with workers that are killed in every second of these."""
    drawn = Swarm.drawn(choices)
    calm = replace(
        drawn, latencies=SCALES[0], faults={}, blows={}, cut=0.0, door=DOORS[0], conflict=0.0, refusals=0.0, skew=0.0
    )
    return choices.pick((calm, replace(calm, blows={"kill": 0.05}), drawn), "weather")


outages.weather = weather  # type: ignore[attr-defined]
